"""Log-probabilities of labels under a linear head, without its logits. Derivation: docs/ops/linear_logprob.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tigon.ops._autocast import as_linear
from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator
from tigon.ops._loss import cap_or_zero, fake_head_gradients, rows_or_zero

LogProbField = Literal["log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1"]

_forward = operator("linear_logprob_forward")
_backward = operator("linear_logprob_backward")


class LogProbOutput(NamedTuple):
    """One value per label, None where it was not asked for. All but `is_top1` have gradients."""

    log_probs: Tensor | None
    entropy: Tensor | None
    log_sum_sq_probs: Tensor | None
    mean_logits: Tensor | None
    is_top1: Tensor | None


class _Options(NamedTuple):
    """The tail of arguments that the operators share."""

    ignore_index: int
    temperature: float
    softcap: float
    logit_scale: float
    chunk_rows: int


def linear_logprob(
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    ignore_index: int = -100,
    outputs: Sequence[LogProbField] = ("log_probs",),
    chunk_rows: int | None = None,
) -> LogProbOutput:
    """Statistics of ``p = softmax(logits / temperature)`` per token, holding the logits of a chunk of rows at a time.

    The logits are ``F.linear(x, weight, bias) * logit_scale``, then ``softcap * tanh(logits / softcap)``, then divided
    by the temperature. Backward computes them again.

    Args:
        x: ``[..., H]``, float32, bfloat16 or float16, any strides.
        weight: ``[V, H]`` of x's dtype, a matrix or its transpose; frozen: nothing of its size is allocated.
        labels: ``[...]``, int64 or int32. Where they are ``ignore_index``, every result is 0 and the row costs nothing.
        bias: ``[V]``.
        temperature, softcap, logit_scale: as in the formula above.
        ignore_index: the label of rows that do not count.
        outputs: which fields of the result to compute:
            ``"log_probs"``: log p of the label; ``"entropy"``: −Σ p log p; ``"log_sum_sq_probs"``: log Σ p²;
            ``"mean_logits"``: mean over the vocabulary of the logits (scaled, capped, divided by the temperature);
            ``"is_top1"``: whether the label is the first of the largest logits (bool, no gradient).
        chunk_rows: rows of logits held at a time; chosen by size and device if None.

    Returns:
        A :class:`LogProbOutput` of float32 tensors like labels. Under autocast x, weight and bias are computed with in
        autocast's dtype, as ``F.linear`` does.

    Raises:
        RuntimeError: a shape, dtype, device or option that does not fit, with the values; on the CPU also a label
            outside the vocabulary. On CUDA such a label makes its row's log_probs and gradient NaN.
        ValueError: outputs is empty or has another name in it, or softcap or chunk_rows is not positive.
    """
    outputs = tuple(outputs)
    unknown = [name for name in outputs if name not in LogProbOutput._fields]
    if unknown or not outputs:
        raise ValueError(f"outputs must be some of {', '.join(LogProbOutput._fields)}, got {outputs}")
    options = _Options(ignore_index, temperature, cap_or_zero(softcap), logit_scale, rows_or_zero(chunk_rows))
    needs = tuple(name in outputs for name in LogProbOutput._fields)
    x, weight, bias = as_linear(x, weight, bias)
    if wants_grad(x, weight, bias):
        results = _LinearLogProb.apply(x, weight, bias, labels, options, needs)
    else:
        results = _forward(x, weight, bias, labels, *options, False, *needs)[1:]
    *statistics, top1 = results
    return LogProbOutput._make((*statistics, None if top1 is None else top1 != 0))


class _LinearLogProb(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        options: _Options,
        needs: tuple[bool, ...],
    ) -> tuple[Tensor | None, ...]:
        lse, *results = _forward(x, weight, bias, labels, *options, True, *needs)
        _, entropy, log_sum_sq_probs, _, top1 = results
        ctx.save_for_backward(lse, entropy, log_sum_sq_probs, x, weight, bias, labels)
        ctx.options = options
        ctx.set_materialize_grads(False)
        if top1 is not None:
            ctx.mark_non_differentiable(top1)
        return tuple(results)

    @staticmethod
    @first_order
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if all(g is None for g in upstream[:4]):
            return (None,) * 6
        gradients = _backward(*upstream[:4], *ctx.saved_tensors, *ctx.options, *ctx.needs_input_grad[:3])
        return *gradients, None, None, None


@fake("linear_logprob_forward")
def _(x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    needs = rest[len(_Options._fields) :]
    return tuple(x.new_empty(labels.shape, dtype=torch.float32) if need else None for need in needs)


@fake("linear_logprob_backward")
def _(*arguments: Any) -> tuple[Tensor | None, ...]:
    return fake_head_gradients(*arguments[7:10], *arguments[-3:])
