"""Who is measured beside Tigon: for every operator the same operands in, the same result out.

A peer that is not installed is left out, and said so once; one that fails at an operator says why, and the run goes on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import tigon

Function = Callable[..., Any]  # operands in, one tensor or several out
Table = dict[str, Function]  # by operator
EPS = 1e-6


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """As models write it: float32 inside, rounded before the weight."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype)


def _rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return _rms_norm(total, weight), total


EAGER: Table = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    "softmax": lambda x: F.softmax(x, -1, dtype=torch.float32).to(x.dtype),
    "rope": _rope,
    "swiglu": lambda gate, up: F.silu(gate) * up,
    "swiglu_packed": lambda packed: F.silu(packed.chunk(2, -1)[0]) * packed.chunk(2, -1)[1],
    "geglu": lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    "cross_entropy": lambda logits, labels: F.cross_entropy(logits.float(), labels),
    "linear_cross_entropy": lambda x, w, labels: F.cross_entropy((x @ w.t()).float(), labels),
}


def _tigon() -> Table:
    return {
        "rms_norm": tigon.rms_norm,
        "add_rms_norm": tigon.add_rms_norm,
        "layer_norm": tigon.layer_norm,
        "softmax": tigon.softmax,
        "rope": tigon.rope,
        "swiglu": tigon.swiglu,
        "swiglu_packed": tigon.swiglu,
        "geglu": tigon.geglu,
        "cross_entropy": tigon.cross_entropy,
        "linear_cross_entropy": tigon.linear_cross_entropy,
    }


def _functional() -> Table:
    return {
        "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w, EPS),
        "layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b),
        "softmax": lambda x: F.softmax(x, -1),
        "cross_entropy": F.cross_entropy,
        "linear_cross_entropy": lambda x, w, labels: F.cross_entropy(x @ w.t(), labels),
    }


def _compiled() -> Table:
    """Eager code through torch.compile: compiled at the first call, which does not count. Its buffers are kept for the
    next call, since backward is timed apart."""
    importlib.import_module("torch._functorch.config").donated_buffer = False  # type: ignore[attr-defined]
    return {op: torch.compile(function, dynamic=False) for op, function in EAGER.items()}


def _liger() -> Table:
    """Several of these write gradients over what they were given."""
    liger = importlib.import_module("liger_kernel.transformers.functional")
    return {
        "rms_norm": lambda x, w: liger.liger_rms_norm(x, w, EPS, in_place=False),
        "add_rms_norm": lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, EPS, in_place=False),
        "layer_norm": lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
        "softmax": liger.liger_softmax,
        "rope": liger.liger_rope,
        "swiglu": liger.liger_swiglu,
        "geglu": liger.liger_geglu,
        "cross_entropy": lambda logits, labels: _first(liger.liger_cross_entropy(logits, labels)),
        "linear_cross_entropy": lambda x, w, labels: _first(liger.liger_fused_linear_cross_entropy(x, w, labels)),
    }


def _quack() -> Table:
    norm = importlib.import_module("quack.rmsnorm").rmsnorm
    softmax = importlib.import_module("quack.softmax").softmax
    cross_entropy = importlib.import_module("quack.cross_entropy").cross_entropy
    return {
        "rms_norm": lambda x, w: norm(x, w, eps=EPS),
        "add_rms_norm": lambda x, r, w: norm(x, w, residual=r, eps=EPS, prenorm=True),
        "softmax": softmax,
        "cross_entropy": lambda logits, labels: cross_entropy(logits, labels, reduction="mean"),
    }


def _cut_cross_entropy() -> Table:
    cce = importlib.import_module("cut_cross_entropy").linear_cross_entropy
    return {"linear_cross_entropy": lambda x, w, labels: cce(x, w, labels)}


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


PEERS: dict[str, Callable[[], Table]] = {
    "eager": lambda: EAGER,
    "F": _functional,
    "compile": _compiled,
    "liger": _liger,
    "quack": _quack,
    "cce": _cut_cross_entropy,
}


def tables(names: list[str], say: Callable[[str], None]) -> dict[str, Table]:
    """Tigon's operators, then those of the peers that can be imported."""
    found = {"tigon": _tigon()}
    for name in names:
        try:
            found[name] = PEERS[name]()
        except Exception as error:  # a peer may break in any way; it must not end the run
            say(f"{name}: left out, {type(error).__name__}: {error}")
    return found
