"""What the machine can do at most: the yardsticks of every share that is printed."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from tigon.bench.clock import Clock

_LARGE = {"cuda": 2**32, "cpu": 2**28}  # bytes of one operand
_GEMM = {"cuda": 8192, "cpu": 1024}  # rows, columns and inner size


def measure(clock: Clock, progress: Callable[[str], None]) -> dict[str, float]:
    """GB/s of a large copy (bytes read and written), read and write; TFLOP/s of a matrix product; on a GPU the
    microseconds of a smallest kernel in a CUDA graph of them, and those that the host spends on one."""
    device = clock.device
    kind = device.type
    size = _LARGE[kind]
    if kind == "cuda":  # two of them, and room for the rest
        size = min(size, torch.cuda.mem_get_info(device)[0] // 4)
    found: dict[str, float] = {}
    progress("copy")
    found["copy_gb_s"] = copy_rate(clock, size)
    progress("read")
    found["read_gb_s"] = read_rate(clock, size)
    progress("write")
    found["write_gb_s"] = write_rate(clock, size)
    progress("matrix product")
    n = _GEMM[kind]
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    found["gemm_tflop_s"] = 2 * n**3 / clock(lambda: a @ b).ms / 1e9
    if kind == "cuda":
        progress("launch")
        one = torch.zeros(1, device=device)
        found["launch_us"] = clock(lambda: one.add_(1)).ms * 1e3
        found["host_us"] = clock.host_us(lambda: one.add_(1)) or 0.0
    return found


def read_rate(clock: Clock, size: int) -> float:
    """GB/s of a sum."""
    source = torch.ones(size // 4, dtype=torch.float32, device=clock.device)
    return size / clock(source.sum).ms / 1e6


def write_rate(clock: Clock, size: int) -> float:
    """GB/s of a fill."""
    target = torch.empty(size // 4, dtype=torch.float32, device=clock.device)
    return size / clock(lambda: target.fill_(2.0)).ms / 1e6


def copy_rate(clock: Clock, size: int) -> float:
    """GB/s, read and written, of a copy of `size` bytes."""
    a, b = (torch.ones(max(1, size), dtype=torch.uint8, device=clock.device) for _ in range(2))
    return 2 * size / clock(lambda: b.copy_(a)).ms / 1e6


def product_ms(clock: Clock, shapes: list[tuple[int, int, int]], dtype: torch.dtype) -> float:
    """Milliseconds of plain products [m, k] x [k, n] one after another: what a fused head is compared with."""
    total = 0.0
    for m, k, n in shapes:
        a = torch.randn(m, k, device=clock.device).to(dtype)
        b = torch.randn(k, n, device=clock.device).to(dtype)
        total += clock(functools.partial(torch.mm, a, b)).ms
    return total
