"""What the operators' autograd formulas share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Backward = Callable[..., Any]

# Whether the backward that runs keeps its graph (retain_graph) for another one: then nothing saved may be overwritten.
# Not public in torch; where it is missing, nothing is ever reused.
keeps_graph: Callable[[], bool] = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def wants_grad(*tensors: Tensor | None) -> bool:
    """Whether a call goes through its autograd.Function: a gradient may be asked for, or forward-mode AD is on.

    To autograd a bare operator is a constant, whose tangent would silently be zero; the Function refuses tangents.
    """
    if forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)


def first_order(backward: Backward) -> Backward:
    """A Function's backward that refuses ``create_graph``: the second derivatives would silently be zero."""

    @functools.wraps(backward)
    def checked(ctx: Any, *upstream: Tensor | None) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(f"{backward.__module__} has no second derivative, but create_graph=True asks for one")
        return backward(ctx, *upstream)

    return checked
