"""skeleton: twin, eager yardstick and harness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from harness import Inputs, Operator, suite
from tigon.ops.skeleton import skeleton


def twin(x: Tensor, weight: Tensor) -> Tensor:
    return x * weight


def eager(x: Tensor, weight: Tensor) -> Tensor:
    return x * weight


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {
        "x": torch.randn(shape, generator=generator).to(dtype),
        "weight": torch.randn(shape[-1:], generator=generator).to(dtype),
    }


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    x, weight = inputs["x"], inputs["weight"]
    yield torch.ops.tigon.skeleton_forward.default, (x, weight)
    yield torch.ops.tigon.skeleton_backward.default, (x, x, weight, True, True)


TestSkeleton = suite(
    Operator(
        name="skeleton",
        call=skeleton,
        twin=twin,
        eager=eager,
        inputs=inputs,
        differentiable=("x", "weight"),
        shapes=((3, 5, 72), (1, 1), (4, 1), (2, 7), (3, 127), (2, 129), (0, 16), (300, 17)),
        resized=((4, 5, 72), (7, 5, 72)),
        opcheck=opcheck,
    )
)


def test_errors_name_the_values() -> None:
    with pytest.raises(RuntimeError, match=r"skeleton_forward: weight must be \[8\], got \[7\]"):
        skeleton(torch.randn(2, 8), torch.randn(7))
