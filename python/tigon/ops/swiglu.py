"""SiLU-gated product. Contract and derivation: docs/ops/swiglu.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator

_forward = operator("swiglu_forward")
_backward = operator("swiglu_backward")


def swiglu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """``silu(gate) * up``.

    Args:
        gate: ``[..., I]``, float32, bfloat16 or float16, any strides; without `up` it is packed,
            ``[..., 2 I]``: the gate in the first half of the last axis, up in the second.
        up: ``[..., I]`` like gate. Where dtypes differ, both are promoted, as PyTorch's product
            would.

    Returns:
        ``[..., I]``, rounded once. Dense inputs keep their strides. Only the inputs are saved for
        backward; the gradient of a packed input is one packed tensor.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
    """
    gate, up = promoted(gate, up)
    if wants_grad(gate, up):
        return _SwiGLU.apply(gate, up)  # type: ignore[no-any-return]
    return _forward(gate, up)  # type: ignore[no-any-return]


def promoted(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both at the dtype that their product has in PyTorch."""
    if up is None or gate.dtype == up.dtype:
        return gate, up
    dtype = torch.promote_types(gate.dtype, up.dtype)
    return gate.to(dtype), up.to(dtype)


def fake_output(gate: Tensor, up: Tensor | None) -> Tensor:
    """What a gated activation returns, without its values."""
    if up is not None:
        return torch.empty_like(gate)
    return gate.new_empty((*gate.shape[:-1], gate.shape[-1] // 2))


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up)
        return _forward(gate, up)  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gate, up = ctx.saved_tensors
        return _backward(dy, gate, up, *ctx.needs_input_grad[:2])  # type: ignore[no-any-return]


@fake("swiglu_forward")
def _(gate: Tensor, up: Tensor | None) -> Tensor:
    return fake_output(gate, up)


@fake("swiglu_backward")
def _(
    dy: Tensor, gate: Tensor, up: Tensor | None, need_dgate: bool, need_dup: bool
) -> tuple[Tensor | None, Tensor | None]:
    dup = torch.empty_like(up) if need_dup and up is not None else None
    return torch.empty_like(gate) if need_dgate else None, dup
