"""The fused loss: what callers pass, what they read, and whose weight the head uses."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

import tigon
from hf.tiny import EAGER_LOSS, FAMILIES, IDS, assert_same_gradients, batch, gradients, tiny, twin

CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def patched(loss=True, **changes):
    model = tiny(**changes)
    return model, twin(model), tigon.patch(model, loss=loss)


class TestNormaliser:
    @pytest.mark.parametrize("as_given", [int, torch.tensor, lambda n: torch.tensor([[n]])], ids=["int", "0-d", "1x1"])
    def test_micro_batches_add_up_to_the_whole_batch(self, as_given, device):
        """3 and 5 learned tokens, num_items_in_batch = 8, against all 8 at once."""
        model = tiny().to(device)
        reference = twin(model)
        report = tigon.patch(model)
        ids = torch.arange(2, 18, device=device).view(2, 8)
        labels = torch.full_like(ids, -100)
        labels[0, 5:], labels[1, 3:] = ids[0, 5:], ids[1, 3:]
        whole = reference(input_ids=ids, labels=labels).loss
        whole.backward()
        items = as_given(8)
        items = items.to(device) if isinstance(items, torch.Tensor) else items
        parts = [
            model(input_ids=ids[row : row + 1], labels=labels[row : row + 1], num_items_in_batch=items).loss
            for row in range(2)
        ]
        for part in parts:
            part.sum().backward()
        torch.testing.assert_close(sum(part.sum() for part in parts), whole, **CLOSE)
        assert_same_gradients(model, reference, **CLOSE)
        assert report.calls["loss"] == 2

    @pytest.mark.parametrize("scale", [1.0, math.inf], ids=["loss", "loss*inf"])
    @pytest.mark.parametrize(
        "items", [None, 0, torch.tensor(0), torch.tensor(0.0)], ids=["none", "0", "int0", "float0"]
    )
    def test_a_batch_without_labels_has_gradient_exactly_zero(self, items, scale, device):
        model = tiny().to(device)
        report = tigon.patch(model)
        labels = torch.full_like(IDS, -100, device=device)
        kwargs = {} if items is None else {"num_items_in_batch": items}
        (model(input_ids=IDS.to(device), labels=labels, **kwargs).loss * scale).backward()
        assert report.calls["loss"] == 1
        for name, gradient in gradients(model).items():
            assert gradient is not None, name
            assert torch.count_nonzero(gradient) == 0, name  # counts NaN too
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        optimizer.step()
        assert model(**batch(device)).loss.isfinite()


class TestLabels:
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_shift_labels_alone_give_a_loss(self, mode):
        model, _, report = patched()
        getattr(model, mode)()
        shifted = torch.cat([IDS[:, 1:], torch.tensor([[-100]])], dim=1)
        assert model(input_ids=IDS, shift_labels=shifted).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == (mode == "train")

    def test_shift_labels_win_over_labels(self):
        model, reference, _ = patched()
        shifted = IDS.flip(1).contiguous()
        expected = reference(**batch(), shift_labels=shifted).loss
        torch.testing.assert_close(model(**batch(), shift_labels=shifted).loss, expected, **CLOSE)

    def test_positional_labels(self):
        model, _, report = patched()
        names = list(inspect.signature(LlamaForCausalLM.forward).parameters)[1:]
        before = [None] * (names.index("labels") - 1)
        assert model(IDS, *before, IDS).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 1

    def test_ignore_index(self):
        model, _, report = patched()
        labels = torch.tensor([[1, 2, 3, 0, 0, 0, 0, 0]])
        loss = model(input_ids=IDS, labels=labels, ignore_index=0).loss
        assert loss.item() == pytest.approx(4.1432, abs=1e-4)
        assert report.calls["loss"] == 1

    def test_own_loss_function_is_used(self):
        model, _, report = patched(loss="auto")
        model.loss_function = lambda logits, **kwargs: logits.square().mean()
        output = model(**batch())
        assert output.loss.item() == pytest.approx(0.0134, abs=1e-4)
        assert output.logits is not None
        assert report.calls["loss"] == 0
        assert list(report.fallbacks["loss"]) == ["model.loss_function is <lambda>"]

    def test_loss_mapping_is_used(self, monkeypatch):
        from transformers.loss import loss_utils

        model, _, report = patched(loss="auto")
        monkeypatch.setitem(loss_utils.LOSS_MAPPING, "ForCausalLM", lambda logits, **kwargs: logits.square().mean())
        assert model(**batch()).loss.item() == pytest.approx(0.0134, abs=1e-4)
        assert report.calls["loss"] == 0


class TestLogitsOnDemand:
    def test_training_makes_none(self):
        model, _, report = patched()
        output = model(**batch())
        assert "logits" not in output
        assert output.logits is None
        assert report.calls["loss"] == 1

    def test_evaluation_makes_them(self):
        model, reference, report = patched()
        output, expected = model.eval()(**batch()), reference.eval()(**batch())
        torch.testing.assert_close(output.logits, expected.logits, **CLOSE)
        torch.testing.assert_close(output.loss, expected.loss, **CLOSE)
        assert report.fallbacks["loss"] == {"logits were asked for": 1}

    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_skip_logits_decides(self, mode):
        model, _, report = patched()
        getattr(model, mode)()
        skipped = model(**batch(), skip_logits=True)
        assert "logits" not in skipped
        assert report.calls["loss"] == 1
        kept = model(**batch(), skip_logits=False)
        assert kept.logits.shape == (1, 8, 64)
        torch.testing.assert_close(kept.loss, skipped.loss, **CLOSE)

    def test_skip_logits_is_never_passed_on(self):
        model, _, _ = patched()
        seen = []
        model.model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(set(kwargs)), with_kwargs=True)
        for skip in (True, False):
            model(**batch(), skip_logits=skip)
        assert len(seen) == 2
        assert all("skip_logits" not in names and "labels" not in names for names in seen)

    def test_skip_logits_without_labels_is_refused(self):
        model, _, _ = patched()
        with pytest.raises(ValueError, match="skip_logits=True needs labels"):
            model(input_ids=IDS, skip_logits=True)

    def test_tuple_has_logits(self):
        model, _, _ = patched()
        output = model(**batch(), return_dict=False)
        assert output[0].item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert output[1].shape == (1, 8, 64)

    def test_logits_to_keep(self):
        model, reference, report = patched(loss="auto")
        kept = model(input_ids=IDS, logits_to_keep=2).logits
        torch.testing.assert_close(kept, reference(input_ids=IDS).logits[:, -2:], **CLOSE)
        kwargs = {"input_ids": IDS, "labels": IDS[:, -4:], "logits_to_keep": 4}
        torch.testing.assert_close(model(**kwargs).loss, reference(**kwargs).loss, **CLOSE)
        assert report.calls["loss"] == 0

    def test_hidden_states_and_cache_come_along(self):
        model, reference, report = patched()
        kwargs = {"output_hidden_states": True, "use_cache": True}
        output, expected = model(**batch(), **kwargs), reference(**batch(), **kwargs)
        assert report.calls["loss"] == 1
        assert list(output) == [key for key in expected if key != "logits"]
        for ours, theirs in zip(output.hidden_states, expected.hidden_states, strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)
        assert output.past_key_values.get_seq_length() == 8

    def test_same_loss_without_gradients(self):
        model, _, report = patched()
        with torch.no_grad():
            loss = model(**batch()).loss
        assert not loss.requires_grad
        assert loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 1


class TestSignature:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_class_and_instance_keep_theirs(self, family):
        model = FAMILIES[family]()
        modules = [model, model.model.norm, model.model.layers[0].mlp, model.model.layers[0].self_attn]
        of_class = [inspect.signature(type(module).forward) for module in modules]
        of_instance = [inspect.signature(module.forward) for module in modules]
        tigon.patch(model)
        assert [inspect.signature(module.forward) for module in modules] == of_instance
        tigon.patch(family)
        assert [inspect.signature(type(module).forward) for module in modules] == of_class
        assert "shift_labels" not in inspect.signature(model.forward).parameters

    @pytest.mark.parametrize("skip_logits", [True, False], ids=["fused", "unfused"])
    def test_arguments_of_other_versions_are_passed_on(self, skip_logits):
        """A newer version's `generate` or Trainer may say what our signature does not name."""
        model, _, _ = patched()
        seen = []
        model.model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
        model(**batch(), skip_logits=skip_logits, of_a_newer_version=7)
        assert seen[0]["of_a_newer_version"] == 7

    def test_generate_projects_one_row_at_a_time(self):
        model, reference, report = patched()
        rows = []
        model.lm_head.register_forward_pre_hook(lambda module, args: rows.append(args[0].shape[1]))
        kwargs = {"max_new_tokens": 2, "do_sample": False, "pad_token_id": 0}
        ours = model.eval().generate(IDS, attention_mask=torch.ones_like(IDS), **kwargs)
        assert rows == [1, 1]
        assert torch.equal(ours, reference.eval().generate(IDS, attention_mask=torch.ones_like(IDS), **kwargs))
        assert report.calls["rms_norm"] == 2 * 7

    def test_generate_under_a_class_patch(self):
        tigon.patch("llama")
        assert tiny().eval().generate(IDS, max_new_tokens=3, min_new_tokens=3, pad_token_id=0).shape == (1, 11)


