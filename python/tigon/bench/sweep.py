"""Many shapes per operator, so that one run shows whether anybody is faster anywhere."""

from __future__ import annotations

import math

from tigon.bench.names import HEAD

Shape = tuple[int, ...]
_COLUMNS = (64, 96, 128, 256, 576, 1024, 2048, 4096, 5120, 8192, 16384, 32768, 65536)
_ROWS = (1, 7, 64, 1000, 8192, 131072)
_CLASSES = (32000, 32001, 49152, 50257, 128256, 151936, 262144)
_LOSS_ROWS = (1, 64, 2048)
_HEAD_ROWS = (1, 17, 256, 2048, 16384, 65536)
_HEAD_CLASSES = (32001, 50257, 151936, 262144)  # two of them odd, which no vector divides
_GATED = ("swiglu", "swiglu_packed", "geglu")


def shapes(op: str, itemsize: int, room: int | None) -> list[Shape]:
    """Those of one operator on a GPU with `room` bytes free, or, with None, on a CPU: smaller ones, and fewer.

    Row-wise operators: row lengths at one size of the tensor, then numbers of rows at one row length. Losses: numbers
    of rows by vocabularies. A tensor never takes more than a 64th of the room: eager code holds a dozen beside it.
    """
    gpu = room is not None
    size = (2**27 if gpu else 2**20) // itemsize  # elements of a tensor where only the row length varies
    most = (room // 64 if room is not None else 2**23) // itemsize
    if op == HEAD:
        hidden, usual = (4096, 128256) if gpu else (64, 1000)
        found: list[Shape] = [(rows, hidden, usual) for rows in _HEAD_ROWS if gpu or rows <= 256]
        found += [(2048, hidden, classes) for classes in _HEAD_CLASSES] if gpu else [(256, hidden, 1001)]
        return [s for s in found if max(s[0] * s[1], s[1] * s[2]) <= most]
    if op == "cross_entropy":
        return [(rows, classes) for classes in _CLASSES for rows in _LOSS_ROWS if rows * classes <= most]
    if op == "rope":
        batch, tokens = (8, 2048) if gpu else (1, 128)
        heads = ((32, 8), (9, 3), (16, 16), (64, 8))
        turned: list[Shape] = [(batch, 32, 8, tokens, dim, dim) for dim in (64, 96, 128, 256)]
        turned += [(batch, q, k, tokens, 64 if q == 9 else 128, 64 if q == 9 else 128) for q, k in heads[1:]]
        turned += [(1, 32, 8, rows, 128, 128) for rows in _ROWS]
        return [s for s in turned if s[0] * s[1] * s[3] * s[4] <= most]
    length = 14336 if op in _GATED else 4096
    if op == "swiglu_packed":  # its tensor is twice as wide as its shape says
        size, most = size // 2, most // 2
    plain: list[Shape] = [(max(1, size // columns), columns) for columns in _COLUMNS]
    plain += [(rows, length) for rows in _ROWS]
    return [s for s in plain if math.prod(s) <= most]
