"""linear_logprob: twin, eager yardstick, harness, and what fused heads of preference and RL losses ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_linear_cross_entropy import IGNORED, inputs
from torch import Tensor

import tigon
from harness import DEVICES, DTYPES, EPS, Inputs, Operator, suite
from memory import peak_bytes
from tigon.ops import LogProbOutput

EVERYTHING = LogProbOutput._fields
DIFFERENTIABLE = EVERYTHING[:4]
on_devices = pytest.mark.parametrize("device", DEVICES)
on_dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).replace("torch.", ""))


def statistics(
    logits: Tensor,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    outputs: tuple[str, ...] = EVERYTHING,
    chunk_rows: int | None = None,
) -> tuple[Tensor | None, ...]:
    z = logits * logit_scale
    z = (z if softcap is None else softcap * torch.tanh(z / softcap)) / temperature
    log_p = F.log_softmax(z, -1)
    p = log_p.exp()
    counts = labels != IGNORED
    label = torch.where(counts, labels, 0)
    values = (
        log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1),
        -torch.where(p > 0, p * log_p, p).sum(-1),  # p: 0 where p is, NaN where it is NaN
        p.square().sum(-1).log(),
        z.mean(-1),
        z.argmax(-1) == label,
    )
    named = zip(EVERYTHING, values, strict=True)
    return tuple(torch.where(counts, v, torch.zeros_like(v)) if name in outputs else None for name, v in named)


def twin(x: Tensor, weight: Tensor, labels: Tensor, *, bias: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
    return statistics(F.linear(x, weight, bias), labels, **options)


def eager(x: Tensor, weight: Tensor, labels: Tensor, *, bias: Tensor, **options: Any) -> tuple[Tensor | None, ...]:
    """As trainers do: the head in the model's dtype, float32 from the logits on."""
    return statistics(F.linear(x, weight, bias).float(), labels, **options)


def opcheck(inputs: Inputs) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    ops = torch.ops.tigon
    x, weight, labels, bias = (inputs[k] for k in ("x", "weight", "labels", "bias"))
    rest = (IGNORED, 0.7, 30.0, 0.5, 3)
    yield ops.linear_logprob_forward.default, (x, weight, bias, labels, *rest, *(True,) * 6)
    yield ops.linear_logprob_forward.default, (x, weight, None, labels, *rest, *(False,) * 5, True)
    g = torch.rand(labels.shape, device=x.device)
    lse = F.linear(x, weight, bias).logsumexp(-1)
    yield (
        ops.linear_logprob_backward.default,
        (g, g, g, g, lse, g, -g, x, weight, bias, labels, *rest, True, True, True),
    )
    one = (None, None, None, g, lse, None, None, x, weight, None, labels, *rest, True, False, False)
    yield ops.linear_logprob_backward.default, one


LINEAR_LOGPROB = Operator(
    name="linear_logprob",
    call=tigon.linear_logprob,
    twin=twin,
    eager=eager,
    inputs=inputs,
    differentiable=("x", "weight", "bias"),
    shapes=((3, 5, 24, 72), (6, 1, 9), (4, 3, 2), (1, 8, 7), (33, 17, 127), (31, 64, 129), (7, 2, 3), (91, 40, 257)),
    resized=((4, 5, 24, 72), (7, 5, 24, 72)),
    tall=lambda rows: (1, rows, 4, 8),
    same_when_captured=False,
    options={
        "outputs": (DIFFERENTIABLE, *((name,) for name in DIFFERENTIABLE)),
        "chunk_rows": (None, 4, 16),
        "temperature": (1.0, 0.7),
        "softcap": (None, 5.0),
        "logit_scale": (1.0, 0.25),
    },
    combine=({"temperature": 1.5, "softcap": 5.0, "logit_scale": 0.5, "chunk_rows": 4},),
    opcheck=opcheck,
)

TestLinearLogProb = suite(LINEAR_LOGPROB)


def case(
    rows: tuple[int, ...], hidden: int, vocab: int, device: str, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    made = inputs((*rows, hidden, vocab), dtype, torch.Generator().manual_seed(0))
    x, weight, bias = (made[k].to(device).requires_grad_() for k in ("x", "weight", "bias"))
    return x, weight, bias, made["labels"].to(device)


@on_devices
@on_dtypes
def test_is_the_cross_entropy(device: str, dtype: torch.dtype) -> None:
    x, weight, bias, labels = case((2, 9), 10, 15, device, dtype)
    log_probs = tigon.linear_logprob(x, weight, labels, bias=bias).log_probs
    assert log_probs is not None
    assert log_probs.dtype == torch.float32
    loss = tigon.linear_cross_entropy(x, weight, labels, bias=bias, reduction="sum")
    torch.testing.assert_close(-log_probs.sum(), loss)
    ours, theirs = (torch.autograd.grad(t, (x, weight, bias)) for t in (-log_probs.sum(), loss))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.double() - b.double()).abs().max() <= 4 * EPS[dtype] * b.double().abs().max()


