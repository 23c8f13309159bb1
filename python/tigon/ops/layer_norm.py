"""Layer normalisation over the last axis. Contract and derivation: docs/ops/layer_norm.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tigon.ops._autocast import widened
from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator

_forward = operator("layer_norm_forward")
_backward = operator("layer_norm_backward")


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axis, fp32 inside, one rounding at the end.

    Args:
        x: ``[..., D]``, float32, bfloat16 or float16, any strides.
        weight, bias: ``[D]``, their dtypes may differ from x's; None is a weight of ones, a bias of zeros.
        eps: added to the (biased) variance.

    Returns:
        A tensor like x, of x's dtype; a dense x keeps its strides. Under CUDA's autocast float32, as
        ``torch.nn.functional.layer_norm``.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
    """
    x = widened(x)
    if wants_grad(x, weight, bias):
        return _LayerNorm.apply(x, weight, bias, eps)  # type: ignore[no-any-return]
    return _forward(x, weight, bias, eps, False)[0]  # type: ignore[no-any-return]


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        y, mean, rstd = _forward(x, weight, bias, eps, True)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return y  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, mean, rstd = ctx.saved_tensors
        need_dx, need_dweight, need_dbias, _ = ctx.needs_input_grad
        dbias_dtype = ctx.bias_dtype if need_dbias else None
        dx, dweight, dbias = _backward(dy, x, weight, mean, rstd, need_dx, need_dweight, dbias_dtype)
        return dx, dweight, dbias, None


@fake("layer_norm_forward")
def _(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, need_stats: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    def per_row() -> Tensor | None:
        return x.new_empty(x.shape[:-1], dtype=torch.float32) if need_stats else None

    return torch.empty_like(x), per_row(), per_row()


@fake("layer_norm_backward")
def _(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    need_dx: bool,
    need_dweight: bool,
    dbias_dtype: torch.dtype | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dweight = torch.empty_like(weight) if need_dweight and weight is not None else None
    dbias = None if dbias_dtype is None else x.new_empty(x.shape[-1:], dtype=dbias_dtype)
    return torch.empty_like(x) if need_dx else None, dweight, dbias
