"""The modules load the state of those they stand for, and compute the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tigon.nn import CrossEntropyLoss, LayerNorm, LinearCrossEntropyLoss, RMSNorm, SwiGLUMLP

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def randomised(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (nn.LayerNorm(24), LayerNorm(24)),
        (nn.LayerNorm(24, bias=False), LayerNorm(24, bias=False)),
        (nn.RMSNorm(24, eps=1e-6), RMSNorm(24)),
        (nn.RMSNorm(24, eps=1e-6), RMSNorm(24, casting="gemma")),
    ],
)
def test_norms(theirs, ours):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 24)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)  # as they are born
    ours.load_state_dict(randomised(theirs).state_dict())
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)
    upstream = torch.randn_like(x)
    for each in (ours, theirs):
        each.zero_grad()
        each(x).backward(upstream)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, **CLOSE)


def test_gemma_norm_is_born_neutral():
    norm = RMSNorm(24, weight_offset=1.0, casting="gemma")
    assert norm.weight.abs().max() == 0
    x = torch.randn(4, 24)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (24,), eps=1e-6), **CLOSE)
    assert "weight_offset=1.0" in repr(norm)


def test_dtype_and_device_are_taken():
    for module in (RMSNorm(8, dtype=torch.bfloat16, device="meta"), LayerNorm(8, dtype=torch.bfloat16, device="meta")):
        assert all(p.dtype is torch.bfloat16 and p.is_meta for p in module.parameters())


def test_mlp_loads_llamas():
    transformers = pytest.importorskip("transformers")
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    torch.manual_seed(0)
    theirs = modeling.LlamaMLP(transformers.LlamaConfig(hidden_size=16, intermediate_size=24, num_attention_heads=2))
    ours = SwiGLUMLP(16, 24)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)


def test_losses():
    torch.manual_seed(0)
    x, weight, bias, labels = (
        torch.randn(6, 8),
        torch.randn(11, 8),
        torch.randn(11),
        torch.tensor([1, 2, -100, 3, 4, 10]),
    )
    logits = F.linear(x, weight, bias)
    expected = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")
    options = {"label_smoothing": 0.1, "reduction": "sum"}
    torch.testing.assert_close(CrossEntropyLoss(**options)(logits, labels), expected, **CLOSE)
    torch.testing.assert_close(LinearCrossEntropyLoss(**options)(x, weight, labels, bias), expected, **CLOSE)
    assert "label_smoothing=0.1" in repr(CrossEntropyLoss(**options))