@on_devices
@on_dtypes
@pytest.mark.parametrize("chunk_rows", [None, 4])
def test_top1_takes_the_first_of_equals(device: str, dtype: torch.dtype, chunk_rows: int | None) -> None:
    x, weight, _, labels = case((200,), 3, 5, device, dtype)
    with torch.no_grad():
        weight[3] = weight[1]
        labels[::3] = F.linear(x, weight).argmax(-1)[::3]
        labels[1::3] = 3
    out = tigon.linear_logprob(x, weight, labels, outputs=("is_top1",), chunk_rows=chunk_rows)
    expected = (F.linear(x, weight).argmax(-1) == labels) & (labels != IGNORED)
    assert 60 < expected.sum() < 140
    assert torch.equal(out.is_top1, expected)


def test_outputs_of_any_iterable() -> None:
    x, weight, _, labels = case((6,), 10, 15, "cpu")
    out = tigon.linear_logprob(x, weight, labels, outputs=(n for n in ("entropy",)))  # type: ignore[arg-type]
    assert out.entropy is not None


@on_devices
def test_only_what_was_asked_for(device: str) -> None:
    x, weight, _, labels = case((6,), 10, 15, device)
    out = tigon.linear_logprob(x, weight, labels, outputs=("entropy", "is_top1"))
    assert [t is not None for t in out] == [False, True, False, False, True]
    assert out.entropy.requires_grad
    assert out.is_top1.dtype == torch.bool
    assert not out.is_top1.requires_grad
    everything = tigon.linear_logprob(x, weight, labels, outputs=EVERYTHING)
    assert torch.equal(out.entropy, everything.entropy)
    assert torch.equal(out.is_top1, everything.is_top1)


@on_devices
@on_dtypes
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_through_one_of_many(device: str, dtype: torch.dtype, name: str) -> None:
    """Statistics that are only logged cost no gradient and change none."""
    x, weight, bias, labels = case((2, 9), 10, 15, device, dtype)
    upstream = torch.randn(2, 9, generator=torch.Generator().manual_seed(1)).to(device)

    def gradients(outputs: tuple[str, ...]) -> tuple[Tensor, ...]:
        value = getattr(tigon.linear_logprob(x, weight, labels, bias=bias, outputs=outputs), name)
        return torch.autograd.grad(value, (x, weight, bias), upstream)

    assert all(torch.equal(a, b) for a, b in zip(gradients((name,)), gradients(EVERYTHING), strict=True))


@on_devices
def test_ratio_of_a_policy_to_itself(device: str) -> None:
    """What PPO and GRPO do with it: the ratio to the old policy is 1 and the gradient the advantage's."""
    x, weight, _, labels = case((2, 9), 10, 15, device)
    advantage = torch.randn(2, 1, generator=torch.Generator().manual_seed(1)).to(device)
    new = tigon.linear_logprob(x, weight, labels, temperature=0.8).log_probs
    with torch.no_grad():
        old = tigon.linear_logprob(x, weight, labels, temperature=0.8).log_probs
    ratio = (new - old).exp()
    assert torch.equal(ratio, torch.ones_like(ratio))
    (ours,) = torch.autograd.grad((ratio * advantage).sum(), x, retain_graph=True)
    (theirs,) = torch.autograd.grad((new * advantage).sum(), x)
    assert torch.equal(ours, theirs)


@on_devices
def test_distributions_at_the_edge(device: str) -> None:
    """A uniform one, a certain one, and classes that are out of reach."""
    vocab = 40
    rows = torch.zeros(4, vocab)
    rows[1, 7] = 200.0
    rows[2, 1::2] = torch.finfo(torch.float32).min
    rows[3, 3:] = -300.0
    x = torch.eye(4, device=device).requires_grad_()
    weight = rows.t().contiguous().to(device).requires_grad_()
    labels = torch.tensor([5, 7, 2, 0], device=device)
    out = tigon.linear_logprob(x, weight, labels, outputs=EVERYTHING)
    outcomes = torch.tensor([vocab, 1.0, vocab / 2, 3.0], device=device)
    torch.testing.assert_close(out.log_probs, -outcomes.log())
    torch.testing.assert_close(out.entropy, outcomes.log())
    torch.testing.assert_close(out.log_sum_sq_probs, -outcomes.log())
    assert out.is_top1.tolist() == [False, True, False, True]  # the first of equals is class 0
    total = out.log_probs.sum() + out.entropy.sum() + out.log_sum_sq_probs.sum()
    (gradient,) = torch.autograd.grad(total, weight)
    assert gradient.isfinite().all()


