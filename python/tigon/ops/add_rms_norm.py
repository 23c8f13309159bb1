"""Residual addition and the norm after it. Contract and derivation: docs/ops/add_rms_norm.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator
from tigon.ops.rms_norm import Casting, result_dtype, rounds_before_weight

_forward = operator("add_rms_norm_forward")
_backward = operator("add_rms_norm_backward")


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    casting: Casting = "llama",
) -> tuple[Tensor, Tensor]:
    """``sum = x + residual; y = rms_norm(sum)``, in one pass over memory.

    Args:
        x, residual: ``[..., D]`` of one shape and dtype, any strides.
        weight, eps, weight_offset, casting: as :func:`tigon.ops.rms_norm`.

    Returns:
        ``(y, sum)``: the normalised tensor and the new residual stream (x's dtype).

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
        ValueError: casting is none of these.
    """
    before = rounds_before_weight(casting)
    if wants_grad(x, residual, weight):
        return _AddRMSNorm.apply(x, residual, weight, eps, weight_offset, before)  # type: ignore[no-any-return]
    y, total, _ = _forward(x, residual, weight, eps, weight_offset, before, False)
    return y, total


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor,
        weight: Tensor | None,
        eps: float,
        offset: float,
        before: bool,
    ) -> tuple[Tensor, Tensor]:
        y, total, rstd = _forward(x, residual, weight, eps, offset, before, True)
        ctx.save_for_backward(total, weight, rstd)
        ctx.offset, ctx.before = offset, before
        ctx.set_materialize_grads(False)
        return y, total

    @staticmethod
    @first_order
    def backward(  # type: ignore[override]
        ctx: Any, dy: Tensor | None, dsum: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        total, weight, rstd = ctx.saved_tensors
        need_dx = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        if dy is None:
            return dsum, dsum, None, None, None, None
        dx, dweight = _backward(
            dy,
            dsum,
            total,
            weight,
            rstd,
            ctx.offset,
            ctx.before,
            need_dx,
            ctx.needs_input_grad[2],
        )
        return dx, dx, dweight, None, None, None


@fake("add_rms_norm_forward")
def _(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    offset: float,
    before: bool,
    need_rstd: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    rstd = x.new_empty(x.shape[:-1], dtype=torch.float32) if need_rstd else None
    y = torch.empty_like(x, dtype=result_dtype(x, weight, before))
    return y, torch.empty_like(x), rstd


@fake("add_rms_norm_backward")
def _(
    dy: Tensor,
    dsum: Tensor | None,
    total: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    offset: float,
    before: bool,
    need_dx: bool,
    need_dweight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    dweight = torch.empty_like(weight) if need_dweight and weight is not None else None
    return torch.empty_like(total) if need_dx else None, dweight
