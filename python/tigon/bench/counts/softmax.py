"""softmax: the fewest bytes it can move, and its FLOPs. `shape` is x's."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward: x in, y out. Backward: y and dy in, dx out."""
    return {"forward": 2, "backward": 3}[direction] * math.prod(shape) * dtype.itemsize


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: maximum, difference, exponential (counted as one), sum, product. Backward: 2 and 2."""
    return {"forward": 5, "backward": 4}[direction] * math.prod(shape)
