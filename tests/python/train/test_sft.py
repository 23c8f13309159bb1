"""Whole runs on a tiny model: what they write, and that accumulation, resuming and signals change no loss."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tigon.train import OptionError, SftArguments, checkpoint, finetune, sft
from tigon.train.finetune import SftResult
from tigon.train.model import load_model
from tigon.train.trainer import SftTrainer

DROPOUT = 0.3


def arguments(model: Path, data: Path, out: Path, /, **values: Any) -> SftArguments:
    defaults: dict[str, Any] = {
        "model": str(model),
        "dataset": [str(data)],
        "output_dir": str(out),
        "fused": "false",
        "use_cpu": True,
        "lora_dropout": DROPOUT,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "gradient_checkpointing": False,
        "max_steps": 6,
        "report_to": ["none"],
    }
    return SftArguments(**{**defaults, **values})


def losses(result: SftResult) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in result.log_history if "loss" in entry}


@pytest.fixture(scope="module")
def unbroken(model_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> SftResult:
    """A run of 9 steps over one and a half epochs (6 steps each), with every kind of output."""
    out = tmp_path_factory.mktemp("unbroken")
    return sft(
        arguments(
            model_dir,
            data,
            out,
            max_steps=9,
            save_steps=2,
            val_dataset=[f"{data}#3"],
            warmup_ratio=0.5,
            report_to=["tensorboard"],
        )
    )


@pytest.fixture(scope="module")
def entries(unbroken: SftResult) -> list[dict[str, Any]]:
    text = (unbroken.run / "logging.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_run_folder(unbroken: SftResult, model_dir: Path) -> None:
    assert unbroken.run.name.startswith("v0-")
    assert json.loads((unbroken.run / "args.json").read_text())["model"] == str(model_dir)
    pictures = {path.name for path in (unbroken.run / "images").iterdir()}
    scalars = ("loss", "grad_norm", "learning_rate", "tokens_per_second", "memory")
    assert pictures == {*(f"train_{name}.png" for name in scalars), "eval_loss.png"}
    assert list((unbroken.run / "runs").glob("events.out.tfevents.*"))
    assert [path.name for path in checkpoint.checkpoints(unbroken.run)] == [
        f"checkpoint-{step}" for step in (2, 4, 6, 8, 9)
    ]
    assert not list(unbroken.run.glob("tmp-*"))
    assert unbroken.interrupted is None


def test_log_lines(entries: list[dict[str, Any]]) -> None:
    first = entries[0]
    assert first.keys() >= {
        "loss", "grad_norm", "learning_rate", "epoch", "global_step/max_steps", "percentage",
        "elapsed_time", "remaining_time", "memory(GiB)", "train_speed(s/it)", "tokens_per_second",
    }  # fmt: skip
    assert first["global_step/max_steps"] == "1/9"
    assert first["percentage"] == "11.11%"
    assert first["tokens_per_second"] > 0
    assert any("eval_loss" in entry for entry in entries)
    assert entries[-1]["last_model_checkpoint"].endswith("checkpoint-9")
    assert "trainable" in entries[-1]["model_parameter_info"]


def test_warmup_is_a_share_of_the_steps(entries: list[dict[str, Any]]) -> None:
    rates = [entry["learning_rate"] for entry in entries if "learning_rate" in entry]
    # Warm-up of ceil(9 / 2) = 5 steps; a rate is logged as it was used.
    assert rates[:6] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3])


def test_plain_peft_loads_the_adapter(unbroken: SftResult, model_dir: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(model_dir)
    ids = torch.tensor([[5, 6, 7]])
    before = base(ids).logits
    tuned = PeftModel.from_pretrained(base, unbroken.checkpoint)
    saved = load_file(unbroken.checkpoint / "adapter_model.safetensors")
    torch.testing.assert_close(get_peft_model_state_dict(tuned), saved, rtol=0, atol=0)  # no key too many or too few
    assert not torch.equal(tuned(ids).logits, before)


def test_loss_goes_down(model_dir: Path, data: Path, tmp_path: Path) -> None:
    result = sft(arguments(model_dir, data, tmp_path, tuner_type="full", max_steps=20, learning_rate=1e-2))
    trace = losses(result)
    assert trace[20] < trace[1] - 2


def test_accumulation_does_not_change_loss_or_gradient(model_dir: Path, data: Path, tmp_path: Path) -> None:
    """Micro-batches with different counts of learned tokens must weigh as one batch would."""
    traces = []
    for batch, steps in ((4, 1), (2, 2), (1, 4)):
        result = sft(
            arguments(
                model_dir,
                data,
                tmp_path,
                per_device_train_batch_size=batch,
                gradient_accumulation_steps=steps,
                lora_dropout=0.0,
                max_steps=3,
            )
        )
        traces.append([(e["loss"], e["grad_norm"]) for e in result.log_history if "loss" in e])
    for trace in traces[1:]:
        for got, expected in zip(trace, traces[0], strict=True):
            assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("step", [4, 6])
def test_resume_gives_the_same_losses(
    unbroken: SftResult, model_dir: Path, data: Path, tmp_path: Path, step: int
) -> None:
    """From the middle of an epoch (4) and from its end (6): equal to the last digit."""
    run = tmp_path / unbroken.run.name
    shutil.copytree(unbroken.run, run)
    for later in checkpoint.checkpoints(run):
        if checkpoint.step_of(later) > step:
            shutil.rmtree(later)
    result = sft(
        arguments(
            model_dir,
            data,
            tmp_path,
            max_steps=9,
            save_steps=2,
            val_dataset=[f"{data}#3"],
            warmup_ratio=0.5,
            resume_from_checkpoint="true",
        )
    )
    assert result.run == run
    assert losses(result) == losses(unbroken)
    logged = [json.loads(line) for line in (run / "logging.jsonl").read_text().splitlines()]
    steps = [e["global_step/max_steps"] for e in logged if "loss" in e]
    assert steps == [f"{i}/9" for i in range(1, 10)]


@pytest.fixture(scope="module")
def unsaved(model_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> SftResult:
    """The run that the signals interrupt: neither evaluation nor saving draws from its random states."""
    return sft(arguments(model_dir, data, tmp_path_factory.mktemp("unsaved"), max_steps=9))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_saves(
    unsaved: SftResult,
    model_dir: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    """Sent after the first micro-batch of step 5 (the ninth of all)."""
    before = signal.getsignal(number)
    calls = []
    original = SftTrainer.training_step

    def training_step(self: SftTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = original(self, *args, **kwargs)
        calls.append(loss)
        if len(calls) == 9:
            os.kill(os.getpid(), number)
        return loss

    args = arguments(model_dir, data, tmp_path, max_steps=9)
    with monkeypatch.context() as patch:
        patch.setattr(SftTrainer, "training_step", training_step)
        stopped = sft(args)
    assert len(calls) == 10
    assert stopped.interrupted == number
    assert stopped.checkpoint == stopped.run / "checkpoint-5"
    assert f"--resume_from_checkpoint {stopped.run}" in capsys.readouterr().out
    assert signal.getsignal(number) is before

    args.resume_from_checkpoint = str(stopped.run)
    resumed = sft(args)
    assert losses(resumed) == losses(unsaved)


def test_a_save_that_dies_leaves_nothing_that_looks_whole(
    model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while it writes the second checkpoint: the run goes on from the first, and says so."""
    original = SftTrainer._save_optimizer_and_scheduler

    def dies_at_step_2(self: SftTrainer, folder: str) -> None:
        if self.state.global_step == 2:
            raise KeyboardInterrupt
        original(self, folder)

    args = arguments(model_dir, data, tmp_path, max_steps=3, save_steps=1)
    with monkeypatch.context() as patch:
        patch.setattr(SftTrainer, "_save_optimizer_and_scheduler", dies_at_step_2)
        with pytest.raises(KeyboardInterrupt):
            sft(args)
    (run,) = tmp_path.iterdir()
    assert [path.name for path in checkpoint.checkpoints(run)] == ["checkpoint-1"]
    args.resume_from_checkpoint = str(run)
    assert sft(args).checkpoint == run / "checkpoint-3"
    printed = capsys.readouterr().out
    assert f"Skipped {run / 'tmp-checkpoint-2'}: was never completed" in printed
    assert f"Going on from {run / 'checkpoint-1'}" in printed


