"""linear_cross_entropy: how its products are cut up, and what that leaves in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_linear_cross_entropy import IGNORED, LINEAR_CROSS_ENTROPY, on_devices, on_dtypes, twin

import tigon
from harness import LAYOUTS, Inputs, check, suite, to_device

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


# --- tiles of columns ---------------------------------------------------------------------------

# 16-bit weights with float32 sums: tiles, from one to as many as there are 8 columns. Rows, H and V are chosen for
# logits to be kept in all, some and no slots of dweight's memory: T < H, T = H, T = 2 H, T >> H; odd V, V < a tile.
LOW_MEMORY = replace(
    LINEAR_CROSS_ENTROPY,
    dtypes=(torch.bfloat16, torch.float16),
    shapes=(
        (3, 5, 24, 72),
        (4, 3, 2),
        (5, 64, 131),
        (24, 24, 200),
        (16, 2, 16, 129),
        (91, 40, 257),
        (301, 5, 67),
    ),
    options={
        "memory": ("low",),
        "reduction": ("none", "mean", "sum"),
        "chunk_rows": (2, 1, 7, None),
        "label_smoothing": (0.0, 0.1),
        "z_loss": (0.0, 1e-2),
        "softcap": (None, 5.0),
        "logit_scale": (1.0, 0.25),
        "return_z_loss": (False, True),
        "return_token_accuracy": (False, True),
    },
    combine=(
        *({"reduction": "mean", "chunk_rows": n} for n in (1, 2, 7)),
        *(
            {"reduction": "sum", "chunk_rows": n, "label_smoothing": 0.1, "z_loss": 1e-2, "softcap": 5.0}
            for n in (1, 7)
        ),
        {"reduction": "mean", "z_loss": 1e-2, "return_z_loss": True, "return_token_accuracy": True},
    ),
)

TestLinearCrossEntropyInTiles = suite(LOW_MEMORY)
