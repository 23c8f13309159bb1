"""SiLU-gated product. Contract and derivation: docs/ops/swiglu.md."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tigon.ops._autograd import first_order, keeps_graph, wants_grad
from tigon.ops._library import fake, operator

_forward = operator("swiglu_forward")
_backward = operator("swiglu_backward")
_backward_inplace = operator("swiglu_backward_inplace")


def swiglu(gate: Tensor, up: Tensor | None = None, *, overwrite: bool = False) -> Tensor:
    """``silu(gate) * up``.

    Args:
        gate: ``[..., I]``, float32, bfloat16 or float16, any strides; without `up` it is packed,
            ``[..., 2 I]``: the gate in the first half of the last axis, up in the second.
        up: ``[..., I]`` like gate. Where dtypes differ, both are promoted, as PyTorch's product
            would.
        overwrite: gate and up are the caller's own and nobody else will read them: a backward that
            does not keep its graph may write their gradients over them, which saves the memory of
            both. It does so where they are two contiguous tensors, no leaves, that both get a gradient.

    Returns:
        ``[..., I]``, rounded once. Dense inputs keep their strides. Only the inputs are saved for
        backward; the gradient of a packed input is one packed tensor.

    Raises:
        RuntimeError: a shape, dtype or device that does not fit, with the values.
    """
    gate, up = promoted(gate, up)
    if wants_grad(gate, up):
        return _SwiGLU.apply(gate, up, overwrite)  # type: ignore[no-any-return]
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
    def forward(ctx: Any, gate: Tensor, up: Tensor | None, overwrite: bool) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.overwrite = overwrite
        return _forward(gate, up)  # type: ignore[no-any-return]

    @staticmethod
    @first_order
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gate, up = ctx.saved_tensors
        if ctx.overwrite and all(ctx.needs_input_grad[:2]) and _are_writable(gate, up):
            dgate, dup = gate.detach(), up.detach()
            _backward_inplace(dy, dgate, dup)
            for changed in (gate, up):  # whoever saved them too shall hear of it
                torch.autograd.graph.increment_version(changed)
            return dgate, dup, None
        return *_backward(dy, gate, up, *ctx.needs_input_grad[:2]), None


def _are_writable(gate: Tensor, up: Tensor | None) -> bool:
    if torch.compiler.is_compiling() or keeps_graph() or up is None or gate.is_leaf or up.is_leaf:
        return False  # a leaf is somebody's, and its gradient must not lie in its memory
    return (
        gate.is_contiguous()
        and up.is_contiguous()
        and gate.untyped_storage().data_ptr() != up.untyped_storage().data_ptr()
    )


@fake("swiglu_forward")
def _(gate: Tensor, up: Tensor | None) -> Tensor:
    return fake_output(gate, up)


@fake("swiglu_backward")
def _(
    dy: Tensor, gate: Tensor, up: Tensor | None, need_dgate: bool, need_dup: bool
) -> tuple[Tensor | None, Tensor | None]:
    dup = torch.empty_like(up) if need_dup and up is not None else None
    return torch.empty_like(gate) if need_dgate else None, dup


@fake("swiglu_backward_inplace")
def _(dy: Tensor, gate: Tensor, up: Tensor) -> None:
    return None
