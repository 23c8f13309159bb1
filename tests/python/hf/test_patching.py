"""What a patch changes, what it leaves, how it is undone, and whose weights a copy uses."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm

import tigon
from hf.tiny import EAGER_LOSS, FAMILIES, IDS, assert_same_gradients, batch, tiny
from tigon.hf import Unsupported

PARTS = {"rms_norm": 7, "rope": 3, "mlp": 3, "loss": 1}
CLASSES = (LlamaRMSNorm, LlamaAttention, LlamaMLP, LlamaForCausalLM)


def instance_dicts(model: nn.Module) -> dict[str, dict[str, object]]:
    return {name: dict(vars(module)) for name, module in model.named_modules()}


def class_dicts() -> list[dict[str, object]]:
    return [dict(vars(cls)) for cls in CLASSES]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_part_is_patched_and_runs(family):
    model = FAMILIES[family]()
    report = tigon.patch(model)
    assert {row.part: row.count for row in report.rows} == PARTS
    assert all(row.reason is None for row in report.rows)
    model(**batch()).loss.backward()
    assert dict(report.calls) == PARTS
    report.require()
    text = str(report)
    for row in report.rows:
        assert row.module_class in text
    assert "rope calls: 3 fused" in text


def test_patch_of_an_instance_touches_no_class_and_no_module():
    classes, rope = class_dicts(), modeling_llama.apply_rotary_pos_emb
    cross_entropy, silu, rms_norm = F.cross_entropy, F.silu, F.rms_norm
    model, other = tiny(), tiny()
    keys, names = list(model.state_dict()), [type(module) for module in model.modules()]
    tigon.patch(model)
    assert class_dicts() == classes
    assert modeling_llama.apply_rotary_pos_emb is rope
    assert (F.cross_entropy, F.silu, F.rms_norm) == (cross_entropy, silu, rms_norm)
    assert F.cross_entropy(torch.randn(2, 5, 7), torch.randint(5, (2, 7))).isfinite()
    assert F.cross_entropy(torch.randn(2, 5), torch.rand(2, 5).softmax(-1)).isfinite()
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == names
    assert not any("forward" in vars(module) for module in other.modules())


def test_unpatch_restores_everything():
    model = tiny()
    before, classes = instance_dicts(model), class_dicts()
    tigon.patch(model)
    assert instance_dicts(model) != before
    tigon.unpatch(model)
    assert instance_dicts(model) == before
    assert class_dicts() == classes
    tigon.unpatch(model)
    assert instance_dicts(model) == before


def test_patching_twice_changes_nothing():
    model = tiny()
    report = tigon.patch(model, mlp=False)
    once = instance_dicts(model)
    assert tigon.patch(model, mlp=False) is report
    assert instance_dicts(model) == once
    assert tigon.patch(model) is report  # the part left out before joins
    assert {row.part: row.count for row in report.rows} == PARTS
    model(**batch())
    assert dict(report.calls) == PARTS


@pytest.mark.parametrize("target", [LlamaForCausalLM, "llama"])
def test_a_whole_family(target):
    before, functions = class_dicts(), [cls.forward for cls in CLASSES]
    old = tiny()
    report = tigon.patch(target)
    assert {row.part: row.count for row in report.rows} == dict.fromkeys(PARTS)
    new = tiny()
    for model in (old, new):
        assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
    assert dict(report.calls) == {part: 2 * count for part, count in PARTS.items()}
    assert tigon.patch(new) is report
    assert not any("forward" in vars(module) for module in new.modules())
    tigon.unpatch(new)  # the class keeps its patch: it was not this model's
    assert tigon.patch(target) is report
    tigon.unpatch(target)
    assert class_dicts() == before
    assert [cls.forward for cls in CLASSES] == functions


def test_subclass_that_calls_super_still_gets_logits_under_a_class_patch():
    class Mine(LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            assert output.logits.shape == (1, 8, 64)
            return output

    report = tigon.patch("llama")
    model = Mine(tiny().config)
    assert model(**batch()).loss.isfinite()
    assert report.calls["loss"] == 0
    assert report.calls["rms_norm"] == 7


def test_subclass_with_its_own_forward_is_left_alone_by_name(caplog):
    class Mine(LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    report = tigon.patch(Mine(tiny().config))
    assert [row.reason for row in report.rows if row.part == "loss"] == ["Mine overrides LlamaForCausalLM.forward"]
    assert "Mine overrides" in caplog.text


def test_subclass_that_inherits_forward_is_patched():
    class Renamed(LlamaForCausalLM):
        pass

    report = tigon.patch(Renamed(tiny().config), loss=True)
    assert {row.part: row.count for row in report.rows} == PARTS


class TestChoices:
    def test_false_leaves_a_part(self):
        model = tiny()
        report = tigon.patch(model, loss=False, rope=False)
        assert {row.part for row in report.rows} == {"rms_norm", "mlp"}
        assert "forward" not in vars(model)

    def test_other_words_are_refused(self):
        with pytest.raises(ValueError, match="mlp must be 'auto', True or False, got 'yes'"):
            tigon.patch(tiny(), mlp="yes")

    def test_relu_is_left_alone_by_name(self):
        model = tiny(hidden_act="relu")
        expected = model(input_ids=IDS).logits
        report = tigon.patch(model)
        assert [row.reason for row in report.rows if row.part == "mlp"] == ["its activation is ReLU, not SiLU"]
        assert torch.equal(
            model.model.layers[0].mlp(torch.ones(1, 32)), tiny(hidden_act="relu").model.layers[0].mlp(torch.ones(1, 32))
        )
        torch.testing.assert_close(model(input_ids=IDS).logits, expected, rtol=1e-5, atol=1e-6)

    def test_relu_under_a_class_patch_falls_back_when_called(self):
        report = tigon.patch("llama")
        model = tiny(hidden_act="relu")
        model(**batch())
        assert report.calls["mlp"] == 0
        assert report.fallbacks["mlp"]["its activation is ReLU, not SiLU"] == 3

    def test_by_name_raises_and_installs_nothing(self):
        model = tiny(hidden_act="relu")
        before = instance_dicts(model)
        with pytest.raises(Unsupported, match="mlp=True, but LlamaMLP: its activation is ReLU"):
            tigon.patch(model, mlp=True)
        assert instance_dicts(model) == before

    def test_unknown_model(self, caplog):
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8))
        assert tigon.patch(model).rows == []
        assert "GPT2LMHeadModel has no module of a known family" in caplog.text
        with pytest.raises(Unsupported, match="rms_norm=True, but GPT2LMHeadModel has nothing to patch"):
            tigon.patch(model, rms_norm=True)
        with pytest.raises(Unsupported, match="families: llama, qwen2"):
            tigon.patch("gpt2")

    def test_a_forward_we_have_not_read_is_left_alone(self, monkeypatch):
        def forward(self, hidden_states):
            return self.weight * hidden_states / hidden_states.abs().amax(-1, keepdim=True)

        monkeypatch.setattr(LlamaRMSNorm, "forward", forward)
        model = tiny()
        report = tigon.patch(model)
        (row,) = [row for row in report.rows if row.part == "rms_norm"]
        assert row.reason == "LlamaRMSNorm.forward does something unknown: abs, amax"
        assert "forward" not in vars(model.model.norm)

    @pytest.mark.parametrize(
        ("cls", "part", "forward"),
        [
            (LlamaRMSNorm, "rms_norm", lambda self, hidden_states, gate: self.weight * gate),
            (LlamaMLP, "mlp", lambda self, x, down=True: self.down_proj(x)),
            (LlamaMLP, "mlp", lambda self, h: self.down_proj(h)),
        ],
        ids=["norm with a gate", "mlp with an option", "mlp with another name"],
    )
    def test_a_forward_of_other_arguments_is_left_alone(self, monkeypatch, cls, part, forward):
        """Another version may call its module with what our forward would not take."""
        monkeypatch.setattr(cls, "forward", forward)
        report = tigon.patch(tiny())
        (row,) = [row for row in report.rows if row.part == part]
        assert row.reason is not None
        assert row.reason.startswith(f"{cls.__name__}.forward takes ")

    def test_by_name_refuses_a_call_that_cannot_be_fused(self):
        model = tiny()
        tigon.patch(model, rms_norm=True)
        with pytest.raises(Unsupported, match="rms_norm=True, but dtype float64"):
            model.double()(input_ids=IDS)


class TestRequire:
    def test_zero_calls_raise(self):
        report = tigon.patch(tiny())
        with pytest.raises(Unsupported, match="rms_norm was requested and made 0 fused calls: its forward was never"):
            report.require()

    def test_forward_installed_above_that_never_calls_ours(self):
        model = tiny()
        report = tigon.patch(model, loss=True)
        model.forward = lambda **kwargs: LlamaForCausalLM.forward(model, **kwargs)
        model(**batch()).loss.backward()
        with pytest.raises(Unsupported, match="loss was requested and made 0 fused calls"):
            report.require()
        report.require("rms_norm", "mlp", "rope")

    def test_the_reason_is_named(self):
        model = tiny().double()
        report = tigon.patch(model)
        model(**batch())
        with pytest.raises(Unsupported, match="dtype float64"):
            report.require("mlp")


class TestCopies:
    """A copy computes with its own weights."""

    def test_data_parallel_replica(self):
        norm = tiny().model.norm
        tigon.patch(norm)
        replica = norm._replicate_for_data_parallel()
        replica.weight = torch.zeros(32)
        assert torch.equal(replica(torch.ones(32)), torch.zeros(32))
        again = replica._replicate_for_data_parallel()
        again.weight = torch.full((32,), 2.0)
        torch.testing.assert_close(again(torch.ones(32)), torch.full((32,), 2.0))
        assert norm(torch.ones(32)).abs().sum() > 0

    def test_data_parallel_replica_of_a_whole_model(self):
        model = tiny()
        report = tigon.patch(model)
        for module in model.modules():
            replica = module._replicate_for_data_parallel()
            bound = [value for value in vars(replica).values() if inspect.ismethod(value)]
            assert bool(bound) == ("forward" in vars(module))
            assert all(method.__self__ is replica for method in bound)
        assert report.calls.total() == 0

    def test_deepcopy(self):
        model = tiny()
        report = tigon.patch(model)
        other = copy.deepcopy(model)
        with torch.no_grad():
            other.model.norm.weight.zero_()
            other.lm_head.weight.fill_(1)
        assert other(input_ids=IDS).logits.abs().max() == 0
        assert other(**batch()).loss.item() == pytest.approx(torch.tensor(64.0).log().item())
        assert report.calls["loss"] == 1
        assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        tigon.unpatch(other)
        assert not any("forward" in vars(module) for module in other.modules())
        assert "forward" in vars(model)

    @pytest.mark.parametrize("how", ["pickle", "torch.save"])
    def test_pickle(self, how):
        model = tiny()
        try:
            pickle.dumps(model)
        except AttributeError:
            pytest.skip("package kernels makes this version's models unpicklable")
        tigon.patch(model)
        if how == "pickle":
            other = pickle.loads(pickle.dumps(model))
        else:
            buffer = io.BytesIO()
            torch.save(model, buffer)
            buffer.seek(0)
            other = torch.load(buffer, weights_only=False)
        with torch.no_grad():
            model.lm_head.weight.zero_()
        replica = other.model.norm._replicate_for_data_parallel()
        replica.weight = torch.zeros(32)
        assert torch.equal(replica(torch.ones(32)), torch.zeros(32))
        assert other(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        report = tigon.patch(other)
        assert other(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 1
        assert report.calls["rms_norm"] == 7


class TestWrappers:
    """However the model is wrapped, it is found."""

    @pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile, lambda model: nn.Sequential(model)])
    def test_wrapped(self, wrap):
        model = tiny()
        report = tigon.patch(wrap(model), rms_norm=True, rope=True, mlp=True, loss=True)
        assert {row.part: row.count for row in report.rows} == PARTS
        assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 1
        tigon.unpatch(wrap(model))
        assert "forward" not in vars(model)

    @pytest.mark.parametrize("order", ["before", "after"])
    def test_peft(self, order):
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=4, target_modules=["q_proj", "gate_proj", "down_proj"], init_lora_weights=False)
        torch.manual_seed(1)
        eager = peft.get_peft_model(tiny(), config)
        torch.manual_seed(1)
        model = tiny()
        if order == "before":
            report = tigon.patch(model, loss=True)
            model = peft.get_peft_model(model, config)
        else:
            model = peft.get_peft_model(model, config)
            report = tigon.patch(model, loss=True)
        eager(**batch()).loss.backward()
        model(**batch()).loss.backward()
        assert dict(report.calls) == PARTS
        assert_same_gradients(model, eager, rtol=1e-4, atol=1e-6)
        names = [name for name, _ in model.named_parameters()]
        assert names == [name for name, _ in eager.named_parameters()]


@pytest.mark.parametrize("watched", [False, True])
def test_an_mlps_own_tensors_may_become_their_gradients_unless_somebody_watches(monkeypatch, watched):
    given = []
    swiglu = tigon.swiglu

    def recording(gate, up, **options):
        given.append((gate, gate.detach().clone(), options["overwrite"]))
        return swiglu(gate, up, **options)

    model = tiny()
    tigon.patch(model)
    monkeypatch.setattr("tigon.ops.swiglu", recording)
    if watched:
        for layer in model.model.layers:
            layer.mlp.gate_proj.register_forward_hook(lambda *_: None)
    model(**batch()).loss.backward()
    assert len(given) == PARTS["mlp"]
    for gate, before, overwrite in given:
        assert overwrite != watched
        assert torch.equal(gate, before) == watched
