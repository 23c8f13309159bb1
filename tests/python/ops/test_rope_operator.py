"""rope: twin, eager yardstick, harness, the models' own functions, and what users reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import tigon
from harness import DEVICES, Inputs, Operator, suite


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """cos, sin: one value per feature, broadcast over heads."""
    turned, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    if interleaved:
        other = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        other = torch.cat((-b, a), -1)
    return torch.cat(((turned * cos + other * sin).to(x.dtype), rest), -1)


def twin(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
    return rotate(q, cos, sin, interleaved), rotate(k, cos, sin, interleaved)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """(B, Hq, Hk, T, D, R). Tables are not of any angle: the two halves differ."""
    batch, q_heads, k_heads, tokens, dim, rotary = shape

    def randn(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).to(dtype)

    return {
        "q": randn(batch, q_heads, tokens, dim),
        "k": randn(batch, k_heads, tokens, dim),
        "cos": randn(1, tokens, rotary),
        "sin": randn(1, tokens, rotary),
    }


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    q, k, cos, sin = (inputs[name] for name in ("q", "k", "cos", "sin"))
    for keys in (k, None):
        yield torch.ops.tigon.rope_forward.default, (q, keys, cos, sin, None, False, 1, 0)
        yield torch.ops.tigon.rope_backward.default, (q, keys, cos, sin, None, True, 1, 0)


ROPE = Operator(
    name="rope",
    call=tigon.rope,
    twin=twin,
    eager=twin,
    inputs=inputs,
    differentiable=("q", "k"),
    shapes=(
        (2, 6, 3, 5, 16, 16),
        (1, 2, 1, 2, 128, 128),
        (1, 1, 1, 1, 128, 128),
        (2, 3, 1, 7, 72, 40),
        (2, 2, 2, 3, 80, 32),
        (1, 1, 2, 3, 7, 6),
        (1, 2, 3, 4, 2, 2),
        (2, 5, 5, 4, 6, 0),
        (0, 2, 2, 3, 8, 8),
        (2, 2, 2, 0, 8, 8),
        (3, 2, 2, 37, 96, 96),
        (1, 9, 3, 257, 64, 64),
    ),
    resized=((4, 6, 3, 7, 16, 16), (5, 6, 3, 9, 16, 16)),
    tall=lambda tokens: (1, 1, 1, tokens, 8, 8),
    options={"interleaved": (False, True)},
    laid_out=("q", "k"),
    opcheck=opcheck,
)

TestRope = suite(ROPE)


def gather(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, *, interleaved: bool) -> Any:
    """The other half of the interface: q [B, T, H, D], positions, one value per pair."""
    return tigon.rope(
        q,
        k,
        cos,
        sin,
        position_ids=position_ids,
        unsqueeze_dim=2,
        rotary_dim=2 * cos.shape[-1],
        interleaved=interleaved,
    )


def gather_twin(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, *, interleaved: bool) -> Any:
    def expand(table: Tensor) -> Tensor:
        rows = table[position_ids]
        rows = rows.repeat_interleave(2, -1) if interleaved else torch.cat((rows, rows), -1)
        return rows.unsqueeze(2)

    return rotate(q, expand(cos), expand(sin), interleaved), rotate(k, expand(cos), expand(sin), interleaved)


def gather_inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    batch, _, _, tokens, _, rotary = shape
    given = inputs(shape, dtype, generator)
    positions = tokens + 3
    return {
        "q": given["q"].transpose(1, 2).contiguous(),
        "k": given["k"].transpose(1, 2).contiguous(),
        "cos": torch.randn(positions, rotary // 2, generator=generator).to(dtype),
        "sin": torch.randn(positions, rotary // 2, generator=generator).to(dtype),
        "position_ids": torch.randint(positions, (batch, tokens), generator=generator),
    }


def gather_opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    q, k, cos, sin, ids = inputs.values()
    for operator in (torch.ops.tigon.rope_forward, torch.ops.tigon.rope_backward):
        yield operator.default, (q, k, cos, sin, ids, False, 2, 2 * cos.shape[-1])


GATHERED = Operator(
    name="rope_gathered",
    call=gather,
    twin=gather_twin,
    eager=gather_twin,
    inputs=gather_inputs,
    differentiable=("q", "k"),
    shapes=((2, 6, 3, 7, 16, 16), (2, 3, 1, 7, 72, 40), (1, 2, 3, 4, 10, 6), (2, 4, 1, 33, 64, 32)),
    resized=((4, 6, 3, 5, 16, 16), (5, 6, 3, 9, 16, 16)),
    tall=lambda tokens: (1, 1, 1, tokens, 8, 8),
    options={"interleaved": (False, True)},
    laid_out=("q", "k"),
    opcheck=gather_opcheck,
)

TestRopeGathered = suite(GATHERED)


def angles(tokens: int, rotary: int, interleaved: bool = False) -> tuple[Tensor, Tensor]:
    """cos and sin as the models build them, [1, T, R] float32."""
    frequency = 10000.0 ** (-torch.arange(0, rotary, 2, dtype=torch.float64) / rotary)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * frequency
    angle = angle.repeat_interleave(2, -1) if interleaved else torch.cat((angle, angle), -1)
    return angle.cos().float()[None], angle.sin().float()[None]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("table_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tables_of_another_dtype(device: str, dtype: torch.dtype, table_dtype: torch.dtype) -> None:
    q, k = (torch.randn(2, 3, 9, 32, device=device).to(dtype).requires_grad_() for _ in "qk")
    cos, sin = (t.to(device, table_dtype) for t in angles(9, 32))
    exact = twin(q.double(), k.double(), cos.double(), sin.double(), interleaved=False)
    ours = tigon.rope(q, k, cos, sin)
    for a, r in zip(ours, exact, strict=True):
        assert a is not None
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), r, rtol=torch.finfo(dtype).eps, atol=1e-6)
    grads = torch.autograd.grad([t for t in ours if t is not None], (q, k), [torch.ones_like(q)] * 2)
    assert [g.dtype for g in grads] == [dtype, dtype]


@pytest.mark.parametrize("device", DEVICES)
def test_tables_are_not_rounded_to_half(device: str) -> None:
    """Width 32, position 1857: an angle built in float16 is off by 0.78 at feature 1."""
    cos, sin = (t[:, 1857:1858].to(device) for t in angles(1858, 32))
    q = torch.randn(1, 2, 1, 32, device=device, dtype=torch.float16)
    (y, _), (exact, _) = (
        tigon.rope(q, None, cos, sin),
        twin(q.double(), q.double(), cos.double(), sin.double(), interleaved=False),
    )
    assert torch.equal(y, exact.half())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("q_heads", "k_heads", "tokens"), [(2, 1, 2), (1, 1, 1), (8, 1, 3), (1, 4, 3)])
def test_any_number_of_heads(device: str, q_heads: int, k_heads: int, tokens: int) -> None:
    """k is rotated too where it has a single head, whatever stride that axis claims."""
    q = torch.randn(1, q_heads, tokens, 128, device=device)
    k = torch.randn(1, k_heads, tokens, 128, device=device)
    k = k.as_strided(k.shape, [1, *k.stride()[1:]]) if k_heads > 1 else k.as_strided(k.shape, [3, 5, *k.stride()[2:]])
    cos, sin = (t[:, 1:].to(device) for t in angles(tokens + 1, 128))
    ours, exact = tigon.rope(q, k, cos, sin), twin(q, k, cos, sin, interleaved=False)
    torch.testing.assert_close(ours, exact)
    assert not torch.equal(ours[1], k)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("form", ["T", "1T", "BT"])
def test_table_ranks(device: str, interleaved: bool, form: str) -> None:
    q, k = torch.randn(3, 2, 4, 8, device=device), torch.randn(3, 1, 4, 8, device=device)
    cos, sin = torch.randn(2, 3, 4, 8, device=device)
    if form != "BT":
        cos, sin = (t[0] if form == "T" else t[:1] for t in (cos, sin))
    torch.testing.assert_close(
        tigon.rope(q, k, cos, sin, interleaved=interleaved), twin(q, k, cos, sin, interleaved=interleaved)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["llama", "cohere", "glm", "phi"])
def test_the_models_own_function(device: str, family: str) -> None:
    """As the models of transformers build tables and rotate: halves, neighbours, partial widths."""
    models = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    q, k = torch.randn(2, 4, 6, 32, device=device), torch.randn(2, 2, 6, 32, device=device)
    rotary = 16 if family in ("glm", "phi") else 32
    cos, sin = (t.to(device) for t in angles(6, rotary, interleaved=family == "cohere"))
    if family == "phi":  # the attention splits the head itself
        parts = models.apply_rotary_pos_emb(q[..., :rotary], k[..., :rotary], cos, sin)
        expected = tuple(torch.cat((p, x[..., rotary:]), -1) for p, x in zip(parts, (q, k), strict=True))
    else:
        expected = models.apply_rotary_pos_emb(q, k, cos, sin)
    if family == "glm":
        ours = tigon.rope(q, k, cos[..., :8], sin[..., :8], interleaved=True, rotary_dim=16)
    else:
        ours = tigon.rope(q, k, cos, sin, interleaved=family == "cohere")
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_of_projections_stay_dense(device: str, dtype: torch.dtype) -> None:
    """q and k as attention makes them: outputs and gradients keep the transposed order."""
    q = torch.randn(2, 5, 4 * 64, device=device, dtype=dtype, requires_grad=True)
    k = torch.randn(2, 5, 2 * 64, device=device, dtype=dtype, requires_grad=True)
    cos, sin = (t.to(device, dtype) for t in angles(5, 64))
    heads = [t.view(2, 5, -1, 64).transpose(1, 2) for t in (q, k)]
    ours = tigon.rope(*heads, cos, sin)
    assert [t.stride() for t in ours if t is not None] == [t.stride() for t in heads]
    expected = twin(*heads, cos, sin, interleaved=False)
    tolerance = torch.finfo(dtype).eps * 2
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)
    dy = [torch.randn_like(t) for t in heads]
    for a, b in zip(torch.autograd.grad(ours, (q, k), dy), torch.autograd.grad(expected, (q, k), dy), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fused", ["slices", "padded"])
def test_q_and_k_out_of_one_projection(device: str, fused: str) -> None:
    qkv = torch.randn(2, 5, 8 * 64 + 1, device=device)
    start = 1 if fused == "slices" else 0  # 1: off 16-byte alignment
    q = qkv[..., start : start + 256].unflatten(-1, (4, 64)).transpose(1, 2)
    k = qkv[..., start + 256 : start + 384].unflatten(-1, (2, 64)).transpose(1, 2)
    cos, sin = (t.to(device) for t in angles(5, 64))
    torch.testing.assert_close(tigon.rope(q, k, cos, sin), twin(q, k, cos, sin, interleaved=False))


@pytest.mark.parametrize("device", DEVICES)
def test_without_k(device: str) -> None:
    q = torch.randn(2, 3, 4, 16, device=device, requires_grad=True)
    cos, sin = (t.to(device) for t in angles(4, 16))
    y, nothing = tigon.rope(q, None, cos, sin)
    assert nothing is None
    torch.testing.assert_close(y, twin(q, q, cos, sin, interleaved=False)[0])
    (dq,) = torch.autograd.grad(y.sum(), q)
    torch.testing.assert_close(dq, torch.autograd.grad(twin(q, q, cos, sin, interleaved=False)[0].sum(), q)[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("used", [0, 1])
def test_one_output_unused(device: str, used: int) -> None:
    q, k = (torch.randn(1, 2, 3, 8, device=device, requires_grad=True) for _ in "qk")
    cos, sin = torch.randn(2, 1, 3, 8, device=device)
    ours = torch.autograd.grad(tigon.rope(q, k, cos, sin)[used].sum(), (q, k), allow_unused=True)
    assert ours[1 - used] is None
    expected = torch.autograd.grad(twin(q, k, cos, sin, interleaved=False)[used].sum(), (q, k)[used])
    torch.testing.assert_close(ours[used], expected[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("id_dtype", [torch.int64, torch.int32])
def test_positions_shared_by_the_batch(device: str, id_dtype: torch.dtype) -> None:
    q = torch.randn(3, 2, 4, 16, device=device)
    cos, sin = (t[0].to(device) for t in angles(10, 16))
    ids = torch.tensor([[9, 0, 3, 3]], device=device, dtype=id_dtype)
    y, _ = tigon.rope(q, None, cos, sin, position_ids=ids)
    torch.testing.assert_close(y, rotate(q, cos[ids.long()][:, None], sin[ids.long()][:, None], False))


@pytest.mark.parametrize("position", [-1, 6, 2**31, 2**62])
def test_position_outside_the_table_raises(position: int) -> None:
    q = torch.randn(1, 1, 2, 8)
    cos, sin = (t[0] for t in angles(6, 8))
    ids = torch.tensor([[5, position]])
    with pytest.raises(RuntimeError, match=rf"position_ids must be in \[0, 6\), got {position} at \[0, 1\]"):
        tigon.rope(q, None, cos, sin, position_ids=ids)


@pytest.mark.gpu
@pytest.mark.parametrize("position", [-1, 6, 2**31, 2**62])
@pytest.mark.parametrize("rotary", [8, 16])
def test_position_outside_the_table_is_nan(position: int, rotary: int) -> None:
    q, k = torch.randn(2, 1, 2, 3, 16, device="cuda")
    cos, sin = (t[0].cuda() for t in angles(6, rotary))
    ids = torch.tensor([[5, position, 0]], device="cuda")
    for y in tigon.rope(q, k, cos, sin, position_ids=ids):
        assert y is not None
        assert y[:, :, 1].isnan().all()
        assert y[:, :, ::2].isfinite().all()


@pytest.mark.gpu
def test_elements_past_32_bits() -> None:
    """The last head's offset needs more than 31 bits."""
    tokens = 2**31 // (32 * 128) + 16
    q = torch.zeros(1, tokens, 32, 128, dtype=torch.bfloat16, device="cuda")
    q[:, -1, -1, 64:] = 1.0
    cos, sin = torch.zeros(tokens, 128, device="cuda"), torch.ones(tokens, 128, device="cuda")
    y, _ = tigon.rope(q, None, cos, sin, unsqueeze_dim=2)
    assert torch.all(y[:, -1, -1, :64] == -1.0)
    assert y.count_nonzero() == 64


