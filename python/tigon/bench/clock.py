"""How calls are timed: on the GPU's own clock with the caches flushed, or on the wall clock of a CPU."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

_WARMUP = 3
_FEWEST_CALLS = 3
_MOST_SECONDS = 10.0  # of calls for one median
_LONGEST_LEAD = 0.1  # seconds of work that the GPU is given before the clock starts
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
    graphed: bool = False  # twenty in a CUDA graph: flushed once for all, and launches leave no gaps
    host_counted: bool = False  # the GPU may have waited for the host meanwhile


class Clock:
    """Times a call on one device: the median of `calls`, of fewer where they would take longer than `seconds`.

    On a GPU the L2 cache is flushed before every call, except for kernels under 20 µs: what these work on is small
    enough to lie in it whenever they run. The flushes are also the host's lead: a call is timed by the GPU's clock
    alone if the GPU had not begun with it when the host had issued all of it, which is asked of every call. Where that
    is not so, the lead is made longer, up to 0.1 s; a call that waits for the GPU itself never gets there, and its
    Timing says so.
    """

    def __init__(self, device: torch.device, calls: int = 25, seconds: float = _MOST_SECONDS) -> None:
        self.device, self.calls, self.seconds = device, calls, seconds
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
        """MiB that a call allocates at its peak, its results counted in: what PyTorch's allocator hands out. Buffers
        that a library takes from the system by itself (oneDNN's on a CPU) are not in it. None where it cannot be
        known."""
        if not self._cuda:
            return _allocated_mib(run)
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
        return max(_FEWEST_CALLS, min(self.calls, int(self.seconds / max(seconds, 1e-9))))

    def _on_gpu(self, run: Callable[[], Any]) -> Timing:
        self._wait()
        start = time.perf_counter()
        run()
        issued = time.perf_counter() - start
        self._wait()
        took = time.perf_counter() - start
        lead = shortest = min(1.5 * issued, _LONGEST_LEAD)
        while not any(ahead for _, ahead in self._samples(run, 2, lead)):
            if lead >= _LONGEST_LEAD:
                samples = self._samples(run, self._affordable(took + shortest), shortest)
                return replace(_timing([ms for ms, _ in samples]), host_counted=True)
            lead = min(2 * lead, _LONGEST_LEAD)
        samples = self._samples(run, self._affordable(took + lead), lead)
        apart = [ms for ms, ahead in samples if ahead]
        if 2 * len(apart) >= len(samples):
            return _timing(apart)
        return replace(_timing([ms for ms, _ in samples]), host_counted=True)

    def _samples(self, run: Callable[[], Any], calls: int, lead: float) -> list[tuple[float, bool]]:
        """Milliseconds of each call, and whether the host had issued all of it before the GPU began."""
        flushes = max(1, math.ceil(1e3 * lead / self._flush_ms))
        events = []
        for _ in range(calls):
            for _ in range(flushes):
                self._flush.zero_()
            begin, end = self._event(), self._event()
            begin.record()
            run()
            end.record()
            events.append((begin, end, not begin.query()))
        self._wait()
        return [(begin.elapsed_time(end), ahead) for begin, end, ahead in events]

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)

    def _in_a_graph(self, run: Callable[[], Any]) -> Timing:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_GRAPHED):
                run()
        timing = self._on_gpu(graph.replay)
        return Timing(timing.ms / _GRAPHED, timing.spread / _GRAPHED, True, timing.host_counted)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _timing(times: list[float]) -> Timing:
    ordered = sorted(times)
    last = len(ordered) - 1
    return Timing(statistics.median(ordered), ordered[round(0.9 * last)] - ordered[round(0.1 * last)])


def _allocated_mib(run: Callable[[], Any]) -> float | None:
    """The highest level of what a call's allocations and releases on this CPU add up to. None where this torch cannot
    say: only its oldest profiler lists them without seconds of its own."""
    autograd: Any = torch.autograd
    try:
        config = autograd.ProfilerConfig(
            autograd.ProfilerState.CPU, False, True, False, False, False, torch._C._profiler._ExperimentalConfig()
        )
        autograd._enable_profiler_legacy(config)
    except (AttributeError, RuntimeError, TypeError):
        return None
    try:
        result = run()
    finally:
        threads = autograd._disable_profiler_legacy()
    level = peak = 0
    for event in (event for events in threads for event in events if event.kind() == "memory_alloc"):
        level += event.cpu_memory_usage()
        peak = max(peak, level)
    del result
    return peak / 2**20
