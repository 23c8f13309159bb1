"""softmax: twin, eager yardstick, harness, and masked rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tigon
from harness import DEVICES, DTYPES, WIDE, Inputs, Operator, suite

INF = float("inf")


def twin(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True)) if x.numel() else x
    return e / e.sum(-1, keepdim=True)


def eager(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {"x": (3.0 * torch.randn(shape, generator=generator)).to(dtype)}


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    yield torch.ops.tigon.softmax_forward.default, (inputs["x"],)
    yield torch.ops.tigon.softmax_backward.default, (inputs["x"], inputs["x"])


SOFTMAX = Operator(
    name="softmax",
    call=tigon.softmax,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("x",),
    shapes=((3, 5, 72), (1, 1), (4, 1), (2, 7), (1, 8), (3, 127), (2, 129), (0, 16), (300, 17), (2, 5000), (513, 256)),
    wide=WIDE,
    resized=((4, 5, 72), (7, 5, 72)),
    opcheck=opcheck,
)

TestSoftmax = suite(SOFTMAX)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [5, 16, 70, 1031])
def test_masked_entries(device: str, dtype: torch.dtype, cols: int) -> None:
    """-inf in places, over whole vectors, everywhere; +inf and NaN take the row."""
    x = torch.randn(6, cols, generator=torch.Generator().manual_seed(5)).to(device, dtype)
    x[0, 1::2] = -INF
    x[1, : cols - 1] = -INF
    x[2] = -INF
    x[3, cols // 2] = INF
    x[4, cols - 1] = float("nan")
    leaf = x.clone().requires_grad_()
    y, expected = tigon.softmax(leaf), torch.softmax(x, -1)
    assert y[2].isnan().all()
    assert (y[0, 1::2] == 0).all()
    torch.testing.assert_close(y, expected, equal_nan=True)
    (dx,) = torch.autograd.grad(y, leaf, torch.ones_like(y))
    assert torch.equal(dx.isnan().all(-1).cpu(), torch.tensor([False, False, True, True, True, False]))


@pytest.mark.parametrize("device", DEVICES)
def test_large_and_distant_logits(device: str) -> None:
    x = torch.tensor([[1e4, 1e4 - 1, -1e4], [-3e38, 3e38, 0.0], [-200.0, -200.0, -290.0]], device=device)
    torch.testing.assert_close(tigon.softmax(x), torch.softmax(x, -1), rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("device", DEVICES)
def test_output_changed_in_place_is_noticed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward reads the output: autograd must see that it is not the same any more."""
    monkeypatch.setenv("TIGON_TEST_GUARDS", "0")  # guarded outputs are views, which refuse the change itself
    y = tigon.softmax(torch.randn(4, 8, device=device, requires_grad=True))
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_as_torch(device: str) -> None:
    x = torch.randn(4, 32, device=device, dtype=torch.bfloat16)
    with torch.autocast(device, dtype=torch.bfloat16):
        y, expected = tigon.softmax(x), torch.softmax(x, -1)
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, expected)


def test_errors_name_the_values() -> None:
    with pytest.raises(RuntimeError, match="softmax_forward: x must be float32, bfloat16 or float16, got int64"):
        tigon.softmax(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"x must have at least 1 axis, got \[\]"):
        tigon.softmax(torch.tensor(1.0))
