"""linear_cross_entropy: twin, eager yardstick, harness, and what users reported against fused heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_cross_entropy import twin as cross_entropy_twin
from torch import Tensor, nn

import tigon
from harness import DEVICES, DTYPES, EPS, Inputs, Operator, check, suite, to_device
from memory import peak_bytes

IGNORED = -100
on_devices = pytest.mark.parametrize("device", DEVICES)
on_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).replace("torch.", ""))
on_reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
on_chunks = pytest.mark.parametrize("chunk_rows", [None, 1, 3])


def loss_of(
    logits: Tensor,
    labels: Tensor,
    *,
    class_weight: Tensor | None = None,
    token_weights: Tensor | None = None,
    num_items: Any = None,
    accumulate: str = "float32",
    memory: str = "fast",
    chunk_rows: int | None = None,
    reduction: str = "mean",
    **options: Any,
) -> Any:
    if token_weights is None and num_items is None:
        return cross_entropy_twin(logits, labels, weight=class_weight, reduction=reduction, **options)
    rows = cross_entropy_twin(logits, labels, weight=class_weight, reduction="none", **options)
    rows = rows if token_weights is None else rows * token_weights.to(rows)
    if reduction == "none":
        return rows
    w = torch.ones(logits.shape[-1]).to(logits) if class_weight is None else class_weight.to(logits)
    return rows.sum() / (1 if reduction == "sum" else num_items or w[labels[labels != IGNORED]].sum())


def twin(x: Tensor, weight: Tensor, labels: Tensor, *, bias: Tensor | None = None, **options: Any) -> Any:
    return loss_of(F.linear(x, weight, bias), labels, **options)


def eager(x: Tensor, weight: Tensor, labels: Tensor, *, bias: Tensor | None = None, **options: Any) -> Any:
    """As transformers does: the head in the model's dtype, float32 from the logits on."""
    return loss_of(F.linear(x, weight, bias).float(), labels, **options)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    """shape: the rows' axes, H, V."""
    *rows, hidden, vocab = shape
    labels = torch.randint(vocab, rows, generator=generator)
    labels[torch.rand(rows, generator=generator) < 0.25] = IGNORED
    if labels.numel():
        labels.view(-1)[labels.numel() // 2] = 0  # where the harness puts its special values
        labels.view(-1)[-1] = vocab - 1
    return {
        "x": torch.randn(*rows, hidden, generator=generator).to(dtype),
        "weight": (2 * torch.randn(vocab, hidden, generator=generator) / hidden**0.5).to(dtype),
        "labels": labels,
        "bias": torch.randn(vocab, generator=generator).to(dtype),
    }


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    ops = torch.ops.tigon
    x, weight, labels, bias = (inputs[k] for k in ("x", "weight", "labels", "bias"))
    classes = torch.rand(weight.shape[0], device=x.device)
    tokens = torch.rand(labels.shape, device=x.device)
    items = torch.full((), 7.0, device=x.device)
    rest = (IGNORED, 0.1, 1e-4, 30.0, 1.0)
    everything = (True,) * 6
    for reduction in (0, 1, 2):
        arguments = (x, weight, bias, labels, classes, tokens, None, *rest, reduction, True, True, 3, *everything)
        yield ops.linear_cross_entropy_forward.default, arguments
        lse, divisor = F.linear(x, weight, bias).float().logsumexp(-1), items if reduction == 1 else None
        arguments = (
            tokens,
            x,
            weight,
            bias,
            labels,
            classes,
            lse,
            divisor,
            *rest,
            reduction,
            True,
            True,
            3,
            True,
            True,
            True,
        )
        yield ops.linear_cross_entropy_backward.default, arguments
    arguments = (x, weight, None, labels, None, None, items, *rest, 1, False, False, 0, *(False,) * 6)
    yield ops.linear_cross_entropy_forward.default, arguments
    yield ops.linear_cross_entropy_scale.default, (items, x)
    if x.is_contiguous():  # functionalisation compares a clone that an odd layout does not keep
        yield ops.linear_cross_entropy_scale_inplace.default, (items, x.clone())


LINEAR_CROSS_ENTROPY = Operator(
    name="linear_cross_entropy",
    call=tigon.linear_cross_entropy,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("x", "weight", "bias"),
    shapes=(
        (3, 5, 24, 72),
        (4, 1, 2),
        (4, 3, 2),
        (1, 8, 7),
        (33, 17, 127),
        (31, 64, 129),
        (7, 2, 3),
        (91, 40, 257),
    ),
    resized=((4, 5, 24, 72), (7, 5, 24, 72)),
    tall=lambda rows: (1, rows, 4, 8),
    same_when_captured=False,
    options={
        "reduction": ("none", "mean", "sum"),  # none first: the layouts of a gradient need axes
        "chunk_rows": (None, 4, 16),
        "memory": ("fast", "low"),  # tiles: test_linear_cross_entropy_memory.py
        "label_smoothing": (0.0, 0.1),
        "z_loss": (0.0, 1e-2),
        "softcap": (None, 5.0),
        "logit_scale": (1.0, 0.25),
        "return_z_loss": (False, True),
        "return_token_accuracy": (False, True),
    },
    combine=(
        {"reduction": "mean", "chunk_rows": 4},
        {"reduction": "mean", "chunk_rows": 4, "memory": "low"},
        {"reduction": "sum", "chunk_rows": 4, "label_smoothing": 0.1, "z_loss": 1e-2, "softcap": 5.0},
        {"reduction": "mean", "z_loss": 1e-2, "return_z_loss": True, "return_token_accuracy": True},
        {"reduction": "none", "z_loss": 1e-2, "return_z_loss": True, "return_token_accuracy": True},
    ),
    opcheck=opcheck,
)

TestLinearCrossEntropy = suite(LINEAR_CROSS_ENTROPY)


def case(
    rows: tuple[int, ...], hidden: int, vocab: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, weight, bias with gradients, and labels of which the first is ignored."""
    made = inputs((*rows, hidden, vocab), dtype, torch.Generator().manual_seed(seed))
    if made["labels"].numel():
        made["labels"].view(-1)[0] = IGNORED
    x, weight, bias = (made[k].to(device).requires_grad_() for k in ("x", "weight", "bias"))
    return x, weight, bias, made["labels"].to(device)


def torch_loss(x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None, **options: Any) -> Tensor:
    rows = F.cross_entropy(F.linear(x, weight, bias).flatten(0, -2).float(), labels.flatten().long(), **options)
    return rows.view(labels.shape) if options.get("reduction") == "none" else rows


def assert_gradients(
    ours: Tensor, theirs: Tensor, tensors: tuple[Tensor, ...], upstream: Tensor | None = None, roundings: float = 4
) -> None:
    for t, a, b in zip(
        tensors,
        torch.autograd.grad(ours, tensors, upstream),
        torch.autograd.grad(theirs, tensors, upstream),
        strict=True,
    ):
        assert a.dtype == t.dtype
        error, scale = (a.double() - b.double()).abs().max(), b.double().abs().max()
        assert error <= roundings * EPS[t.dtype] * scale + 1e-6 * scale, f"error {error:.3e} of {scale:.3e}"


# --- weights and divisors -----------------------------------------------------------------------


@on_devices
@on_dtypes
@on_chunks
def test_weighted_tokens_without_reduction(device: str, dtype: torch.dtype, chunk_rows: int | None) -> None:
    """Each row's gradient carries its own factor, through x, weight and bias."""
    x, weight, bias, labels = case((2, 4), 10, 15, device, dtype)
    tokens = torch.rand(2, 4, generator=torch.Generator().manual_seed(1)).to(device)
    ours = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction="none", chunk_rows=chunk_rows) * tokens
    theirs = torch_loss(x, weight, labels, bias, reduction="none") * tokens
    torch.testing.assert_close(ours, theirs)
    assert_gradients(ours.sum(), theirs.sum(), (x, weight, bias))


@on_devices
@on_dtypes
@on_reductions
@on_chunks
def test_token_and_class_weights(device: str, dtype: torch.dtype, reduction: str, chunk_rows: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    made = to_device(inputs((2, 9, 10, 15), dtype, generator), device)
    options = {
        "class_weight": torch.rand(15, generator=generator).to(device),
        "token_weights": torch.rand(9, 2, generator=generator).to(device).t(),
        "reduction": reduction,
        "label_smoothing": 0.1,
        "z_loss": 0.01,
        "chunk_rows": chunk_rows,
    }
    check(LINEAR_CROSS_ENTROPY, made, options, "contiguous", "weights")


@on_devices
@on_dtypes
@on_reductions
def test_vocabulary_of_one(device: str, dtype: torch.dtype, reduction: str) -> None:
    """p - y cancels to nothing but the rounding of its terms, which are of size 1."""
    x, weight, bias, labels = case((4,), 3, 1, device, dtype)
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction, label_smoothing=0.1)
    assert not loss.any()
    for gradient in torch.autograd.grad(loss.sum(), (x, weight, bias)):
        assert gradient.abs().max() < 1e-6


@on_devices
@on_dtypes
@pytest.mark.parametrize("kind", ["int", "scalar", "one element", "on the host"])
def test_num_items_makes_micro_batches_add_up(device: str, dtype: torch.dtype, kind: str) -> None:
    """3 and 5 valid tokens with num_items 8 are the batch of 8."""
    x, weight, bias, labels = case((2, 6), 10, 15, device, dtype)
    labels.fill_(IGNORED)
    labels[0, :3] = torch.tensor([1, 2, 3])
    labels[1, 1:] = torch.tensor([4, 5, 6, 7, 14])
    items: Any = {
        "int": 8,
        "scalar": torch.tensor(8, device=device),
        "one element": torch.tensor([[8.0]], device=device),
        "on the host": torch.tensor(8),
    }[kind]
    parts = [tigon.linear_cross_entropy(x[i], weight, labels[i], bias=bias, num_items=items) for i in (0, 1)]
    whole = tigon.linear_cross_entropy(x, weight, labels, bias=bias)
    torch.testing.assert_close(parts[0] + parts[1], whole)
    assert_gradients(parts[0] + parts[1], torch_loss(x, weight, labels, bias), (x, weight, bias))


@on_devices
@on_dtypes
def test_no_items(device: str, dtype: torch.dtype) -> None:
    """A batch without labels under the HF Trainer, whose loss is then multiplied by Inf."""
    x, weight, bias, labels = case((2, 6), 10, 15, device, dtype)
    labels.fill_(IGNORED)
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, num_items=torch.tensor(0.0, device=device))
    (loss * math.inf).backward()
    assert not any(t.grad.any() for t in (x, weight, bias))  # type: ignore[union-attr]


