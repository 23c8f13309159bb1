"""geglu: twin, eager yardstick and harness; the cases it shares with swiglu are in gated.py."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import gated
import tigon
from harness import DEVICES, Inputs, Operator, suite


def gelu(x: Tensor, *, approximate: str) -> Tensor:
    if approximate == "none":
        return x / 2 * torch.erfc(-x / math.sqrt(2))
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def twin(gate: Tensor, up: Tensor, *, approximate: str) -> Tensor:
    return gelu(gate, approximate=approximate) * up


def eager(gate: Tensor, up: Tensor, *, approximate: str) -> Tensor:
    return torch.nn.functional.gelu(gate, approximate=approximate) * up


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    gate, up = inputs["gate"], inputs.get("up")
    dy = gate if up is not None else gate[..., : gate.shape[-1] // 2]
    for tanh in (True, False):
        yield torch.ops.tigon.geglu_forward.default, (gate, up, tanh)
        yield torch.ops.tigon.geglu_backward.default, (dy, gate, up, tanh, True, up is not None)


OPTIONS: dict[str, tuple[Any, ...]] = {"approximate": ("tanh", "none")}

GEGLU = Operator(
    name="geglu",
    call=tigon.geglu,
    twin=twin,
    eager=eager,
    inputs=gated.two,
    differentiable=("gate", "up"),
    shapes=gated.SHAPES,
    resized=gated.RESIZED,
    options=OPTIONS,
    laid_out=("gate", "up"),
    opcheck=opcheck,
)
PACKED = Operator(
    name="geglu_packed",
    call=tigon.geglu,
    twin=gated.unpacked(twin),
    eager=gated.unpacked(eager),
    inputs=gated.packed,
    differentiable=("gate",),
    shapes=gated.SHAPES,
    resized=gated.RESIZED,
    options=OPTIONS,
    laid_out=("gate",),
    opcheck=opcheck,
)

TestGeglu = suite(GEGLU)
TestGegluPacked = suite(PACKED)


class TestGegluCases(gated.GatedCases):
    call = staticmethod(tigon.geglu)
    act = staticmethod(gelu)
    options = ({"approximate": "tanh"}, {"approximate": "none"})


@pytest.mark.parametrize("device", DEVICES)
def test_the_exact_form_keeps_its_relative_accuracy(device: str) -> None:
    """(1 + erf(x / sqrt(2))) / 2 has no digit left at -5; down to -12.5 all but the last few are wanted."""
    x = torch.linspace(-12.5, 12.5, 20001, device=device)
    y = tigon.geglu(x, torch.ones_like(x), approximate="none")
    torch.testing.assert_close(y.double(), gelu(x.double(), approximate="none"), rtol=1e-6, atol=0)


def test_approximate_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="approximate must be 'tanh' or 'none', got 'erf'"):
        tigon.geglu(torch.ones(2), torch.ones(2), approximate="erf")  # type: ignore[arg-type]
