"""swiglu: twin, eager yardstick and harness; the cases it shares with geglu are in gated.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import gated
import tigon
from harness import DEVICES, Inputs, Operator, suite


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def twin(gate: Tensor, up: Tensor) -> Tensor:
    return silu(gate) * up


def eager(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    gate, up = inputs["gate"], inputs.get("up")
    yield torch.ops.tigon.swiglu_forward.default, (gate, up)
    dy = gate if up is not None else gate[..., : gate.shape[-1] // 2]
    yield torch.ops.tigon.swiglu_backward.default, (dy, gate, up, True, up is not None)
    if up is not None and gate.is_contiguous() and up.is_contiguous():
        yield torch.ops.tigon.swiglu_backward_inplace.default, (dy.clone(), gate.clone(), up.clone())


SWIGLU = Operator(
    name="swiglu",
    call=tigon.swiglu,
    twin=twin,
    eager=eager,
    inputs=gated.two,
    differentiable=("gate", "up"),
    shapes=gated.SHAPES,
    resized=gated.RESIZED,
    laid_out=("gate", "up"),
    opcheck=opcheck,
)
PACKED = Operator(
    name="swiglu_packed",
    call=tigon.swiglu,
    twin=gated.unpacked(twin),
    eager=gated.unpacked(eager),
    inputs=gated.packed,
    differentiable=("gate",),
    shapes=gated.SHAPES,
    resized=gated.RESIZED,
    laid_out=("gate",),
    opcheck=opcheck,
)

TestSwiglu = suite(SWIGLU)
TestSwigluPacked = suite(PACKED)


class TestSwigluCases(gated.GatedCases):
    call = staticmethod(tigon.swiglu)
    act = staticmethod(silu)


@pytest.mark.parametrize("device", DEVICES)
class TestOverwrite:
    """Gradients over gate and up: the same bits, in their memory, only where nobody will miss them."""

    @staticmethod
    def run(device: str, dtype: torch.dtype, **options: Any) -> tuple[list[Tensor], list[Tensor], Tensor]:
        generator = torch.Generator().manual_seed(3)
        shape = options.pop("shape", (3, 5, 264))
        made = [torch.randn(*shape, generator=generator).to(device, dtype) for _ in range(2)]
        leaves = [t.requires_grad_() for t in made]
        own = [leaf * 1 for leaf in leaves]  # the caller's temporaries
        y = tigon.swiglu(*own, **options)
        return leaves, own, y

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("shape", [(3, 5, 264), (7, 13), (1,), (2, 70000)])
    def test_same_bits(self, device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        results = []
        for overwrite in (False, True):
            leaves, own, y = self.run(device, dtype, shape=shape, overwrite=overwrite)
            before = [t.detach().clone() for t in own]
            dy = torch.linspace(-1, 1, y.numel(), device=device).reshape(y.shape).to(dtype)
            y.backward(dy)
            assert all(torch.equal(a, b) for a, b in zip(own, before, strict=True)) != overwrite
            results.append([leaf.grad for leaf in leaves])
        for a, b in zip(*results, strict=True):
            assert a is not None
            assert b is not None
            assert torch.equal(a, b)

    def test_kept_graph(self, device: str) -> None:
        leaves, own, y = self.run(device, torch.float32, overwrite=True)
        before = [t.detach().clone() for t in own]
        y.sum().backward(retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(own, before, strict=True))
        first = [leaf.grad.clone() for leaf in leaves if leaf.grad is not None]
        y.sum().backward()
        assert all(torch.equal(leaf.grad, 2 * g) for leaf, g in zip(leaves, first, strict=True))  # type: ignore[arg-type]

    def test_leaves_are_left_alone(self, device: str) -> None:
        gate, up = (torch.randn(4, 64, device=device).requires_grad_() for _ in range(2))
        before = gate.detach().clone()
        tigon.swiglu(gate, up, overwrite=True).sum().backward()
        assert torch.equal(gate, before)
        assert gate.grad is not None
        assert gate.grad.data_ptr() != gate.data_ptr()

    def test_who_else_saved_it_hears_of_it(self, device: str) -> None:
        gate, up = (torch.randn(4, 64, device=device).requires_grad_() for _ in range(2))
        squashed = gate.tanh()  # tanh's backward wants its result
        y = tigon.swiglu(squashed, up * 1, overwrite=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
