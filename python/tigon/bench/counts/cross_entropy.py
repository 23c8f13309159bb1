"""cross_entropy: the fewest bytes it can move, and its FLOPs. `shape` is the logits'."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward alone: logits in. Both directions: logits in, their gradient out, since a row's loss and gradient follow
    from one reading. Labels (int64) besides; the mean loss is one number."""
    streams = {"forward": 1, "both": 2}[direction]
    return streams * math.prod(shape) * dtype.itemsize + math.prod(shape[:-1]) * 8


def flops(shape: tuple[int, ...], direction: str) -> int:
    """Forward, per element: maximum, difference, exponential (counted as one), sum. The gradient: 4 more."""
    return {"forward": 4, "both": 8}[direction] * math.prod(shape)
