"""Speed and memory of the run so far."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator

import torch


class Meter:
    """Counts tokens against the time that was spent on training, not on evaluation or saving."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.tokens = 0
        self._begin = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._begin

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._begin += time.perf_counter() - begin


def peak_memory_gib() -> float:
    """Peak of the device's allocator, or of the process where there is no GPU."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_reserved()) / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
