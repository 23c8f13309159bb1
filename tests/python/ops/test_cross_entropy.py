"""cross_entropy: twin, eager yardstick, harness, and what users reported against such kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tigon
from harness import DEVICES, DTYPES, Inputs, Operator, suite
from tigon.ops.cross_entropy import CrossEntropyOutput

IGNORED = -100
on_devices = pytest.mark.parametrize("device", DEVICES)
on_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).replace("torch.", ""))
on_reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def twin(
    logits: Tensor,
    labels: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    reduction: str = "mean",
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
) -> Any:
    x = logits * logit_scale
    x = x if softcap is None else softcap * torch.tanh(x / softcap)
    w = torch.ones_like(x[..., 0, :] if x.dim() > 1 else x) if weight is None else weight.to(x)
    w = w.reshape(-1, x.shape[-1])[0] if w.numel() else x.new_ones(x.shape[-1])
    counts = labels != ignore_index
    label = torch.where(counts, labels, 0).long()
    lse = torch.logsumexp(x, -1)
    log_p = x - lse.unsqueeze(-1)
    rows = -(1 - label_smoothing) * w[label] * log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        rows = rows - label_smoothing / x.shape[-1] * (w * log_p).sum(-1)
    z_rows = torch.where(counts, z_loss * lse.square(), 0.0)
    rows = torch.where(counts, rows, 0.0) + z_rows
    correct = (torch.where(counts, x.argmax(-1) == label, False)).to(x.dtype)
    if reduction == "none":
        loss, z, accuracy = rows, z_rows, correct
    else:
        divisor = torch.where(counts, w[label], 0.0).sum() if reduction == "mean" else 1
        loss, z, accuracy = rows.sum() / divisor, z_rows.sum() / divisor, correct.sum() / counts.sum()
    if not (return_z_loss or return_token_accuracy):
        return loss
    return loss, z.detach() if return_z_loss else None, accuracy if return_token_accuracy else None


def eager(logits: Tensor, labels: Tensor, **options: Any) -> Any:
    """As transformers does: float32 from the logits on."""
    return twin(logits.float(), labels, **options)


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Inputs:
    classes = shape[-1]
    labels = torch.randint(classes, shape[:-1], generator=generator)
    labels[torch.rand(shape[:-1], generator=generator) < 0.25] = IGNORED
    if labels.numel():
        labels.view(-1)[-1] = classes - 1
    return {"logits": (3 * torch.randn(shape, generator=generator)).to(dtype), "labels": labels}


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    ops = torch.ops.tigon
    logits, labels = inputs["logits"], inputs["labels"]
    weight = torch.rand(logits.shape[-1], device=logits.device)
    one = torch.ones((), device=logits.device)
    lse = logits.float().logsumexp(-1)
    rest = (IGNORED, 0.1, 1e-4, 30.0, 1.0)
    for reduction in (0, 1, 2):
        yield ops.cross_entropy_forward.default, (logits, labels, weight, *rest, reduction, True, True, True, True)
    yield ops.cross_entropy_forward.default, (logits, labels, None, *rest, 1, False, False, False, False)
    yield ops.cross_entropy_backward.default, (lse, logits, labels, weight, lse, None, *rest, 0)
    yield ops.cross_entropy_backward.default, (one, logits, labels, None, lse, one, *rest, 1)
    yield ops.cross_entropy_scale.default, (one / 2, logits, labels, IGNORED)
    if logits.is_contiguous():  # functionalisation compares a clone that an odd layout does not keep
        yield ops.cross_entropy_scale_inplace.default, (one / 2, logits.clone(), labels, IGNORED)


CROSS_ENTROPY = Operator(
    name="cross_entropy",
    call=tigon.cross_entropy,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("logits",),
    shapes=(
        (3, 5, 72),
        (4, 1),
        (4, 2),
        (3, 7),
        (1, 8),
        (33, 127),
        (31, 129),
        (7,),
        (2, 3, 2, 64),
        (91, 257),
        (5, 5003),
    ),
    resized=((4, 5, 72), (7, 5, 72)),
    options={
        "reduction": ("none", "mean", "sum"),  # none first: the layouts of a gradient need axes
        "label_smoothing": (0.0, 0.1, 1.0),
        "z_loss": (0.0, 1e-2),
        "softcap": (None, 5.0),
        "logit_scale": (1.0, 0.25),
        "return_z_loss": (False, True),
        "return_token_accuracy": (False, True),
    },
    combine=(
        {"reduction": "none", "label_smoothing": 0.1, "z_loss": 1e-2, "softcap": 5.0, "logit_scale": 0.5},
        {"reduction": "sum", "z_loss": 1e-2, "return_z_loss": True, "return_token_accuracy": True},
        {"reduction": "none", "z_loss": 1e-2, "return_z_loss": True, "return_token_accuracy": True},
        {"label_smoothing": 0.1, "softcap": 5.0, "z_loss": 1e-2},
    ),
    laid_out=("logits",),
    opcheck=opcheck,
)

TestCrossEntropy = suite(CROSS_ENTROPY)


def case(
    shape: tuple[int, ...], device: str, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor]:
    made = inputs(shape, dtype, torch.Generator().manual_seed(seed))
    return made["logits"].to(device).requires_grad_(), made["labels"].to(device)


def torch_loss(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    rows = F.cross_entropy(wide.flatten(0, -2), labels.flatten().long(), **options)
    return rows.view(labels.shape) if options.get("reduction") == "none" else rows


# --- against PyTorch ----------------------------------------------------------------------------


@on_devices
@on_reductions
@pytest.mark.parametrize("label_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("weight_dtype", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_equals_torch(
    device: str, reduction: str, label_dtype: torch.dtype, weight_dtype: torch.dtype | None, smoothing: float
) -> None:
    """Smoothing with ignored rows and class weights, whose mean divides by the labels' weights."""
    logits, labels = case((6, 5, 37), device)
    labels[0, 0] = IGNORED  # also the first
    generator = torch.Generator().manual_seed(3)
    weight = None if weight_dtype is None else torch.rand(37, generator=generator).to(device, weight_dtype)
    ours = tigon.cross_entropy(
        logits, labels.to(label_dtype), weight=weight, label_smoothing=smoothing, reduction=reduction
    )
    expected = torch_loss(
        logits,
        labels,
        weight=None if weight is None else weight.float(),
        label_smoothing=smoothing,
        reduction=reduction,
    )
    torch.testing.assert_close(ours, expected)
    g = torch.randn(ours.shape, generator=generator).to(device)
    (a,), (b,) = torch.autograd.grad(ours, logits, g), torch.autograd.grad(expected, logits, g)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert not a[labels == IGNORED].any()


