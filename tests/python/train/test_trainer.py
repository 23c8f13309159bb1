"""Batches without labels, and evaluation that never makes logits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tiny_chat as tiny
from tigon.train import SftArguments
from tigon.train.collator import PaddingCollator
from tigon.train.hf_arguments import training_arguments
from tigon.train.template import IGNORE, Encoded
from tigon.train.trainer import SftTrainer

VOCAB = 264


def sample(learned: bool, length: int = 12) -> Encoded:
    ids = [(7 * i) % 200 + 3 for i in range(length)]
    return Encoded(ids, [IGNORE, *(ids[1:] if learned else [IGNORE] * (length - 1))])


def trainer(
    out: Path, samples: Sequence[Encoded], model: Any = None, *, skip_logits: bool = False, **values: Any
) -> SftTrainer:
    defaults: dict[str, Any] = {
        "model": "tiny",
        "dataset": ["none"],
        "output_dir": str(out),
        "use_cpu": True,
        "gradient_accumulation_steps": 2,
        "gradient_checkpointing": False,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "max_steps": 3,
        "save_steps": 100,
    }
    args = SftArguments(**{**defaults, **values}).resolved()
    hf = training_arguments(args, dtype=torch.float32, evaluate=False)
    hf.save_strategy = "no"
    if hasattr(hf, "train_sampling_strategy"):
        hf.train_sampling_strategy = "sequential"
    made = SftTrainer(
        model=model or tiny.make_model(VOCAB),
        args=hf,
        train_dataset=samples,
        eval_dataset=samples,
        data_collator=PaddingCollator(2),
        write_args=lambda folder: None,
        skip_logits=skip_logits,
    )
    made._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(samples)
    return made


def finite(model: torch.nn.Module) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@pytest.mark.parametrize(
    "learned",
    [[False, False, True, True, True, True], [True, False, True, True, True, True]],
    ids=["a whole step", "one micro-batch"],
)
def test_a_batch_without_labels_is_skipped_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], learned: list[bool]
) -> None:
    run = trainer(tmp_path, [sample(flag) for flag in learned])
    run.train()
    assert finite(run.model)
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert all(loss == loss for loss in losses)  # not NaN
    assert losses[2] > 0
    assert "Step 1: a batch has no label" in capsys.readouterr().out


def test_an_empty_micro_batch_adds_nothing(tmp_path: Path) -> None:
    """A step of (labels, none) makes the weights that a step of (labels) alone makes."""
    both = trainer(tmp_path, [sample(True), sample(False)], max_steps=1)
    alone = trainer(tmp_path, [sample(True)], max_steps=1, gradient_accumulation_steps=1)
    both.train()
    alone.train()
    for got, expected in zip(both.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_without_labels_the_loss_and_gradients_are_zero(tmp_path: Path) -> None:
    """What a process of a distributed job does, which may not skip."""
    run = trainer(tmp_path, [sample(False)])
    inputs = PaddingCollator(2)([sample(False)])
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask", "labels")}
    for count in (torch.tensor(0), torch.tensor(0.0)):
        run.model.zero_grad()
        loss = run.compute_loss(run.model, inputs, num_items_in_batch=count)
        loss.backward()
        assert loss.item() == 0
        assert all(not p.grad.any() for p in run.model.parameters() if p.grad is not None)


def test_a_nan_loss_is_logged(tmp_path: Path) -> None:
    model = tiny.make_model(VOCAB)
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    run = trainer(tmp_path, [sample(True)] * 6, model)
    run.train()
    assert run.state.log_history[0]["loss"] != run.state.log_history[0]["loss"]


class LargestTensor(TorchDispatchMode):
    """The most elements that any operator's result has had."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_evaluation_makes_no_logits(tmp_path: Path) -> None:
    hf = pytest.importorskip("tigon.hf")
    ops = pytest.importorskip("tigon.ops")
    if not ops.has_kernels("cpu"):
        pytest.skip("the operators are not built")
    vocab, length = 4096, 256
    model = tiny.make_model(vocab)
    report = hf.patch(model)
    assert report.patched("loss")
    samples = [sample(True, length)] * 4
    run = trainer(tmp_path, samples, model, skip_logits=True, per_device_eval_batch_size=4)
    expected = trainer(tmp_path, samples, per_device_eval_batch_size=4, model=tiny.make_model(vocab)).evaluate()
    with LargestTensor() as largest:
        metrics = run.evaluate()
    assert metrics["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)
    assert largest.elements < 4 * length * vocab
