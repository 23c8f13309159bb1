"""add_rms_norm: the fewest bytes it can move, and its FLOPs. `shape` is x's; the weight has its last axis."""

from __future__ import annotations

import math

import torch


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, direction: str) -> int:
    """Forward: x and residual in, sum and y out. Backward: sum, dy and dsum in, dx out, which is dresidual too. The
    weight and dweight besides; rstd follows from a row that is read anyway."""
    vectors = {"forward": 1, "backward": 2}[direction]
    return (4 * math.prod(shape) + vectors * shape[-1]) * dtype.itemsize


def flops(shape: tuple[int, ...], direction: str) -> int:
    """rms_norm's, and an addition per element in each direction."""
    return {"forward": 5, "backward": 12}[direction] * math.prod(shape)
