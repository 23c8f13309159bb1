"""linear_cross_entropy: how its products are cut up, and what that leaves in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_linear_cross_entropy import IGNORED, LINEAR_CROSS_ENTROPY, on_devices, on_dtypes, twin
from torch import Tensor

import tigon
from harness import LAYOUTS, Inputs, check, suite, to_device
from memory import peak_bytes
from tigon.bench.counts import linear_cross_entropy as counts

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

SIZES = ((5, 64, 131), (24, 24, 200), (48, 24, 200), (96, 24, 203), (97, 3, 50))  # T < H, = H, = 2 H, = 4 H, >> H


@on_devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_every_width_of_a_tile(device: str, dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    """From one tile to V / 8, with rows that do not count: no product writes where logits still lie."""
    rows, _, vocab = shape
    for ignored in (0.0, 0.5):
        made = LOW_MEMORY.inputs(shape, dtype, torch.Generator().manual_seed(rows))
        made["labels"] = torch.randint(vocab, (rows,), generator=torch.Generator().manual_seed(1))
        made["labels"][: int(ignored * rows)] = IGNORED
        made = to_device(made, device)
        for chunk_rows in {max(1, rows * tile // vocab) for tile in range(8, vocab, 8)}:
            options = {"memory": "low", "chunk_rows": chunk_rows, "reduction": "sum"}
            check(LOW_MEMORY, made, options, "contiguous", (shape, ignored))


@on_devices
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("chunk_rows", [1, 4])
def test_token_and_class_weights_in_tiles(device: str, reduction: str, chunk_rows: int) -> None:
    generator = torch.Generator().manual_seed(1)
    made = to_device(LOW_MEMORY.inputs((2, 9, 10, 75), torch.bfloat16, generator), device)
    options = {
        "class_weight": torch.rand(75, generator=generator).to(device),
        "token_weights": torch.rand(9, 2, generator=generator).to(device).t(),
        "reduction": reduction,
        "label_smoothing": 0.1,
        "z_loss": 0.01,
        "memory": "low",
        "chunk_rows": chunk_rows,
    }
    check(LOW_MEMORY, made, options, "contiguous", "weights")


def gradients(made: Inputs, wanted: list[str], **options: Any) -> dict[str, Tensor]:
    leaves = {k: v.detach().requires_grad_(k in wanted) if v.is_floating_point() else v for k, v in made.items()}
    loss = tigon.linear_cross_entropy(**leaves, **options)
    return dict(zip(wanted, torch.autograd.grad(loss.sum(), [leaves[k] for k in wanted]), strict=True))


@on_devices
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("wanted", ["weight", "x weight", "weight bias"])
def test_gradients_by_demand_in_tiles(device: str, reduction: str, wanted: str) -> None:
    made = to_device(LOW_MEMORY.inputs((2, 9, 10, 75), torch.bfloat16, torch.Generator().manual_seed(2)), device)
    options = {"memory": "low", "chunk_rows": 3, "reduction": reduction}
    some, every = gradients(made, wanted.split(), **options), gradients(made, ["x", "weight", "bias"], **options)
    assert all(torch.equal(some[k], every[k]) for k in some)


@on_devices
def test_classes_that_are_masked_out(device: str) -> None:
    """Tiles whose logits are all -Inf, before and after others."""
    made = to_device(LOW_MEMORY.inputs((18, 10, 75), torch.bfloat16, torch.Generator().manual_seed(3)), device)
    made["labels"] = made["labels"].clamp(30, 39)
    made["bias"][:30] = made["bias"][40:] = -torch.inf
    tiled = gradients(made, ["x", "weight", "bias"], memory="low", chunk_rows=2)
    rows = gradients(made, ["x", "weight", "bias"], memory="low", chunk_rows=18)
    for k, g in tiled.items():
        torch.testing.assert_close(g, rows[k], rtol=2**-7, atol=2**-7 * float(rows[k].abs().max()))
        assert g.isfinite().all()


@on_devices
def test_first_of_the_largest_in_tiles(device: str) -> None:
    """Ties within a tile and across tiles: the label is right where no earlier class is as large."""
    x = torch.ones(4, 1, dtype=torch.bfloat16, device=device)
    weight = torch.zeros(40, 1, dtype=torch.bfloat16, device=device)
    weight[[11, 13, 30]] = 1.0
    weight.requires_grad_()
    for label, accuracy in ((10, 0.0), (11, 1.0), (13, 0.0), (30, 0.0), (39, 0.0)):
        labels = torch.full((4,), label, device=device)
        out = tigon.linear_cross_entropy(x, weight, labels, memory="low", chunk_rows=1, return_token_accuracy=True)
        assert out.token_accuracy == accuracy


@on_devices
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_rows_without_a_label_in_tiles(device: str, reduction: str) -> None:
    """NaN in some of them is not read; with no other row gradients are 0."""
    made = to_device(LOW_MEMORY.inputs((18, 10, 75), torch.bfloat16, torch.Generator().manual_seed(3)), device)
    made["labels"][3:9] = IGNORED
    made["x"][3:9] = torch.nan
    options = {"memory": "low", "chunk_rows": 2, "reduction": reduction}
    found = gradients(made, ["x", "weight", "bias"], **options)
    assert all(g.isfinite().all() for g in found.values())
    assert not found["x"][3:9].any()
    made["labels"].fill_(IGNORED)
    assert not any(g.any() for g in gradients(made, ["x", "weight", "bias"], **options).values())


@pytest.mark.gpu
def test_labels_outside_the_vocabulary_in_tiles() -> None:
    made = to_device(LOW_MEMORY.inputs((4, 10, 75), torch.bfloat16, torch.Generator().manual_seed(3)), "cuda")
    made["labels"] = torch.tensor([1, IGNORED, 75, 3], device="cuda")
    dx = gradients(made, ["x", "weight"], memory="low", chunk_rows=1)["x"]
    assert dx.isnan().any(-1).tolist() == [False, False, True, False]


@pytest.mark.gpu
def test_tiles_captured_in_a_graph() -> None:
    """Under capture every row is computed, and replays follow new labels, other ones ignored."""
    made = to_device(LOW_MEMORY.inputs((64, 32, 200), torch.bfloat16, torch.Generator().manual_seed(4)), "cuda")

    def run() -> dict[str, Tensor]:
        return gradients(made, ["x", "weight", "bias"], memory="low", chunk_rows=16)

    with torch.cuda.stream(torch.cuda.Stream()):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for seed in (5, 6):
        other = LOW_MEMORY.inputs((64, 32, 200), torch.bfloat16, torch.Generator().manual_seed(seed))
        made["labels"].copy_(other["labels"])
        graph.replay()
        for k, g in run().items():
            torch.testing.assert_close(captured[k], g)


# --- chunks in low memory -----------------------------------------------------------------------


@on_devices
@on_dtypes
@pytest.mark.parametrize("wanted", ["x", "x bias"])
def test_frozen_head_in_low_memory(device: str, dtype: torch.dtype, wanted: str) -> None:
    """The same chunks give the same bits."""
    made = to_device(LOW_MEMORY.inputs((2, 9, 10, 75), dtype, torch.Generator().manual_seed(2)), device)
    low, fast = (gradients(made, wanted.split(), memory=memory, chunk_rows=4) for memory in ("low", "fast"))
    assert all(torch.equal(low[k], fast[k]) for k in low)


@on_devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_in_the_weight_itself(device: str, dtype: torch.dtype) -> None:
    """accumulate="weight" takes chunks of rows, and rounds once for each; tiles round once."""
    made = LOW_MEMORY.inputs((512, 16, 24), dtype, torch.Generator().manual_seed(0))
    made["bias"].zero_()
    made = to_device(made, device)
    exact = {k: v.double().requires_grad_(k == "weight") if v.is_floating_point() else v for k, v in made.items()}
    (reference,) = torch.autograd.grad(twin(**exact, reduction="sum"), exact["weight"])

    def error(**options: Any) -> float:
        g = gradients(made, ["weight"], reduction="sum", **options)["weight"]
        return float((g.double() - reference).norm() / reference.norm())

    one, tiles = error(chunk_rows=512), error(chunk_rows=8, memory="low")
    own, low = (error(chunk_rows=8, accumulate="weight", memory=memory) for memory in ("fast", "low"))
    assert tiles <= 1.25 * one
    assert own == low
    assert 1.5 * one < low <= (512 // 8) ** 0.5 * one


# --- memory -------------------------------------------------------------------------------------

# In MiB: 16-bit logits of all rows 4, of a tile 0.5, the weight's gradient 0.5, dx 0.0625, its float32 sum 0.125.
ROWS, HIDDEN, VOCAB, CHUNK = 512, 64, 4096, 64


def peak_mib(made: Inputs, wanted: list[str], device: str, **options: Any) -> float:
    return peak_bytes(lambda: gradients(made, wanted, **options), device) / 2**20


@on_devices
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_peak_memory_in_tiles(device: str, reduction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """dweight, dx, a float32 sum of dx, a tile of logits; with the other sums it would be 1.6 MiB."""
    monkeypatch.setenv("TIGON_TEST_GUARDS", "0")
    made = to_device(LOW_MEMORY.inputs((ROWS, HIDDEN, VOCAB), torch.bfloat16, torch.Generator()), device)
    del made["bias"]
    expected = counts.bytes_held_in_tiles((ROWS, HIDDEN, VOCAB), torch.bfloat16, CHUNK * VOCAB // ROWS) / 2**20
    widened = 0.0 if device == "cuda" else 1.0 + 0.125  # the CPU's float32 product for dx: a tile and its weight
    got = peak_mib(made, ["x", "weight"], device, memory="low", chunk_rows=CHUNK, reduction=reduction)
    assert got <= expected + widened + 0.05


LARGE = (8192, 4096, 128256)


@pytest.mark.gpu
@pytest.mark.parametrize("ignored", [0.0, 0.1])
@pytest.mark.parametrize(
    ("wanted", "options", "held", "mib"),
    [
        ("x weight", {}, counts.bytes_held(LARGE, torch.bfloat16, 8192, trainable=True), 3100),
        ("x weight", {"memory": "low"}, counts.bytes_held_in_tiles(LARGE, torch.bfloat16, 4032), 1002 + 260),
        (
            "x weight",
            {"memory": "low", "accumulate": "weight"},
            counts.bytes_held(LARGE, torch.bfloat16, 768, trainable=True, sum_in_float32=False),
            1002 + 260,
        ),
        ("x", {}, counts.bytes_held(LARGE, torch.bfloat16, 1024, trainable=False), 600),
        ("x", {"memory": "low"}, counts.bytes_held(LARGE, torch.bfloat16, 256, trainable=False), 130),
    ],
)
def test_peak_memory_of_a_large_head(
    ignored: float, wanted: str, options: Inputs, held: int, mib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8192 rows of 4096 and 128256 classes in bfloat16: their logits are 2004 MiB, dweight is 1002."""
    monkeypatch.setenv("TIGON_TEST_GUARDS", "0")
    rows, hidden, vocab = LARGE
    made: Inputs = {
        "x": torch.randn(rows, hidden, device="cuda").bfloat16(),
        "weight": torch.randn(vocab, hidden, device="cuda", dtype=torch.bfloat16) / hidden**0.5,
        "labels": torch.randint(vocab, (rows,), device="cuda"),
    }
    made["labels"][torch.rand(rows, device="cuda") < ignored] = IGNORED
    got = peak_mib(made, wanted.split(), "cuda", **options)
    assert abs(got - held / 2**20) <= 2.0
    assert got <= mib
