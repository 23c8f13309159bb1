"""What the tests of the gated activations share: swiglu and geglu differ in one function only."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness import DEVICES, Inputs

Gated = Callable[..., Tensor]

SHAPES = (
    (3, 5, 72),
    (1, 1),
    (4, 1),
    (2, 7),
    (1, 8),
    (3, 127),
    (2, 129),
    (5, 2, 3, 64),
    (0, 16),
    (3, 0),
    (300, 17),
    (2, 9001),
    (257, 256),
)
RESIZED = ((4, 5, 72), (7, 5, 72))


def two(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {
        "gate": (3 * torch.randn(shape, generator=generator)).to(dtype),
        "up": torch.randn(shape, generator=generator).to(dtype),
    }


def packed(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    return {"gate": torch.cat(tuple(two(shape, dtype, generator).values()), -1)}


def unpacked(function: Gated) -> Gated:
    """The same function of one packed tensor."""

    def call(gate: Tensor, **options: Any) -> Tensor:
        return function(*gate.chunk(2, -1), **options)

    return call


class GatedCases:
    """Cases that users reported against such kernels, for one activation."""

    call: Gated
    act: Callable[[Tensor], Tensor]  # exact in float64
    options: tuple[Inputs, ...] = ({},)

    @pytest.mark.parametrize("device", DEVICES)
    def test_tails(self, device: str) -> None:
        """Far from zero: no cancellation, no overflow, slopes of 0 and 1."""
        x = torch.cat([torch.linspace(-9, 9, 4001), torch.tensor([-1e30, -200.0, 200.0, 1e30])]).to(device)
        x.requires_grad_()
        for options in self.options:
            y = type(self).call(x, torch.ones_like(x), **options)
            (dx,) = torch.autograd.grad(y.sum(), x)
            wide = x.detach().double().requires_grad_()
            exact = type(self).act(wide, **options)
            (slope,) = torch.autograd.grad(exact[:4001].sum(), wide)
            torch.testing.assert_close(y[:4001].double(), exact[:4001], rtol=2e-5, atol=0)
            torch.testing.assert_close(dx[:4001].double(), slope[:4001], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(y[4001:], torch.tensor([0.0, 0.0, 200.0, 1e30], device=device))
            assert dx[4001:].tolist() == [0.0, 0.0, 1.0, 1.0]

    @pytest.mark.parametrize("device", DEVICES)
    @pytest.mark.parametrize("form", ["two", "packed"])
    def test_saves_only_its_inputs(self, device: str, form: str) -> None:
        """Two tensors are two saved tensors, one packed tensor is one: hooks see them all."""
        given = [torch.randn(4, 16, device=device, requires_grad=True) for _ in range(2 if form == "two" else 1)]
        saved: list[Tensor] = []

        def pack(t: Tensor) -> Tensor:
            saved.append(t)
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            type(self).call(*given)
        assert [t.data_ptr() for t in saved] == [t.data_ptr() for t in given]

    @pytest.mark.parametrize("device", DEVICES)
    def test_checkpoint_frees_the_inputs(self, device: str) -> None:
        alive: list[weakref.ref[Tensor]] = []

        def block(x: Tensor) -> Tensor:
            gate, up = x * 2, x * 3
            alive[:] = [weakref.ref(gate), weakref.ref(up)]
            return type(self).call(gate, up)

        x = torch.randn(4, 16, device=device, requires_grad=True)
        y = checkpoint(block, x, use_reentrant=False)
        assert [r() for r in alive] == [None, None]
        (through,) = torch.autograd.grad(y.sum(), x)
        (plain,) = torch.autograd.grad(block(x).sum(), x)
        assert torch.equal(through, plain)

    @pytest.mark.parametrize("device", DEVICES)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_packed_equals_two(self, device: str, dtype: torch.dtype) -> None:
        one = torch.randn(6, 2 * 72, device=device).to(dtype).requires_grad_()
        gate, up = (t.detach().requires_grad_() for t in one.chunk(2, -1))
        dy = torch.randn(6, 72, device=device).to(dtype)
        y, expected = type(self).call(one), type(self).call(gate, up)
        assert torch.equal(y, expected)
        (d_one,) = torch.autograd.grad(y, one, dy)
        assert d_one.is_contiguous()
        assert torch.equal(d_one, torch.cat(torch.autograd.grad(expected, (gate, up), dy), -1))

    @pytest.mark.parametrize("device", DEVICES)
    def test_other_dtypes_are_promoted(self, device: str) -> None:
        gate = torch.randn(4, 16, dtype=torch.bfloat16, device=device, requires_grad=True)
        up = torch.randn(4, 16, device=device, requires_grad=True)
        y = type(self).call(gate, up)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y, type(self).call(gate.float(), up))
        dgate, dup = torch.autograd.grad(y.sum(), (gate, up))
        assert (dgate.dtype, dup.dtype) == (torch.bfloat16, torch.float32)

    @pytest.mark.parametrize("device", DEVICES)
    def test_autocast_changes_nothing(self, device: str) -> None:
        """As for silu, gelu and mul: the inputs' dtype decides."""
        gate, up = torch.randn(2, 4, 16, device=device)
        with torch.autocast(device, torch.bfloat16):
            assert type(self).call(gate, up).dtype == torch.float32
            assert type(self).call(gate.bfloat16(), up.bfloat16()).dtype == torch.bfloat16

    @pytest.mark.parametrize("device", DEVICES)
    def test_dense_strides_are_kept(self, device: str) -> None:
        gate, up = (torch.randn(2, 5, 3, 64, device=device, requires_grad=True).transpose(1, 2) for _ in "gu")
        y = type(self).call(gate, up)
        assert y.stride() == gate.stride()
        dgate, dup = torch.autograd.grad(y, (gate, up), torch.ones_like(y))
        assert dgate.stride() == gate.stride()
        assert dup.stride() == up.stride()

    @pytest.mark.gpu
    def test_elements_past_32_bits(self) -> None:
        """2^31 + 2^16 elements: the last one's offset needs more than 31 bits, in either form."""
        n = 2**31 + 2**16
        gate = torch.zeros(n, dtype=torch.bfloat16, device="cuda")
        gate[-1] = 200.0
        y = type(self).call(gate, gate)
        assert y[-1] == 40000.0
        assert not y[:-1].any()
        one = gate.view(2**15 + 1, 2**16)
        assert type(self).call(one)[-1, -1] == 0.0
        one[-1, 2**15 - 1] = 2.0
        assert type(self).call(one)[-1, -1] > 300.0

    def test_errors_name_the_values(self) -> None:
        gate = torch.randn(2, 8)
        name = type(self).call.__name__
        with pytest.raises(RuntimeError, match=rf"{name}_forward: up must have gate's shape \[2, 8\], got \[2, 7\]"):
            type(self).call(gate, torch.randn(2, 7))
        with pytest.raises(RuntimeError, match=r"gate must be \[..., 2 I\] with both halves, got \[2, 7\]"):
            type(self).call(torch.randn(2, 7))
        with pytest.raises(RuntimeError, match="gate must be float32, bfloat16 or float16, got int64"):
            type(self).call(torch.ones(2, 8, dtype=torch.int64))
        with pytest.raises(RuntimeError, match=r"gate must have at least 1 axis, got \[\]"):
            type(self).call(torch.tensor(1.0))