class TestHead:
    def test_tied(self):
        model, reference, report = patched(tie_word_embeddings=True)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        model(**batch()).loss.backward()
        reference(**batch()).loss.backward()
        assert_same_gradients(model, reference, **CLOSE)
        assert report.calls["loss"] == 1

    def test_bias(self):
        model = tiny()
        model.lm_head = nn.Linear(32, 64)
        reference = twin(model)
        report = tigon.patch(model)
        model(**batch()).loss.backward()
        reference(**batch()).loss.backward()
        assert_same_gradients(model, reference, **CLOSE)
        assert report.calls["loss"] == 1

    def test_frozen_head_gets_no_gradient(self):
        model, reference, report = patched()
        model.lm_head.requires_grad_(False)
        reference.lm_head.requires_grad_(False)
        model(**batch()).loss.backward()
        reference(**batch()).loss.backward()
        assert model.lm_head.weight.grad is None
        assert_same_gradients(model, reference, **CLOSE)
        assert report.calls["loss"] == 1

    def test_sharded_away(self):
        for shape in ((0,), (0, 32)):
            model, _, _ = patched()
            model.lm_head.weight = nn.Parameter(torch.empty(shape))
            with pytest.raises(RuntimeError, match=r"lm_head.weight has shape \(0.*ZeRO-3"):
                model(**batch())

    def test_gathered_by_hooks_around_the_head(self):
        """As ZeRO-3 does: the weight is only there inside the head's own call."""
        model, reference, report = patched(loss="auto")
        head, full = model.lm_head, model.lm_head.weight.detach().clone()

        def gather(module, args):
            module.weight.data = full

        head.weight.data = torch.empty(0)
        head.register_forward_pre_hook(gather)
        loss = model(**batch()).loss
        loss.backward()
        reference(**batch()).loss.backward()
        assert_same_gradients(model, reference, **CLOSE)
        assert report.fallbacks["loss"] == {"lm_head: it has hooks": 1}

    def test_subclassed_weight_falls_back(self):
        class Quantised(torch.Tensor):
            """Like torchao's: no storage of its own, every operation goes through the dispatcher."""

            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=False)

            def __init__(self, inner):
                self.inner = inner

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                from torch.utils._pytree import tree_map

                plain = tree_map(lambda value: value.inner if isinstance(value, cls) else value, (args, kwargs or {}))
                if func is torch.ops.aten.detach.default:
                    return cls(plain[0][0])
                return func(*plain[0], **plain[1])

        model, _, report = patched(loss="auto")
        model.lm_head.weight = nn.Parameter(Quantised(model.lm_head.weight.detach()), requires_grad=False)
        assert type(model.lm_head) is nn.Linear
        assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.fallbacks["loss"] == {"lm_head: tensor subclass Quantised": 1}

    def test_hooks_still_run(self):
        model, _, report = patched(loss="auto")
        seen = []
        model.lm_head.register_forward_hook(lambda module, args, output: seen.append(output.shape))
        assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert seen == [(1, 8, 64)]
        assert report.calls["loss"] == 0