@on_devices
@on_dtypes
def test_per_token_weights(device: str, dtype: torch.dtype) -> None:
    """reduction none: each row's gradient carries its own factor."""
    logits, labels = case((2, 4, 15), device, dtype)
    labels[0, 0] = IGNORED
    tokens = torch.rand(2, 4, generator=torch.Generator().manual_seed(1)).to(device)
    ours = (tigon.cross_entropy(logits, labels, reduction="none") * tokens).sum()
    theirs = (torch_loss(logits, labels, reduction="none") * tokens).sum()
    torch.testing.assert_close(ours, theirs)
    (a,), (b,) = torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(a, b, rtol=torch.finfo(dtype).eps, atol=1e-6)


@on_devices
def test_float16_under_a_loss_scaler(device: str) -> None:
    """4096 rows: p / N is far below float16, p / N * 65536 is not. Bit for bit eager's, but for one rounding."""
    logits, labels = case((4096, 300), device, torch.float16)
    ours = tigon.cross_entropy(logits, labels) * 65536
    theirs = torch_loss(logits, labels) * 65536
    (a,), (b,) = torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits)
    small = b.abs() < 2.0**-10
    assert small.any()
    assert b[small].any()
    torch.testing.assert_close(a, b, rtol=2.0**-10, atol=2.0**-24)


