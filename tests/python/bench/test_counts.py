"""The fewest bytes of every operator: what goes in once, what comes out once."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tigon.bench import cases, counts
from tigon.bench.names import ROW_WISE

MODULES = {
    path.stem: importlib.import_module(f"tigon.bench.counts.{path.stem}")
    for path in Path(counts.__file__).parent.glob("[a-z]*.py")
}
BY_DIRECTION = [
    name
    for name, module in MODULES.items()
    if "direction" in inspect.signature(getattr(module, "bytes_moved", len)).parameters
]
ROPE = (2, 4, 3, 5, 16, 8)
# Tensors in and out, each direction: [4, 6] ones, then vectors of 6.
STREAMS = {
    "rms_norm": {"forward": (2, 1), "backward": (3, 2)},
    "add_rms_norm": {"forward": (4, 1), "backward": (4, 2)},
    "layer_norm": {"forward": (2, 2), "backward": (3, 3)},
    "softmax": {"forward": (2, 0), "backward": (3, 0)},
    "swiglu": {"forward": (3, 0), "backward": (5, 0)},
    "geglu": {"forward": (3, 0), "backward": (5, 0)},
}


def counted(module: ModuleType, shape: tuple[int, ...], direction: str) -> int | None:
    try:
        return int(module.bytes_moved(shape, torch.bfloat16, direction))
    except KeyError:
        return None


def test_every_row_wise_operator_is_counted() -> None:
    assert {op.removesuffix("_packed") for op in ROW_WISE} == set(BY_DIRECTION)


@pytest.mark.parametrize("op", BY_DIRECTION)
def test_both_directions_are_the_sum_where_the_parts_are_counted(op: str) -> None:
    shape = ROPE if op == "rope" else (4, 6)
    forward, backward, both = (counted(MODULES[op], shape, d) for d in ("forward", "backward", "both"))
    assert forward
    assert (backward is None) != (both is None)  # either parts or the whole
    (case,) = cases.cases([op], [shape], [torch.bfloat16], torch.device("cpu"))
    assert case.bytes_moved("forward") == forward
    assert case.bytes_moved("backward") == backward
    assert case.bytes_moved("both") == (both if backward is None else forward + backward)


@pytest.mark.parametrize(("op", "direction"), [(op, d) for op, parts in STREAMS.items() for d in parts])
def test_tensors_are_counted_once(op: str, direction: str) -> None:
    tensors, vectors = STREAMS[op][direction]
    assert counted(MODULES[op], (4, 6), direction) == (tensors * 4 * 6 + vectors * 6) * 2


def test_cross_entropy_reads_logits_once_for_both() -> None:
    assert counted(MODULES["cross_entropy"], (4, 6), "forward") == 4 * 6 * 2 + 4 * 8
    assert counted(MODULES["cross_entropy"], (4, 6), "both") == 2 * 4 * 6 * 2 + 4 * 8


def test_rope_moves_q_and_k_twice_in_each_direction() -> None:
    batch, q_heads, k_heads, tokens, dim, rotary = ROPE
    moved = 2 * batch * (q_heads + k_heads) * tokens * dim + 2 * tokens * rotary
    assert counted(MODULES["rope"], ROPE, "forward") == counted(MODULES["rope"], ROPE, "backward") == 2 * moved


def test_flops_of_a_head_are_those_of_its_products() -> None:
    shape = (6, 8, 16)
    trained, frozen, *_ = cases.cases(["linear_cross_entropy"], [shape], [torch.float32], torch.device("cpu"))
    for case, trainable in ((trained, True), (frozen, False)):
        for direction in ("forward", "both"):
            expected = MODULES["linear_cross_entropy"].flops(shape, direction, trainable=trainable)
            assert case.flops(direction) == expected
