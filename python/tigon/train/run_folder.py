"""The folder of one run: its name, agreed between processes, and its args.json."""

from __future__ import annotations

import dataclasses
import datetime
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from tigon.train import checkpoint
from tigon.train.arguments import SftArguments
from tigon.train.console import rank
from tigon.train.options import OptionError


def check(args: SftArguments) -> None:
    """Refuse to mix a new run's files with an old one's."""
    folder = Path(args.output_dir).expanduser()
    if not args.add_version and ((folder / checkpoint.ARGS_FILE).is_file() or checkpoint.checkpoints(folder)):
        raise OptionError(
            f"--output_dir {args.output_dir} already holds a run: go on with it by --resume_from_checkpoint "
            f"{args.output_dir}, or name another folder, or leave --add_version true"
        )


def create(args: SftArguments) -> Path:
    """Make the folder in the first process and tell the others its name."""
    name = [""]
    if rank() == 0:
        name[0] = str(_make(Path(args.output_dir).expanduser(), args.add_version))
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(name, src=0)
    return Path(name[0])


def _make(output_dir: Path, add_version: bool) -> Path:
    if add_version:
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        output_dir = output_dir / f"v{checkpoint.next_version(output_dir)}-{now}"
    output_dir.mkdir(parents=True, exist_ok=not add_version)
    return output_dir.absolute()


def write_args(folder: Path, args: SftArguments) -> None:
    """All arguments under the names of their flags, and what they ran on."""
    values: dict[str, Any] = dataclasses.asdict(args)
    values["versions"] = {name: _version(name) for name in ("tigon", "torch", "transformers", "peft")}
    text = json.dumps(values, ensure_ascii=False, indent=2)
    (folder / checkpoint.ARGS_FILE).write_text(text + "\n", encoding="utf-8")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