# --- rows that do not count ---------------------------------------------------------------------


@on_devices
@on_dtypes
@on_reductions
def test_no_valid_label(device: str, dtype: torch.dtype, reduction: str) -> None:
    x, weight, bias, labels = case((4,), 8, 9, device, dtype)
    labels.fill_(IGNORED)
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction)
    assert loss.isnan() if reduction == "mean" else not loss.any()
    loss.sum().backward()
    assert not any(t.grad.any() for t in (x, weight, bias))  # type: ignore[union-attr]


@on_devices
@on_reductions
def test_no_rows(device: str, reduction: str) -> None:
    x, weight, bias, labels = case((0,), 8, 9, device)
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction)
    torch.testing.assert_close(loss, torch_loss(x, weight, labels, bias, reduction=reduction), equal_nan=True)
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (0, 8)
    assert not any(t.grad.any() for t in (weight, bias))  # type: ignore[union-attr]


@on_devices
@on_dtypes
@on_reductions
@on_chunks
def test_ignored_rows_are_not_read(device: str, dtype: torch.dtype, reduction: str, chunk_rows: int | None) -> None:
    x, weight, bias, labels = case((10,), 8, 9, device, dtype)
    labels[3:7] = IGNORED
    with torch.no_grad():
        x[3:7] = float("nan")
    keep = labels != IGNORED
    ours = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction, chunk_rows=chunk_rows)
    theirs = torch_loss(x[keep], weight, labels[keep], bias, reduction=reduction)
    torch.testing.assert_close(ours[keep] if reduction == "none" else ours, theirs)
    assert_gradients(ours.sum(), theirs.sum(), (weight, bias))
    (dx,) = torch.autograd.grad(
        tigon.linear_cross_entropy(x, weight, labels, reduction=reduction, chunk_rows=chunk_rows).sum() * math.inf, x
    )
    assert not dx[~keep].any()


