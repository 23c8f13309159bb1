"""The adapters of other libraries: run where these are installed, and else on doubles that keep their contracts."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tigon.bench import cases, measure, names, peers
from tigon.bench.clock import Clock

CPU = torch.device("cpu")
HEAD = "linear_cross_entropy"


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> ModuleType:
    """A double of a module, and of the packages above it."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        above = ".".join(parts[:end])
        if above not in sys.modules:
            monkeypatch.setitem(sys.modules, above, ModuleType(above))
    double = ModuleType(name)
    vars(double).update(members)
    monkeypatch.setitem(sys.modules, name, double)
    return double


def measured(peer: str, op: str, shape: tuple[int, ...]) -> tuple[list[dict[str, Any]], list[str]]:
    """The peer's rows beside Tigon's, and what was said."""
    said: list[str] = []
    tables = peers.tables([peer], said.append)
    rows = []
    for case in cases.cases([op], [shape], [torch.float32], CPU):
        rows += measure.measure(case, tables, Clock(CPU, calls=3), {"copy_gb_s": 10.0}, said.append)
    return [row for row in rows if row["variant"] == peer], said


def test_every_peer_has_a_table_and_a_package() -> None:
    assert tuple(peers.PEERS) == names.PEERS


def test_versions_are_those_of_the_peers_that_were_measured() -> None:
    found = names.versions(["tigon", "eager", "F", "trl", "cce"], ["transformers", "no-such-package"])
    assert found["torch"] == torch.__version__
    assert {"tigon", "transformers"} <= set(found)
    assert "no-such-package" not in found
    assert "liger-kernel" not in found


def test_trl_computes_the_same_loss_and_gradients() -> None:
    pytest.importorskip("trl.kernels")
    rows, said = measured("trl", HEAD, (6, 8, 20))
    assert not said
    assert {row["note"] for row in rows} == {"trained head", "frozen head", "frozen head, half ignored"}
    assert {row["direction"] for row in rows} == {"forward", "both"}


def test_a_peer_without_a_backward_is_measured_forward() -> None:
    said: list[str] = []
    tables = {"tigon": peers.tables([], said.append)["tigon"], "half": {"softmax": lambda x: x.detach().softmax(-1)}}
    (case,) = cases.cases(["softmax"], [(4, 8)], [torch.float32], CPU)
    rows = measure.measure(case, tables, Clock(CPU, calls=3), {"copy_gb_s": 10.0}, said.append)
    assert [row["direction"] for row in rows if row["variant"] == "half"] == ["forward"]
    assert len(said) == 1
    assert said[0].startswith("half: softmax 4×8 float32: forward only, RuntimeError: element 0 of tensors does not")


def test_hub_kernels_say_once_why_they_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def get_kernel(repository: str, version: int) -> Any:
        asked.append(repository)
        raise ConnectionError("no route to the hub")

    module(monkeypatch, "kernels", get_kernel=get_kernel)
    table = peers.tables(["kernels"], asked.append)["kernels"]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ConnectionError: no route"):
            table["rms_norm"](torch.ones(2, 4), torch.ones(4))
    assert asked == ["kernels-community/liger-kernels"]


def test_hub_kernels_are_called_as_their_layers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class LigerRMSNorm(torch.nn.Module):
        weight: Tensor
        variance_epsilon: float

        def forward(self, x: Tensor) -> Tensor:
            return F.rms_norm(x, self.weight.shape, self.weight, self.variance_epsilon)

    def silu_and_mul(out: Tensor, x: Tensor) -> None:
        gate, up = x.chunk(2, -1)
        out.copy_(F.silu(gate) * up)

    found = SimpleNamespace(
        layers=SimpleNamespace(LigerRMSNorm=LigerRMSNorm),
        silu_and_mul=silu_and_mul,
        apply_rotary_transformers=peers.EAGER["rope"],
    )
    module(monkeypatch, "kernels", get_kernel=lambda repository, version: found)
    for op, shape, directions in (
        ("rms_norm", (4, 8), 3),
        ("swiglu_packed", (4, 8), 1),
        ("rope", (1, 2, 1, 4, 8, 8), 1),
    ):
        rows, said = measured("kernels", op, shape)
        assert len(rows) == directions
        assert not any("from Tigon's" in line for line in said)