@on_devices
@pytest.mark.parametrize("softcap", [30.0, 50.0])
@on_dtypes
def test_softcap_far_outside(device: str, dtype: torch.dtype, softcap: float) -> None:
    logits = torch.linspace(-100, 100, 64, device=device).to(dtype).repeat(3, 1).requires_grad_()
    labels = torch.tensor([0, 40, 63], device=device)
    ours = tigon.cross_entropy(logits, labels, softcap=softcap)
    theirs = F.cross_entropy(softcap * torch.tanh(logits.float() / softcap), labels)
    torch.testing.assert_close(ours, theirs)
    (a,), (b,) = torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(a, b, rtol=max(1e-5, torch.finfo(dtype).eps), atol=1e-6)


@on_devices
@on_reductions
@pytest.mark.parametrize(("softcap", "logit_scale"), [(5.0, 0.0), (float("inf"), 2.0)])
def test_softcap_of_nothing_and_of_no_reach(device: str, reduction: str, softcap: float, logit_scale: float) -> None:
    """A scale of 0 leaves logits of 0, an infinite cap leaves them as they are."""
    logits, labels = case((6, 10), device)
    capped = {"softcap": softcap, "logit_scale": logit_scale, "reduction": reduction}
    loss = tigon.cross_entropy(logits, labels, **capped)
    expected = tigon.cross_entropy(logit_scale * logits, labels, reduction=reduction)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(t.sum(), logits)[0] for t in (loss, expected))
    torch.testing.assert_close(ours, theirs)


@on_devices
def test_masked_classes(device: str) -> None:
    """Classes at -Inf or the smallest float take no part; a row of nothing else is NaN as in PyTorch."""
    logits = torch.randn(4, 40, generator=torch.Generator().manual_seed(0)).to(device)
    logits[0, :39] = -float("inf")
    logits[1, ::2] = torch.finfo(torch.float32).min
    logits[2, 5:] = -float("inf")
    logits[3] = -float("inf")
    logits.requires_grad_()
    labels = torch.tensor([39, 1, 2, 3], device=device)
    ours = tigon.cross_entropy(logits, labels, reduction="none")
    theirs = F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    (a,), (b,) = torch.autograd.grad(ours.sum(), logits), torch.autograd.grad(theirs.sum(), logits)
    torch.testing.assert_close(a, b, equal_nan=True)


# --- rows that do not count ---------------------------------------------------------------------


@on_devices
@on_dtypes
@on_reductions
def test_no_valid_label(device: str, dtype: torch.dtype, reduction: str) -> None:
    logits, labels = case((4, 8), device, dtype)
    labels.fill_(IGNORED)
    loss = tigon.cross_entropy(logits, labels, reduction=reduction)
    assert loss.isnan() if reduction == "mean" else not loss.any()
    loss.sum().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


@on_devices
@on_reductions
def test_no_rows(device: str, reduction: str) -> None:
    logits = torch.randn(0, 8, device=device, requires_grad=True)
    loss = tigon.cross_entropy(logits, torch.empty(0, dtype=torch.int64, device=device), reduction=reduction)
    torch.testing.assert_close(
        loss,
        F.cross_entropy(logits, torch.empty(0, dtype=torch.int64, device=device), reduction=reduction),
        equal_nan=True,
    )
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.shape == (0, 8)


