"""rms_norm: the fewest bytes it can move, and its FLOPs. `shape` is x's; the weight has its last axis."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward: x in, y out. Backward: x and dy in, dx out. The weight and dweight besides; rstd follows from a row that
    is read anyway."""
    streams, vectors = {"forward": (2, 1), "backward": (3, 2)}[direction]
    return (streams * math.prod(shape) + vectors * shape[-1]) * dtype.itemsize


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: square, add, two products. Backward: 4 for the row's sum, 4 for dx, 3 for dweight."""
    return {"forward": 4, "backward": 11}[direction] * math.prod(shape)
