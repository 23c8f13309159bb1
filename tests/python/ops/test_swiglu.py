"""swiglu: twin, eager yardstick and harness; the cases it shares with geglu are in gated.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import gated
import tigon
from harness import Inputs, Operator, suite


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def twin(gate: Tensor, up: Tensor) -> Tensor:
    return silu(gate) * up


def eager(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    gate, up = inputs["gate"], inputs.get("up")
    yield torch.ops.tigon.swiglu_forward.default, (gate, up)
    dy = gate if up is not None else gate[..., : gate.shape[-1] // 2]
    yield torch.ops.tigon.swiglu_backward.default, (dy, gate, up, True, up is not None)


SWIGLU = Operator(
    name="swiglu",
    call=tigon.swiglu,
    twin=twin,
    eager=eager,
    inputs=gated.two,
    differentiable=("gate", "up"),
    shapes=gated.SHAPES,
    resized=gated.RESIZED,
    laid_out=("gate", "up"),
    opcheck=opcheck,
)
PACKED = Operator(
    name="swiglu_packed",
    call=tigon.swiglu,
    twin=gated.unpacked(twin),
    eager=gated.unpacked(eager),
    inputs=gated.packed,
    differentiable=("gate",),
    shapes=gated.SHAPES,
    resized=gated.RESIZED,
    laid_out=("gate",),
    opcheck=opcheck,
)

TestSwiglu = suite(SWIGLU)
TestSwigluPacked = suite(PACKED)


class TestSwigluCases(gated.GatedCases):
    call = staticmethod(tigon.swiglu)
    act = staticmethod(silu)
