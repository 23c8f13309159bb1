"""RoPE: the attention forward is rebuilt around our rotation, decorators and all."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from torch import nn
from transformers import DynamicCache
from transformers.models.llama import modeling_llama

import tigon
from hf.tiny import FAMILIES, IDS, batch, tiny, twin
from tigon.hf.parts import Rotary
from tigon.hf.report import PatchReport, Tally

PARAMETERS = inspect.signature(modeling_llama.LlamaAttention.forward).parameters
CACHE = "cache" if "cache" in PARAMETERS else "past_key_values"
# The name that this version still takes for it: by a decorator, or not at all (5.6 to 5.19).
DEPRECATED = {"cache": "past_key_values", "past_key_values": "past_key_value"}[CACHE]
DECORATED = hasattr(modeling_llama.LlamaAttention.forward, "__wrapped__")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_three_calls_and_equal_logits(family, attention):
    model = FAMILIES[family](attn_implementation=attention)
    reference = twin(model)
    report = tigon.patch(model, rope=True)
    torch.testing.assert_close(model(input_ids=IDS).logits, reference(input_ids=IDS).logits, rtol=1e-5, atol=1e-6)
    assert report.calls["rope"] == 3


@pytest.mark.parametrize(
    "name", [CACHE, pytest.param(DEPRECATED, marks=pytest.mark.skipif(not DECORATED, reason="bare"))]
)
def test_one_token_through_attention_fills_the_cache(name):
    model = tiny()
    report = tigon.patch(model)
    attention, cache = model.model.layers[0].self_attn, DynamicCache()
    hidden, ones = torch.randn(1, 1, 32), torch.ones(1, 1, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attention(hidden_states=hidden, position_embeddings=(ones, ones), attention_mask=None, **{name: cache})
    assert cache.get_seq_length() == 1
    assert report.calls["rope"] == 1


def test_the_deprecated_name_still_warns():
    if not DECORATED:
        pytest.skip("attention is not decorated in this version")
    model = tiny()
    tigon.patch(model)
    kwargs = {"hidden_states": torch.randn(1, 1, 32), "position_embeddings": (torch.ones(1, 1, 8),) * 2}
    original = modeling_llama.LlamaAttention.forward
    for forward in (model.model.layers[0].self_attn.forward, original.__get__(model.model.layers[0].self_attn)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            forward(**kwargs, attention_mask=None, **{DEPRECATED: None})
        told = [str(warning.message) for warning in seen if DEPRECATED in str(warning.message)]
        assert len(told) == 1


def test_with_package_kernels_rotation_is_a_module(monkeypatch):
    """Package `kernels` turns the function into a module around it (transformers 5.19)."""
    original = modeling_llama.apply_rotary_pos_emb
    if isinstance(original, nn.Module):
        pytest.skip("the real thing is installed: every other test covers it")

    def as_module(func):
        class Func(nn.Module):
            def forward(self, *args, **kwargs):
                return func(*args, **kwargs)

        return Func()

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", as_module(original))
    model = tiny()
    report = tigon.patch(model, rope=True)
    model(**batch())
    assert report.calls["rope"] == 3


def test_another_rotation_is_left_alone(monkeypatch):
    def interleaved(q, k, cos, sin, unsqueeze_dim=1):
        return q[..., ::2].repeat_interleave(2, -1) * cos, k

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", interleaved)
    report = tigon.patch(tiny())
    (row,) = [row for row in report.rows if row.part == "rope"]
    assert row.reason == "apply_rotary_pos_emb does something unknown: repeat_interleave"


def test_more_arguments_than_known_go_to_the_model(monkeypatch):
    """An attention that passes more than q, k, cos, sin."""
    scope = {"apply_rotary_pos_emb": modeling_llama.apply_rotary_pos_emb}
    exec("def forward(self, q, k, cos, sin):\n    return apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=2)", scope)
    report = PatchReport()
    ours = Rotary("LlamaAttention").build(scope["forward"], Tally(report, "rope", by_name=False))
    q, k, cos, sin = torch.randn(1, 3, 4, 8), torch.randn(1, 3, 2, 8), torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    for mine, theirs in zip(ours(None, q, k, cos, sin), scope["forward"](None, q, k, cos, sin), strict=True):
        assert torch.equal(mine, theirs)
    assert report.fallbacks["rope"] == {"it was called with more than q, k, cos, sin": 1}


def test_one_kv_head_is_rotated():
    model = tiny(num_key_value_heads=1)
    reference = twin(model)
    tigon.patch(model, rope=True)
    torch.testing.assert_close(model(input_ids=IDS).logits, reference(input_ids=IDS).logits, rtol=1e-5, atol=1e-6)
