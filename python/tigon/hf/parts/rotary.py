"""RoPE: the model's own attention forward, rebuilt so that one name in it means our function.

Attention calls `apply_rotary_pos_emb` as a global of its module. A function with the same code over a
copy of those globals, in which that name is ours, runs the installed version's attention line by line
and leaves the module alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, ClassVar

from torch import Tensor, nn

from tigon import ops
from tigon.hf.family import Part, dress
from tigon.hf.predicate import unfit
from tigon.hf.report import Tally
from tigon.hf.slot import Forward

Rotation = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Rotary(Part):
    function: str = "apply_rotary_pos_emb"
    interleaved: bool = False

    part: ClassVar[str] = "rope"
    # What the rotation itself may mention; of the attention around it nothing need be known.
    vocabulary: ClassVar[frozenset[str]] = frozenset({"unsqueeze", "rotate_half"})

    def unknown(self, original: Forward) -> str | None:
        try:
            rotation = _rotation(original, self.function)
        except LookupError as error:
            return str(error)
        strange = set(rotation.__code__.co_names) - self.vocabulary
        if strange:
            return f"{self.function} does something unknown: {', '.join(sorted(strange))}"
        return None

    def build(self, original: Forward, tally: Tally) -> Forward:
        model_rotation: Rotation = inspect.unwrap(original).__globals__[self.function]
        interleaved = self.interleaved

        @functools.wraps(_rotation(original, self.function))
        def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            reason = "it was called with more than q, k, cos, sin" if args or kwargs else unfit(q, k, cos, sin)
            if reason is not None:
                tally.fallback(reason)
                return model_rotation(q, k, cos, sin, *args, **kwargs)
            tally.fused()
            return ops.rope(q, k, cos, sin, interleaved=interleaved)

        return dress(_rebuild(original, self.function, rotate), original)


def _rotation(attention: Forward, name: str) -> FunctionType:
    """The rotation that `attention` calls, as a plain function, or LookupError."""
    inner = inspect.unwrap(attention)
    if not isinstance(inner, FunctionType) or name not in inner.__code__.co_names:
        raise LookupError(f"{attention.__qualname__} does not call {name}")
    rotation = inner.__globals__.get(name)
    if isinstance(rotation, nn.Module):  # package `kernels` makes a module of it, around the function
        cells = inspect.getclosurevars(type(rotation).forward).nonlocals
        rotation = cells.get("func")
    rotation = inspect.unwrap(rotation) if callable(rotation) else None
    if not isinstance(rotation, FunctionType):
        raise LookupError(f"{name} is not a Python function")
    return rotation


def _rebuild(function: Forward, name: str, value: object) -> FunctionType:
    """`function` with global `name` meaning `value`; decorators around it are rebuilt too."""
    assert isinstance(function, FunctionType)
    inner = getattr(function, "__wrapped__", None)
    if inner is None:
        return _copy(function, {**function.__globals__, name: value}, function.__closure__)
    cells = [
        CellType(_rebuild(inner, name, value)) if cell.cell_contents is inner else cell
        for cell in function.__closure__ or ()
    ]
    return _copy(function, function.__globals__, tuple(cells))


def _copy(function: FunctionType, scope: dict[str, Any], closure: tuple[CellType, ...] | None) -> FunctionType:
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    return copy
