"""Where a module's `forward` is held, and how ours goes in and comes out again.

A forward may sit under somebody else's: accelerate keeps the one it found as `_old_forward`, TRL and
accelerate's mixed precision keep it in the closure of theirs. Ours goes in where the model's own was,
so whatever lies above still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn

Forward = Callable[..., Any]
_ORIGIN = "__tigon__"
_REPLICATE = "_replicate_for_data_parallel"


@dataclass(frozen=True)
class Origin:
    """Carried by each function we install: what it replaced, and whether it filled an empty place."""

    function: Forward
    original: Forward
    inherited: bool
    report: Any


def origin(value: Any) -> Origin | None:
    """The origin of a function of ours, or of its bound method; None for anybody else's."""
    function = value.__func__ if isinstance(value, MethodType) else value
    found: Origin | None = getattr(function, _ORIGIN, None)
    # functools.wraps copies attributes, so a wrapper around ours carries the mark as well.
    return found if found is not None and found.function is function else None


def mark(function: Forward, original: Forward, inherited: bool, report: Any) -> None:
    setattr(function, _ORIGIN, Origin(function, original, inherited, report))


@dataclass(frozen=True)
class Slot:
    """A place that holds a forward: a key of a `__dict__`, a closure cell, or a class."""

    holder: dict[str, Any] | CellType | type
    key: str

    def get(self) -> Any:
        if isinstance(self.holder, CellType):
            return self.holder.cell_contents
        return (self.holder if isinstance(self.holder, dict) else vars(self.holder)).get(self.key)

    def put(self, value: Any) -> None:
        if isinstance(self.holder, dict):
            self.holder[self.key] = value
        else:
            setattr(self.holder, self.key, value)

    def clear(self) -> None:
        if isinstance(self.holder, dict):
            del self.holder[self.key]
        else:
            delattr(self.holder, self.key)


def own_slot(module: nn.Module) -> Slot:
    return Slot(vars(module), "forward")


def find(module: nn.Module, wanted: Callable[[FunctionType], bool]) -> Slot | None:
    """The place through which `module`'s instance forward reaches a function that is `wanted`."""
    todo = [Slot(vars(module), key) for key in ("forward", "_old_forward") if key in vars(module)]
    seen = set()
    while todo:
        slot = todo.pop()
        value = slot.get()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, MethodType):
            if value.__self__ is not module:
                continue
            value = value.__func__
        if isinstance(value, FunctionType) and wanted(value):
            return slot
        todo += _inside(value)
    return None


def _inside(value: Any) -> Iterator[Slot]:
    """The places in which a wrapper keeps the callable that it wraps."""
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # an empty cell
                continue
            if callable(content) and not isinstance(content, (type, nn.Module)):
                yield Slot(cell, "cell_contents")
    elif not isinstance(value, (type, nn.Module)):
        for key, content in getattr(value, "__dict__", {}).items():
            if key != "__wrapped__" and callable(content):  # __wrapped__ is a note, nobody calls it
                yield Slot(value.__dict__, key)


def install(slot: Slot, function: Forward, module: nn.Module) -> None:
    """Put `function` where the model's own forward was, bound or not as that one was."""
    held = slot.get()
    bound = held is None or isinstance(held, MethodType)
    slot.put(MethodType(function, module) if bound else function)
    # A partial, since it survives pickling: a pickled bound forward comes back as the class' own, bound still.
    vars(module)[_REPLICATE] = partial(_replicate, module)


def restore(slot: Slot, module: nn.Module) -> None:
    held = slot.get()
    was = origin(held)
    assert was is not None
    if was.inherited and slot.holder is vars(module) and slot.key == "forward":  # not moved under another since
        slot.clear()
    else:
        slot.put(MethodType(was.original, module) if isinstance(held, MethodType) else was.original)
    vars(module).pop(_REPLICATE, None)


def _replicate(module: nn.Module) -> nn.Module:
    """nn.DataParallel copies `__dict__` as it is: a bound forward would run on the first GPU's weights."""
    replica: nn.Module = type(module)._replicate_for_data_parallel(module)  # type: ignore[no-untyped-call]
    for key, value in vars(module).items():
        if isinstance(value, MethodType) and value.__self__ is module:
            vars(replica)[key] = MethodType(value.__func__, replica)
    vars(replica)[_REPLICATE] = partial(_replicate, replica)
    return replica
