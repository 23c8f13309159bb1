"""skeleton: the fewest bytes it can move, and its FLOPs. `shape` is x's; the weight has its last axis."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward: x in, y out. Backward: x and dy in, dx out. The weight and dweight besides."""
    streams, vectors = {"forward": (2, 1), "backward": (3, 2)}[direction]
    return (streams * math.prod(shape) + vectors * shape[-1]) * dtype.itemsize


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: one product. Backward: one for dx, two for dweight."""
    return {"forward": 1, "backward": 3}[direction] * math.prod(shape)
