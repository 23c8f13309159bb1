"""linear_cross_entropy: the FLOPs of its matrix products, and the memory it may hold. T rows that count, H, V.

Logits come in chunks of `chunk_rows` rows or, where that is said, in tiles of `tile_cols` columns.
"""

from __future__ import annotations

import torch

Shape = tuple[int, int, int]


def _columns_again(shape: Shape, tile_cols: int) -> int:
    """Columns whose logits are computed twice: the last tile's are still there, those of the first ones in dweight."""
    rows, hidden, vocab = shape
    before_last = -(-vocab // tile_cols) - 1
    kept = min(before_last, before_last * hidden // max(rows, hidden))
    return (before_last - kept) * tile_cols


def flops(shape: Shape, direction: str, *, trainable: bool, tile_cols: int | None = None) -> int:
    """One product for the logits; with gradients one more for dx, and one for dweight where the head is trained."""
    rows, hidden, vocab = shape
    products = {"forward": 1, "both": 3 if trainable else 2}[direction]
    again = 0 if tile_cols is None or direction == "forward" else _columns_again(shape, tile_cols)
    return 2 * rows * hidden * (products * vocab + again)


def bytes_moved(shape: Shape, dtype: torch.dtype, chunk_rows: int, *, trainable: bool) -> int:
    """Both directions, beside what the products hide: per chunk the logits are written, read, overwritten by their
    gradient and read by each product; the weight is read twice. A trained head writes dweight, in several chunks from
    float32 sums that each chunk reads and writes."""
    rows, hidden, vocab = shape
    chunks = -(-rows // chunk_rows)
    logits = (4 + trainable) * rows * vocab * dtype.itemsize
    weight = (2 * chunks + trainable) * vocab * hidden * dtype.itemsize
    sums = 2 * chunks * vocab * hidden * 4 if trainable and chunks > 1 and dtype.itemsize < 4 else 0
    return logits + weight + sums


def bytes_held(
    shape: Shape,
    dtype: torch.dtype,
    chunk_rows: int,
    *,
    trainable: bool,
    sum_in_float32: bool = True,
    gathered: bool = True,
) -> int:
    """At the peak, beyond x and the weight: dx, a chunk of logits, of x where rows do not count, and dweight. Where the
    head is trained in 16 bits in several chunks also a float32 sum of dweight; with H >= chunk_rows the logits lie in
    dweight then."""
    rows, hidden, vocab = shape
    row = hidden * dtype.itemsize
    single = rows <= chunk_rows
    held = rows * row + min(rows, chunk_rows, 2048 if single else chunk_rows) * row * gathered
    logits = min(rows, chunk_rows) * vocab * dtype.itemsize
    if not trainable:
        return held + logits
    held += vocab * row
    if dtype.itemsize == 4 or single or not sum_in_float32:
        return held + logits
    return held + vocab * hidden * 4 + (0 if hidden >= chunk_rows else logits)


def bytes_held_in_tiles(shape: Shape, dtype: torch.dtype, tile_cols: int) -> int:
    """dx, in whose memory the rows of x that count lie until it is made, its float32 sum, a tile, and dweight."""
    rows, hidden, vocab = shape
    return rows * hidden * (dtype.itemsize + 4) + rows * tile_cols * dtype.itemsize + vocab * hidden * dtype.itemsize
