"""How calls are timed: on the GPU's own clock with the caches flushed, or on the wall clock of a CPU."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_WARMUP = 3
_FEWEST_CALLS = 3
_MOST_SECONDS = 10.0  # of calls for one median
_FLUSH = 2**29  # bytes: more than any L2 cache
_SHORT_MS = 0.02  # below, the events' own resolution shows: many calls in one CUDA graph are timed instead
_GRAPHED = 20
_HOST_CALLS = 100
_HOST_SECONDS = 0.002  # of one round: some hundred launches, fewer than a queue holds


@dataclass(frozen=True)
class Timing:
    """Milliseconds: the median, and the distance between the tenth and the ninetieth percentile."""

    ms: float
    spread: float
    graphed: bool = False  # in a CUDA graph: nothing is flushed, and launches leave no gaps


class Clock:
    """Times a call on one device: the median of `calls`, of fewer where they would take longer than 10 s.

    On a GPU the L2 cache is flushed before every call, except for kernels under 20 µs: what these work on is small
    enough to lie in it whenever they run.
    """

    def __init__(self, device: torch.device, calls: int = 25) -> None:
        self.device, self.calls = device, calls
        self._cuda = device.type == "cuda"
        if self._cuda:
            self._flush = torch.empty(_FLUSH, dtype=torch.uint8, device=device)
            self._flush_ms = 0.1  # a first guess
            self._flush_ms = self._on_gpu(self._flush.zero_).ms

    def __call__(self, run: Callable[[], Any], graphed: bool | None = None) -> Timing:
        """graphed: in a CUDA graph or not, as what it is compared with; None: as its time suggests."""
        for _ in range(_WARMUP):
            run()
        if not self._cuda:
            return _timing([_seconds(run) * 1e3 for _ in range(self._affordable(_seconds(run)))])
        timing = self._on_gpu(run)
        if not (timing.ms < _SHORT_MS if graphed is None else graphed):
            return timing
        try:
            return self._in_a_graph(run)
        except RuntimeError:  # what cannot be captured keeps its events
            self._wait()
            return timing

    def host_us(self, run: Callable[[], Any]) -> float | None:
        """Microseconds that a call keeps the host, the GPU's work not waited for; None on a CPU."""
        if not self._cuda:
            return None
        self._wait()
        calls = max(1, min(_HOST_CALLS, int(_HOST_SECONDS / max(_seconds(run), 1e-9))))
        rounds = []
        for _ in range(5):
            self._wait()  # the queue of launches is empty, and short enough not to fill in one round
            rounds.append(_seconds(lambda: [run() for _ in range(calls)]) / calls * 1e6)
        self._wait()
        return statistics.median(rounds)

    def extra_mib(self, run: Callable[[], Any]) -> float | None:
        """MiB that a call allocates at its peak, its results counted in; None on a CPU."""
        if not self._cuda:
            return None
        self._wait()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        result = run()
        peak = torch.cuda.max_memory_allocated(self.device)
        del result
        return (peak - before) / 2**20

    def _wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def _affordable(self, seconds: float) -> int:
        return max(_FEWEST_CALLS, min(self.calls, int(_MOST_SECONDS / max(seconds, 1e-9))))

    def _on_gpu(self, run: Callable[[], Any]) -> Timing:
        self._wait()
        start = time.perf_counter()
        run()
        issued = time.perf_counter() - start
        self._wait()
        calls = self._affordable(time.perf_counter() - start)
        # Long enough for the host to be ahead when the clock starts.
        flushes = min(20, max(1, math.ceil(1.5e3 * issued / self._flush_ms)))
        events = []
        for _ in range(calls):
            for _ in range(flushes):
                self._flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()  # type: ignore[no-untyped-call]
            run()
            end.record()  # type: ignore[no-untyped-call]
            events.append((begin, end))
        self._wait()
        return _timing([begin.elapsed_time(end) for begin, end in events])  # type: ignore[no-untyped-call]

    def _in_a_graph(self, run: Callable[[], Any]) -> Timing:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_GRAPHED):
                run()
        timing = self._on_gpu(graph.replay)
        return Timing(timing.ms / _GRAPHED, timing.spread / _GRAPHED, graphed=True)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _timing(times: list[float]) -> Timing:
    ordered = sorted(times)
    last = len(ordered) - 1
    return Timing(statistics.median(ordered), ordered[round(0.9 * last)] - ordered[round(0.1 * last)])
