"""Printing from a program that may run as several processes, on terminals of any encoding."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def program(*, by_path: bool = False) -> str:
    """How to call this installation's `tigon` from this shell: by its name only where PATH leads to it.

    by_path: never by its name, for a caller whose PATH is not the user's.
    """
    called = Path(sys.argv[0])
    ours = called if called.name == "tigon" and called.is_file() else Path(sys.executable).with_name("tigon")
    if not ours.is_file():
        return f"{shlex.quote(sys.executable)} -m tigon.cli"
    found = shutil.which("tigon")
    if found is not None and os.path.samefile(found, ours) and not by_path:
        return "tigon"
    near = os.path.relpath(ours)
    return shlex.quote(os.path.abspath(ours) if near.startswith("..") else near if os.sep in near else f"./{near}")


def say(text: str = "") -> None:
    """Print once per job: only the first process speaks."""
    if rank() == 0:
        from tqdm import tqdm

        tqdm.write(text)  # above a progress bar, not into it
        sys.stdout.flush()


def tolerate_any_encoding() -> None:
    """Escape what a terminal cannot show instead of failing on it (files are UTF-8 regardless)."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
