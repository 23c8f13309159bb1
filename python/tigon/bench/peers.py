"""Who is measured beside Tigon: for every operator the same operands in, the same result out, at its fastest settings.

A peer that is not installed is left out, and said so once; one that fails at an operator says why, and the run goes on.
Several write gradients over what they were given, which is their fastest way.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import SimpleNamespace
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
        "linear_cross_entropy_low": functools.partial(tigon.linear_cross_entropy, memory="low"),
        "linear_cross_entropy_low_weight": functools.partial(
            tigon.linear_cross_entropy, memory="low", accumulate="weight"
        ),
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
    next call, since backward is timed apart. The head's matrix products are left to cuBLAS: tuning takes minutes."""
    importlib.import_module("torch._functorch.config").donated_buffer = False  # type: ignore[attr-defined]

    def compiled(op: str, function: Function) -> Function:
        mode = None if op == "linear_cross_entropy" else "max-autotune-no-cudagraphs"
        return torch.compile(function, dynamic=False, mode=mode)

    return {op: compiled(op, function) for op, function in EAGER.items()}


def _liger() -> Table:
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
        **_little(lambda x, w, labels: _first(liger.liger_fused_linear_cross_entropy(x, w, labels))),
    }


def _liger_cute() -> Table:
    """What Liger takes with LIGER_KERNEL_IMPL=cutedsl, taken directly: its switch holds for a whole process."""
    cute = importlib.import_module("liger_kernel.ops.cutedsl.ops")
    head = cute.LigerFusedLinearCrossEntropyFunction
    return {
        "rms_norm": lambda x, w: cute.LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False),
        "rope": cute.LigerRopeFunction.apply,
        "swiglu": cute.LigerSiLUMulFunction.apply,
        "cross_entropy": lambda logits, labels: _first(cute.LigerCrossEntropyFunction.apply(logits, labels, None)),
        "linear_cross_entropy": lambda x, w, labels: _first(head.apply(x, w, labels)),
    }