@pytest.mark.parametrize("label", [10, -1, -101, 2**31])
def test_label_outside_the_vocabulary_raises(label: int) -> None:
    x, weight, _, labels = case((4,), 8, 10, "cpu")
    labels[2] = label
    with pytest.raises(RuntimeError, match=rf"labels must be in \[0, 10\) or ignore_index -100, got {label} in row 2"):
        tigon.linear_cross_entropy(x, weight, labels)


@pytest.mark.gpu
@on_dtypes
@pytest.mark.parametrize("label", [10, -1, -101, 2**31])
def test_label_outside_the_vocabulary_is_nan(label: int, dtype: torch.dtype) -> None:
    x, weight, _, _ = case((4,), 8, 10, "cuda", dtype)
    labels = torch.tensor([1, IGNORED, label, 3], device="cuda")
    rows = tigon.linear_cross_entropy(x, weight, labels, reduction="none")
    assert rows.isnan().tolist() == [False, False, True, False]
    (dx,) = torch.autograd.grad(rows.sum(), x)
    assert dx.isnan().any(-1).tolist() == [False, False, True, False]
    assert tigon.linear_cross_entropy(x, weight, labels).isnan()


# --- precision ----------------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize("with_bias", [False, True])
@on_reductions
def test_autocast(device: str, with_bias: bool, reduction: str) -> None:
    """float32 tensors are computed with in bfloat16, and their gradients come back in float32."""
    x, weight, bias, labels = case((4,), 16, 32, device)
    tensors = (x, weight, bias) if with_bias else (x, weight)
    given = bias if with_bias else None
    with torch.autocast(device, torch.bfloat16):
        ours = tigon.linear_cross_entropy(x, weight, labels, bias=given, reduction=reduction)
        theirs = torch_loss(x, weight, labels, given, reduction=reduction)
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad(ours.sum(), tensors), torch.autograd.grad(theirs.sum(), tensors)
    for a, b in zip(*gradients, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=2 * EPS[torch.bfloat16], atol=EPS[torch.bfloat16] * float(b.abs().max()))


