"""What the losses over a vocabulary share: options as the operators take them, and gradients that forward makes."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from tigon.ops._autograd import keeps_graph

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: dict[str, int] = {"none": 0, "mean": 1, "sum": 2}


def reduction_code(reduction: str) -> int:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    return REDUCTIONS[reduction]


def cap_or_zero(softcap: float | None) -> float:
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be positive or None, got {softcap}")
    return softcap or 0.0


def rows_or_zero(chunk_rows: int | None) -> int:
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows}")
    return chunk_rows or 0


def refuse_gradients(**constants: Tensor | None) -> None:
    for name, tensor in constants.items():
        if tensor is not None and tensor.requires_grad:
            raise ValueError(f"{name} holds constants, but requires a gradient")


def waits_for_backward(reduction: int, dtype: torch.dtype) -> bool:
    """Whether the gradient cannot be made in forward.

    Divided by the number of rows before the loss scaler multiplies it, it would be lost below float16's range; and
    without a reduction each row has its own factor.
    """
    return reduction == REDUCTIONS["none"] or dtype == torch.float16


def scaled(scale: Any, scale_inplace: Any, dloss: Tensor, gradient: Tensor, *rest: Any) -> Tensor:
    """The gradient that forward made, times dloss: in its own memory unless it may be wanted again."""
    if torch.compiler.is_compiling() or keeps_graph():
        return scale(dloss, gradient, *rest)  # type: ignore[no-any-return]
    scale_inplace(dloss, gradient, *rest)
    torch.autograd.graph.increment_version(gradient)
    return gradient


def fake_head_gradients(
    x: Tensor, weight: Tensor, bias: Tensor | None, need_dx: bool, need_dweight: bool, need_dbias: bool
) -> tuple[Tensor | None, ...]:
    """dx, dweight, dbias of a linear head, without their values."""
    return (
        torch.empty_like(x) if need_dx else None,
        weight.new_empty(weight.shape) if need_dweight else None,
        bias.new_empty(bias.shape) if need_dbias and bias is not None else None,
    )
