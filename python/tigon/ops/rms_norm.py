"""RMS normalisation over the last axis. Contract and derivation: docs/ops/rms_norm.md."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator

Casting = Literal["llama", "gemma"]

_forward = operator("rms_norm_forward")
_backward = operator("rms_norm_backward")


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    casting: Casting = "llama",
) -> Tensor:
    """``x / sqrt(mean(x²) + eps) * (weight + weight_offset)`` over the last axis.

    Args:
        x: ``[..., D]``, float32, bfloat16 or float16, any strides.
        weight: ``[D]``, its dtype may differ from x's; None is a weight of ones.
        eps: added to the mean of squares.
        weight_offset: 1.0 for Gemma, whose weights are stored around zero.
        casting: where the models round. ``"llama"`` (LlamaRMSNorm of transformers, and Qwen,
            Mistral, Phi-3): the normalised x is rounded to x's dtype, then multiplied; the result
            has the promoted dtype of x and weight. ``"gemma"`` (GemmaRMSNorm; with offset 0 also
            ``torch.nn.functional.rms_norm``): one rounding at the end, the result has x's dtype.

    Returns:
        A tensor like x; a dense x keeps its strides.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
        ValueError: casting is none of these.
    """
    before = rounds_before_weight(casting)
    if wants_grad(x, weight):
        return _RMSNorm.apply(x, weight, eps, weight_offset, before)  # type: ignore[no-any-return]
    return _forward(x, weight, eps, weight_offset, before, False)[0]  # type: ignore[no-any-return]


def rounds_before_weight(casting: Casting) -> bool:
    """The rounding convention as the operators take it."""
    if casting == "llama":
        return True
    if casting == "gemma":
        return False
    raise ValueError(f"casting must be 'llama' or 'gemma', got {casting!r}")


def result_dtype(x: Tensor, weight: Tensor | None, before: bool) -> torch.dtype:
    """The dtype of y under a rounding convention."""
    return x.dtype if weight is None or not before else torch.promote_types(x.dtype, weight.dtype)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float, offset: float, before: bool) -> Tensor:
        y, rstd = _forward(x, weight, eps, offset, before, True)
        ctx.save_for_backward(x, weight, rstd)
        ctx.offset, ctx.before = offset, before
        return y  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, rstd = ctx.saved_tensors
        need_dx, need_dweight = ctx.needs_input_grad[:2]
        dx, dweight = _backward(dy, x, weight, rstd, ctx.offset, ctx.before, need_dx, need_dweight)
        return dx, dweight, None, None, None


@fake("rms_norm_forward")
def _(
    x: Tensor, weight: Tensor | None, eps: float, offset: float, before: bool, need_rstd: bool
) -> tuple[Tensor, Tensor | None]:
    rstd = x.new_empty(x.shape[:-1], dtype=torch.float32) if need_rstd else None
    return torch.empty_like(x, dtype=result_dtype(x, weight, before)), rstd


@fake("rms_norm_backward")
def _(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    offset: float,
    before: bool,
    need_dx: bool,
    need_dweight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    dweight = torch.empty_like(weight) if need_dweight and weight is not None else None
    return torch.empty_like(x) if need_dx else None, dweight
