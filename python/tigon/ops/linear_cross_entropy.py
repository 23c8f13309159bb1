"""Cross entropy of a linear head without its logits. Contract and derivation: docs/ops/linear_cross_entropy.md."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tigon.ops._autocast import as_linear
from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator
from tigon.ops._loss import (
    REDUCTIONS,
    Reduction,
    cap_or_zero,
    fake_head_gradients,
    reduction_code,
    refuse_gradients,
    rows_or_zero,
    scaled,
    waits_for_backward,
)
from tigon.ops.cross_entropy import CrossEntropyOutput

_forward = operator("linear_cross_entropy_forward")
_backward = operator("linear_cross_entropy_backward")
_scale = operator("linear_cross_entropy_scale")
_scale_inplace = operator("linear_cross_entropy_scale_inplace")


class _Options(NamedTuple):
    """The tail of arguments that the operators share."""

    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    logit_scale: float
    reduction: int
    sum_in_float32: bool
    low_memory: bool
    chunk_rows: int


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    token_weights: Tensor | None = None,
    num_items: int | Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    reduction: Reduction = "mean",
    accumulate: Literal["float32", "weight"] = "float32",
    memory: Literal["fast", "low"] = "fast",
    chunk_rows: int | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
) -> Tensor | CrossEntropyOutput:
    """``cross_entropy(F.linear(x, weight, bias), labels)``, holding part of the logits at a time.

    All logits are held only where a trained weight's gradient would need as much memory for its partial sums. Rows
    whose label is ignored are in no matrix product. With ``reduction`` ``"mean"`` or ``"sum"`` the gradients are made
    together with the loss: three products in all, two where weight is frozen. With ``"none"``, and in float16, they
    wait for the incoming gradient and the logits are computed again.

    Args:
        x: ``[..., H]``, float32, bfloat16 or float16, any strides.
        weight: ``[V, H]`` of x's dtype, a matrix or its transpose; frozen: nothing of its size is allocated.
        labels: ``[...]``, int64 or int32; ``ignore_index`` where a row does not count.
        bias: ``[V]``.
        class_weight: ``[V]``, constants, as ``weight`` of ``F.cross_entropy``.
        token_weights: ``[...]``, constants: each multiplies its row's loss and does not enter the mean's divisor.
        num_items: replaces the mean's divisor (``num_items_in_batch`` of the HF Trainer): an int, or a tensor with
            one element on any device.
        ignore_index, label_smoothing, z_loss, softcap, logit_scale, reduction, return_z_loss, return_token_accuracy:
            as :func:`tigon.ops.cross_entropy`.
        accumulate: where partial sums of the weight's gradient are kept: ``"float32"``, or ``"weight"``, in its own
            dtype, which needs no memory beside it for 16-bit weights and rounds once per chunk.
        memory: ``"fast"``, or ``"low"``: smaller chunks of rows; and where a 16-bit weight is trained with float32
            sums, tiles of the vocabulary, which need no such sums but compute some logits twice. For 8192 rows of 4096
            this holds a quarter of a GiB beside the weight's gradient, whatever the vocabulary. Results are rounded at
            the same points.
        chunk_rows: rows of logits held at a time, or with tiles as many logits as so many rows have; chosen by size and
            device if None.

    Returns:
        The loss, float32; a :class:`CrossEntropyOutput` when more was asked for. Under autocast x, weight and bias
        are computed with in autocast's dtype, as ``F.linear`` does, and gradients have the dtype of the tensors given.

    Raises:
        RuntimeError: a shape, dtype, device or option that does not fit, with the values; on the CPU also a label
            outside the vocabulary. On CUDA such a label makes its row's loss and gradient NaN.
        ValueError: reduction, accumulate or memory is none of these, softcap or chunk_rows is not positive, num_items
            is given without ``"mean"``, or a constant requires a gradient.
    """
    refuse_gradients(class_weight=class_weight, token_weights=token_weights)
    if accumulate not in ("float32", "weight"):
        raise ValueError(f"accumulate must be 'float32' or 'weight', got {accumulate!r}")
    if memory not in ("fast", "low"):
        raise ValueError(f"memory must be 'fast' or 'low', got {memory!r}")
    if num_items is not None and reduction != "mean":
        raise ValueError(f"num_items replaces the mean's divisor, but reduction is {reduction!r}")
    options = _Options(
        ignore_index,
        label_smoothing,
        z_loss,
        cap_or_zero(softcap),
        logit_scale,
        reduction_code(reduction),
        accumulate == "float32",
        memory == "low",
        rows_or_zero(chunk_rows),
    )
    tokens = None if token_weights is None else token_weights.to(torch.float32)
    items = _on_device(num_items, x)
    wanted = return_z_loss, return_token_accuracy
    x, weight, bias = as_linear(x, weight, bias)
    tensors = (x, weight, bias, labels, class_weight, tokens, items)
    if wants_grad(x, weight, bias):
        out = _LinearCrossEntropy.apply(*tensors, options, *wanted)
    else:
        out = _forward(*tensors, *options, *wanted, False, False, False, False)[:3]
    return CrossEntropyOutput(*out) if any(wanted) else out[0]


def _on_device(num_items: int | Tensor | None, x: Tensor) -> Tensor | None:
    """One float32 where x is; an int costs no synchronisation."""
    if num_items is None:
        return None
    if isinstance(num_items, Tensor):
        if num_items.numel() != 1:
            raise ValueError(f"num_items must have one element, got shape {list(num_items.shape)}")
        return num_items.detach().to(device=x.device, dtype=torch.float32).reshape(())
    return torch.full((), num_items, dtype=torch.float32, device=x.device)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        class_weight: Tensor | None,
        tokens: Tensor | None,
        items: Tensor | None,
        options: _Options,
        need_z_loss: bool,
        need_accuracy: bool,
    ) -> tuple[Tensor | None, ...]:
        waits = waits_for_backward(options.reduction, x.dtype)
        needs = (False, False, False) if waits else ctx.needs_input_grad[:3]
        tensors = (x, weight, bias, labels, class_weight, tokens, items)
        loss, z_loss, accuracy, lse, divisor, *gradients = _forward(
            *tensors, *options, need_z_loss, need_accuracy, waits, *needs
        )
        if waits:
            ctx.save_for_backward(
                x, weight, bias, labels, class_weight, lse, divisor if items is None else items, tokens
            )
        else:
            ctx.save_for_backward(*gradients)
        ctx.options = options
        ctx.waits = waits
        ctx.mark_non_differentiable(*(t for t in (z_loss, accuracy) if t is not None))
        return loss, z_loss, accuracy

    @staticmethod
    @first_order
    def backward(ctx: Any, dloss: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gradients: list[Tensor | None]
        if ctx.waits:
            *saved, tokens = ctx.saved_tensors
            dloss = dloss.expand(saved[3].shape)
            if tokens is not None:
                dloss = dloss * tokens
            gradients = _backward(dloss, *saved, *ctx.options, *ctx.needs_input_grad[:3])
        else:
            gradients = [None if g is None else scaled(_scale, _scale_inplace, dloss, g) for g in ctx.saved_tensors]
        return *gradients, None, None, None, None, None, None, None


@fake("linear_cross_entropy_forward")
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    class_weight: Tensor | None,
    tokens: Tensor | None,
    items: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    logit_scale: float,
    reduction: int,
    sum_in_float32: bool,
    low_memory: bool,
    chunk_rows: int,
    need_z_loss: bool,
    need_accuracy: bool,
    need_lse: bool,
    need_dx: bool,
    need_dweight: bool,
    need_dbias: bool,
) -> tuple[Tensor | None, ...]:
    def column() -> Tensor:
        return x.new_empty(labels.shape, dtype=torch.float32)

    def scalar() -> Tensor:
        return x.new_empty((), dtype=torch.float32)

    result = column if reduction == REDUCTIONS["none"] else scalar
    return (
        result(),
        result() if need_z_loss else None,
        result() if need_accuracy else None,
        column() if need_lse else None,
        scalar() if need_lse and reduction == REDUCTIONS["mean"] and items is None else None,
        *fake_head_gradients(x, weight, bias, need_dx, need_dweight, need_dbias),
    )


@fake("linear_cross_entropy_backward")
def _(dloss: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor | None, ...]:
    return fake_head_gradients(x, weight, bias, *rest[-3:])


@fake("linear_cross_entropy_scale")
def _(dloss: Tensor, gradient: Tensor) -> Tensor:
    return torch.empty_like(gradient)


@fake("linear_cross_entropy_scale_inplace")
def _(dloss: Tensor, gradient: Tensor) -> None:
    return None
