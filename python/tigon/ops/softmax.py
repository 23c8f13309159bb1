"""Softmax over the last axis. Contract and derivation: docs/ops/softmax.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tigon.ops._autocast import widened
from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator

_forward = operator("softmax_forward")
_backward = operator("softmax_backward")


def softmax(x: Tensor) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))`` over the last axis, fp32 inside, one rounding at the end.

    Args:
        x: ``[..., D]``, float32, bfloat16 or float16, any strides. Entries of -inf give 0; a row of -inf alone gives
            NaN, as in ``torch.softmax``.

    Returns:
        A tensor like x; a dense x keeps its strides. Under CUDA's autocast float32, as ``torch.softmax``.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
    """
    x = widened(x)
    if wants_grad(x):
        return _Softmax.apply(x)  # type: ignore[no-any-return]
    return _forward(x)  # type: ignore[no-any-return]


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _forward(x)
        ctx.save_for_backward(y)
        return y  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> Tensor:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        return _backward(dy, y)  # type: ignore[no-any-return]


@fake("softmax_forward")
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@fake("softmax_backward")
def _(dy: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(y)
