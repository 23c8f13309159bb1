"""Rotary position embedding of q and k. Contract and derivation: docs/ops/rope.md."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator

K = TypeVar("K", bound=Tensor | None)

_forward = operator("rope_forward")
_backward = operator("rope_backward")


def rope(
    q: Tensor,
    k: K,
    cos: Tensor,
    sin: Tensor,
    *,
    position_ids: Tensor | None = None,
    interleaved: bool = False,
    unsqueeze_dim: int = 1,
    rotary_dim: int | None = None,
) -> tuple[Tensor, K]:
    """``x * cos + rotate(x) * sin`` for q and k, over the first `rotary_dim` features of a head.

    Args:
        q, k: ``[B, H, T, D]`` (`unsqueeze_dim` 1) or ``[B, T, H, D]`` (2), each with its own number
            of heads, float32, bfloat16 or float16, any strides. k may be None.
        cos, sin: ``[T, W]`` or ``[1 or B, T, W]``, their dtype may differ from q's. W is the rotary
            width R: one value per feature, laid out as the features are (``cat((f, f))`` for halves,
            ``repeat_interleave(f, 2)`` for interleaved pairs); or R / 2, one value per pair, with
            `rotary_dim` given. They get no gradient.
        position_ids: ``[1 or B, T]``: the rows of tables ``[P, W]`` to take. A position outside
            the table raises on CPU and gives NaN for that token on CUDA.
        interleaved: pairs are neighbours (0, 1), (2, 3) (Cohere, GLM) rather than halves
            (i, i + R / 2) (Llama). GLM builds halves for its interleaved pairs: pass the first half
            of cos and sin, and `rotary_dim`.
        rotary_dim: R; None is the width of cos. Features from R on are copied.

    Returns:
        ``(q', k')``, rounded once, of q's and k's dtype; dense inputs keep their strides.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
        ValueError: cos or sin requires a gradient; rotary_dim is below 1.
    """
    if rotary_dim is not None and rotary_dim < 1:
        raise ValueError(f"rotary_dim must be at least 1 or None, got {rotary_dim}")
    options = (interleaved, unsqueeze_dim, rotary_dim or 0)
    if torch.is_grad_enabled():
        for name, table in (("cos", cos), ("sin", sin)):
            if table.requires_grad:
                raise ValueError(f"rope gives cos and sin no gradient, but {name} requires one: detach it")
    if wants_grad(q, k):
        return _Rope.apply(q, k, cos, sin, position_ids, options)  # type: ignore[no-any-return]
    return _forward(q, k, cos, sin, position_ids, *options)  # type: ignore[no-any-return]


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        position_ids: Tensor | None,
        options: tuple[bool, int, int],
    ) -> tuple[Tensor, Tensor | None]:
        ctx.save_for_backward(cos, sin, position_ids)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return _forward(q, k, cos, sin, position_ids, *options)  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(  # type: ignore[override]
        ctx: Any, dq_out: Tensor | None, dk_out: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        tables = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            dq_out = None
        if not ctx.needs_input_grad[1]:
            dk_out = None
        dq: Tensor | None = None
        dk: Tensor | None = None
        if dq_out is not None:
            dq, dk = _backward(dq_out, dk_out, *tables, *ctx.options)
        elif dk_out is not None:
            dk, _ = _backward(dk_out, None, *tables, *ctx.options)
        return dq, dk, None, None, None, None


def _fake(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None,
    interleaved: bool,
    unsqueeze_dim: int,
    rotary_dim: int,
) -> tuple[Tensor, Tensor | None]:
    return torch.empty_like(q), None if k is None else torch.empty_like(k)


fake("rope_forward")(_fake)
fake("rope_backward")(_fake)
