"""torch.compile of a patched model: one graph, few compilations, and a report that costs none."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tigon
from hf.tiny import EAGER_LOSS, FAMILIES, IDS, assert_same_gradients, batch, tiny, twin
from tigon.hf import Unsupported


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("family", FAMILIES)
def test_one_graph_and_at_most_two_compilations_over_three_lengths(family, device):
    model = FAMILIES[family](num_hidden_layers=1).to(device)
    reference = twin(model)
    report = tigon.patch(model)
    # What users get, where its compilations do not take minutes.
    counter = CompileCounterWithBackend("inductor" if device == "cuda" else "aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for length in (8, 12, 23):
        ids = torch.arange(2 * length, device=device).view(2, length) % 64
        loss = compiled(**batch(device, ids)).loss
        expected = reference(**batch(device, ids)).loss
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
        loss.backward()
        expected.backward()
    assert_same_gradients(model, reference, rtol=1e-4, atol=1e-5)
    assert counter.frame_count <= 2
    assert report.calls.total() == 0
    assert report.compiled["loss"] == counter.frame_count
    assert report.compiled["rms_norm"] == 3 * counter.frame_count
    assert "traced into compiled graphs" in str(report)
    report.require()


def test_counting_costs_no_compilation():
    model = tiny()
    report = tigon.patch(model)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for _ in range(12):
        assert compiled(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        model(**batch())  # eager calls count on between them
    assert counter.frame_count == 1
    assert report.calls["rms_norm"] == 12 * 7
    assert report.compiled["rms_norm"] == 7


def test_fallback_is_noted_once_per_graph():
    model = tiny(num_hidden_layers=1).double()
    report = tigon.patch(model)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for _ in range(3):
        compiled(**batch())
    assert counter.frame_count == 1
    assert report.fallbacks["rms_norm"] == {"dtype float64": 3}
    with pytest.raises(Unsupported, match="dtype float64"):
        report.require("rms_norm")


@pytest.mark.parametrize("how", ["wrapper", "in place"])
def test_patch_and_unpatch_reach_a_model_that_has_already_run_compiled(how):
    model = tiny(num_hidden_layers=1)
    counter = CompileCounterWithBackend("eager")
    if how == "wrapper":
        compiled = torch.compile(model, backend=counter)
    else:
        model.compile(backend=counter)
        compiled = model
    compiled(**batch())
    report = tigon.patch(compiled)
    compiled(**batch())
    assert report.compiled["loss"] == 1
    assert report.compiled["rms_norm"] == 3
    tigon.unpatch(compiled)
    assert compiled(**batch()).logits.shape == (*IDS.shape, 64)
