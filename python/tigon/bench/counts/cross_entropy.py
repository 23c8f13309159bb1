"""cross_entropy: the fewest bytes it can move, and its FLOPs. `shape` is the logits'."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward alone: logits in. Both directions: logits in, their gradient out. Labels (int64) and losses besides."""
    streams = {"forward": 1, "both": 2}[direction]
    return streams * math.prod(shape) * dtype.itemsize + math.prod(shape[:-1]) * (8 + 4)


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: maximum, difference, exponential (counted as one), sum. The gradient: 4 more."""
    return {"forward": 4, "both": 8}[direction] * math.prod(shape)