@on_devices
def test_float16_under_a_loss_scaler(device: str) -> None:
    """p / N of a rare class is below float16's smallest number, p / N * 65536 is not."""
    x, weight, bias, labels = case((2048,), 16, 300, device, torch.float16)
    labels.clamp_(max=298)
    with torch.no_grad():
        weight[299] *= 0.1
        bias[299] = -5.0
    ours = tigon.linear_cross_entropy(x, weight, labels, bias=bias) * 65536
    theirs = torch_loss(x, weight, labels, bias) * 65536
    rare = [torch.autograd.grad(loss, weight, retain_graph=True)[0][299] for loss in (ours, theirs)]
    assert rare[1].all()
    torch.testing.assert_close(*rare, rtol=4 * EPS[torch.float16], atol=float(rare[1].abs().max()) / 100)


@on_devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_partial_sums_of_the_weight(device: str, dtype: torch.dtype) -> None:
    """In float32 as good as one product; in the weight's own type worse, by the root of the number of chunks."""
    x, weight, _, labels = case((512,), 16, 24, device, dtype)
    exact = torch_loss(x.double(), weight.double(), labels, reduction="sum")
    (reference,) = torch.autograd.grad(exact, weight)

    def error(**options: Any) -> float:
        loss = tigon.linear_cross_entropy(x, weight, labels, reduction="sum", **options)
        (g,) = torch.autograd.grad(loss, weight)
        return float((g.double() - reference.double()).norm() / reference.double().norm())

    chunks = 512 // 8
    one, float32 = error(chunk_rows=512), error(chunk_rows=8)
    assert float32 <= 1.25 * one
    own = error(chunk_rows=8, accumulate="weight")
    assert 1.5 * one < own <= chunks**0.5 * one


