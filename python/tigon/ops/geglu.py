"""GELU-gated product. Contract and derivation: docs/ops/geglu.md."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, wants_grad
from tigon.ops._library import fake, operator
from tigon.ops.swiglu import fake_output, promoted

Approximate = Literal["tanh", "none"]

_forward = operator("geglu_forward")
_backward = operator("geglu_backward")


def geglu(gate: Tensor, up: Tensor | None = None, *, approximate: Approximate = "tanh") -> Tensor:
    """``gelu(gate) * up``.

    Args:
        gate: ``[..., I]``, float32, bfloat16 or float16, any strides; without `up` it is packed,
            ``[..., 2 I]``: the gate in the first half of the last axis, up in the second.
        up: ``[..., I]`` like gate. Where dtypes differ, both are promoted, as PyTorch's product
            would.
        approximate: ``"tanh"`` (Gemma: ``gelu_pytorch_tanh``) or ``"none"`` (the exact, erf form),
            as :func:`torch.nn.functional.gelu` names them.

    Returns:
        ``[..., I]``, rounded once. Dense inputs keep their strides. Only the inputs are saved for
        backward; the gradient of a packed input is one packed tensor.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
        ValueError: approximate is none of these.
    """
    if approximate not in ("tanh", "none"):
        raise ValueError(f"approximate must be 'tanh' or 'none', got {approximate!r}")
    tanh = approximate == "tanh"
    gate, up = promoted(gate, up)
    if wants_grad(gate, up):
        return _GeGLU.apply(gate, up, tanh)  # type: ignore[no-any-return]
    return _forward(gate, up, tanh)  # type: ignore[no-any-return]


class _GeGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor | None, tanh: bool) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.tanh = tanh
        return _forward(gate, up, tanh)  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gate, up = ctx.saved_tensors
        return *_backward(dy, gate, up, ctx.tanh, *ctx.needs_input_grad[:2]), None


@fake("geglu_forward")
def _(gate: Tensor, up: Tensor | None, tanh: bool) -> Tensor:
    return fake_output(gate, up)


@fake("geglu_backward")
def _(
    dy: Tensor, gate: Tensor, up: Tensor | None, tanh: bool, need_dgate: bool, need_dup: bool
) -> tuple[Tensor | None, Tensor | None]:
    dup = torch.empty_like(up) if need_dup and up is not None else None
    return torch.empty_like(gate) if need_dgate else None, dup
