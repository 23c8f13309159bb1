"""A patched model computes what the unpatched one does: logits, gradients, training, every dtype and mode."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tigon
from hf.tiny import EAGER_LOSS, FAMILIES, IDS, assert_same_gradients, batch, gradients, tiny, twin
from tigon.hf.parts import RMSNorm
from tigon.hf.report import PatchReport, Tally

PARTS = {"rms_norm": 7, "rope": 3, "mlp": 3, "loss": 1}
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_every_gradient(family, device):
    model = FAMILIES[family]().to(device)
    reference = twin(model)
    tigon.patch(model)
    kwargs = {**batch(device), "skip_logits": False}
    output, expected = model(**kwargs), reference(**batch(device))
    torch.testing.assert_close(output.logits, expected.logits, **CLOSE)
    model(**batch(device)).loss.backward()
    expected.loss.backward()
    assert_same_gradients(model, reference, **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_training_steps(family, device):
    model = FAMILIES[family]().to(device)
    reference = twin(model)
    report = tigon.patch(model)
    torch.manual_seed(1)
    data = torch.randint(0, 64, (20, 2, 16), device=device)
    losses = []
    for trained in (model, reference):
        optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
        curve = []
        for ids in data:
            loss = trained(**batch(device, ids)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(loss.item())
        losses.append(curve)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert dict(report.calls) == {part: 20 * count for part, count in PARTS.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_from_scratch_with_a_large_vocabulary(dtype, device):
    """From random weights: gradients point the same way all along, and curves overlap."""
    checks = (1, 100, 300) if device == "cuda" else (1, 20, 60)
    model = tiny(vocab_size=32000, num_hidden_layers=2).to(device, dtype)
    model.model.embed_tokens.requires_grad_(False)  # half the time, and not what is asked
    reference = twin(model)
    tigon.patch(model)
    torch.manual_seed(1)
    data = torch.randint(0, 32000, (4, 1, 9), device=device)  # few enough for the loss to fall
    curves = {}
    for name, trained, shadow in (("ours", model, twin(reference)), ("eager", reference, None)):
        optimizer = torch.optim.AdamW(trained.parameters(), lr=3e-3)
        curve = []
        for step in range(1, checks[-1] + 1):
            ids = data[step % len(data)]
            loss = trained(**batch(device, ids)).loss
            loss.backward()
            curve.append(loss.item())
            if shadow is not None and step in checks:
                shadow.load_state_dict(trained.state_dict())
                shadow.zero_grad()
                shadow(**batch(device, ids)).loss.backward()
                ours, theirs = (
                    torch.cat([p.grad.double().flatten() for p in each.parameters() if p.grad is not None])
                    for each in (trained, shadow)
                )
                assert torch.cosine_similarity(ours, theirs, dim=0) > 0.9999, step
            optimizer.step()
            optimizer.zero_grad()
        curves[name] = curve
    assert curves["ours"][-1] < curves["ours"][0] - 1
    for ours, theirs in zip(curves["ours"][::20], curves["eager"][::20], strict=True):
        assert ours == pytest.approx(theirs, rel=0.02, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_near_to_float64_as_eager(dtype, device):
    exact = tiny().to(device, torch.float64)
    eager = twin(exact).to(dtype)
    exact.load_state_dict(eager.state_dict())  # the same weights, without their rounding
    model = twin(eager)
    report = tigon.patch(model)
    for each in (exact, eager, model):
        each(**batch(device)).loss.backward()
    assert dict(report.calls) == PARTS
    truth, theirs, ours = gradients(exact), gradients(eager), gradients(model)
    for name, gradient in ours.items():
        assert gradient.dtype == dtype
        error, allowed = (gradient - truth[name]).norm(), (theirs[name] - truth[name]).norm()
        assert error <= 2 * allowed, name


class TestAfterThePatch:
    """What is done to the model later is followed."""

    @pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, lambda m: m.to(torch.bfloat16)])
    def test_half(self, change):
        model = tiny()
        report = tigon.patch(model)
        reference = change(tiny())
        output, expected = change(model)(input_ids=IDS).logits, reference(input_ids=IDS).logits
        assert output.dtype == expected.dtype
        torch.testing.assert_close(output, expected, rtol=2e-2, atol=2e-2)
        assert report.calls["rms_norm"] == 7

    def test_float64_goes_to_pytorch(self):
        model = tiny()
        report = tigon.patch(model)
        assert torch.equal(model.double()(input_ids=IDS).logits, tiny().double()(input_ids=IDS).logits)
        assert report.calls.total() == 0
        assert report.fallbacks["rms_norm"] == {"dtype float64": 7}
        assert report.fallbacks["rope"] == {"dtype float64": 3}
        assert report.fallbacks["mlp"] == {"dtype float64": 3}
        assert "7 PyTorch (dtype float64)" in str(report)

    def test_fallback_is_said_once(self, caplog):
        model = tiny().double()
        tigon.patch(model)
        model(input_ids=IDS)
        assert [record.message for record in caplog.records if "rms_norm" in record.message] == [
            "tigon: rms_norm runs in PyTorch: dtype float64"
        ]

    def test_meta(self):
        model = tiny()
        report = tigon.patch(model)
        assert model.model.norm.to("meta")(torch.empty(2, 32, device="meta")).shape == (2, 32)
        assert report.fallbacks["rms_norm"] == {"no kernels for device meta": 1}

    def test_fp32_norm_weights_with_bf16_activations(self):
        model, reference = tiny().bfloat16(), tiny().bfloat16()
        report = tigon.patch(model)
        for each in (model, reference):
            each.model.norm.float()
        hidden = torch.randn(1, 8, 32, dtype=torch.bfloat16)
        output, expected = model.model.norm(hidden), reference.model.norm(hidden)
        assert output.dtype == expected.dtype == torch.float32
        torch.testing.assert_close(output, expected)
        assert report.calls["rms_norm"] == 1


class TestOtherDifferentiation:
    """Per-sample gradients and forward mode go through PyTorch's own operations."""

    def test_vmap_of_grad(self):
        from torch.func import functional_call, grad, vmap

        model = tiny()
        reference = twin(model)
        report = tigon.patch(model)
        samples = torch.randn(2, 8, 32)
        for name in ("norm", "layers.0.mlp"):
            results = []
            for each in (model, reference):
                module = each.model.get_submodule(name)

                def loss(parameters, sample, module=module):
                    return functional_call(module, parameters, (sample[None],)).square().sum()

                results.append(vmap(grad(loss), in_dims=(None, 0))(dict(module.named_parameters()), samples))
            torch.testing.assert_close(*results)
        reason = "inside torch.func or forward-mode differentiation"
        assert report.fallbacks == {"rms_norm": {reason: 1}, "mlp": {reason: 1}}

    def test_forward_mode(self):
        norm = tiny().model.norm
        reference = twin(norm)
        tigon.patch(norm)
        x, tangent = torch.randn(2, 32), torch.randn(2, 32)
        ours, theirs = (torch.func.jvp(each, (x,), (tangent,)) for each in (norm, reference))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("bias", [False, True])