@on_devices
@on_dtypes
def test_softcap_far_outside(device: str, dtype: torch.dtype) -> None:
    """Logits of ±100 under a cap of 30, as Gemma 2 has: tanh in float32."""
    x = torch.eye(8, device=device).to(dtype).requires_grad_()
    weight = torch.linspace(-100, 100, 64, device=device).to(dtype).repeat(8, 1).t().contiguous().requires_grad_()
    labels = torch.arange(0, 64, 8, device=device)
    ours = tigon.linear_cross_entropy(x, weight, labels, softcap=30.0)
    theirs = F.cross_entropy(30.0 * torch.tanh(F.linear(x, weight).float() / 30.0), labels)
    torch.testing.assert_close(ours, theirs)
    assert_gradients(ours, theirs, (x, weight))


@on_devices
@pytest.mark.parametrize("rows", [1, 31, 33, 91, 1017])
def test_row_counts_off_any_tile(device: str, rows: int) -> None:
    x, weight, bias, labels = case((rows,), 48, 100, device)

    def run() -> tuple[Tensor, ...]:
        loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction="sum", chunk_rows=50)
        return loss, *torch.autograd.grad(loss, (x, weight, bias))

    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    theirs = torch_loss(x, weight, labels, bias, reduction="sum")
    torch.testing.assert_close(first[0], theirs)
    for a, b in zip(first[1:], torch.autograd.grad(theirs, (x, weight, bias)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


# --- gradients by demand, and memory ------------------------------------------------------------


@on_devices
@on_dtypes
@on_reductions
@pytest.mark.parametrize("trainable", ["x", "weight", "bias", "x weight", "x bias", "weight bias"])
def test_gradients_by_demand(device: str, dtype: torch.dtype, reduction: str, trainable: str) -> None:
    tensors = dict(zip(("x", "weight", "bias"), case((2, 9), 10, 15, device, dtype), strict=False))
    labels = case((2, 9), 10, 15, device)[3]

    def gradients(names: list[str]) -> dict[str, Tensor]:
        given = {k: v.detach().requires_grad_(k in names) for k, v in tensors.items()}
        tigon.linear_cross_entropy(**given, labels=labels, reduction=reduction, chunk_rows=7).sum().backward()
        return {k: v.grad for k, v in given.items() if v.grad is not None}

    wanted, every = gradients(trainable.split()), gradients(list(tensors))
    assert set(wanted) == set(trainable.split())
    assert all(torch.equal(wanted[k], every[k]) for k in wanted)


@on_devices
@on_dtypes
@on_reductions
@pytest.mark.parametrize("factor", [1.0, -0.625])
def test_backward_twice(device: str, dtype: torch.dtype, reduction: str, factor: float) -> None:
    """The buffers that backward scales in place are not scaled while the graph is kept."""
    x, weight, bias, labels = case((6,), 10, 33, device, dtype)
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction).sum() * factor
    runs = [torch.autograd.grad(loss, (x, weight, bias), retain_graph=keep) for keep in (True, True, False)]
    for later in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], later, strict=True))


@on_devices
@on_dtypes
@on_reductions
def test_no_grad(device: str, dtype: torch.dtype, reduction: str) -> None:
    x, weight, bias, labels = case((256,), 512, 1000, device, dtype)
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction)
    with torch.no_grad():
        assert torch.equal(tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction=reduction), loss)


# The logits would be 8 MiB (float32); the weight is 1 MiB, x and dx 128 KiB, a chunk of logits 1 MiB.
ROWS, HIDDEN, VOCAB, CHUNK = 512, 64, 4096, 64


@pytest.fixture
def no_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIGON_TEST_GUARDS", "0")


def peak(device: str, dtype: torch.dtype, trainable: tuple[str, ...], **options: Any) -> float:
    """MiB at the peak of forward and backward."""
    tensors = dict(zip(("x", "weight", "bias"), case((ROWS,), HIDDEN, VOCAB, device, dtype), strict=False))
    labels = case((ROWS,), HIDDEN, VOCAB, device)[3]
    given = {k: tensors[k].detach().requires_grad_(k in trainable) for k in ("x", "weight")}

    def run() -> None:
        loss = tigon.linear_cross_entropy(**given, labels=labels, **options)
        if loss.requires_grad:
            torch.autograd.grad(loss.sum(), [given[k] for k in trainable], torch.full((), 0.5, device=device))

    return peak_bytes(run, device) / 2**20


