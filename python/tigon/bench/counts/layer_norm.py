"""layer_norm with weight and bias: the fewest bytes it can move, and its FLOPs. `shape` is x's."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward: x in, y out; weight and bias. Backward: x and dy in, dx out; weight, dweight and dbias. Mean and rstd
    follow from a row that is read anyway."""
    streams, vectors = {"forward": (2, 2), "backward": (3, 3)}[direction]
    return (streams * math.prod(shape) + vectors * shape[-1]) * dtype.itemsize


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: 1 for the mean, 3 for the variance, 4 for y. Backward: 6 for the sums, 6 for dx, 5 for
    dweight and dbias."""
    return {"forward": 8, "backward": 17}[direction] * math.prod(shape)
