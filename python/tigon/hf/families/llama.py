"""Llama 1 to 3, and whatever else is saved as `LlamaForCausalLM` (SmolLM2, Yi, TinyLlama, ...)."""

from tigon.hf.family import Family
from tigon.hf.parts import CausalLM, GatedMLP, RMSNorm, Rotary

LLAMA = Family(
    name="llama",
    module="transformers.models.llama.modeling_llama",
    parts=(
        RMSNorm("LlamaRMSNorm"),
        Rotary("LlamaAttention"),
        GatedMLP("LlamaMLP"),
        CausalLM("LlamaForCausalLM"),
    ),
)