@on_devices
@on_dtypes
@on_reductions
@pytest.mark.parametrize("factor", [float("inf"), float("nan")])
def test_ignored_rows_stay_zero_under_any_upstream(
    device: str, dtype: torch.dtype, reduction: str, factor: float
) -> None:
    """A trainer that divides by zero items sends Inf back: 0 * Inf must not reach the weights."""
    logits, labels = case((4, 9), device, dtype)
    labels[:2] = IGNORED
    with torch.no_grad():
        logits[0] = float("nan")
    (tigon.cross_entropy(logits, labels, reduction=reduction).sum() * factor).backward()
    assert logits.grad is not None
    assert not logits.grad[:2].any()


@on_devices
@on_dtypes
def test_ignore_index_inside_the_vocabulary(device: str, dtype: torch.dtype) -> None:
    logits, labels = case((12, 9), device, dtype)
    labels = labels.clamp(min=0)
    labels[::3] = 0
    ours = tigon.cross_entropy(logits, labels, ignore_index=0)
    torch.testing.assert_close(ours, torch_loss(logits, labels, ignore_index=0))


@pytest.mark.parametrize("label", [10, -1, -101, 2**31])
@on_reductions
def test_label_outside_the_vocabulary_raises(label: int, reduction: str) -> None:
    logits, _ = case((4, 10), "cpu")
    labels = torch.tensor([1, IGNORED, label, 3])
    with pytest.raises(RuntimeError, match=rf"labels must be in \[0, 10\) or ignore_index -100, got {label} in row 2"):
        tigon.cross_entropy(logits, labels, reduction=reduction)


@pytest.mark.gpu
@on_dtypes
@pytest.mark.parametrize("label", [10, -1, -101, 2**31])
def test_label_outside_the_vocabulary_is_nan(label: int, dtype: torch.dtype) -> None:
    logits, _ = case((4, 10), "cuda", dtype)
    labels = torch.tensor([1, IGNORED, label, 3], device="cuda")
    weight = torch.rand(10, device="cuda")
    rows = tigon.cross_entropy(logits, labels, reduction="none", weight=weight, label_smoothing=0.1)
    assert rows.isnan().tolist() == [False, False, True, False]
    (gradient,) = torch.autograd.grad(rows.sum(), logits)
    assert gradient.isnan().any(-1).tolist() == [False, False, True, False]
    mean = tigon.cross_entropy(logits, labels, weight=weight)
    assert mean.isnan()
    (gradient,) = torch.autograd.grad(mean, logits)
    assert gradient.isnan().any(-1).tolist() == [False, False, True, False]


# --- autograd -----------------------------------------------------------------------------------