def _quack() -> Table:
    """A chunk of 4096 rows and the tuned kernels are its head's fastest; cross entropy writes over the logits. Its
    LayerNorm has no backward that autograd knows, and takes weight and bias in float32 alone."""
    norms = importlib.import_module("quack.rmsnorm")
    softmax = importlib.import_module("quack.softmax").softmax
    cross_entropy = importlib.import_module("quack.cross_entropy").cross_entropy

    wide: list[tuple[Tensor, Tensor]] = []  # the last parameters, and these in float32: no part of the call

    def layer_norm(x: Tensor, *parameters: Tensor) -> Any:
        if len(wide) != 2 or any(kept[0] is not p for kept, p in zip(wide, parameters, strict=True)):
            wide[:] = [(p, p.detach().float()) for p in parameters]
        return norms.layernorm_fwd(x.detach(), wide[0][1], wide[1][1], eps=1e-5)

    def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        rotate = importlib.import_module("quack.rotary").apply_rotary_emb
        halves = [table[0, :, : table.shape[-1] // 2] for table in (cos, sin)]
        return tuple(rotate(x.transpose(1, 2), *halves).transpose(1, 2) for x in (q, k))

    def head(x: Tensor, weight: Tensor, labels: Tensor) -> Any:
        chunked = importlib.import_module("quack.linear_cross_entropy").chunked_linear_cross_entropy
        return chunked(x, weight, labels, chunk_size=4096)

    return {
        "rms_norm": lambda x, w: norms.rmsnorm(x, w, eps=EPS),
        "add_rms_norm": lambda x, r, w: norms.rmsnorm(x, w, residual=r, eps=EPS, prenorm=True),
        "layer_norm": layer_norm,
        "softmax": softmax,
        "rope": rope,
        "cross_entropy": lambda logits, labels: cross_entropy(logits, labels, reduction="mean", inplace_backward=True),
        "linear_cross_entropy": head,
    }


def _little(head: Function) -> Table:
    """A head that takes little memory whatever is asked for."""
    return dict.fromkeys(("linear_cross_entropy", "linear_cross_entropy_low", "linear_cross_entropy_low_weight"), head)


def _cut_cross_entropy() -> Table:
    """As it comes: gradients too small to count are left out, its fastest setting."""
    cce = importlib.import_module("cut_cross_entropy").linear_cross_entropy
    return _little(lambda x, w, labels: cce(x, w, labels))


def _trl() -> Table:
    """The fused head of TRL's SFTTrainer, in its own chunks, on the rows that count."""
    function = importlib.import_module("trl.kernels").ChunkedLogProbFunction
    chunk = importlib.import_module("trl.trainer.utils")._CHUNKED_LOGPROB_CHUNK_SIZE

    def head(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        counted = labels != -100
        chosen = function.apply(x[counted], weight, None, labels[counted], 1.0, chunk, None, 1.0, ("log_probs",))
        loss: Tensor = -chosen[0].sum() / counted.sum().clamp(min=1)
        return loss

    return {"linear_cross_entropy": head}


def _hub_kernels() -> Table:
    """What the hub has for transformers' `use_kernels`: it is downloaded at the first call, and a failure stays one."""
    get_kernel = importlib.import_module("kernels").get_kernel
    loaded: dict[str, Any] = {}

    def kernel(repository: str, version: int) -> Any:
        if repository not in loaded:
            try:
                loaded[repository] = get_kernel(f"kernels-community/{repository}", version=version)
            except Exception as error:  # no network, no build for this torch, ...
                loaded[repository] = f"{type(error).__name__}: {error}"  # itself, it would hold the operands
        if isinstance(loaded[repository], str):
            raise RuntimeError(loaded[repository])
        return loaded[repository]

    layers: list[Any] = []

    def rms_norm(x: Tensor, weight: Tensor) -> Any:
        if not layers:  # a module without a constructor of its own, as `kernels` wants it
            layers.append(kernel("liger-kernels", 3).layers.LigerRMSNorm())
            layers[0].variance_epsilon = EPS
        layers[0].__dict__["weight"] = weight
        return layers[0].forward(x)

    def swiglu(packed: Tensor) -> Tensor:
        y = packed.new_empty(*packed.shape[:-1], packed.shape[-1] // 2)
        kernel("activation", 1).silu_and_mul(y, packed.detach())
        return y

    @torch.no_grad()
    def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return kernel("rotary", 2).apply_rotary_transformers(
            q, k, cos, sin
        )  # for inference alone, as transformers has it

    return {"rms_norm": rms_norm, "swiglu_packed": swiglu, "rope": rope}


def _unsloth() -> Table:
    """Importing it changes transformers for the rest of the process. Its norms have no gradient of their weights; rope,
    gates and cross entropy write over their operands."""
    importlib.import_module("unsloth")
    kernels = importlib.import_module("unsloth.kernels")

    def rms_norm(x: Tensor, weight: Tensor) -> Any:
        return kernels.fast_rms_layernorm(SimpleNamespace(weight=weight, variance_epsilon=EPS), x)

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        module = SimpleNamespace(weight=weight, bias=bias, eps=1e-5, elementwise_affine=True)
        return kernels.fast_layernorm(module, x)

    return {
        "rms_norm": rms_norm,
        "layer_norm": layer_norm,
        "rope": kernels.fast_rope_embedding,
        "swiglu": _gate(kernels.swiglu_fg_kernel, kernels.swiglu_DWf_DW_dfg_kernel),
        "geglu": _gate(kernels.geglu_approx_forward_kernel, kernels.geglu_approx_backward_kernel),
        "cross_entropy": lambda logits, labels: kernels.fast_cross_entropy_loss(logits[None], labels[None]),
    }


def _gate(forward: Function, backward: Function) -> Function:
    """Unsloth's two kernels of a gate as autograd wants them. Its backward turns (dy, gate, up) in place into (y again,
    for the LoRA gradient; dup; dgate)."""

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, gate: Tensor, up: Tensor) -> Any:
            ctx.operands = gate.detach(), up.detach()
            return forward(gate[None], up[None])[0]

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Any:
            _, dup, dgate = backward(dy, *ctx.operands)
            return dgate, dup

    applied: Function = Gate.apply
    return applied


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


PEERS: dict[str, Callable[[], Table]] = {
    "eager": lambda: EAGER,
    "F": _functional,
    "compile": _compiled,
    "liger": _liger,
    "liger-cute": _liger_cute,
    "quack": _quack,
    "cce": _cut_cross_entropy,
    "trl": _trl,
    "kernels": _hub_kernels,
    "unsloth": _unsloth,
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
