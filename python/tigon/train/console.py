"""Printing from a program that may run as several processes, on terminals of any encoding."""

from __future__ import annotations

import os
import sys


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


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