@on_devices
@on_dtypes
@pytest.mark.parametrize("chunk_rows", [None, 3])
def test_ignored_rows_are_not_read(device: str, dtype: torch.dtype, chunk_rows: int | None) -> None:
    x, weight, _, labels = case((10,), 8, 9, device, dtype)
    labels[3:7] = IGNORED
    keep = labels != IGNORED
    with torch.no_grad():
        x[~keep] = float("nan")
    out = tigon.linear_logprob(x, weight, labels, outputs=EVERYTHING, chunk_rows=chunk_rows)
    alone = tigon.linear_logprob(x[keep], weight, labels[keep], outputs=EVERYTHING)
    for ours, theirs in zip(out, alone, strict=True):
        assert not ours[~keep].any()
        torch.testing.assert_close(ours[keep], theirs)
    (dx,) = torch.autograd.grad(sum(t.sum() for t in out[:4]), x, torch.full((), math.inf, device=device))
    assert not dx[~keep].any()


@on_devices
def test_no_valid_label_and_no_rows(device: str) -> None:
    x, weight, bias, labels = case((4,), 8, 9, device)
    for n in (4, 0):
        out = tigon.linear_logprob(x[:n], weight, torch.full_like(labels[:n], IGNORED), bias=bias, outputs=EVERYTHING)
        assert all(t.shape == (n,) and not t.any() for t in out)
        for gradient in torch.autograd.grad(sum(t.sum() for t in out[:4]), (x, weight, bias)):
            assert not gradient.any()


@pytest.mark.parametrize("label", [10, -1, -101, 2**31])
def test_label_outside_the_vocabulary_raises(label: int) -> None:
    x, weight, _, labels = case((4,), 8, 10, "cpu")
    labels[2] = label
    with pytest.raises(RuntimeError, match=rf"labels must be in \[0, 10\) or ignore_index -100, got {label} in row 2"):
        tigon.linear_logprob(x, weight, labels)


@pytest.mark.gpu
@pytest.mark.parametrize("label", [10, -1, -101, 2**31])
def test_label_outside_the_vocabulary_is_nan(label: int) -> None:
    x, weight, _, _ = case((4,), 8, 10, "cuda")
    labels = torch.tensor([1, IGNORED, label, 3], device="cuda")
    out = tigon.linear_logprob(x, weight, labels, outputs=EVERYTHING)
    assert out.log_probs.isnan().tolist() == [False, False, True, False]
    assert not out.is_top1[2]
    (dx,) = torch.autograd.grad(out.log_probs.sum(), x)
    assert dx.isnan().any(-1).tolist() == [False, False, True, False]


@on_devices
def test_autocast(device: str) -> None:
    x, weight, bias, labels = case((4,), 16, 32, device)
    with torch.autocast(device, torch.bfloat16):
        ours = tigon.linear_logprob(x, weight, labels, bias=bias).log_probs
        logits = F.linear(x, weight, bias)
    (theirs,) = statistics(logits.float(), labels, outputs=("log_probs",))[:1]
    torch.testing.assert_close(ours, theirs)
    for t, gradient in zip((x, weight, bias), torch.autograd.grad(ours.sum(), (x, weight, bias)), strict=True):
        assert gradient.dtype == t.dtype == torch.float32


@on_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_peak_memory(device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the whole logits (8 MiB in float32), and nothing of the weight's size (1 MiB) where it is frozen."""
    monkeypatch.setenv("TIGON_TEST_GUARDS", "0")
    x, weight, _, labels = case((512,), 64, 4096, device, dtype)
    frozen = weight.detach()

    def run() -> None:
        out = tigon.linear_logprob(x, frozen, labels, outputs=EVERYTHING, chunk_rows=64)
        torch.autograd.grad(out.log_probs.sum() + out.entropy.sum(), x)

    unit = torch.finfo(dtype).bits / 32
    packed = unit if device == "cpu" and dtype != torch.float32 else 0.0  # oneDNN's copy in the product for dx
    assert peak_bytes(run, device) / 2**20 <= (1.0 + 3 * 0.125) * unit + packed + 0.1


def test_errors_name_the_values() -> None:
    x, weight, _, labels = case((4,), 8, 10, "cpu")
    with pytest.raises(ValueError, match=r"outputs must be some of log_probs, .*, got \('logprobs',\)"):
        tigon.linear_logprob(x, weight, labels, outputs=("logprobs",))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="linear_logprob_forward: temperature must be positive, got 0"):
        tigon.linear_logprob(x, weight, labels, temperature=0.0)
    with pytest.raises(RuntimeError, match=r"finite logits must stay finite, but .* temperature 1\.0"):
        tigon.linear_logprob(x, weight, labels, temperature=1e-42)
    with pytest.raises(RuntimeError, match=r"weight is empty, \[0\], but must be \[V, 8\]: a ZeRO-3 or FSDP shard"):
        tigon.linear_logprob(x, torch.empty(0), labels)
