"""rope: the fewest bytes it can move, and its FLOPs. `shape` is (B, Hq, Hk, T, D, R), tables are [1, T, R]."""

from __future__ import annotations

import torch


def bytes_moved(shape: tuple[int, int, int, int, int, int], dtype: torch.dtype, direction: str) -> int:
    """Forward: q and k in and out. Backward: their gradients in and out. cos and sin besides, in the same dtype."""
    batch, q_heads, k_heads, tokens, dim, rotary = shape
    streams, tables = {"forward": (2, 2), "backward": (2, 2)}[direction]
    return (streams * batch * (q_heads + k_heads) * dim + tables * rotary) * tokens * dtype.itemsize


def flops(shape: tuple[int, int, int, int, int, int], direction: str) -> int:
    """Either direction, per rotated feature: two products and their sum."""
    batch, q_heads, k_heads, tokens, _, rotary = shape
    return {"forward": 3, "backward": 3}[direction] * batch * (q_heads + k_heads) * tokens * rotary
