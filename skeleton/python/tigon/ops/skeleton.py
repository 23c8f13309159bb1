"""A weight per column. Contract and derivation: docs/ops/skeleton.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator

_forward = operator("skeleton_forward")
_backward = operator("skeleton_backward")


def skeleton(x: Tensor, weight: Tensor) -> Tensor:
    """``x * weight``.

    Args:
        x: ``[..., D]``, float32, bfloat16 or float16, any strides.
        weight: ``[D]``, its dtype may differ from x's.

    Returns:
        A tensor like x; a dense x keeps its strides.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
    """
    if wants_grad(x, weight):
        return _Skeleton.apply(x, weight)  # type: ignore[no-any-return]
    return _forward(x, weight)  # type: ignore[no-any-return]


class _Skeleton(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _forward(x, weight)  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return _backward(dy, x, weight, *ctx.needs_input_grad)  # type: ignore[no-any-return]


@fake("skeleton_forward")
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


@fake("skeleton_backward")
def _(dy: Tensor, x: Tensor, weight: Tensor, need_dx: bool, need_dweight: bool) -> tuple[Tensor | None, Tensor | None]:
    return torch.empty_like(x) if need_dx else None, weight.new_empty(weight.shape) if need_dweight else None
