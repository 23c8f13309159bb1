"""What is measured: an operator, the shape that counts.* speaks of, a dtype, and operands made of random data."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tigon.bench import names, sweep
from tigon.bench.names import ROW_WISE

Shape = tuple[int, ...]
Operands = tuple[Tensor, ...]
Product = tuple[int, int, int]

# A decoder's sizes: tokens by hidden size, head-dim rows of q/k norms, tokens by MLP size, tokens by vocabulary.
_GPU: dict[str, tuple[Shape, ...]] = {
    "rms_norm": ((32768, 2048), (16384, 4096), (8192, 8192), (524288, 128)),
    "add_rms_norm": ((16384, 4096),),
    "layer_norm": ((16384, 4096),),
    "softmax": ((16384, 4096),),
    "rope": ((8, 32, 8, 2048, 128, 128),),
    "swiglu": ((16384, 14336),),
    "swiglu_packed": ((16384, 14336),),
    "geglu": ((16384, 14336),),
    "cross_entropy": ((8192, 32000), (8192, 128256), (4096, 262144)),
    "linear_cross_entropy": ((8192, 4096, 128256), (4096, 4096, 128256)),
}
_CPU: dict[str, tuple[Shape, ...]] = {
    **dict.fromkeys(ROW_WISE, ((4096, 4096),)),
    "rope": ((4, 9, 3, 512, 64, 64),),
    "cross_entropy": ((1024, 49152),),
    "linear_cross_entropy": ((1024, 576, 49152),),
}


@dataclass(frozen=True)
class Case:
    """op: the operator's name in counts. key: in the tables of peers. shape: as counts.<op> has it.
    make: operands on a device. gradients: which of the operands get one.
    products: the plain matrix products [m, k] x [k, n] of a direction, where these bound it rather than memory.
    note: what sets it apart from other cases of its operator and shape."""

    op: str
    key: str
    shape: Shape
    dtype: torch.dtype
    make: Callable[[torch.device], Operands]
    gradients: tuple[int, ...]
    products: Callable[[str], list[Product]] | None = None
    note: str = ""

    @property
    def label(self) -> str:
        return names.label(self.op, self.shape, str(self.dtype).removeprefix("torch."), self.note)

    def flops(self, direction: str) -> int | None:
        """Of the matrix products; None for what memory bounds."""
        return None if self.products is None else sum(2 * m * k * n for m, k, n in self.products(direction))

    def bytes_moved(self, direction: str) -> int | None:
        """None for what matrix products bound."""
        if self.products is not None:
            return None
        count = importlib.import_module(f"tigon.bench.counts.{self.op}").bytes_moved
        try:
            return int(count(self.shape, self.dtype, direction))
        except KeyError:  # counted by parts, or not counted alone
            if direction == "both":
                return int(sum(count(self.shape, self.dtype, part) for part in ("forward", "backward")))
            return None


def cases(
    ops: list[str], shapes: list[Shape], dtypes: list[torch.dtype], device: torch.device, *, swept: bool = False
) -> Iterator[Case]:
    """All cases of these operators; where no shapes are given, at the default ones or, swept, at many."""
    defaults = _GPU if device.type == "cuda" else _CPU
    room = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
    for dtype in dtypes:
        for op in ops:
            for shape in sweep.shapes(op, dtype.itemsize, room) if swept else shapes or defaults[op]:
                yield from _BUILD.get(op, _rows)(op, shape, dtype)


def _new(device: torch.device, dtype: torch.dtype, *shape: int, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape, device=device)).to(dtype)


def _rows(op: str, shape: Shape, dtype: torch.dtype) -> Iterator[Case]:
    """[rows, cols] tensors, then vectors of cols."""
    matrices, vectors = {
        "rms_norm": (1, 1),
        "add_rms_norm": (2, 1),
        "layer_norm": (1, 2),
        "softmax": (1, 0),
        "swiglu": (2, 0),
        "geglu": (2, 0),
    }[op]

    def make(device: torch.device) -> Operands:
        first = [_new(device, dtype, *shape) for _ in range(matrices)]
        return (*first, *(_new(device, dtype, shape[-1]) for _ in range(vectors)))

    yield Case(op, op, shape, dtype, make, tuple(range(matrices + vectors)))


def _packed(op: str, shape: Shape, dtype: torch.dtype) -> Iterator[Case]:
    def make(device: torch.device) -> Operands:
        return (_new(device, dtype, shape[0], 2 * shape[1]),)

    yield Case(op.removesuffix("_packed"), op, shape, dtype, make, (0,), note="packed")


def _rope(op: str, shape: Shape, dtype: torch.dtype) -> Iterator[Case]:
    batch, q_heads, k_heads, tokens, dim, rotary = shape

    def make(device: torch.device) -> Operands:
        q, k = (_new(device, dtype, batch, tokens, n, dim).transpose(1, 2) for n in (q_heads, k_heads))
        angles = torch.rand(1, tokens, rotary // 2, device=device).repeat(1, 1, 2) * 6.28
        return q, k, angles.cos().to(dtype), angles.sin().to(dtype)

    yield Case(op, op, shape, dtype, make, (0, 1))


def _cross_entropy(op: str, shape: Shape, dtype: torch.dtype) -> Iterator[Case]:
    def make(device: torch.device) -> Operands:
        return _new(device, dtype, *shape), torch.randint(shape[1], shape[:1], device=device)

    yield Case(op, op, shape, dtype, make, (0,))


def _head(op: str, shape: Shape, dtype: torch.dtype) -> Iterator[Case]:
    """A trained head, a frozen one, and one half of whose labels are ignored; and the first two in least memory, where
    peers that always take little (Liger, cut-cross-entropy) are measured too."""
    rows, hidden, vocab = shape

    def make(device: torch.device, ignored: bool) -> Operands:
        labels = torch.randint(vocab, (rows,), device=device)
        if ignored:
            labels[::2] = -100
        return _new(device, dtype, rows, hidden), _new(device, dtype, vocab, hidden, scale=hidden**-0.5), labels

    def head(note: str, count: int, trainable: bool = False, ignored: bool = False, key: str = op) -> Case:
        def products(direction: str) -> list[Product]:
            forward, dx, dweight = (count, hidden, vocab), (count, vocab, hidden), (vocab, count, hidden)
            return [forward] if direction == "forward" else [forward, dx, *([dweight] if trainable else [])]

        gradients = (0, 1) if trainable else (0,)
        return Case(
            op, key, shape, dtype, lambda device: make(device, ignored), gradients, products=products, note=note
        )

    yield head("trained head", rows, trainable=True)
    yield head("frozen head", rows)
    if rows > 1:  # else none would count
        yield head("frozen head, half ignored", rows // 2, ignored=True)
    yield head("trained head, low memory", rows, trainable=True, key=f"{op}_low")
    yield head("trained head, low memory, sums in 16 bits", rows, trainable=True, key=f"{op}_low_weight")
    yield head("frozen head, low memory", rows, key=f"{op}_low")


_BUILD: dict[str, Callable[[str, Shape, torch.dtype], Iterator[Case]]] = {
    "swiglu_packed": _packed,
    "rope": _rope,
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _head,
}
