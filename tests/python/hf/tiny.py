"""Tiny random models, the batch they are asked about, and how two models are compared."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

IDS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
EAGER_LOSS = 4.1734  # of tiny() on IDS

V5 = int(transformers.__version__.split(".")[0]) >= 5
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}


def tiny(**changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes}))


def tiny_qwen2(**changes: Any) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**{**SHAPE, **changes}))


FAMILIES: dict[str, Callable[..., Any]] = {"llama": tiny, "qwen2": tiny_qwen2}


def twin(model: nn.Module) -> Any:
    """The same model, to be left unpatched."""
    return copy.deepcopy(model)


def batch(device: torch.device | str = "cpu", ids: Tensor = IDS) -> dict[str, Tensor]:
    return {"input_ids": ids.to(device), "labels": ids.to(device)}


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same_gradients(model: nn.Module, reference: nn.Module, **tolerance: float) -> None:
    expected = gradients(reference)
    for name, gradient in gradients(model).items():
        if expected[name] is None:
            assert gradient is None, name
        else:
            assert gradient is not None, name
            torch.testing.assert_close(
                gradient, expected[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}"
            )