def test_unsloth_gates_write_over_their_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backward turns (dy, gate, up) into (y, dup, dgate) in their own memory."""

    def fused(function: Any) -> tuple[Any, Any]:
        def forward(gate: Tensor, up: Tensor) -> Tensor:
            assert gate.dim() == up.dim() == 3
            return function(gate) * up

        def backward(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            assert dy.dim() == 2
            with torch.enable_grad():
                leaf = gate.clone().requires_grad_()
                opened = function(leaf)
                (dgate,) = torch.autograd.grad(opened, leaf, dy * up)
            opened = opened.detach()
            y, dup = opened * up, dy * opened
            for memory, value in ((dy, y), (gate, dup), (up, dgate)):
                memory.copy_(value)
            return dy, gate, up

        return forward, backward

    def rms_norm(layer: Any, x: Tensor) -> Tensor:
        return F.rms_norm(x, layer.weight.shape, layer.weight.detach(), layer.variance_epsilon)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        assert logits.dim() == 3
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    swiglu, geglu = fused(F.silu), fused(lambda x: F.gelu(x, approximate="tanh"))
    module(monkeypatch, "unsloth")
    module(
        monkeypatch,
        "unsloth.kernels",
        fast_rms_layernorm=rms_norm,
        fast_layernorm=lambda layer, x: F.layer_norm(x, layer.weight.shape, layer.weight, layer.bias, layer.eps),
        fast_rope_embedding=peers.EAGER["rope"],
        swiglu_fg_kernel=swiglu[0],
        swiglu_DWf_DW_dfg_kernel=swiglu[1],
        geglu_approx_forward_kernel=geglu[0],
        geglu_approx_backward_kernel=geglu[1],
        fast_cross_entropy_loss=loss,
    )
    for op, shape in (("swiglu", (4, 8)), ("geglu", (4, 8)), ("layer_norm", (4, 8)), ("cross_entropy", (4, 8))):
        rows, said = measured("unsloth", op, shape)
        assert not said, op
        assert {"forward", "both"} <= {row["direction"] for row in rows}
    rows, said = measured("unsloth", "rms_norm", (4, 8))  # no gradient of the weight
    assert [row["direction"] for row in rows] == ["forward"]
    assert said[0].startswith("unsloth: rms_norm 4×8 float32: forward only, RuntimeError")


def test_quack_runs_at_its_fastest_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def cross_entropy(logits: Tensor, labels: Tensor, **settings: Any) -> Tensor:
        given["loss"] = settings
        return F.cross_entropy(logits, labels)

    def head(x: Tensor, weight: Tensor, labels: Tensor, **settings: Any) -> Tensor:
        given["head"] = settings
        return F.cross_entropy(x @ weight.t(), labels)

    def rmsnorm(x: Tensor, weight: Tensor, residual: Any = None, eps: float = 0.0, prenorm: bool = False) -> Any:
        total = x if residual is None else x + residual
        y = F.rms_norm(total, weight.shape, weight, eps)
        return (y, total) if prenorm else y

    def layernorm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        assert weight.dtype == bias.dtype == torch.float32
        return F.layer_norm(x, weight.shape, weight, bias, eps)

    def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, H, D], tables [T, D/2]."""
        first, second = x.chunk(2, -1)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    module(monkeypatch, "quack.rmsnorm", rmsnorm=rmsnorm, layernorm_fwd=layernorm)
    module(monkeypatch, "quack.softmax", softmax=lambda x: x.softmax(-1))
    module(monkeypatch, "quack.cross_entropy", cross_entropy=cross_entropy)
    module(monkeypatch, "quack.linear_cross_entropy", chunked_linear_cross_entropy=head)
    module(monkeypatch, "quack.rotary", apply_rotary_emb=rotary)
    for op, shape in (
        ("rms_norm", (4, 8)),
        ("add_rms_norm", (4, 8)),
        ("softmax", (4, 8)),
        ("rope", (2, 4, 2, 4, 8, 8)),
        ("cross_entropy", (4, 8)),
        (HEAD, (4, 8, 16)),
    ):
        rows, said = measured("quack", op, shape)
        assert not said, op
        assert {"forward", "both"} <= {row["direction"] for row in rows}
    rows, said = measured("quack", "layer_norm", (4, 8))
    assert [row["direction"] for row in rows] == ["forward"]
    assert given == {"loss": {"reduction": "mean", "inplace_backward": True}, "head": {"chunk_size": 4096}}
