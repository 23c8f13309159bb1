"""Rows whose offsets need more than 31 bits, through every operator that works row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_add_rms_norm import ADD_RMS_NORM
from test_cross_entropy import CROSS_ENTROPY
from test_geglu import GEGLU
from test_geglu import PACKED as PACKED_GEGLU
from test_layer_norm import LAYER_NORM
from test_linear_cross_entropy import LINEAR_CROSS_ENTROPY
from test_linear_logprob import LINEAR_LOGPROB
from test_rms_norm import RMS_NORM
from test_rope_operator import ROPE
from test_softmax import SOFTMAX
from test_swiglu import PACKED as PACKED_SWIGLU
from test_swiglu import SWIGLU
from torch import Tensor

from harness import DEVICES, Operator, outputs_of, run, to_device

ROWWISE = (RMS_NORM, ADD_RMS_NORM, LAYER_NORM, SOFTMAX, SWIGLU, PACKED_SWIGLU, GEGLU, PACKED_GEGLU)
CASES: list[tuple[Operator, Any]] = [
    *((op, (2, 3, 40)) for op in (*ROWWISE, CROSS_ENTROPY)),
    *((op, (2, 3, 16, 40)) for op in (LINEAR_CROSS_ENTROPY, LINEAR_LOGPROB)),
    (ROPE, (2, 3, 1, 4, 16, 16)),
]


def far(t: Tensor) -> Tensor:
    """`t` with its first axis 2^31 elements apart: address space, of which little is ever touched."""
    stride = 2**31 + 8
    apart = torch.empty((t.shape[0] - 1) * stride + t[0].numel(), dtype=t.dtype, device=t.device)
    return apart.as_strided(t.shape, (stride, *t.stride()[1:])).copy_(t)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("op", "shape"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_slices_far_apart(op: Operator, shape: Any, device: str) -> None:
    options = op.option_sets()[0]
    near = to_device(op.inputs(shape, torch.bfloat16, torch.Generator().manual_seed(0)), device)
    inputs = {k: far(v) if k in op.laid_out else v for k, v in near.items()}
    outputs = [o for o in outputs_of(op.call(**near, **options)) if isinstance(o, Tensor)]
    upstream = [torch.randn_like(o) for o in outputs]
    expected = run(op, op.call, near, options, upstream)
    apart = [far(g) if g.dtype == torch.bfloat16 else g for g in upstream]
    ours = run(op, op.call, inputs, options, apart)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def on_top(few: Tensor, rows: int) -> Tensor:
    """Rows of zeros up to `rows`, of which the last are `few`."""
    tall = few.new_zeros(rows, *few.shape[1:])
    tall[-len(few) :] = few
    return tall


@pytest.mark.gpu
@pytest.mark.parametrize("cols", [256, 4096])  # many rows to a block, and one
@pytest.mark.parametrize("op", ROWWISE, ids=lambda op: op.name)
def test_rows_past_32_bits(op: Operator, cols: int) -> None:
    """The last rows come out as they do alone, and nothing of them lands among the rows of zeros."""
    options, rows = op.option_sets()[0], 2**31 // cols + 16
    few = to_device(op.inputs((16, cols), torch.bfloat16, torch.Generator().manual_seed(0)), "cuda")
    count = 2 if op is ADD_RMS_NORM else 1
    upstream = [torch.randn(16, cols, device="cuda").bfloat16() for _ in range(count)]
    alone, alone_grads = run(op, op.call, few, options, upstream)
    zeros = {k: torch.zeros_like(v[:1]) if k in op.laid_out else v for k, v in few.items()}
    rest, _ = run(op, op.call, zeros, options, [g[:1] for g in upstream])

    tall = {k: on_top(v, rows) if k in op.laid_out else v for k, v in few.items()}
    outputs, grads = run(op, op.call, tall, options, [on_top(g, rows) for g in upstream])
    for o, a, r in zip(outputs, alone, rest, strict=True):
        assert torch.equal(o[-16:], a)
        assert torch.equal(o[:-16].amin(0), r[0])
        assert torch.equal(o[:-16].amax(0), r[0])
    for k, g in grads.items():
        if k in op.laid_out:
            assert torch.equal(g[-16:], alone_grads[k])
            assert not g[:-16].any()
        else:
            torch.testing.assert_close(g, alone_grads[k])
