"""How calls are timed: on the GPU's own clock with the caches flushed, or on the wall clock of a CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_FLUSH = 2**29  # bytes: more than any L2 cache, and long enough for the host to be ahead of the GPU
_SHORT_MS = 0.02  # below, the events' own resolution shows: many calls in one CUDA graph are timed instead
_GRAPHED = 20


@dataclass(frozen=True)
class Timing:
    """Milliseconds: the median, and the distance between the tenth and the ninetieth percentile."""

    ms: float
    spread: float


class Clock:
    """Times a call on one device; `calls` times after three that do not count."""

    def __init__(self, device: torch.device, calls: int = 25) -> None:
        self.device, self.calls = device, calls
        self._cuda = device.type == "cuda"
        self._flush = torch.empty(_FLUSH, dtype=torch.uint8, device=device) if self._cuda else None

    def __call__(self, run: Callable[[], Any]) -> Timing:
        for _ in range(3):
            run()
        if not self._cuda:
            return _timing([self._seconds(run) * 1e3 for _ in range(self.calls)])
        timing = _timing(self._on_gpu(run))
        if timing.ms >= _SHORT_MS:
            return timing
        try:
            return self._in_a_graph(run)
        except RuntimeError:  # what cannot be captured keeps its events
            torch.cuda.synchronize(self.device)
            return timing

    def host_us(self, run: Callable[[], Any]) -> float | None:
        """Microseconds that a call keeps the host, the GPU's work not waited for; None on a CPU."""
        if not self._cuda:
            return None
        torch.cuda.synchronize(self.device)
        times = [self._seconds(run) * 1e6 for _ in range(self.calls)]
        torch.cuda.synchronize(self.device)
        return statistics.median(times)

    def extra_mib(self, run: Callable[[], Any]) -> float | None:
        """MiB that a call allocates at its peak, its results counted in; None on a CPU."""
        if not self._cuda:
            return None
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        result = run()
        peak = torch.cuda.max_memory_allocated(self.device)
        del result
        return (peak - before) / 2**20

    def _on_gpu(self, run: Callable[[], Any]) -> list[float]:
        assert self._flush is not None
        events = []
        for _ in range(self.calls):
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()  # type: ignore[no-untyped-call]
            run()
            end.record()  # type: ignore[no-untyped-call]
            events.append((start, end))
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) for start, end in events]  # type: ignore[no-untyped-call]

    def _in_a_graph(self, run: Callable[[], Any]) -> Timing:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_GRAPHED):
                run()
        times = self._on_gpu(graph.replay)
        return _timing([ms / _GRAPHED for ms in times])

    @staticmethod
    def _seconds(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


def _timing(times: list[float]) -> Timing:
    ordered = sorted(times)
    return Timing(statistics.median(ordered), ordered[int(0.9 * len(ordered))] - ordered[int(0.1 * len(ordered))])
