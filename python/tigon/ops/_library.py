"""Finds and loads the operator libraries, and tells what was found."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

_log = logging.getLogger("tigon")
_FOLDER = Path(__file__).resolve().parent.parent / "_lib"


@dataclass(frozen=True)
class Library:
    """One operator library: where it is, whether it is loaded, and if not, why."""

    name: str
    path: Path
    loaded: bool
    reason: str = ""


def _load(name: str) -> Library:
    path = _FOLDER / f"lib{name}.so"
    if not path.exists():
        return Library(name, path, False, "not part of this build")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        why = error.__cause__ or error  # torch leaves out which symbol the loader has missed
        reason = f"built for torch >= 2.10, this is torch {torch.__version__}: {why}"
        _log.warning("tigon: %s cannot be loaded, models run in PyTorch: it is %s", path.name, reason)
        return Library(name, path, False, reason)
    return Library(name, path, True)


def _load_cuda(cpu: Library) -> Library:
    name = "tigon_torch_cuda"
    path = _FOLDER / f"lib{name}.so"
    if not cpu.loaded:
        return Library(name, path, False, f"needs lib{cpu.name}.so, which is not loaded")
    if torch.version.cuda is None:
        return Library(name, path, False, f"torch {torch.__version__} is built without CUDA")
    return _load(name)


_CPU = _load("tigon_torch")
_CUDA = _load_cuda(_CPU)


def libraries() -> tuple[Library, Library]:
    """The library of definitions and CPU kernels, and the library of CUDA kernels."""
    return _CPU, _CUDA


def has_kernels(device_type: str) -> bool:
    """True when the operators run on this kind of device ("cpu", "cuda")."""
    return (device_type == "cpu" and _CPU.loaded) or (device_type == "cuda" and _CUDA.loaded)


def operator(name: str) -> Any:
    """torch.ops.tigon.NAME, or a function that raises why it cannot be called."""
    if _CPU.loaded:
        return getattr(torch.ops.tigon, name).default

    def missing(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"tigon.{name} cannot run: {_CPU.path.name} is {_CPU.reason}")

    return missing


F = TypeVar("F", bound=Callable[..., Any])


def fake(name: str) -> Callable[[F], F]:
    """Registers the function as the fake kernel of torch.ops.tigon.NAME.

    It also runs where a single tensor of a real call lies on the meta device, and would then return memory that nobody
    wrote: so it refuses tensors of several devices.
    """

    def register(function: F) -> F:
        @functools.wraps(function)
        def checked(*arguments: Any, **named: Any) -> Any:
            tensors = [t for t in (*arguments, *named.values()) if isinstance(t, torch.Tensor)]
            if len({t.device for t in tensors}) > 1:
                devices = " and ".join(sorted({str(t.device) for t in tensors}))
                raise RuntimeError(f"{name}: all tensors must be on one device, got {devices}")
            return function(*arguments, **named)

        if _CPU.loaded:
            torch.library.register_fake(f"tigon::{name}")(checked)
        return function

    return register
