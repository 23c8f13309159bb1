"""Others put things above a model's forward: accelerate, TRL, hooks, quantised and offloaded modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tigon
from hf.tiny import EAGER_LOSS, IDS, assert_same_gradients, batch, gradients, tiny, twin
from tigon.hf import Unsupported

PARTS = {"rms_norm": 7, "rope": 3, "mlp": 3, "loss": 1}
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture(params=["patched first", "patched last"])
def order(request):
    return request.param


def wrapped(order, wrap, **choices):
    """A model patched before or after `wrap`, and its report."""
    model = tiny()
    if order == "patched first":
        report = tigon.patch(model, **choices)
        wrap(model)
    else:
        wrap(model)
        report = tigon.patch(model, **choices)
    return model, report


class TestAccelerate:
    @pytest.fixture(autouse=True)
    def _accelerate(self):
        self.hooks = pytest.importorskip("accelerate.hooks")
        # One state per process: a Trainer in an earlier test may have left its own behind.
        state = pytest.importorskip("accelerate.state").AcceleratorState
        state._reset_state(reset_partial_state=True)
        yield
        state._reset_state(reset_partial_state=True)

    def test_hooked_modules(self, order):
        seen = []
        hooks = self.hooks

        class Seen(hooks.ModelHook):
            def pre_forward(self, module, *args, **kwargs):
                seen.append(type(module).__name__)
                return args, kwargs

        def wrap(model):
            for layer in model.model.layers:
                for module in (layer.input_layernorm, layer.mlp, layer.self_attn):
                    hooks.add_hook_to_module(module, Seen())
            hooks.add_hook_to_module(model, Seen())

        model, report = wrapped(order, wrap, loss=True, rms_norm=True, mlp=True, rope=True)
        model(**batch()).loss.backward()
        assert dict(report.calls) == PARTS
        assert sorted(seen) == ["LlamaAttention"] * 3 + ["LlamaForCausalLM"] + ["LlamaMLP"] * 3 + ["LlamaRMSNorm"] * 3

    def test_unpatch_leaves_the_hook(self):
        model = tiny()
        norm = model.model.norm
        self.hooks.add_hook_to_module(norm, self.hooks.ModelHook())
        before = dict(vars(norm))
        tigon.patch(model)
        assert vars(norm)["forward"] is before["forward"]
        tigon.unpatch(model)
        assert vars(norm) == before

    def test_hook_removed_after_the_patch(self, order):
        model, report = wrapped(
            order, lambda model: self.hooks.add_hook_to_module(model.model.norm, self.hooks.ModelHook())
        )
        self.hooks.remove_hook_from_module(model.model.norm)
        model(**batch())
        assert report.calls["rms_norm"] == 7
        tigon.unpatch(model)
        assert model(**batch()).logits is not None
        assert report.calls["rms_norm"] == 7

    def test_offloaded_to_cpu(self, order):
        accelerate = pytest.importorskip("accelerate")
        model, report = wrapped(
            order, lambda model: accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
        )
        assert model.model.norm.weight.device.type == "meta"
        with torch.no_grad():
            assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["rms_norm"] == 7  # the hook brings the weight before our forward runs
        assert report.calls["loss"] == 0
        assert report.fallbacks["loss"] == {"lm_head: its forward was replaced": 1}

    @pytest.mark.gpu
    def test_layers_on_two_devices(self, order):
        """As `device_map="auto"` spreads them: every operator runs where its tensors are."""
        accelerate = pytest.importorskip("accelerate")
        if torch.cuda.device_count() < 2:
            pytest.skip("one GPU")
        places = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0}
        places |= {"model.layers.1": 1, "model.layers.2": 1, "model.norm": 1, "lm_head": 1}
        model, report = wrapped(order, lambda model: accelerate.dispatch_model(model, places))
        reference = tiny().cuda()
        for each in (model, reference):
            loss = each(**batch("cuda:0")).loss
            loss.backward()
            assert loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        for (name, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad.cpu(), **CLOSE, msg=name)
        assert report.calls["rms_norm"] == PARTS["rms_norm"]
        assert report.calls["rope"] == PARTS["rope"]
        assert report.calls["mlp"] == PARTS["mlp"]

    def test_mixed_precision_forward(self, order):
        accelerate = pytest.importorskip("accelerate")
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
        model = tiny()
        if order == "patched first":
            report = tigon.patch(model, loss=True)
        prepared = accelerator.prepare_model(model)
        if order == "patched last":
            report = tigon.patch(prepared, loss=True)
        output = prepared(**batch())
        assert "logits" not in output
        assert output.loss.item() == pytest.approx(EAGER_LOSS, abs=2e-2)
        assert dict(report.calls) == PARTS
        logits = prepared(**batch(), skip_logits=False).logits
        assert logits.dtype == torch.float32  # accelerate's conversion still runs
        tigon.unpatch(prepared)
        prepared(**batch())
        assert report.calls["loss"] == 1

    def test_unwrapping_keeps_the_patch(self):
        accelerate = pytest.importorskip("accelerate")
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
        model = tiny()
        report = tigon.patch(model)
        plain = accelerator.unwrap_model(accelerator.prepare_model(model), keep_fp32_wrapper=False)
        assert plain(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 1


class TestTRL:
    @pytest.fixture(autouse=True)
    def _trl(self):
        utils = pytest.importorskip("trl.trainer.utils")
        if not hasattr(utils, "add_fused_lm_head"):
            pytest.skip("this TRL has no fused head")
        self.add = utils.add_fused_lm_head

    def test_without_its_flag_ours_runs(self, order):
        model, report = wrapped(order, self.add, loss=True)
        assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 1
        tigon.unpatch(model)
        assert model(**batch()).logits is not None
        assert report.calls["loss"] == 1

    def test_with_its_flag_the_loss_is_theirs_and_said_so(self, order):
        model, report = wrapped(order, self.add)
        assert model(**batch(), fused_lm_head=True).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["rms_norm"] == 7
        with pytest.raises(Unsupported, match="loss was requested and made 0 fused calls"):
            report.require("loss")

    def test_generation(self, order):
        model, _ = wrapped(order, self.add)
        kwargs = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(model.eval().generate(IDS, **kwargs), tiny().eval().generate(IDS, **kwargs))


class TestOtherForwards:
    def test_unknown_instance_forward_is_left_alone_by_name(self, caplog):
        model = tiny()
        norm = model.model.norm

        def louder(hidden_states):
            return 2 * hidden_states

        norm.forward = louder
        report = tigon.patch(model)
        reasons = {row.reason: row.count for row in report.rows if row.part == "rms_norm"}
        assert reasons[None] == 6
        ((reason, count),) = [item for item in reasons.items() if item[0]]
        assert "its forward was replaced by" in reason
        assert "louder" in reason
        assert count == 1
        assert norm.forward is louder
        with pytest.raises(Unsupported, match="louder"):
            tigon.patch(model, rms_norm=True)

    def test_hooks_on_patched_modules_run(self):
        model = tiny()
        report = tigon.patch(model)
        seen = []
        for name, module in model.named_modules():
            if name.endswith(("norm", "mlp", "q_proj", "gate_proj", "down_proj")):
                module.register_forward_hook(lambda module, args, output, name=name: seen.append(name))
        model(**batch())
        assert len(seen) == 7 + 3 + 3 + 3 + 3
        assert dict(report.calls) == PARTS

    def test_hook_on_the_activation_that_we_would_bypass(self):
        model = tiny()
        report = tigon.patch(model)
        seen = []
        model.model.layers[1].mlp.act_fn.register_forward_hook(lambda *_: seen.append(1))
        model(**batch())
        assert seen
        reasons = report.fallbacks["mlp"]  # some versions share one activation between the layers
        assert list(reasons) == ["act_fn: it has hooks"]
        assert report.calls["mlp"] == 3 - reasons.total()

    def test_captured_outputs(self):
        model = tiny(attn_implementation="eager")
        reference = twin(model)
        tigon.patch(model)
        kwargs = {"output_attentions": True, "output_hidden_states": True}
        output, expected = model(**batch(), **kwargs), reference(**batch(), **kwargs)
        assert len(output.attentions) == 3
        assert len(output.hidden_states) == 4
        torch.testing.assert_close(output.attentions, expected.attentions, **CLOSE)


class TestQuantisedProjections:
    """The MLP's projections are called as modules, whatever they are."""

    def test_projection_of_another_dtype(self):
        class Wide(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner.double()

            def forward(self, x):
                return self.inner(x.double())

        model = tiny()
        for layer in model.model.layers:
            for name in ("gate_proj", "up_proj"):
                setattr(layer.mlp, name, Wide(getattr(layer.mlp, name)))
            layer.mlp.down_proj = nn.Sequential(layer.mlp.down_proj.double())
        reference = twin(model)
        report = tigon.patch(model)
        hidden = torch.randn(1, 8, 32)
        assert torch.equal(model.model.layers[0].mlp(hidden), reference.model.layers[0].mlp(hidden))
        assert report.fallbacks["mlp"] == {"dtype float64": 1}

    def test_lora_with_dropout_draws_once(self):
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=4, target_modules=["gate_proj", "up_proj", "down_proj"], lora_dropout=0.3)
        torch.manual_seed(1)
        model = peft.get_peft_model(tiny(), config).train()
        reference = twin(model)
        report = tigon.patch(model)
        for each in (model, reference):
            torch.manual_seed(2)
            each(**batch()).loss.backward()
        assert report.calls["mlp"] == 3
        assert_same_gradients(model, reference, **CLOSE)

    def test_lora_of_another_dtype_than_its_base(self):
        """bf16 base, float32 adapters, B = 0 as it is born, a bias, a loss of one's own and no autocast."""
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=4, target_modules=["gate_proj", "up_proj", "down_proj"])
        torch.manual_seed(1)
        model = peft.get_peft_model(tiny(mlp_bias=True).bfloat16(), config)
        reference = twin(model)
        exact = twin(model).double()
        report = tigon.patch(model)
        hidden = torch.randn(1, 8, 32)
        for each in (model, reference, exact):
            mlp = each.base_model.model.model.layers[0].mlp
            mlp(hidden.to(mlp.down_proj.bias.dtype)).square().mean().backward()
        assert report.calls["mlp"] == 1
        truth, theirs = gradients(exact), gradients(reference)
        trained = {name: gradient for name, gradient in gradients(model).items() if gradient is not None}
        assert len(trained) == 6
        for name, gradient in trained.items():
            assert gradient.dtype == torch.float32
            error, allowed = (gradient - truth[name]).norm(), (theirs[name] - truth[name]).norm()
            assert error <= 2 * allowed, name  # NaN is not
        assert any(gradient.abs().sum() > 0 for gradient in trained.values())