def test_autocast(bias, device):
    model = tiny().to(device)
    if bias:
        model.lm_head = nn.Linear(32, 64, device=device)
    reference = twin(model)
    report = tigon.patch(model)
    exact = twin(reference).double()
    for each in (model, reference):
        with torch.autocast(device, torch.bfloat16):
            output = each(**batch(device))
        output.loss.backward()
        assert output.loss.dtype == torch.float32
    exact(**batch(device)).loss.backward()
    assert dict(report.calls) == PARTS
    truth, theirs = gradients(exact), gradients(reference)
    for name, gradient in gradients(model).items():
        assert gradient.dtype == torch.float32
        error, allowed = (gradient - truth[name]).norm(), (theirs[name] - truth[name]).norm()
        assert error <= 2 * allowed, name


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_runs_each_layer_exactly_twice(use_reentrant):
    model = tiny()
    reference = twin(model)
    report = tigon.patch(model)
    for each in (model, reference):
        each.train()
        each.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        if use_reentrant:
            each.enable_input_require_grads()
        each(**batch()).loss.backward()
    assert_same_gradients(model, reference, **CLOSE)
    assert report.calls["rms_norm"] == 2 * 6 + 1
    assert report.calls["rope"] == 2 * 3
    assert report.calls["mlp"] == 2 * 3
    assert report.calls["loss"] == 1


def test_evaluation_and_training_agree():
    model = tiny()
    tigon.patch(model)
    assert model.train()(**batch()).loss.item() == pytest.approx(model.eval()(**batch()).loss.item(), abs=1e-5)


def test_whole_loss_is_the_stated_one():
    assert tiny()(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)


def test_left_padded_batch_generates_as_unpatched():
    model = tiny().eval()
    reference = twin(model)
    tigon.patch(model)
    ids = torch.tensor([[0, 0, 0, 0, 0, 1, 2], [1, 2, 3, 4, 5, 6, 7]])
    kwargs = {"attention_mask": (ids != 0).long(), "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(ids, **kwargs), reference.generate(ids, **kwargs))


def test_a_norm_with_an_offset_needs_only_its_row():
    """Gemma stores weights around zero: weight 0 must give the normalised input, not 0."""
    modeling = pytest.importorskip("transformers.models.gemma.modeling_gemma")
    norm = modeling.GemmaRMSNorm(32)
    assert norm.weight.abs().max() == 0
    report = PatchReport()
    row = RMSNorm("GemmaRMSNorm", eps="eps", weight_offset=1.0, casting="gemma")
    forward = row.build(modeling.GemmaRMSNorm.forward, Tally(report, "rms_norm", by_name=True))
    x = torch.randn(4, 32, dtype=torch.bfloat16)
    norm.bfloat16()
    torch.testing.assert_close(forward(norm, x), norm(x))
    with torch.no_grad():
        norm.weight.fill_(2**-8)  # lost if 1 is added in bfloat16
    assert torch.equal(forward(norm, x), norm(x))
    assert report.calls["rms_norm"] == 2
