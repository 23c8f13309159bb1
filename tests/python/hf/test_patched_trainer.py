"""Under Hugging Face's Trainer: what it passes, what it reads, and what it takes away from the model."""

from __future__ import annotations

import pytest
import torch

import tigon
from hf.tiny import assert_same_gradients, tiny, twin
from tigon.hf import Unsupported

pytest.importorskip("accelerate")
from transformers import Trainer, TrainingArguments

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def samples(count, length=6):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, 64, (count, length), generator=generator)
    return [{"input_ids": row, "labels": row} for row in ids]


def trainer(model, tmp_path, *, data=None, evaluation=None, compute_loss_func=None, model_init=None, **arguments):
    defaults = {
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 4,
        "max_steps": 3,
        "learning_rate": 1e-2,
    }
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        **{**defaults, **arguments},
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=data or samples(8),
        eval_dataset=evaluation,
        compute_loss_func=compute_loss_func,
        model_init=model_init,
    )


def losses(trained):
    trained.train()
    return [entry["loss"] for entry in trained.state.log_history if "loss" in entry]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_training_equals_eager(tmp_path, accumulation):
    model = tiny()
    reference = twin(model)
    report = tigon.patch(model, loss=True)
    data = samples(12)
    for index, sample in enumerate(data):  # a different number of learned tokens in each
        sample["labels"] = sample["labels"].clone()
        sample["labels"][: index % 5] = -100
    kwargs = {"data": data, "gradient_accumulation_steps": accumulation}
    ours, theirs = (losses(trainer(each, tmp_path, **kwargs)) for each in (model, reference))
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert report.calls["loss"] == 3 * accumulation


def test_batches_without_labels_leave_the_model_finite(tmp_path):
    data = samples(8)
    for sample in data[:4]:
        sample["labels"] = torch.full_like(sample["labels"], -100)
    model = tiny()
    tigon.patch(model)
    losses(trainer(model, tmp_path, data=data, max_steps=4))
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_evaluation_finds_the_loss_and_the_predictions(tmp_path):
    model = tiny()
    reference = twin(model)
    report = tigon.patch(model)
    ours, theirs = (trainer(each, tmp_path, evaluation=samples(4)) for each in (model, reference))
    assert ours.label_names == ["labels"]
    assert ours.evaluate()["eval_loss"] == pytest.approx(theirs.evaluate()["eval_loss"], rel=1e-4)
    predictions = ours.predict(samples(4)).predictions
    assert predictions.shape == (4, 6, 64)
    assert predictions == pytest.approx(theirs.predict(samples(4)).predictions, rel=1e-3, abs=1e-5)
    assert report.fallbacks["loss"]["logits were asked for"] >= 2


def test_evaluation_that_skips_logits(tmp_path):
    """What `tigon sft` does, and Trainer itself with `use_liger_kernel`."""

    class Lean(Trainer):
        def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
            return super().prediction_step(model, {**inputs, "skip_logits": True}, True, ignore_keys)

    model = tiny()
    expected = trainer(twin(model), tmp_path, evaluation=samples(4)).evaluate()["eval_loss"]
    report = tigon.patch(model)
    heads = []
    model.model.register_forward_hook(lambda *_: heads.append(1))
    lean = Lean(model=model, args=trainer(model, tmp_path).args, eval_dataset=samples(4))
    assert lean.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)
    assert report.calls["loss"] == len(heads) == 1


def own_loss(outputs, labels, num_items_in_batch=None):
    return outputs.logits.float().square().mean()


@pytest.mark.parametrize("bypass", [{"label_smoothing_factor": 0.1}, {"compute_loss_func": own_loss}])
def test_a_loss_outside_the_model_is_equal_and_said(tmp_path, bypass, caplog):
    model = tiny()
    reference = twin(model)
    report = tigon.patch(model)
    ours, theirs = (losses(trainer(each, tmp_path, **bypass)) for each in (model, reference))
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert report.calls["loss"] == 0
    assert report.calls["rms_norm"] == 3 * 7
    assert [record.message for record in caplog.records if "loss runs" in record.message] == [
        "tigon: loss runs in PyTorch: called in training without labels: the caller makes its own loss"
    ]
    with pytest.raises(Unsupported, match="loss was requested and made 0 fused calls: called in training without"):
        report.require()


def test_a_model_made_by_model_init_was_never_patched(tmp_path):
    model = tiny()
    report = tigon.patch(model)
    losses(trainer(None, tmp_path, model_init=lambda: tiny()))
    with pytest.raises(Unsupported, match="its forward was never reached"):
        report.require()
    report = tigon.patch("llama")
    losses(trainer(None, tmp_path, model_init=lambda: tiny()))
    report.require()


def test_mixed_precision(tmp_path):
    model = tiny()
    reference = twin(model)
    report = tigon.patch(model)
    kwargs = {"bf16": True, "evaluation": samples(4)}
    ours = trainer(model, tmp_path, **kwargs)
    assert losses(ours) == pytest.approx(losses(trainer(reference, tmp_path, **kwargs)), rel=2e-2)
    assert report.calls["loss"] == 3
    assert ours.predict(samples(4)).predictions.shape == (4, 6, 64)


def test_gradients_of_one_accumulated_batch(tmp_path):
    """`num_items_in_batch` reaches the loss as Trainer made it."""
    model = tiny()
    reference = twin(model)
    tigon.patch(model)
    batches = [{name: value[None] for name, value in sample.items()} for sample in samples(2)]
    for each in (model, reference):
        own = trainer(each, tmp_path)
        items = own._get_num_items_in_batch(batches, torch.device("cpu"))
        for batch in batches:
            own.compute_loss(each, batch, num_items_in_batch=items).backward()
    assert_same_gradients(model, reference, **CLOSE)