def test_few_steps_are_remarked_on(
    model_dir: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """24 samples, 4 in a step, 2 epochs: what is announced is what is run."""
    result = sft(arguments(model_dir, data, tmp_path, max_steps=-1, num_train_epochs=2))
    assert result.step == 12
    printed = capsys.readouterr().out
    assert "12 steps of 4 samples: 2 at a time, 2 times, in 1 process\n12 steps are few: raise" in printed
    assert printed.index("12 steps") < printed.index("step 1/12")


def test_full_tuning(model_dir: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = {"tuner_type": "full", "max_steps": 4, "save_steps": 2, "gradient_checkpointing": True}
    args = arguments(model_dir, data, tmp_path, save_total_limit=1, **common)
    whole = sft(args)
    assert [path.name for path in checkpoint.checkpoints(whole.run)] == ["checkpoint-4"]
    printed = capsys.readouterr().out
    mean = sum(losses(whole).values()) / 4  # each step is logged
    assert f"Done, mean loss {mean:.4f}\n" in printed
    assert "4 steps of 4 samples: 2 at a time, 2 times, in 1 process\n" in printed
    assert "few" not in printed  # the number of steps was asked for
    AutoModelForCausalLM.from_pretrained(whole.checkpoint)
    shutil.rmtree(whole.run / "checkpoint-4")
    half = sft(arguments(model_dir, data, tmp_path, **common))
    shutil.rmtree(half.run / "checkpoint-4")
    args.resume_from_checkpoint = str(half.run)
    assert losses(sft(args)) == losses(whole)


def test_a_model_that_is_not_whole_is_named(model_dir: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(model_dir, tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(OptionError, match=f"--model {broken}: "):
        load_model(str(broken))


def test_changed_flags_are_reported(
    unbroken: SftResult, model_dir: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(unbroken.run / "checkpoint-8", tmp_path / "run" / "checkpoint-8")
    sft(
        arguments(
            model_dir,
            data,
            tmp_path,
            max_steps=9,
            learning_rate=0.5,
            seed=7,
            resume_from_checkpoint=str(tmp_path / "run"),
        )
    )
    printed = capsys.readouterr().out
    assert "Changed: --learning_rate 0.5 (was 0.001): ignored" in printed
    assert "Changed: --seed 7 (was 42): the data order changes" in printed


def test_evaluation_on_a_held_out_part(model_dir: Path, data: Path, tmp_path: Path) -> None:
    result = sft(arguments(model_dir, data, tmp_path, split_dataset_ratio=0.25, max_steps=2, eval_steps=2))
    assert any("eval_loss" in entry for entry in result.log_history)
    assert len((result.run / "val_dataset.jsonl").read_text().splitlines()) == 6
    again = sft(arguments(model_dir, data, tmp_path, val_dataset=[str(result.run / "val_dataset.jsonl")], max_steps=1))
    assert again.step == 1


def test_a_run_with_add_version_false(model_dir: Path, data: Path, tmp_path: Path) -> None:
    args = arguments(model_dir, data, tmp_path / "here", add_version=False, max_steps=2)
    result = sft(args)
    assert result.run == tmp_path / "here"
    with pytest.raises(OptionError, match=r"--output_dir .*here already holds a run: go on with it by"):
        sft(dataclasses.replace(args, max_steps=1))
    assert sft(dataclasses.replace(args, resume_from_checkpoint=str(result.run), max_steps=3)).step == 3


def test_versions_count_up(model_dir: Path, data: Path, tmp_path: Path) -> None:
    runs = [sft(arguments(model_dir, data, tmp_path, max_steps=1)).run.name for _ in range(2)]
    assert [name[:3] for name in runs] == ["v0-", "v1-"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "./absent"}, "--model ./absent: there is no such folder"),
        ({"dataset": ["."]}, "is a folder; name the files in it"),
        ({"target_modules": ["no_such"]}, "--target_modules no_such"),
        ({"max_length": 8}, "no sample is left"),
        ({"lr_scheduler_type": "cosin"}, "cosin"),
        ({"optim": "adamn"}, "adamn"),
    ],
)
def test_mistakes_are_one_sentence(
    model_dir: Path, data: Path, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        sft(arguments(model_dir, data, tmp_path, **values))


def test_fused_false_never_imports_the_patcher(
    model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tigon.hf", None)  # importing it now fails
    assert sft(arguments(model_dir, data, tmp_path, max_steps=1)).fused_calls == 0
    with pytest.raises(OptionError, match="--fused true"):
        sft(arguments(model_dir, data, tmp_path, max_steps=1, fused="true"))
    assert finetune.fused.patch(object(), "auto") is None
