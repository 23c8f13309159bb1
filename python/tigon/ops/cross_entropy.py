"""Cross entropy of logits and integer labels. Contract and derivation: docs/ops/cross_entropy.md."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator
from tigon.ops._loss import (
    REDUCTIONS,
    Reduction,
    cap_or_zero,
    reduction_code,
    refuse_gradients,
    scaled,
    waits_for_backward,
)

_forward = operator("cross_entropy_forward")
_backward = operator("cross_entropy_backward")
_scale = operator("cross_entropy_scale")
_scale_inplace = operator("cross_entropy_scale_inplace")


class CrossEntropyOutput(NamedTuple):
    """A loss with what was asked for beside it (None if not). Only `loss` has a gradient."""

    loss: Tensor
    z_loss: Tensor | None
    token_accuracy: Tensor | None


class _Options(NamedTuple):
    """The tail of arguments that the operators share."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    logit_scale: float
    reduction: int


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    reduction: Reduction = "mean",
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
) -> Tensor | CrossEntropyOutput:
    """``F.cross_entropy`` over the last axis, in float32 whatever the logits' dtype.

    Args:
        logits: ``[..., V]``, float32, bfloat16 or float16, any strides.
        labels: ``[...]``, int64 or int32; ``ignore_index`` where a row does not count.
        weight: ``[V]``, one weight per class, a constant. ``"mean"`` divides by the sum of the labels' weights.
        label_smoothing: as in PyTorch: this part of the target is spread evenly over the classes.
        z_loss: adds ``z_loss * logsumexp²`` for every row that counts.
        softcap: replaces logits by ``softcap * tanh(logits / softcap)`` first.
        logit_scale: multiplies the logits before that.
        reduction: ``"mean"`` over the rows that count (NaN when there are none), ``"sum"`` or ``"none"``.
        return_z_loss: also return the part of the loss that is z_loss.
        return_token_accuracy: also return how often the label is the first of the largest logits: the mean over
            the rows that count, or per row (0 in rows that do not) when ``reduction`` is ``"none"``.

    Returns:
        The loss, float32; a :class:`CrossEntropyOutput` when more was asked for. Rows whose label is ignored have
        a gradient of exactly 0, whatever their logits and the incoming gradient.

    Raises:
        RuntimeError: a shape, dtype, device or option that does not fit, with the values; on the CPU also a label
            outside the vocabulary. On CUDA such a label makes its row's loss and gradient NaN.
        ValueError: reduction is none of these, softcap is not positive, or weight requires a gradient.
    """
    refuse_gradients(weight=weight)
    softcap, code = cap_or_zero(softcap), reduction_code(reduction)
    options = _Options(ignore_index, label_smoothing, z_loss, softcap, logit_scale, code)
    wanted = return_z_loss, return_token_accuracy
    if wants_grad(logits):
        out = _CrossEntropy.apply(logits, labels, weight, options, *wanted)
    else:
        out = _forward(logits, labels, weight, *options, *wanted, False, False)[:3]
    return CrossEntropyOutput(*out) if any(wanted) else out[0]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        options: _Options,
        need_z_loss: bool,
        need_accuracy: bool,
    ) -> tuple[Tensor | None, ...]:
        waits = waits_for_backward(options.reduction, logits.dtype)
        loss, z_loss, accuracy, lse, divisor, dlogits = _forward(
            logits, labels, weight, *options, need_z_loss, need_accuracy, waits, not waits
        )
        if waits:
            ctx.save_for_backward(labels, logits, weight, lse, divisor)
        else:
            ctx.save_for_backward(labels, dlogits)
        ctx.options = options
        ctx.mark_non_differentiable(*(t for t in (z_loss, accuracy) if t is not None))
        return loss, z_loss, accuracy

    @staticmethod
    @first_order
    def backward(ctx: Any, dloss: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        labels, *saved = ctx.saved_tensors
        if len(saved) > 1:
            dlogits = _backward(dloss, saved[0], labels, *saved[1:], *ctx.options)
        else:
            dlogits = scaled(_scale, _scale_inplace, dloss, saved[0], labels, ctx.options.ignore_index)
        return dlogits, None, None, None, None, None


@fake("cross_entropy_forward")
def _(
    logits: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    logit_scale: float,
    reduction: int,
    need_z_loss: bool,
    need_accuracy: bool,
    need_lse: bool,
    need_dlogits: bool,
) -> tuple[Tensor | None, ...]:
    def column() -> Tensor:
        return logits.new_empty(labels.shape, dtype=torch.float32)

    def result() -> Tensor:
        return column() if reduction == REDUCTIONS["none"] else logits.new_empty((), dtype=torch.float32)

    return (
        result(),
        result() if need_z_loss else None,
        result() if need_accuracy else None,
        column() if need_lse else None,
        logits.new_empty((), dtype=torch.float32) if need_lse and reduction == REDUCTIONS["mean"] else None,
        torch.empty_like(logits) if need_dlogits else None,
    )


@fake("cross_entropy_backward")
def _(dloss: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits)


@fake("cross_entropy_scale")
def _(dloss: Tensor, dlogits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    return torch.empty_like(dlogits)


@fake("cross_entropy_scale_inplace")
def _(dloss: Tensor, dlogits: Tensor, labels: Tensor, ignore_index: int) -> None:
    return None
