"""linear_cross_entropy: how its products are cut up, and what that leaves in memory."""

from __future__ import annotations

import pytest
import torch
from test_linear_cross_entropy import IGNORED, LINEAR_CROSS_ENTROPY, on_devices, on_dtypes, twin

import tigon
from harness import LAYOUTS, Inputs, check, to_device

# --- all rows in one chunk ----------------------------------------------------------------------

# More rows than are made of dx at a time (2048), so that x, gathered, lies where dx will be.
MANY = 4500


def many_rows(dtype: torch.dtype, ignored: float) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    made = LINEAR_CROSS_ENTROPY.inputs((2, MANY // 2, 8, 24), dtype, generator)
    made["labels"] = torch.randint(24, (2, MANY // 2), generator=generator)
    made["labels"][torch.rand(2, MANY // 2, generator=generator) < ignored] = IGNORED
    return made


@on_devices
@on_dtypes
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "rows", "columns"])
@pytest.mark.parametrize("ignored", [0.0, 0.01, 0.5])
def test_rows_that_count_lie_in_dx(device: str, dtype: torch.dtype, layout: str, ignored: float) -> None:
    made = many_rows(dtype, ignored)
    made["x"] = LAYOUTS[layout](made["x"])
    check(LINEAR_CROSS_ENTROPY, to_device(made, device), {"chunk_rows": MANY}, "contiguous", layout)


@on_devices
@pytest.mark.parametrize("frozen", ["x", "weight", "bias"])
def test_rows_that_count_without_one_gradient(device: str, frozen: str) -> None:
    made = to_device(many_rows(torch.float32, 0.3), device)
    wanted = [k for k in ("x", "weight", "bias") if k != frozen]
    for k in wanted:
        made[k].requires_grad_()

    ours = torch.autograd.grad(tigon.linear_cross_entropy(**made, chunk_rows=MANY), [made[k] for k in wanted])
    theirs = torch.autograd.grad(twin(**made), [made[k] for k in wanted])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
