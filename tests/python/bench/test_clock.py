"""The clock's rules on a simulated GPU, and what a CPU's allocator is seen to hand out."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tigon.bench import clock
from tigon.bench.clock import Clock

CPU = torch.device("cpu")
FLUSH_SECONDS = 1e-4


class Machine:
    """A host and a GPU with a queue, in seconds of their own."""

    def __init__(self) -> None:
        self.now = self.free = 0.0

    def launch(self, host: float, gpu: float) -> None:
        self.now += host
        self.free = max(self.now, self.free) + gpu

    def wait(self) -> None:
        self.now = max(self.now, self.free)


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.at = machine, 0.0

    def record(self) -> None:
        self.at = max(self.machine.now, self.machine.free)

    def query(self) -> bool:
        return self.machine.now >= self.at

    def elapsed_time(self, other: Event) -> float:
        return 1e3 * (other.at - self.at)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: found.now))
    return found


def simulated(machine: Machine, calls: int = 5) -> Any:
    made: Any = Clock(CPU, calls)
    made._cuda = True
    made._flush = SimpleNamespace(zero_=lambda: machine.launch(2e-6, FLUSH_SECONDS))
    made._flush_ms = 1e3 * FLUSH_SECONDS
    made._event = lambda: Event(machine)
    made._wait = machine.wait
    return made


def kernels(machine: Machine, number: int, host: float, gpu: float) -> Callable[[], None]:
    def run() -> None:
        for _ in range(number):
            machine.launch(host, gpu)

    return run


@pytest.mark.parametrize("host", [1e-6, 1e-4, 2e-3])  # seconds per launch; 10 launches of 50 µs
def test_a_slow_host_is_not_counted(machine: Machine, host: float) -> None:
    timing = simulated(machine)._on_gpu(kernels(machine, 10, host, 5e-5))
    assert timing.ms == pytest.approx(0.5)
    assert not timing.host_counted


def test_a_host_that_was_quick_only_once_gets_a_longer_lead(machine: Machine) -> None:
    """The first call, from which the lead is taken, is a hundred times faster to issue than all others."""
    slow: list[bool] = []

    def run() -> None:
        kernels(machine, 10, 1e-3 if slow else 1e-5, 5e-5)()
        slow.append(True)

    timing = simulated(machine)._on_gpu(run)
    assert timing.ms == pytest.approx(0.5)
    assert not timing.host_counted


def test_a_call_that_waits_for_the_gpu_says_so(machine: Machine) -> None:
    def run() -> None:
        machine.launch(1e-5, 5e-5)
        machine.wait()
        machine.launch(1e-4, 5e-5)

    timing = simulated(machine)._on_gpu(run)
    assert timing.host_counted
    assert timing.ms == pytest.approx(0.05 + 0.1 + 0.05)  # with the launch that the GPU waited for


def test_a_host_slower_than_the_longest_lead_says_so_and_ends(machine: Machine) -> None:
    timing = simulated(machine)._on_gpu(kernels(machine, 10, 0.1, 5e-5))
    assert timing.host_counted
    assert timing.ms > 500


def test_calls_stay_within_the_time_that_they_may_take(machine: Machine) -> None:
    made = simulated(machine, calls=100)
    made.seconds = 1.0
    made._on_gpu(kernels(machine, 1, 1e-5, 0.1))
    assert machine.now < 2.0


def test_memory_of_a_call_on_a_cpu() -> None:
    """Two tensors of 1 MiB at once are the peak, whatever came and went before; the operand is no part of it."""
    operand = torch.ones(2**18)

    def run() -> torch.Tensor:
        first = operand + 1
        second = first * 2
        del first
        return second.neg_()

    assert Clock(CPU).extra_mib(run) == pytest.approx(2, abs=0.01)
    assert Clock(CPU).extra_mib(lambda: None) == 0