class TestPeft:
    @pytest.fixture(autouse=True)
    def _peft(self):
        self.peft = pytest.importorskip("peft")

    def pair(self, **config):
        models = []
        for _ in range(2):
            base = tiny()
            torch.manual_seed(1)
            models.append(self.peft.get_peft_model(base, self.peft.LoraConfig(**config)))
        return *models, tigon.patch(models[0])

    def assert_one_step_is_equal(self, model, reference):
        model(**batch()).loss.backward()
        reference(**batch()).loss.backward()
        assert_same_gradients(model, reference, **CLOSE)
        trained = [gradient for gradient in gradients(model).values() if gradient is not None]
        assert any(gradient.abs().sum() > 0 for gradient in trained)

    def test_lora_on_the_head_trains(self):
        model, reference, report = self.pair(r=4, target_modules=["lm_head"], init_lora_weights=False)
        self.assert_one_step_is_equal(model, reference)
        assert report.calls["loss"] == 0
        (reason,) = report.fallbacks["loss"]
        assert "lm_head is peft.tuners.lora" in reason

    def test_target_parameters(self):
        model, reference, report = self.pair(
            r=4, target_modules=["q_proj"], target_parameters=["lm_head.weight"], init_lora_weights=False
        )
        self.assert_one_step_is_equal(model, reference)
        assert report.calls["loss"] == 0

    def test_modules_to_save(self):
        model, reference, report = self.pair(r=4, target_modules=["q_proj"], modules_to_save=["lm_head", "norm"])
        self.assert_one_step_is_equal(model, reference)
        assert report.calls["loss"] == 1
        head = model.base_model.model.lm_head
        assert head.modules_to_save.default.weight.grad.abs().sum() > 0
        with torch.no_grad():
            head.modules_to_save.default.weight.zero_()
        assert model(**batch()).loss.item() == pytest.approx(math.log(64), abs=1e-4)
        with model.disable_adapter():
            assert model(**batch()).loss.item() == pytest.approx(EAGER_LOSS, abs=1e-4)
        assert report.calls["loss"] == 3

    @pytest.mark.parametrize("tuning", ["PromptTuning", "PrefixTuning"])
    def test_virtual_tokens(self, tuning):
        models = []
        for _ in range(2):
            base = tiny()
            torch.manual_seed(1)
            config = getattr(self.peft, f"{tuning}Config")(task_type="CAUSAL_LM", num_virtual_tokens=4)
            models.append(self.peft.get_peft_model(base, config))
        report = tigon.patch(models[0])
        self.assert_one_step_is_equal(*models)
        assert report.calls["loss"] == 1
        kwargs = {**batch(), "attention_mask": torch.ones_like(IDS)}
        torch.testing.assert_close(models[0](**kwargs).loss, models[1](**kwargs).loss, **CLOSE)
