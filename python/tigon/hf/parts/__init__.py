"""The kinds of row that a family's table may have."""

from tigon.hf.parts.causal_lm import CausalLM
from tigon.hf.parts.gated_mlp import GatedMLP
from tigon.hf.parts.rms_norm import RMSNorm
from tigon.hf.parts.rotary import Rotary

__all__ = ["CausalLM", "GatedMLP", "RMSNorm", "Rotary"]