@on_devices
@pytest.mark.usefixtures("no_guards")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@on_reductions
def test_peak_memory(device: str, dtype: torch.dtype, reduction: str) -> None:
    """Never the whole logits; nothing of the weight's size where it is frozen; no gradient without grad."""
    unit = torch.finfo(dtype).bits / 32
    chunk, x, weight = 1.0 * unit, 0.125 * unit, 1.0 * unit
    rows = 0.05  # what is held per row: indices, losses
    options: dict[str, Any] = {"chunk_rows": CHUNK, "reduction": reduction}
    with torch.no_grad():
        assert peak(device, dtype, ("x", "weight"), **options) <= chunk + x + rows
    packed = weight if device == "cpu" and dtype == torch.bfloat16 else 0.0  # oneDNN's copy in the product for dx
    assert peak(device, dtype, ("x",), **options) <= chunk + 3 * x + packed + rows
    # a float32 sum of dweight beside dweight itself, in whose memory the logits lie meanwhile
    sums = 0.0 if dtype == torch.float32 else 1.0
    trainable = peak(device, dtype, ("x", "weight"), **options)
    widened = 0.0 if device == "cuda" or sums == 0.0 else chunk / unit + x  # the CPU's float32 product
    hidden = 0.0 if sums else chunk  # where there are sums, the logits lie in dweight's memory
    assert trainable <= weight + sums + hidden + 3 * x + max(packed, widened) + rows


