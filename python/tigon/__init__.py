"""Tigon: fused Transformer kernels for PyTorch and Hugging Face models.

A name is looked up when it is first used, so that `tigon --help` need not wait for torch. The operator libraries are
loaded by `tigon.ops`, and so by the first use of an operator or of `patch`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tigon.version import __version__

if TYPE_CHECKING:
    from tigon import hf, nn, ops
    from tigon.hf import PatchReport, patch, unpatch
    from tigon.ops import *  # noqa: F403
    from tigon.ops import __all__ as _operators

    __all__ = [*_operators, "PatchReport", "__version__", "hf", "nn", "ops", "patch", "unpatch"]
else:
    _MODULES = ("hf", "nn", "ops")
    _PATCHING = ("PatchReport", "patch", "unpatch")

    def __getattr__(name):
        if name in _MODULES:
            return importlib.import_module(f"tigon.{name}")
        if name == "__all__":
            return [*importlib.import_module("tigon.ops").__all__, *_PATCHING, "__version__"]
        if not name.startswith("_"):
            module = importlib.import_module("tigon.hf" if name in _PATCHING else "tigon.ops")
            if name in _PATCHING or name in module.__all__:
                value = globals()[name] = getattr(module, name)
                return value
        raise AttributeError(f"module 'tigon' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__"), *_MODULES})
