"""rms_norm: twin, eager yardstick, harness, and what users reported against such kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tigon
from harness import DEVICES, WIDE, Inputs, Operator, suite


def twin(x: Tensor, weight: Tensor | None = None, *, eps: float, weight_offset: float, casting: str) -> Tensor:
    y = x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * (weight + weight_offset)


def eager(x: Tensor, weight: Tensor | None = None, *, eps: float, weight_offset: float, casting: str) -> Tensor:
    """LlamaRMSNorm and GemmaRMSNorm of transformers."""
    y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    if weight is None:
        return y.to(x.dtype)
    if casting == "llama":
        return (weight + weight_offset) * y.to(x.dtype)
    return (y * (weight.float() + weight_offset)).to(x.dtype)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {
        "x": torch.randn(shape, generator=generator).to(dtype),
        "weight": (torch.rand(shape[-1:], generator=generator) + 0.5).to(dtype),
    }


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    x, weight = inputs["x"], inputs["weight"]
    rstd = torch.rand(x.shape[:-1], device=x.device)
    for before in (True, False):
        yield torch.ops.tigon.rms_norm_forward.default, (x, weight, 1e-6, 0.0, before, True)
        yield (
            torch.ops.tigon.rms_norm_backward.default,
            (x, x, weight, rstd, 0.0, before, True, True),
        )


SHAPES = (
    (3, 5, 72),
    (1, 1),
    (4, 1),
    (2, 7),
    (1, 8),
    (3, 127),
    (2, 129),
    (5, 2, 3, 64),
    (0, 16),
    (300, 17),
    (2, 5000),
    (513, 256),
)

RMS_NORM = Operator(
    name="rms_norm",
    call=tigon.rms_norm,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("x", "weight"),
    shapes=SHAPES,
    wide=WIDE,
    resized=((4, 5, 72), (7, 5, 72)),
    options={"casting": ("llama", "gemma"), "eps": (1e-6, 1e-2), "weight_offset": (0.0, 1.0)},
    combine=({"casting": "gemma", "weight_offset": 1.0},),
    opcheck=opcheck,
)

TestRmsNorm = suite(RMS_NORM)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("casting", ["llama", "gemma"])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weight_of_another_dtype(device: str, casting: str, dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    x = torch.randn(6, 64, dtype=dtype, device=device, requires_grad=True)
    w = (torch.rand(64, device=device) + 0.5).to(weight_dtype).requires_grad_()
    options: dict[str, Any] = {"eps": 1e-6, "weight_offset": 0.0, "casting": casting}
    y, expected = tigon.rms_norm(x, w, **options), eager(x, w, **options)
    assert y.dtype == expected.dtype
    tolerance = 2.0**-7 if torch.bfloat16 in (dtype, weight_dtype) else 2.0**-10
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=1e-5)
    dy = torch.randn_like(y)
    for ours, theirs in zip(torch.autograd.grad(y, (x, w), dy), torch.autograd.grad(expected, (x, w), dy), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=4 * tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("device", DEVICES)
def test_no_weight(device: str) -> None:
    x = torch.randn(4, 96, device=device, requires_grad=True)
    y = tigon.rms_norm(x)
    torch.testing.assert_close(y, eager(x, None, eps=1e-6, weight_offset=0.0, casting="llama"))
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("device", DEVICES)
def test_offset_is_added_in_float32(device: str) -> None:
    """2^-8 + 1 is 1 in bfloat16: adding the offset there would lose the weight, forward and backward."""
    w = torch.full((4,), 2.0**-8, dtype=torch.bfloat16, device=device)
    x = torch.tensor([[1.5, 0.5, -0.5, -1.0]], dtype=torch.bfloat16, device=device)
    x = x * (1.5 / (x.float() / x.float().square().mean().sqrt())[0, 0])
    y = tigon.rms_norm(x, w, weight_offset=1.0, casting="gemma")
    exact = twin(x.double(), w.double(), eps=1e-6, weight_offset=1.0, casting="gemma")
    assert torch.equal(y, exact.to(torch.bfloat16))
    wide = x.float().requires_grad_()
    exact_x = x.double().requires_grad_()
    dy = torch.tensor([[1.0, -2.0, 0.5, 3.0]], device=device)
    ours = tigon.rms_norm(wide, w, weight_offset=1.0, casting="gemma")
    theirs = twin(exact_x, w.double(), eps=1e-6, weight_offset=1.0, casting="gemma")
    (a,), (b,) = torch.autograd.grad(ours, wide, dy), torch.autograd.grad(theirs, exact_x, dy.double())
    torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_zero_weight_with_offset_is_the_normalised_x(device: str) -> None:
    x = torch.randn(3, 32, device=device)
    y = tigon.rms_norm(x, torch.zeros(32, device=device), weight_offset=1.0, casting="gemma")
    torch.testing.assert_close(y, tigon.rms_norm(x))


@pytest.mark.parametrize("device", DEVICES)
def test_dense_strides_are_kept(device: str) -> None:
    q = torch.randn(2, 5, 3, 64, device=device, requires_grad=True).transpose(1, 2)
    y = tigon.rms_norm(q)
    assert y.stride() == q.stride()


def test_errors_name_the_values() -> None:
    x = torch.randn(2, 4096)
    with pytest.raises(RuntimeError, match=r"rms_norm_forward: weight must be \[4096\], got \[4095\]"):
        tigon.rms_norm(x, torch.ones(4095))
    with pytest.raises(RuntimeError, match="x must be float32, bfloat16 or float16, got int64"):
        tigon.rms_norm(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"x must have at least 1 axis, got \[\]"):
        tigon.rms_norm(torch.tensor(1.0))
    with pytest.raises(ValueError, match="casting must be 'llama' or 'gemma', got 'other'"):
        tigon.rms_norm(x, casting="other")  # type: ignore[arg-type]
