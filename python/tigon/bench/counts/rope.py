"""rope: the fewest bytes it can move, and its FLOPs. `shape` is (B, Hq, Hk, T, D, R), tables are [1, T, R]."""

from __future__ import annotations

import torch


def bytes_moved(shape: tuple[int, int, int, int, int, int], dtype: torch.dtype, direction: str) -> int:
    """Either direction: q and k in and out. cos and sin besides, in the same dtype."""
    batch, q_heads, k_heads, tokens, dim, rotary = shape
    heads = 2 * batch * (q_heads + k_heads) * dim
    return (heads + 2 * rotary) * tokens * dtype.itemsize


def flops(shape: tuple[int, int, int, int, int, int], direction: str) -> int:
    """Either direction, per rotated feature: two products and their sum."""
    batch, q_heads, k_heads, tokens, _, rotary = shape
    return 3 * batch * (q_heads + k_heads) * tokens * rotary
