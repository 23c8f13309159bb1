"""layer_norm: twin, eager yardstick, harness, and what is particular to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tigon
from harness import DEVICES, WIDE, Inputs, Operator, suite


def twin(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def eager(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {
        "x": (torch.randn(shape, generator=generator) + 0.5).to(dtype),
        "weight": (torch.rand(shape[-1:], generator=generator) + 0.5).to(dtype),
        "bias": torch.randn(shape[-1:], generator=generator).to(dtype),
    }


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
    mean, rstd = torch.rand(2, *x.shape[:-1], device=x.device)
    for stats in (True, False):
        yield torch.ops.tigon.layer_norm_forward.default, (x, weight, bias, 1e-5, stats)
    for dbias in (bias.dtype, torch.bfloat16, None):
        yield torch.ops.tigon.layer_norm_backward.default, (x, x, weight, mean, rstd, True, True, dbias)


LAYER_NORM = Operator(
    name="layer_norm",
    call=tigon.layer_norm,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("x", "weight", "bias"),
    shapes=((3, 5, 72), (1, 1), (4, 1), (2, 7), (1, 8), (3, 127), (2, 129), (0, 16), (300, 17), (2, 5000), (513, 256)),
    wide=WIDE,
    resized=((4, 5, 72), (7, 5, 72)),
    options={"eps": (1e-5, 1e-2)},
    opcheck=opcheck,
)

TestLayerNorm = suite(LAYER_NORM)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("present", [(), ("weight",), ("bias",)], ids=lambda p: "+".join(p) or "neither")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weight_and_bias_are_optional(device: str, dtype: torch.dtype, present: tuple[str, ...]) -> None:
    made = inputs((6, 40), dtype, torch.Generator().manual_seed(2))
    made = {k: v.to(device).requires_grad_() for k, v in made.items() if k in ("x", *present)}
    y, expected = tigon.layer_norm(**made), eager(**made, eps=1e-5)
    dy = torch.randn_like(y)
    tolerance = 1e-5 if dtype == torch.float32 else 2.0**-6
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=tolerance)
    ours, theirs = (torch.autograd.grad(o, tuple(made.values()), dy) for o in (y, expected))
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bias_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parameters_of_other_dtypes(
    device: str, dtype: torch.dtype, weight_dtype: torch.dtype, bias_dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(6, 64, generator=generator).to(device, dtype).requires_grad_()
    w = (torch.rand(64, generator=generator) + 0.5).to(device, weight_dtype).requires_grad_()
    b = torch.randn(64, generator=generator).to(device, bias_dtype).requires_grad_()
    dy = torch.randn(6, 64, generator=generator).to(device, dtype)
    y = tigon.layer_norm(x, w, b)
    wide = [t.detach().double().requires_grad_() for t in (x, w, b)]
    expected = twin(*wide, eps=1e-5)
    assert y.dtype == dtype
    torch.testing.assert_close(y, expected.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)
    ours = torch.autograd.grad(y, (x, w, b), dy)
    theirs = torch.autograd.grad(expected, wide, dy.double())
    for got, exact, like in zip(ours, theirs, (x, w, b), strict=True):
        assert got.dtype == like.dtype
        torch.testing.assert_close(got.double(), exact, rtol=torch.finfo(like.dtype).eps, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mean", [1e3, 1e4])
def test_variance_beside_a_large_mean(device: str, mean: float) -> None:
    """mean(x²) - mean² has no digit left here."""
    x = torch.randn(16, 1024, dtype=torch.float64, generator=torch.Generator().manual_seed(4)) + mean
    x = x.float().to(device)
    exact = twin(x.double(), eps=1e-5)
    theirs = (eager(x, eps=1e-5).double() - exact).abs().max()
    ours = (tigon.layer_norm(x).double() - exact).abs().max()
    assert ours <= 2 * theirs + 1e-6


@pytest.mark.parametrize("device", DEVICES)
def test_constant_rows(device: str) -> None:
    x = torch.full((3, 100), 0.1, device=device, requires_grad=True)
    bias = torch.arange(100.0, device=device)
    y = tigon.layer_norm(x, None, bias)
    torch.testing.assert_close(y, bias.expand(3, 100), rtol=0, atol=1e-3)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(dx, torch.zeros_like(dx), rtol=0, atol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_as_torch(device: str) -> None:
    x = torch.randn(4, 32, device=device, dtype=torch.bfloat16)
    w = torch.ones(32, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        y, expected = tigon.layer_norm(x, w, w), F.layer_norm(x, (32,), w, w)
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, expected, rtol=torch.finfo(y.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_dense_strides_are_kept(device: str) -> None:
    x = torch.randn(2, 5, 3, 64, device=device).transpose(1, 2)
    assert tigon.layer_norm(x).stride() == x.stride()


def test_errors_name_the_values() -> None:
    x = torch.randn(2, 4096)
    with pytest.raises(RuntimeError, match=r"layer_norm_forward: weight must be \[4096\], got \[4095\]"):
        tigon.layer_norm(x, torch.ones(4095))
    with pytest.raises(RuntimeError, match=r"layer_norm_forward: bias must be \[4096\], got \[1, 4096\]"):
        tigon.layer_norm(x, None, torch.ones(1, 4096))
    with pytest.raises(RuntimeError, match="x must be float32, bfloat16 or float16, got int64"):
        tigon.layer_norm(torch.ones(2, 3, dtype=torch.int64))
