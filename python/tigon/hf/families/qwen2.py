"""Qwen1.5, Qwen2, Qwen2.5 and whatever else is saved as `Qwen2ForCausalLM`."""

from tigon.hf.family import Family
from tigon.hf.parts import CausalLM, GatedMLP, RMSNorm, Rotary

QWEN2 = Family(
    name="qwen2",
    module="transformers.models.qwen2.modeling_qwen2",
    parts=(
        RMSNorm("Qwen2RMSNorm"),
        Rotary("Qwen2Attention"),
        GatedMLP("Qwen2MLP"),
        CausalLM("Qwen2ForCausalLM"),
    ),
)