@pytest.mark.gpu
@pytest.mark.usefixtures("no_guards")
@on_reductions
def test_frozen_head_of_full_size(reduction: str) -> None:
    """V = 151936, H = 4096: with the chunks that it chooses itself, nothing of the weight's size."""
    x = torch.randn(256, 4096, device="cuda").bfloat16().requires_grad_()
    weight = torch.randn(151936, 4096, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(151936, (256,), device="cuda")

    def run() -> None:
        torch.autograd.grad(tigon.linear_cross_entropy(x, weight, labels, reduction=reduction).sum(), x)

    assert peak_bytes(run, "cuda") < weight.nbytes / 4


# --- training -----------------------------------------------------------------------------------


@on_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_from_scratch(device: str, dtype: torch.dtype) -> None:
    """Two layers from random weights: the same curve, and gradients of one direction all the way."""
    steps, vocab, hidden = 60, 512, 32
    generator = torch.Generator().manual_seed(0)
    data = torch.randint(vocab // 8, (steps, 64), generator=generator).to(device)

    def model() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(vocab, hidden), nn.Linear(hidden, hidden), nn.SiLU()).to(device, dtype)

    def head() -> Tensor:
        torch.manual_seed(1)
        return (torch.randn(vocab, hidden) * 0.02).to(device, dtype).requires_grad_()

    def train(loss_of: Callable[..., Tensor]) -> tuple[list[float], list[Tensor]]:
        body, weight = model(), head()
        optimizer = torch.optim.AdamW([*body.parameters(), weight], lr=1e-2)
        losses, gradients = [], []
        for step in range(steps):
            ids = data[step]
            loss = loss_of(body(ids[:-1]), weight, ids[1:])
            optimizer.zero_grad()
            loss.backward()
            if step in (0, steps // 2, steps - 1):
                gradients.append(torch.cat([p.grad.flatten() for p in (*body.parameters(), weight)]).double())
            optimizer.step()
            losses.append(loss.item())
        return losses, gradients

    fused, theirs = train(lambda x, w, y: tigon.linear_cross_entropy(x, w, y, chunk_rows=16)), train(torch_loss)
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    assert all(math.isclose(a, b, rel_tol=tolerance) for a, b in zip(fused[0], theirs[0], strict=True))
    cosine = F.cosine_similarity(fused[1][0], theirs[1][0], dim=0)
    assert cosine > 0.9999
    if dtype == torch.float32:
        assert all(F.cosine_similarity(a, b, dim=0) > 0.9999 for a, b in zip(fused[1], theirs[1], strict=True))
    assert fused[0][-1] < fused[0][0] - 1.0


# --- layouts and refusals -----------------------------------------------------------------------


@on_devices
def test_transposed_weight_and_sliced_x(device: str) -> None:
    x, weight, _, labels = case((2, 9), 10, 15, device)
    turned = weight.detach().t().contiguous().t().requires_grad_()
    wide = torch.randn(2, 10, 10, device=device)
    shifted = wide[:, 1:].detach().requires_grad_()
    theirs = torch_loss(shifted, weight, labels)
    ours = tigon.linear_cross_entropy(shifted, turned, labels, chunk_rows=4)
    torch.testing.assert_close(ours, theirs)
    a, b = torch.autograd.grad(ours, (shifted, turned)), torch.autograd.grad(theirs, (shifted, weight))
    torch.testing.assert_close(a, b)
    with pytest.raises(RuntimeError, match=r"weight must be a matrix or its transpose, got strides \[20, 2\]"):
        tigon.linear_cross_entropy(x, torch.randn(15, 20, device=device)[:, ::2], labels)


@on_devices
@pytest.mark.parametrize("shape", [(0,), (0, 8)])
def test_shard_outside_its_module(device: str, shape: tuple[int, ...]) -> None:
    x, _, _, labels = case((4,), 8, 10, device)
    weight = torch.empty(shape, device=device)
    with pytest.raises(RuntimeError, match=r"weight is empty, \[0.*but must be \[V, 8\]: a ZeRO-3 or FSDP shard"):
        tigon.linear_cross_entropy(x, weight, labels)


def test_errors_name_the_values() -> None:
    x, weight, _, labels = case((4,), 8, 10, "cpu")
    op = tigon.linear_cross_entropy
    with pytest.raises(RuntimeError, match=r"weight must be \[V, 8\], got \[10, 7\]"):
        op(x, torch.randn(10, 7), labels)
    with pytest.raises(RuntimeError, match="x and weight must share a type, got float32 and bfloat16"):
        op(x, weight.bfloat16(), labels)
    with pytest.raises(RuntimeError, match=r"bias must be \[10\], got \[9\]"):
        op(x, weight, labels, bias=torch.randn(9))
    with pytest.raises(RuntimeError, match=r"class_weight must be \[10\], got \[3\]"):
        op(x, weight, labels, class_weight=torch.ones(3))
    with pytest.raises(RuntimeError, match="label_smoothing must be in"):
        op(x, weight, labels, label_smoothing=1.5)
    with pytest.raises(ValueError, match="num_items replaces the mean's divisor, but reduction is 'sum'"):
        op(x, weight, labels, num_items=3, reduction="sum")
    with pytest.raises(ValueError, match=r"num_items must have one element, got shape \[2\]"):
        op(x, weight, labels, num_items=torch.ones(2))
    with pytest.raises(ValueError, match="token_weights holds constants, but requires a gradient"):
        op(x, weight, labels, token_weights=torch.ones(4, requires_grad=True))
    with pytest.raises(ValueError, match="accumulate must be 'float32' or 'weight', got 'bf16'"):
        op(x, weight, labels, accumulate="bf16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="memory must be 'fast' or 'low', got 'least'"):
        op(x, weight, labels, memory="least")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunk_rows must be at least 1, got 0"):
        op(x, weight, labels, chunk_rows=0)


@pytest.mark.gpu
def test_captured_in_a_graph() -> None:
    """Under capture every row is computed, and replays follow new labels, other ones ignored."""
    x, weight, bias, labels = case((64,), 32, 200, "cuda")

    def run() -> tuple[Tensor, ...]:
        loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, chunk_rows=16)
        return loss, *torch.autograd.grad(loss, (x, weight, bias))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for seed in (5, 6):
        labels.copy_(case((64,), 32, 200, "cuda", seed=seed)[3])
        graph.replay()
        for a, b in zip(captured, run(), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.gpu
def test_logits_past_32_bits() -> None:
    """14136 rows of 151936 classes in one chunk: the last row starts past 2^31 elements."""
    x, weight, _, labels = case((14136,), 16, 151936, "cuda", torch.bfloat16)
    ours = tigon.linear_cross_entropy(x, weight, labels, reduction="none", chunk_rows=14136)
    theirs = tigon.linear_cross_entropy(x, weight, labels, reduction="none")
    torch.testing.assert_close(ours, theirs)
    a, b = (torch.autograd.grad(loss.sum(), (x, weight)) for loss in (ours, theirs))
    for one, other in zip(a, b, strict=True):
        assert (one.double() - other.double()).norm() <= 1e-2 * other.double().norm()
