"""One table per model family. A new family is a new file here and its name in `FAMILIES`."""

from __future__ import annotations

from tigon.hf.families.llama import LLAMA
from tigon.hf.families.qwen2 import QWEN2
from tigon.hf.family import Family, Part

FAMILIES: dict[str, Family] = {family.name: family for family in (LLAMA, QWEN2)}


def row_of(cls: type) -> tuple[Part, type] | None:
    """The row for modules of class `cls`, and the family's class that `cls` is or derives from."""
    for base in cls.__mro__:
        for family in FAMILIES.values():
            row = family.row(base)
            if row is not None:
                return row, base
    return None


def family_of(target: str | type) -> Family | None:
    """The family of that name, or the one that has this class."""
    if isinstance(target, str):
        return FAMILIES.get(target)
    modules = {base.__module__ for base in target.__mro__}
    return next((family for family in FAMILIES.values() if family.module in modules), None)
