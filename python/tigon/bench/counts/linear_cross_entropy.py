"""linear_cross_entropy: the FLOPs of its matrix products, and the memory it may hold. T rows that count, H, V."""

from __future__ import annotations

import torch


def flops(shape: tuple[int, int, int], direction: str, *, trainable: bool) -> int:
    """One product for the logits; with gradients one more for dx, and one for dweight where the head is trained."""
    rows, hidden, vocab = shape
    products = {"forward": 1, "both": 3 if trainable else 2}[direction]
    return products * 2 * rows * hidden * vocab


def bytes_moved(shape: tuple[int, int, int], dtype: torch.dtype, chunk_rows: int, *, trainable: bool) -> int:
    """Both directions, beside what the products hide: per chunk the logits are written, read, overwritten by their
    gradient and read by each product; the weight is read twice; a trained head's float32 sums are read and written."""
    rows, hidden, vocab = shape
    chunks = -(-rows // chunk_rows)
    logits = (4 + trainable) * rows * vocab * dtype.itemsize
    weight = 2 * chunks * vocab * hidden * dtype.itemsize
    sums = (2 * chunks - 1) * vocab * hidden * 4 if trainable else 0
    return logits + weight + sums


def bytes_held(shape: tuple[int, int, int], dtype: torch.dtype, chunk_rows: int, *, trainable: bool) -> int:
    """At the peak, beyond x and the weight: dx, and a chunk of logits; or, where the head is trained in 16 bits and
    H >= chunk_rows, dweight (in whose memory the logits lie) and its float32 sum."""
    rows, hidden, vocab = shape
    dx, logits = rows * hidden * dtype.itemsize, chunk_rows * vocab * dtype.itemsize
    if not trainable:
        return dx + logits
    dweight = vocab * hidden * dtype.itemsize
    if dtype == torch.float32 or rows <= chunk_rows:
        return dx + dweight + logits
    return dx + dweight + vocab * hidden * 4 + (0 if hidden >= chunk_rows else logits)
