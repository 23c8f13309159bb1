"""Checkpoints that are whole or absent: written aside, renamed, checked before a run goes on from one."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

from tigon.train.options import OptionError

ASIDE = "tmp-"
ARGS_FILE = "args.json"
_NAME = re.compile(r"checkpoint-(\d+)")
_RUN = re.compile(r"v(\d+)-\d{8}-\d{6}")

# What a resumed run cannot take over from the command line, and why.
_FROM_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
_DATA_ORDER = (
    "dataset",
    "loss_scale",
    "max_length",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "seed",
    "split_dataset_ratio",
    "system",
    "truncation_strategy",
)
_WHERE = ("resume_from_checkpoint", "output_dir", "add_version")


def step_of(checkpoint: Path) -> int:
    match = _NAME.fullmatch(checkpoint.name)
    return int(match.group(1)) if match else -1


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first, whole or not; none where there is no folder."""
    if not run.is_dir():
        return []
    return sorted((path for path in run.iterdir() if step_of(path) >= 0), key=step_of)


def defects(checkpoint: Path, world_size: int = 1) -> list[str]:
    """What keeps a run from going on exactly from this checkpoint; empty if nothing does."""
    found = []
    rng = ["rng_state.pth"] if world_size == 1 else [f"rng_state_{rank}.pth" for rank in range(world_size)]
    for name in ("trainer_state.json", "optimizer.pt", "scheduler.pt", *rng):
        path = checkpoint / name
        if not path.is_file():
            found.append(f"no {name}")
        elif not (_load_json(path) if path.suffix == ".json" else zipfile.is_zipfile(path)):
            found.append(f"broken {name}")
    return found + _weight_defects(checkpoint)


def _weight_defects(checkpoint: Path) -> list[str]:
    index = _load_json(checkpoint / "model.safetensors.index.json")
    if index is not None:
        names = sorted(set(index["weight_map"].values()))
    else:
        names = [n for n in ("adapter_model.safetensors", "model.safetensors") if (checkpoint / n).is_file()]
        if not names:
            return ["no weights"]
    return [f"broken {name}" for name in names if not _is_safetensors(checkpoint / name)]


def _is_safetensors(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt"):  # compares the header with the size of the file
            return True
    except (OSError, SafetensorError):
        return False


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def find(resume: str, output_dir: str, world_size: int = 1) -> tuple[Path, list[str]]:
    """The checkpoint that `--resume_from_checkpoint` means, and a line for each one passed over."""
    if resume.lower() == "true":
        folder = _newest_run(Path(output_dir))
    else:
        folder = Path(resume).expanduser()
        if not folder.is_dir():
            raise OptionError(f"--resume_from_checkpoint {resume}: there is no such folder.")
    if step_of(folder.absolute()) >= 0:
        found = defects(folder, world_size)
        if found:
            raise OptionError(f"--resume_from_checkpoint {resume}: the checkpoint has {', '.join(found)}.")
        return folder, []
    skipped = [f"{path}: was never completed" for path in sorted(folder.glob(f"{ASIDE}checkpoint-*"))]
    for checkpoint in reversed(checkpoints(folder)):
        found = defects(checkpoint, world_size)
        if not found:
            return checkpoint, skipped
        skipped.append(f"{checkpoint}: {', '.join(found)}")
    reasons = "".join(f"\n  {line}" for line in skipped)
    raise OptionError(f"--resume_from_checkpoint {resume}: no complete checkpoint in {folder}.{reasons}")


def _newest_run(output_dir: Path) -> Path:
    runs = [path for path in output_dir.iterdir() if _RUN.fullmatch(path.name)] if output_dir.is_dir() else []
    if runs:
        return max(runs, key=lambda path: int(path.name[1 : path.name.index("-")]))
    if not output_dir.is_dir() or not checkpoints(output_dir):
        raise OptionError(f"--resume_from_checkpoint true: there is no run in {output_dir}.")
    return output_dir


def next_version(output_dir: Path) -> int:
    """The number of a new run's folder: one more than the highest there is."""
    matches = [_RUN.fullmatch(path.name) for path in output_dir.iterdir()] if output_dir.is_dir() else []
    return max((int(match.group(1)) for match in matches if match), default=-1) + 1


def saved_arguments(folder: Path) -> dict[str, Any]:
    """args.json of a checkpoint, or of its run."""
    for place in (folder, folder.absolute().parent):
        saved = _load_json(place / ARGS_FILE)
        if isinstance(saved, dict):
            return saved
    return {}


def changes(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """One line for every flag that differs from the run that is gone on with, and what comes of it."""
    lines = []
    for name, value in now.items():
        if name in _WHERE or name not in saved or saved[name] == value:
            continue
        line = f"--{name} {value} (was {saved[name]})"
        if name in _FROM_OPTIMIZER:
            line += ": ignored, the optimiser's state keeps the old value"
        elif name in _DATA_ORDER:
            line += ": the data order changes, so losses will differ from an unbroken run"
        lines.append(line)
    return lines


def commit(aside: Path, final: Path) -> None:
    """Give a checkpoint its name, once everything in it is on the disk."""
    for path in aside.iterdir():
        if path.is_file():
            _flush(path)
    _flush(aside)
    if final.exists():  # incomplete, or from a run that was rolled back
        shutil.rmtree(final)
    aside.rename(final)
    _flush(final.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rotate(run: Path, keep: int | None) -> None:
    """Delete the oldest checkpoints beyond the limit."""
    if keep is not None:
        for old in checkpoints(run)[: -max(keep, 1)]:
            shutil.rmtree(old, ignore_errors=True)
