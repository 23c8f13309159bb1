"""Defaults that depend on other values, and values that are refused."""

from __future__ import annotations

import pytest

from tigon.train import OptionError, SftArguments


def arguments(**values: object) -> SftArguments:
    return SftArguments(**{"model": "m", "dataset": ["d.json"], **values})  # type: ignore[arg-type]


def test_learning_rate_follows_the_tuner() -> None:
    assert arguments().resolved().learning_rate == 1e-4
    assert arguments(tuner_type="full").resolved().learning_rate == 1e-5
    assert arguments(learning_rate=3e-4).resolved().learning_rate == 3e-4


@pytest.mark.parametrize(("batch", "world", "steps"), [(1, 1, 16), (4, 1, 4), (3, 1, 6), (1, 8, 2), (32, 1, 1)])
def test_a_step_sees_16_samples(batch: int, world: int, steps: int) -> None:
    args = arguments(per_device_train_batch_size=batch).resolved(world_size=world)
    assert args.gradient_accumulation_steps == steps


def test_tensorboard_files_are_written_unless_refused() -> None:
    """In some versions of transformers the Trainer's own default is none."""
    assert arguments().resolved().report_to == ["tensorboard"]


def test_evaluation_goes_with_saving() -> None:
    assert arguments(save_steps=7).resolved().eval_steps == 7


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": ""}, "--model is required"),
        ({"dataset": []}, "--dataset is required"),
        ({"bf16": True, "fp16": True}, "exclude each other"),
        ({"label_smoothing_factor": 0.1, "fused": "true"}, "excludes --fused true"),
        ({"split_dataset_ratio": 1.0}, "below 1"),
        ({"lora_rank": 0}, "--lora_rank must be at least 1, got 0"),
        ({"lora_dropout": 1.0}, "--lora_dropout must be at least 0 and below 1, got 1.0"),
        ({"warmup_ratio": 2.0}, "--warmup_ratio must be at least 0 and at most 1, got 2.0"),
        ({"learning_rate": float("nan")}, "--learning_rate must be at least 0, got nan"),
        ({"max_length": 0}, "--max_length must be at least 1, got 0"),
        ({"gradient_accumulation_steps": 0}, "--gradient_accumulation_steps must be at least 1, got 0"),
    ],
)
def test_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        arguments(**values).resolved()


def test_lists_are_not_shared() -> None:
    arguments().target_modules.append("x")
    assert arguments().target_modules == ["all-linear"]
