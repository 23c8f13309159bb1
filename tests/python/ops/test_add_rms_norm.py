"""add_rms_norm: twin, eager yardstick and harness; the norm's own cases are in test_rms_norm.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tigon
from harness import DEVICES, WIDE, Inputs, Operator, suite


def twin(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, weight_offset: float, casting: str
) -> tuple[Tensor, Tensor]:
    total = x + residual
    y = total / torch.sqrt(total.square().mean(-1, keepdim=True) + eps)
    return y * (weight + weight_offset), total


def eager(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float, weight_offset: float, casting: str
) -> tuple[Tensor, Tensor]:
    total = x + residual
    wide = total.float()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if casting == "llama":
        return (weight + weight_offset) * y.to(x.dtype), total
    return (y * (weight.float() + weight_offset)).to(x.dtype), total


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {
        "x": torch.randn(shape, generator=generator).to(dtype),
        "residual": torch.randn(shape, generator=generator).to(dtype),
        "weight": (torch.rand(shape[-1:], generator=generator) + 0.5).to(dtype),
    }


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    x, weight = inputs["x"], inputs["weight"]
    rstd = torch.rand(x.shape[:-1], device=x.device)
    yield (
        torch.ops.tigon.add_rms_norm_forward.default,
        (x, inputs["residual"], weight, 1e-6, 0.0, True, True),
    )
    for dsum in (None, x):
        yield (
            torch.ops.tigon.add_rms_norm_backward.default,
            (x, dsum, x, weight, rstd, 0.0, True, True, True),
        )


ADD_RMS_NORM = Operator(
    name="add_rms_norm",
    call=tigon.add_rms_norm,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("x", "residual", "weight"),
    shapes=((3, 5, 72), (1, 1), (4, 1), (2, 7), (3, 127), (0, 16), (300, 17), (2, 5000)),
    wide=WIDE,
    resized=((4, 5, 72), (7, 5, 72)),
    options={"casting": ("llama", "gemma"), "eps": (1e-6, 1e-2), "weight_offset": (0.0, 1.0)},
    laid_out=("x", "residual"),
    opcheck=opcheck,
)

TestAddRmsNorm = suite(ADD_RMS_NORM)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("used", ["y", "sum"])
def test_one_output_unused(device: str, used: str) -> None:
    """A gradient that comes through one output alone."""
    generator = torch.Generator().manual_seed(1)
    x, residual = (torch.randn(4, 48, generator=generator).to(device).requires_grad_() for _ in "xr")
    weight = torch.ones(48, device=device, requires_grad=True)
    options: dict[str, Any] = {"eps": 1e-6, "weight_offset": 0.0, "casting": "llama"}
    index = 0 if used == "y" else 1
    dy = torch.randn(4, 48, generator=generator).to(device)
    ours = torch.autograd.grad(tigon.add_rms_norm(x, residual, weight, **options)[index], (x, residual), dy)
    theirs = torch.autograd.grad(eager(x, residual, weight, **options)[index], (x, residual), dy)
    torch.testing.assert_close(ours, theirs)


def test_errors_name_the_values() -> None:
    x = torch.randn(2, 8)
    with pytest.raises(RuntimeError, match=r"residual must have x's shape \[2, 8\], got \[2, 7\]"):
        tigon.add_rms_norm(x, torch.randn(2, 7))
    with pytest.raises(RuntimeError, match="residual must be float32, got bfloat16"):
        tigon.add_rms_norm(x, x.bfloat16())