@pytest.mark.parametrize("rotary_dim", [0, -2])
def test_rotary_dim_is_positive(rotary_dim: int) -> None:
    """0 is not taken for "the width of cos"."""
    q = torch.randn(2, 4, 5, 16)
    with pytest.raises(ValueError, match=f"rotary_dim must be at least 1 or None, got {rotary_dim}"):
        tigon.rope(q, None, *angles(5, 16), rotary_dim=rotary_dim)


def test_tables_that_require_gradients_are_refused() -> None:
    q = torch.randn(1, 1, 2, 8, requires_grad=True)
    cos, sin = angles(2, 8)
    with pytest.raises(ValueError, match="sin requires one: detach it"):
        tigon.rope(q, None, cos, sin.requires_grad_())
    with torch.no_grad():
        tigon.rope(q, None, cos, sin)


def test_errors_name_the_values() -> None:
    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 5, 16)
    cos, sin = angles(5, 16)
    for message, arguments, options in (
        (r"rope_forward: q must have 4 axes, got \[2, 4, 5, 16, 1\]", (q[..., None], k, cos, sin), {}),
        (r"k must have .* shape \[2, 2, 5, 16\], got \[2, 2, 4, 16\]", (q, k[:, :, 1:], cos, sin), {}),
        ("k must be float32, got bfloat16", (q, k.bfloat16(), cos, sin), {}),
        (r"sin must have cos's shape \[1, 5, 16\], got \[1, 4, 16\]", (q, k, cos, sin[:, 1:]), {}),
        (r"cos must have a row for each of 5 tokens, got \[1, 4, 16\]", (q, k, cos[:, 1:], sin[:, 1:]), {}),
        (
            r"cos must be \[5, 16\] or \[2 or 1, 5, 16\], got \[3, 5, 16\]",
            (q, k, cos.expand(3, 5, 16), sin.expand(3, 5, 16)),
            {},
        ),
        ("the rotary width must be even and at most the head's 16, got 15", (q, k, cos[..., 1:], sin[..., 1:]), {}),
        (r"cos must have 12 features or 6 pairs, got \[1, 5, 16\]", (q, k, cos, sin), {"rotary_dim": 12}),
        ("unsqueeze_dim must be 1 or 2, got 3", (q, k, cos, sin), {"unsqueeze_dim": 3}),
        (r"with position_ids, cos must be \[positions, features\]", (q, k, cos, sin), {"position_ids": "arange"}),
        (r"position_ids must be int64 or int32, got float32", (q, k, cos[0], sin[0]), {"position_ids": "float"}),
        (r"position_ids must be \[2 or 1, 5\], got \[5\]", (q, k, cos[0], sin[0]), {"position_ids": "flat"}),
    ):
        ids = torch.arange(5)[None]
        named = {"arange": ids, "float": ids.float(), "flat": ids[0]}
        given = {name: named.get(value, value) for name, value in options.items()}
        with pytest.raises(RuntimeError, match=message):
            tigon.rope(*arguments, **given)