@on_devices
@on_dtypes
@on_reductions
def test_logits_used_elsewhere_too(device: str, dtype: torch.dtype, reduction: str) -> None:
    """Neither the logits nor what others saved of them is touched."""
    logits, labels = case((4, 8), device, dtype)

    def gradient(loss: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        p = torch.softmax(logits, -1)
        version, before = p._version, p.clone()
        total = loss(p, labels, reduction=reduction).sum() + p.float().square().sum()
        (g,) = torch.autograd.grad(total, logits)
        assert p._version == version
        assert torch.equal(p, before)
        return total, g

    ours, theirs = gradient(tigon.cross_entropy), gradient(torch_loss)
    torch.testing.assert_close(ours, theirs, rtol=2 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps)


@on_devices
@on_dtypes
@on_reductions
@pytest.mark.parametrize("factor", [1.0, -0.625])
def test_backward_twice(device: str, dtype: torch.dtype, reduction: str, factor: float) -> None:
    """The buffer that backward scales in place is not scaled while the graph is kept."""
    logits, labels = case((6, 33), device, dtype)
    loss = tigon.cross_entropy(logits, labels, reduction=reduction).sum() * factor
    (first,) = torch.autograd.grad(loss, logits, retain_graph=True)
    kept = first.clone()
    (second,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (third,) = torch.autograd.grad(loss, logits)
    assert torch.equal(first, kept)
    assert torch.equal(first, second)
    assert torch.equal(first, third)


def test_gradient_of_one_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient is made in forward, and is what backward returns."""
    monkeypatch.setenv("TIGON_TEST_GUARDS", "0")
    logits, labels = case((6, 33), "cpu")
    loss = tigon.cross_entropy(logits, labels)
    made = loss.grad_fn.saved_tensors[1]  # type: ignore[union-attr]
    address, version = made.data_ptr(), made.clone()
    del made
    (g,) = torch.autograd.grad(loss, logits)
    assert g.data_ptr() == address
    assert torch.equal(g, version)


@on_devices
@on_dtypes
@on_reductions
def test_no_grad(device: str, dtype: torch.dtype, reduction: str) -> None:
    logits, labels = case((256, 1000), device, dtype)
    loss = tigon.cross_entropy(logits, labels, reduction=reduction)
    with torch.no_grad():
        assert torch.equal(tigon.cross_entropy(logits, labels, reduction=reduction), loss)
    frozen = tigon.cross_entropy(logits.detach(), labels, reduction=reduction)
    assert torch.equal(frozen, loss)
    assert not frozen.requires_grad


@on_devices
@on_dtypes
@on_reductions
def test_compiled(device: str, dtype: torch.dtype, reduction: str) -> None:
    """One graph, with every output, equal to eager bit for bit."""
    torch._dynamo.reset()
    logits, labels = case((6, 33), device, dtype)
    options: dict[str, Any] = {"z_loss": 0.1, "return_z_loss": True, "return_token_accuracy": True}

    def loss(logits: Tensor, labels: Tensor) -> Any:
        return tigon.cross_entropy(logits, labels, reduction=reduction, **options)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for ours, theirs in zip(compiled(logits, labels), loss(logits, labels), strict=True):
        assert torch.equal(ours, theirs)
    g = torch.full_like(loss(logits, labels).loss, 0.75)
    (a,), (b,) = (torch.autograd.grad(f(logits, labels).loss, logits, g) for f in (compiled, loss))
    assert torch.equal(a, b)


@pytest.mark.gpu
def test_no_grad_allocates_no_gradient() -> None:
    logits, labels = case((256, 32000), "cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        tigon.cross_entropy(logits, labels)
    assert torch.cuda.max_memory_allocated() - before < logits.numel()


@on_devices
def test_only_the_loss_has_a_gradient(device: str) -> None:
    logits, labels = case((6, 33), device)
    out = tigon.cross_entropy(logits, labels, z_loss=0.1, return_z_loss=True, return_token_accuracy=True)
    assert isinstance(out, CrossEntropyOutput)
    assert out.loss.requires_grad
    assert out.z_loss is not None
    assert not out.z_loss.requires_grad
    assert out.token_accuracy is not None
    assert not out.token_accuracy.requires_grad
    plain = tigon.cross_entropy(logits, labels, z_loss=0.1)
    assert torch.equal(out.loss, plain)
    assert torch.equal(*(torch.autograd.grad(loss, logits)[0] for loss in (out.loss, plain)))


@on_devices
def test_accuracy_takes_the_first_of_equals(device: str) -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0], [1.0, 2.0, 2.0], [3.0, 2.0, 2.0], [0.0, 0.0, 0.0]], device=device)
    labels = torch.tensor([1, 2, IGNORED, 0], device=device)
    options: dict[str, Any] = {"return_token_accuracy": True}
    rows = tigon.cross_entropy(logits, labels, reduction="none", **options).token_accuracy
    assert rows.tolist() == [1.0, 0.0, 0.0, 1.0]
    for reduction in ("mean", "sum"):
        mean = tigon.cross_entropy(logits, labels, reduction=reduction, **options).token_accuracy
        torch.testing.assert_close(mean, torch.tensor(2 / 3, device=device))


# --- sizes ----------------------------------------------------------------------------------------


@on_devices
@on_dtypes
@pytest.mark.parametrize("classes", [1, 2, 3, 7, 9, 32000, 50257, 128256, 151936, 262144])
def test_vocabularies(device: str, dtype: torch.dtype, classes: int) -> None:
    """Odd ones put every row off alignment; a view of a wider tensor puts it elsewhere than its gradient."""
    logits, labels = case((5, classes), device, dtype)
    wide = F.pad(logits.detach(), (3, 0))[:, 3:].requires_grad_()
    reference = logits.detach().double().requires_grad_()
    theirs = F.cross_entropy(reference, labels)
    (b,) = torch.autograd.grad(theirs, reference)
    for made in (logits, wide):
        ours = tigon.cross_entropy(made, labels)
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=1e-6)
        (a,) = torch.autograd.grad(ours, made)
        torch.testing.assert_close(a.double(), b, rtol=max(1e-5, torch.finfo(dtype).eps), atol=1e-7)


@on_devices
@pytest.mark.parametrize("rows", [1, 31, 33, 91, 1017, 65535, 65536, 65537])
def test_row_counts(device: str, rows: int) -> None:
    """Tall inputs, and counts that are no multiple of a tile: right, and the same bits every time."""
    logits, labels = case((1, rows, 8), device)
    for reduction in ("none", "sum", "mean"):
        ours = tigon.cross_entropy(logits, labels, reduction=reduction)
        torch.testing.assert_close(
            ours.double(), torch_loss(logits.double(), labels, reduction=reduction), rtol=1e-6, atol=1e-6
        )
        (first,) = torch.autograd.grad(ours.sum(), logits)
        again = tigon.cross_entropy(logits, labels, reduction=reduction)
        (second,) = torch.autograd.grad(again.sum(), logits)
        assert torch.equal(ours, again)
        assert torch.equal(first, second)


def many_rows(rows: int, classes: int, device: str) -> tuple[Tensor, Tensor]:
    """Logits of which blocks on a GPU see several rows each, and labels: at both ends and at seams, and runs of rows
    that do not count, at the first and the last one too."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(rows, classes, generator=generator).to(device)
    labels = torch.randint(classes, (rows,), generator=generator)
    seams = [0, 1, 7, 8, 255, 256, 2047, 2048, classes // 2, classes - 9, classes - 8, classes - 2, classes - 1]
    for i, column in enumerate(seams):
        labels[3 + i :: 2 * len(seams)] = min(column, classes - 1)
    for first, last in ((0, 1), (10, 11), (20, 22), (rows // 3, rows // 2), (rows - 1, rows)):
        labels[first:last] = IGNORED
    return logits, labels.to(device)


@on_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("classes", [2049, 5003, 50257])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_many_rows_some_ignored(device: str, dtype: torch.dtype, classes: int, smoothing: float) -> None:
    logits, labels = many_rows(2000 if device == "cuda" else 70, classes, device)
    logits = logits.to(dtype).requires_grad_()
    out = tigon.cross_entropy(logits, labels, label_smoothing=smoothing, return_token_accuracy=smoothing > 0)
    ours = out.loss if smoothing > 0 else out
    reference = logits.detach().double().requires_grad_()
    theirs = F.cross_entropy(reference, labels, label_smoothing=smoothing)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=1e-6)
    if smoothing > 0:
        counted = labels != IGNORED
        right = (logits.detach().float().argmax(-1) == labels)[counted].float().mean()
        torch.testing.assert_close(out.token_accuracy, right)
    (a,) = torch.autograd.grad(ours, logits)
    (b,) = torch.autograd.grad(theirs, reference)
    assert not a[labels == IGNORED].any()
    torch.testing.assert_close(a.double(), b, rtol=max(1e-5, torch.finfo(dtype).eps), atol=1e-8)


@on_devices
def test_many_rows_in_place_of_their_logits(device: str) -> None:
    """The head's own logits are overwritten by their gradient."""
    rows = 1500 if device == "cuda" else 90
    _, labels = many_rows(rows, 5003, device)
    generator = torch.Generator().manual_seed(2)
    x, weight = (torch.randn(n, 32, generator=generator).to(device) for n in (rows, 5003))
    x.requires_grad_()
    loss = tigon.linear_cross_entropy(x, weight, labels, chunk_rows=1000)
    wide = x.detach().double().requires_grad_()
    theirs = F.cross_entropy(F.linear(wide, weight.double()), labels)
    torch.testing.assert_close(loss.double(), theirs, rtol=1e-5, atol=1e-5)
    (a,) = torch.autograd.grad(loss, x)
    (b,) = torch.autograd.grad(theirs, wide)
    torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "classes", "dtype"),
    [(42731, 50257, torch.float32), (16745, 128256, torch.bfloat16), (14136, 151936, torch.bfloat16)],
)
def test_past_32_bits(rows: int, classes: int, dtype: torch.dtype) -> None:
    """The last rows lie beyond 2^31 elements."""
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.empty(rows, classes, dtype=dtype, device="cuda").normal_(generator=generator).requires_grad_()
    labels = torch.randint(classes, (rows,), generator=generator, device="cuda")
    loss = tigon.cross_entropy(logits, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, logits)
    total = torch.zeros((), dtype=torch.float64, device="cuda")
    for piece in torch.arange(rows, device="cuda").split(1024):
        part = logits.detach()[piece[0] : piece[-1] + 1].float().requires_grad_()
        expected = F.cross_entropy(part, labels[piece], reduction="sum")
        expected.backward()
        total += expected.detach()
        assert part.grad is not None
        torch.testing.assert_close(
            gradient[piece[0] : piece[-1] + 1], part.grad.to(dtype), rtol=max(1e-4, torch.finfo(dtype).eps), atol=1e-7
        )
    torch.testing.assert_close(loss.double(), total, rtol=1e-5, atol=0.0)


# --- refusals -------------------------------------------------------------------------------------


def test_errors_name_the_values() -> None:
    logits, labels = torch.randn(4, 10), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"labels must have the shape of logits \[4, 10\] .* got \[5\]"):
        tigon.cross_entropy(logits, torch.zeros(5, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="labels must be int64 or int32, got float32"):
        tigon.cross_entropy(logits, labels.float())
    with pytest.raises(RuntimeError, match=r"weight must be \[10\], got \[9\]"):
        tigon.cross_entropy(logits, labels, weight=torch.ones(9))
    with pytest.raises(RuntimeError, match=r"label_smoothing must be in \[0, 1\], got 1.5"):
        tigon.cross_entropy(logits, labels, label_smoothing=1.5)
    with pytest.raises(RuntimeError, match="z_loss must be at least 0, got -1"):
        tigon.cross_entropy(logits, labels, z_loss=-1.0)
    with pytest.raises(RuntimeError, match=r"logits must have at least one class, got \[4, 0\]"):
        tigon.cross_entropy(torch.randn(4, 0), labels)
    with pytest.raises(RuntimeError, match="logits must be float32, bfloat16 or float16, got int64"):
        tigon.cross_entropy(torch.ones(4, 10, dtype=torch.int64), labels)
    with pytest.raises(ValueError, match="reduction must be 'none', 'mean' or 'sum', got 'max'"):
        tigon.cross_entropy(logits, labels, reduction="max")  # type: ignore[arg-type]
    for options in ({"logit_scale": float("inf")}, {"logit_scale": float("nan")}, {"softcap": 1e-42}):
        with pytest.raises(RuntimeError, match="finite logits must stay finite, but logit_scale is"):
            tigon.cross_entropy(logits, labels, **options)
    with pytest.raises(ValueError, match="softcap must be positive or None, got 0"):
        tigon.cross_entropy(logits, labels, softcap=0.0)
    with pytest.raises(ValueError, match="weight holds constants"):
        tigon.cross_entropy(logits, labels, weight=torch.ones(10, requires_grad=True))
