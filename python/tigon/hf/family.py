"""The shape of a family's table, and how a module finds its row in it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from tigon.hf.report import Tally
from tigon.hf.slot import Forward


@dataclass(frozen=True)
class Part(ABC):
    """One class of a family and the operator that its forward becomes."""

    class_name: str
    part: ClassVar[str]
    # Every name the known versions of this forward mention. A forward that mentions another one does
    # something we have not read, so it is left alone.
    vocabulary: ClassVar[frozenset[str]]
    # What it takes besides `self`, where ours takes no more: a version that takes more is left alone too.
    arguments: ClassVar[tuple[str, ...] | None] = None

    def unknown(self, original: Forward) -> str | None:
        """Why a forward is not the one we know, or None."""
        code = getattr(inspect.unwrap(original), "__code__", None)
        if code is None:
            return f"{self.class_name}.forward is not a Python function"
        strange = set(code.co_names) - self.vocabulary
        if strange:
            return f"{self.class_name}.forward does something unknown: {', '.join(sorted(strange))}"
        taken = tuple(inspect.signature(original).parameters)[1:]
        if self.arguments is not None and taken != self.arguments:
            return f"{self.class_name}.forward takes {', '.join(taken)}, not {', '.join(self.arguments)}"
        return None

    def unfit(self, module: nn.Module) -> str | None:
        """Why this instance can never be fused, or None."""
        return None

    @abstractmethod
    def build(self, original: Forward, tally: Tally) -> Forward:
        """The fused forward. It takes its module from where it is called, and keeps none."""


@dataclass(frozen=True)
class Family:
    """A model family: where its classes live and what becomes of each."""

    name: str
    module: str
    parts: tuple[Part, ...]

    def row(self, cls: type) -> Part | None:
        if cls.__module__ != self.module:
            return None
        return next((part for part in self.parts if part.class_name == cls.__name__), None)


def dress(function: Forward, original: Forward) -> Forward:
    """Give `function` the original's names and signature.

    No `__wrapped__`: accelerate peels a forward through it when it unwraps a model, and would peel ours.
    """
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, name, getattr(original, name))
    function.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return function
