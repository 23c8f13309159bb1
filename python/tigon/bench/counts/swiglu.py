"""swiglu: the fewest bytes it can move, and its FLOPs. `shape` is up's, packed or not."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward: gate and up in, y out. Backward: dy, gate and up in, dgate and dup out."""
    return {"forward": 3, "backward": 5}[direction] * math.prod(shape) * dtype.itemsize


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: exponential (as one), sum, quotient, product. Backward: 3 for the slope, 3 products."""
    return {"forward": 4, "backward": 10}[direction] * math.prod(shape)
