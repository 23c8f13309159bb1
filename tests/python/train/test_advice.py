"""What a run says before its first step, and how it says that it can be called again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tigon.train import SftArguments
from tigon.train.advice import plan
from tigon.train.console import program


def said(steps: int, *, processes: int = 1, on_cpu: bool = False, **values: Any) -> list[str]:
    args = SftArguments(model="m", dataset=["d"], **values).resolved(world_size=processes)
    return plan(args, steps=steps, processes=processes, on_cpu=on_cpu)


def test_few_steps_name_the_flags_with_their_values() -> None:
    assert said(15) == [
        "15 steps of 16 samples: 1 at a time, 16 times, in 1 process",
        "15 steps are few: raise --num_train_epochs (now 3; 10 make about 50 steps), "
        "lower --gradient_accumulation_steps (now 16) or raise --learning_rate (now 0.0001)",
    ]
    assert "lower --per_device_train_batch_size (now 16)" in said(15, per_device_train_batch_size=16)[1]
    alone = said(1, gradient_accumulation_steps=1, num_train_epochs=0.5)
    assert alone[0] == "1 step of 1 sample: 1 at a time, 1 time, in 1 process"
    assert alone[1] == (
        "1 step is little: raise --num_train_epochs (now 0.5; 25 make about 50 steps) "
        "or raise --learning_rate (now 0.0001)"
    )


def test_enough_or_intended_steps_are_not_remarked_on() -> None:
    assert said(1200, processes=2) == ["1,200 steps of 16 samples: 1 at a time, 8 times, in 2 processes"]
    assert len(said(50)) == 1
    assert len(said(20, max_steps=20)) == 1


def test_on_a_cpu_checkpointing_is_remarked_on() -> None:
    assert "--gradient_checkpointing true" in said(50, on_cpu=True)[1]
    assert len(said(50, on_cpu=True, gradient_checkpointing=False)) == 1


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment's tigon, called by module as the demo does, in its parent folder, not on PATH."""
    ours = tmp_path / "my env/bin/tigon"
    ours.parent.mkdir(parents=True)
    ours.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(ours.with_name("python")))
    monkeypatch.setattr(sys, "argv", ["python/tigon/cli/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return ours


def test_tigon_is_called_by_its_name_only_where_path_leads_to_it(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program() == "'my env/bin/tigon'"
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program() == "tigon"
    assert program(by_path=True) == "'my env/bin/tigon'"
    another = tmp_path / "tigon"
    another.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{installed.parent}")
    assert program() == "'my env/bin/tigon'"
    monkeypatch.setattr(sys, "argv", [str(another)])
    assert program() == "tigon"
    monkeypatch.chdir(installed.parent)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert program() == "./tigon"
    monkeypatch.chdir("/usr")
    assert program() == f"'{installed}'"


def test_tigon_is_called_as_a_module_where_there_is_no_program(installed: Path) -> None:
    installed.unlink()
    assert program() == f"'{installed.parent}/python' -m tigon.cli"
