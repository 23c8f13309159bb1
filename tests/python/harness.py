"""The proof that every operator passes: one description in, one class of tests out.

An operator's test file describes it with :class:`Operator` and calls :func:`suite`. What is shown,
on CPU and CUDA alike, for every dtype, shape, layout and option:

- values and gradients against a naive float64 twin whose own gradient passes gradcheck; the error
  may be at most twice that of the same maths in eager PyTorch at the same dtype;
- nothing is written beside an output, every element of it is written, no input is changed;
- NaN and Inf appear where the twin has them; runs repeat bit for bit, on any number of threads;
- gradients of any layout; only the gradients asked for; no saved tensor without grad, none that hooks cannot see;
- more rows than a grid axis holds, and more long ones than run at once; CUDA graphs, side streams, other devices;
- what would silently be wrong raises: second derivatives, forward-mode AD, a tensor on another device or in float64;
- torch.library.opcheck, and torch.compile(fullgraph=True, dynamic=True).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch._dynamo.utils
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

Inputs = dict[str, Any]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
EPS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


@dataclass(frozen=True)
class Operator:
    """What the harness has to know of an operator.

    name: for test ids.
    call: the public function; called as ``call(**inputs, **options)``.
    twin: the same signature, 10-20 naive lines, exact in float64 and differentiable.
    eager: the same signature, the maths as PyTorch users write it at the inputs' dtype (with the
        roundings of the model whose convention the options name): the yardstick for errors.
    inputs: ``inputs(shape, dtype, generator) -> {name: value}``; floating tensors that are named in
        ``differentiable`` get gradients.
    shapes: whatever ``inputs`` takes; small, with sizes 1, odd, a vector +- 1.
    options: name -> values; each value is tried with the others at their first.
    combine: option dictionaries to try besides.
    resized: shapes like the first with other sizes, for one dynamic compilation.
    tall: the shape with that many short rows.
    wide: shapes of long rows, more than run at once on a GPU: blocks that stay take several turns. On CUDA alone.
    laid_out: inputs whose strides are varied; the first one's last axis is what makes a row.
    opcheck: ``(torch.ops.tigon.X.default, args)`` pairs for opcheck, made from inputs.
    summed_over_rows: inputs whose gradient sums over rows: its error bound grows with their root.
    same_when_captured: False where a CUDA graph computes rows that eager leaves out, in other products.
    """

    name: str
    call: Callable[..., Any]
    twin: Callable[..., Any]
    eager: Callable[..., Any]
    inputs: Callable[..., Inputs]
    differentiable: tuple[str, ...]
    shapes: tuple[Any, ...]
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    combine: tuple[dict[str, Any], ...] = ()
    resized: tuple[Any, ...] = ()
    tall: Callable[[int], Any] = lambda rows: (1, rows, 8)
    wide: tuple[Any, ...] = ()
    laid_out: tuple[str, ...] = ("x",)
    opcheck: Callable[[Inputs], Iterator[tuple[Any, tuple[Any, ...]]]] | None = None
    dtypes: tuple[torch.dtype, ...] = DTYPES
    summed_over_rows: tuple[str, ...] = ("weight", "bias")
    same_when_captured: bool = True

    def option_sets(self) -> list[dict[str, Any]]:
        """First of everything, then each other value alone, then the combinations."""
        first = {k: v[0] for k, v in self.options.items()}
        sets = [first]
        for key, values in self.options.items():
            sets += [{**first, key: value} for value in values[1:]]
        return sets + [{**first, **extra} for extra in self.combine]


# --- layouts ----------------------------------------------------------------------------------


def _contiguous(t: Tensor) -> Tensor:
    return t.clone()


def _columns(t: Tensor) -> Tensor:
    """Every other column of a wider tensor: no unit stride."""
    return torch.stack([t, torch.full_like(t, 7.0)], dim=-1).flatten(-2)[..., ::2]


def _rows(t: Tensor) -> Tensor:
    """A slice of wider rows that start off alignment: unit stride, gaps between rows."""
    wide = torch.full((*t.shape[:-1], t.shape[-1] + 3), 7.0, dtype=t.dtype, device=t.device)
    wide[..., 1 : 1 + t.shape[-1]] = t
    return wide[..., 1 : 1 + t.shape[-1]]


def _slices(t: Tensor) -> Tensor:
    """Every other slice of the first axis: dense rows that do not merge with those of the next slice."""
    return torch.stack([t, torch.full_like(t, 7.0)], dim=1).flatten(0, 1)[::2]


def _transposed(t: Tensor) -> Tensor:
    """The first two axes stored in the other order, as HF's q and k are: dense."""
    return t.transpose(0, 1).contiguous().transpose(0, 1) if t.dim() > 2 else t.clone()


def _last_first(t: Tensor) -> Tensor:
    """The last axis stored first: dense, not row-major."""
    return t.transpose(-1, 0).contiguous().transpose(-1, 0) if t.dim() > 1 else t.clone()


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": _contiguous,
    "columns": _columns,
    "rows": _rows,
    "slices": _slices,
    "transposed": _transposed,
    "last_first": _last_first,
}


WIDE = ((1000, 4096), (701, 8192), (300, 16384), (150, 40960))

UPSTREAM: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": _contiguous,
    "columns": _columns,
    "rows": _rows,
    "transposed": _transposed,
    "expanded": lambda t: t.new_full((), 0.75).expand(t.shape),
}


# --- running and comparing --------------------------------------------------------------------


def outputs_of(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def _generator(*key: Any) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))


def to_device(inputs: Inputs, device: str) -> Inputs:
    return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in inputs.items()}


def to_double(inputs: Inputs) -> Inputs:
    def convert(v: Any) -> Any:
        return v.detach().double() if isinstance(v, Tensor) and v.is_floating_point() else v

    return {k: convert(v) for k, v in inputs.items()}


def leaves(op: Operator, inputs: Inputs) -> Inputs:
    """Detached aliases (same strides), with grad where the operator is differentiable."""

    def leaf(name: str, v: Any) -> Any:
        if not isinstance(v, Tensor) or not v.is_floating_point():
            return v
        return v.detach().requires_grad_(name in op.differentiable)

    return {k: leaf(k, v) for k, v in inputs.items()}


def run(
    op: Operator, function: Callable[..., Any], inputs: Inputs, options: Inputs, upstream: list[Tensor]
) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    """Outputs, and gradients by input name, of one call with these upstream gradients."""
    inputs = leaves(op, inputs)
    outputs = [o for o in outputs_of(function(**inputs, **options)) if isinstance(o, Tensor)]
    wanted = {k: inputs[k] for k in op.differentiable if isinstance(inputs.get(k), Tensor)}
    pairs = [(o, g.to(o.dtype)) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
    grads: tuple[Tensor | None, ...] = (None,) * len(wanted)
    if pairs and wanted:
        grads = torch.autograd.grad(
            [o for o, _ in pairs], list(wanted.values()), [g for _, g in pairs], allow_unused=True
        )
    return [o.detach() for o in outputs], dict(zip(wanted, grads, strict=True))


def _cast(t: Tensor, dtype: torch.dtype) -> Tensor:
    """`t.to(dtype)` with the same strides: `to` makes anything that is not dense contiguous."""
    return t.new_empty(0).set_(t.untyped_storage()).to(dtype).as_strided(t.shape, t.stride(), t.storage_offset())


def upstream_for(outputs: list[Tensor], layout: str, generator: torch.Generator) -> list[Tensor]:
    grads = []
    for o in outputs:
        g = torch.randn(o.shape, generator=generator).to(o.device, torch.float32)
        g = g.to(torch.bfloat16).to(torch.float32)  # exact in every dtype that is tried
        grads.append(UPSTREAM[layout](g))
    return grads


def assert_guards(t: Tensor, what: str) -> None:
    """The elements beside an output are as they were made."""
    base = t.new_empty(0).set_(t.untyped_storage())
    offset = t.storage_offset()
    if offset == 0:
        return  # not one of our outputs (a view, or an output that was passed through)
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    before, after = base[:offset], base[offset + max(extent, 0) :]
    for side, name in ((before, "before"), (after, "after")):
        intact = side.isnan() if side.is_floating_point() else side == 1
        assert intact.all(), f"{what}: written {int((~intact).sum())} elements {name} the output"


def assert_close(
    ours: Tensor, reference: Tensor, eager: Tensor, what: str, rows: int = 1, terms: Tensor | None = None
) -> None:
    """At most twice eager's error against float64, plus one rounding of the result.

    terms: what the result's terms come to where they do not cancel, if they do in the result.
    """
    assert ours.shape == reference.shape, f"{what}: shape {ours.shape}, twin {reference.shape}"
    assert ours.dtype == eager.dtype, f"{what}: dtype {ours.dtype}, eager {eager.dtype}"
    if ours.numel() == 0:
        return
    a, e, r = ours.double(), eager.double(), reference.double()
    assert torch.equal(a.isnan(), r.isnan()), f"{what}: NaN where the twin has none, or reverse"
    big = r.abs() > torch.finfo(ours.dtype).max
    assert torch.equal(a.isinf() & ~big, r.isinf() & ~big), f"{what}: Inf differs from the twin"
    finite = r.isfinite() & ~big & e.isfinite()
    if not finite.any():
        return
    error, yardstick = (a - r)[finite].abs(), (e - r)[finite].abs()
    scale = max(t[finite].abs().max() for t in (r, r if terms is None else terms.nan_to_num(0.0, 0.0, 0.0)))
    floor = (EPS[ours.dtype] / 2 + 8 * EPS[torch.float32] * rows**0.5) * scale
    for measure, name in ((torch.max, "largest"), (lambda t: t.square().mean().sqrt(), "RMS")):
        bound = 2 * measure(yardstick) + floor
        got = measure(error)
        assert got <= bound, f"{what}: {name} error {got:.3e}, bound {bound:.3e} (scale {scale:.3e})"


def rows_of(inputs: Inputs, op: Operator) -> int:
    x = inputs[op.laid_out[0]]
    return max(1, x.numel() // max(1, x.shape[-1]))


def check(op: Operator, inputs: Inputs, options: Inputs, upstream_layout: str, seed: Any) -> None:
    """The comparison of one case, forward and backward, on the inputs' device."""
    before = {k: v.clone() for k, v in inputs.items() if isinstance(v, Tensor)}
    with torch.no_grad():
        shapes = [o for o in outputs_of(op.twin(**to_double(inputs), **options)) if isinstance(o, Tensor)]
    upstream = upstream_for(shapes, upstream_layout, _generator(seed, "upstream"))

    reference, reference_grads = run(op, op.twin, to_double(inputs), options, [g.double() for g in upstream])
    eager, eager_grads = run(op, op.eager, inputs, options, upstream)
    given = [_cast(g, e.dtype) for g, e in zip(upstream, eager, strict=True)]
    given_before = [g.clone() for g in given]
    outputs, grads = run(op, op.call, inputs, options, given)
    terms: dict[str, Tensor | None] = {}
    if upstream_layout == "expanded":  # a constant gradient cancels exactly in what is normalised
        signs = [g.double() * torch.randn(g.shape, generator=_generator("signs")).sign().to(g.device) for g in upstream]
        _, terms = run(op, op.twin, to_double(inputs), options, signs)

    for i, (o, r, e) in enumerate(zip(outputs, reference, eager, strict=True)):
        assert_close(o, r, e, f"output {i}")
        assert_guards(o, f"output {i}")
    for k, g in grads.items():
        r, e = reference_grads[k], eager_grads[k]
        assert (g is None) == (r is None), f"d{k}: {'missing' if g is None else 'not expected'}"
        if g is None or r is None:
            continue
        assert g.dtype == inputs[k].dtype, f"d{k}: dtype {g.dtype}, input {inputs[k].dtype}"
        assert_close(g, r, e, f"d{k}", rows_of(inputs, op) if k in op.summed_over_rows else 1, terms.get(k))
        assert_guards(g, f"d{k}")
    for k, v in before.items():
        assert torch.equal(v.nan_to_num(), inputs[k].nan_to_num()), f"input {k} was changed"
    for g, old in zip(given, given_before, strict=True):
        assert torch.equal(g, old), "the caller's gradient was changed"


def _bits(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.contiguous().view(-1).view(torch.uint8)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return (a is None and b is None) or bool(torch.equal(_bits(a), _bits(b)))


def suite(op: Operator) -> type:
    """The tests of an operator: assign the result to a name that starts with Test."""

    def make(shape: Any, dtype: torch.dtype, device: str, seed: Any = 0) -> Inputs:
        return to_device(op.inputs(shape, dtype, _generator(op.name, repr(shape), seed)), device)

    def label(value: Any) -> str:
        return str(value).replace("torch.", "").replace(" ", "")

    def made_with_upstream(seed: str) -> tuple[Inputs, list[Tensor]]:
        inputs = make(typical, op.dtypes[0], "cuda", seed)
        with torch.no_grad():
            outputs = [o for o in outputs_of(op.call(**inputs, **option_sets[0])) if isinstance(o, Tensor)]
        return inputs, upstream_for(outputs, "contiguous", _generator(seed))

    def overwrite(inputs: Inputs, upstream: list[Tensor], others: Inputs, other_upstream: list[Tensor]) -> None:
        pairs = [(v, others[k]) for k, v in inputs.items() if isinstance(v, Tensor)]
        for v, other in [*pairs, *zip(upstream, other_upstream, strict=True)]:
            v.copy_(other)

    def assert_same_run(ours: Any, theirs: Any, *, exactly: bool = True) -> None:
        pairs = [*zip(ours[0], theirs[0], strict=True), *((ours[1][k], theirs[1][k]) for k in theirs[1])]
        for a, b in ((a.cpu(), b.cpu()) for a, b in pairs if a is not None):
            if exactly:
                assert _same(a, b)
            else:
                torch.testing.assert_close(a, b)

    option_sets = op.option_sets()
    option_ids = [
        ",".join(f"{k}={v}" for k, v in s.items() if s[k] != option_sets[0][k]) or "default" for s in option_sets
    ]
    option_ids = [f"{n}:{i}" if option_ids.count(i) > 1 else i for n, i in enumerate(option_ids)]
    on_devices = pytest.mark.parametrize("device", DEVICES)
    on_dtypes = pytest.mark.parametrize("dtype", op.dtypes, ids=label)
    typical = op.shapes[0]

    class Suite:
        """Generated by harness.suite."""

        @pytest.mark.parametrize("options", option_sets, ids=option_ids)
        @pytest.mark.parametrize("shape", op.shapes, ids=label)
        @on_dtypes
        @on_devices
        def test_shapes_and_options(self, device: str, dtype: torch.dtype, shape: Any, options: Inputs) -> None:
            check(op, make(shape, dtype, device), options, "contiguous", shape)

        @pytest.mark.gpu
        @pytest.mark.parametrize("shape", op.wide, ids=label)
        @on_dtypes
        def test_wide_rows(self, dtype: torch.dtype, shape: Any) -> None:
            check(op, make(shape, dtype, "cuda"), option_sets[0], "contiguous", shape)

        @pytest.mark.parametrize(("layout", "upstream"), list(itertools.product(LAYOUTS, UPSTREAM)), ids=label)
        @on_dtypes
        @on_devices
        def test_layouts(self, device: str, dtype: torch.dtype, layout: str, upstream: str) -> None:
            inputs = make(typical, dtype, device, layout)
            for k in op.laid_out:
                if isinstance(inputs.get(k), Tensor):
                    inputs[k] = LAYOUTS[layout](inputs[k])
            check(op, inputs, option_sets[0], upstream, layout)

        @on_dtypes
        @on_devices
        def test_expanded_input(self, device: str, dtype: torch.dtype) -> None:
            inputs = make(typical, dtype, device)
            for k in op.laid_out:
                v = inputs.get(k)
                if isinstance(v, Tensor) and v.dim() > 1:
                    inputs[k] = v[:1].clone().expand_as(v)
            check(op, inputs, option_sets[0], "contiguous", "expanded")

        @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
        @on_dtypes
        @on_devices
        def test_special_values(self, device: str, dtype: torch.dtype, value: float) -> None:
            """A special value spreads exactly as far as in the twin."""
            inputs = make(typical, dtype, device, "special")
            x = inputs[op.laid_out[0]]
            x.view(-1)[x.numel() // 2] = value
            with torch.no_grad():
                ours = outputs_of(op.call(**inputs, **option_sets[0]))
                twin = outputs_of(op.twin(**to_double(inputs), **option_sets[0]))
            for a, r in zip(ours, twin, strict=True):
                if isinstance(a, Tensor):
                    assert torch.equal(a.isnan().cpu(), r.isnan().cpu())

        @pytest.mark.parametrize("options", option_sets, ids=option_ids)
        @on_devices
        def test_bitwise_repeatable(self, device: str, options: Inputs) -> None:
            inputs = make(op.shapes[-1], op.dtypes[0], device)
            twin = [o for o in outputs_of(op.twin(**to_double(inputs), **options)) if isinstance(o, Tensor)]
            upstream = upstream_for(twin, "contiguous", _generator("repeat"))
            first = run(op, op.call, inputs, options, upstream)
            threads = torch.get_num_threads()
            try:
                torch.set_num_threads(1 if threads > 1 else 2)
                second = run(op, op.call, inputs, options, upstream)
            finally:
                torch.set_num_threads(threads)
            assert all(_same(a, b) for a, b in zip(first[0], second[0], strict=True))
            assert all(_same(first[1][k], second[1][k]) for k in first[1])

        @pytest.mark.parametrize("wanted", op.differentiable)
        @on_devices
        def test_single_gradient(self, device: str, wanted: str) -> None:
            """Asking for one gradient alone gives the same as asking for all."""
            inputs = make(typical, op.dtypes[0], device)
            if not isinstance(inputs.get(wanted), Tensor):
                pytest.skip(f"{wanted} is absent by default")
            options = option_sets[0]
            twin = [o for o in outputs_of(op.twin(**to_double(inputs), **options)) if isinstance(o, Tensor)]
            upstream = upstream_for(twin, "contiguous", _generator("single"))
            _, every = run(op, op.call, inputs, options, upstream)
            alone = {k: v.detach() if isinstance(v, Tensor) else v for k, v in inputs.items()}
            alone[wanted] = alone[wanted].requires_grad_()
            outputs = [o for o in outputs_of(op.call(**alone, **options)) if isinstance(o, Tensor)]
            pairs = [(o, g.to(o.dtype)) for o, g in zip(outputs, upstream, strict=True) if o.requires_grad]
            (got,) = torch.autograd.grad(
                [o for o, _ in pairs], [alone[wanted]], [g for _, g in pairs], allow_unused=True
            )
            assert _same(got, every[wanted])

        @on_devices
        def test_no_grad_saves_nothing(self, device: str) -> None:
            inputs = leaves(op, make(typical, op.dtypes[0], device))
            packed: list[Tensor] = []

            def pack(t: Tensor) -> Tensor:
                packed.append(t)
                return t

            with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                outputs = outputs_of(op.call(**inputs, **option_sets[0]))
            assert not packed
            assert not any(o.requires_grad for o in outputs if isinstance(o, Tensor))

        @on_devices
        def test_saved_tensors_are_seen(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
            """What is kept on ctx itself is neither freed by checkpointing nor moved by offloading hooks."""
            monkeypatch.setenv("TIGON_TEST_GUARDS", "0")  # guarded outputs are views, with nodes of their own
            inputs = leaves(op, make(typical, op.dtypes[0], device))
            nodes = [o.grad_fn for o in outputs_of(op.call(**inputs, **option_sets[0])) if isinstance(o, Tensor)]
            kept = tree_leaves([list(vars(node).values()) for node in nodes if node is not None])
            assert not [v for v in kept if isinstance(v, Tensor)]

        @pytest.mark.parametrize(
            ("device", "rows"),
            [("cpu", 65537), *(pytest.param("cuda", n, marks=pytest.mark.gpu) for n in (65535, 65536, 65537))],
        )
        def test_many_rows(self, device: str, rows: int) -> None:
            """More than the y and z axes of a grid hold."""
            check(op, make(op.tall(rows), op.dtypes[0], device), option_sets[0], "contiguous", rows)

        @pytest.mark.gpu
        def test_graph_replay(self) -> None:
            """Replays of a captured call follow what is put into its inputs."""
            inputs, upstream = made_with_upstream("captured")
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                run(op, op.call, inputs, option_sets[0], upstream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = run(op, op.call, inputs, option_sets[0], upstream)
            for seed in ("first", "second"):
                later, upstream_later = made_with_upstream(seed)
                overwrite(inputs, upstream, later, upstream_later)
                graph.replay()
                eager = run(op, op.call, later, option_sets[0], upstream_later)
                assert_same_run(captured, eager, exactly=op.same_when_captured)

        @pytest.mark.gpu
        def test_side_stream(self) -> None:
            """Launched on the current stream: inputs that arrive there late are waited for."""
            inputs, upstream = made_with_upstream("early")
            late, upstream_late = made_with_upstream("late")
            expected = run(op, op.call, late, option_sets[0], upstream_late)
            run(op, op.call, inputs, option_sets[0], upstream)  # whatever a first call loads
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda._sleep(20_000_000)
                overwrite(inputs, upstream, late, upstream_late)
                ours = run(op, op.call, inputs, option_sets[0], upstream)
            torch.cuda.synchronize()
            assert_same_run(ours, expected)

        @pytest.mark.gpu
        def test_second_device(self) -> None:
            """Launched where the tensors are, not where the current device is."""
            if torch.cuda.device_count() < 2:
                pytest.skip("one GPU")
            inputs, upstream = made_with_upstream("device")
            expected = run(op, op.call, inputs, option_sets[0], upstream)
            assert torch.cuda.current_device() == 0
            moved = [g.to("cuda:1") for g in upstream]
            elsewhere = run(op, op.call, to_device(inputs, "cuda:1"), option_sets[0], moved)
            assert all(o.device == torch.device("cuda:1") for o in elsewhere[0])
            assert_same_run(elsewhere, expected)

        @pytest.mark.parametrize("options", option_sets, ids=option_ids)
        @on_devices
        def test_no_second_derivative(self, device: str, options: Inputs) -> None:
            """It would be 0, also where the incoming gradient is a constant and something else lies in front."""
            inputs = leaves(op, make(typical, op.dtypes[0], device))
            outputs = outputs_of(op.call(**inputs, **options))
            total = sum(o.sum() for o in outputs if isinstance(o, Tensor) and o.requires_grad)
            with pytest.raises(RuntimeError, match=r"tigon\.ops\.\w+ has no second derivative"):
                torch.autograd.grad(total, inputs[op.differentiable[0]], create_graph=True)

        @pytest.mark.parametrize("tracked", [False, True])
        @on_devices
        def test_no_forward_mode(self, device: str, tracked: bool) -> None:
            inputs = make(typical, op.dtypes[0], device)
            name = op.differentiable[0]
            x = inputs[name].requires_grad_(tracked)
            with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
                op.call(**{**inputs, name: forward_ad.make_dual(x, torch.ones_like(x))}, **option_sets[0])
            with pytest.raises(RuntimeError, match="functorch"):
                torch.func.jvp(
                    lambda x: op.call(**{**inputs, name: x}, **option_sets[0]), (x.detach(),), (torch.ones_like(x),)
                )

        @pytest.mark.parametrize("tracked", [False, True])
        @pytest.mark.parametrize("other", ["meta", "cpu"])
        @on_devices
        def test_one_device(self, device: str, other: str, tracked: bool) -> None:
            """A lone tensor on the meta device brings the fake kernel into a real call."""
            if device == other:
                pytest.skip("the same device")
            inputs = make(typical, op.dtypes[0], device)
            inputs = leaves(op, inputs) if tracked else inputs
            tensors = {k: v for k, v in inputs.items() if isinstance(v, Tensor)}
            if len(tensors) == 1:
                pytest.skip("one tensor")
            for k, v in tensors.items():
                moved = v.detach().to(other).requires_grad_(v.requires_grad)
                with pytest.raises(RuntimeError, match=r"^\w+: .* must be on .*, got .*(cpu|meta)"):
                    op.call(**{**inputs, k: moved}, **option_sets[0])

        @pytest.mark.parametrize("options", option_sets, ids=option_ids)
        def test_meta_device(self, options: Inputs) -> None:
            """Shapes, dtypes and strides without a value."""
            inputs = make(typical, op.dtypes[0], "cpu")
            meta = leaves(op, to_device(inputs, "meta"))
            expected = [o for o in outputs_of(op.call(**inputs, **options)) if isinstance(o, Tensor)]
            outputs = [o for o in outputs_of(op.call(**meta, **options)) if isinstance(o, Tensor)]
            for o, e in zip(outputs, expected, strict=True):
                assert (o.device.type, o.shape, o.dtype, o.stride()) == ("meta", e.shape, e.dtype, e.stride())
            sum(o.sum() for o in outputs if o.requires_grad).backward()
            for k in op.differentiable:
                assert not isinstance(meta.get(k), Tensor) or meta[k].grad.shape == meta[k].shape

        @on_devices
        def test_float64_is_named(self, device: str) -> None:
            inputs = make(typical, op.dtypes[0], device)
            for k in op.differentiable:
                if isinstance(inputs.get(k), Tensor):
                    with pytest.raises(RuntimeError, match=r"^\w+: \w+ .* float64"):
                        op.call(**{**inputs, k: inputs[k].double()}, **option_sets[0])

        @pytest.mark.parametrize("options", option_sets, ids=option_ids)
        def test_twin_gradient(self, options: Inputs) -> None:
            """The yardstick itself is right: its gradient passes float64 gradcheck."""
            inputs = leaves(op, to_double(make(typical, torch.float32, "cpu")))
            names = [k for k in op.differentiable if isinstance(inputs.get(k), Tensor)]

            def function(*values: Tensor) -> tuple[Tensor, ...]:
                outputs = op.twin(**{**inputs, **dict(zip(names, values, strict=True))}, **options)
                return tuple(o for o in outputs_of(outputs) if isinstance(o, Tensor) and o.requires_grad)

            assert torch.autograd.gradcheck(function, [inputs[k] for k in names], fast_mode=True)

        @on_devices
        def test_opcheck(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
            monkeypatch.setenv("TIGON_TEST_GUARDS", "0")  # guarded outputs have storage offsets
            if op.opcheck is None:
                pytest.fail(f"{op.name} describes no opcheck calls")
            for layout in ("contiguous", "transposed", "columns"):
                inputs = make(typical, op.dtypes[0], device)
                for k in op.laid_out:
                    if isinstance(inputs.get(k), Tensor):
                        inputs[k] = LAYOUTS[layout](inputs[k])
                for overload, arguments in op.opcheck(inputs):
                    torch.library.opcheck(
                        overload,
                        arguments,
                        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
                    )

        @on_devices
        def test_compile(self, device: str) -> None:
            """One graph for all sizes, no break, equal to eager."""
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            options = option_sets[0]
            compiled = torch.compile(
                lambda inputs: op.call(**inputs, **options),
                fullgraph=True,
                dynamic=True,
                backend="aot_eager",
            )
            for shape in (typical, *op.resized):
                inputs = make(shape, op.dtypes[0], device)
                twin = [o for o in outputs_of(op.twin(**to_double(inputs), **options)) if isinstance(o, Tensor)]
                upstream = upstream_for(twin, "contiguous", _generator("compile"))
                ours = run(op, op.call, inputs, options, upstream)
                theirs = run(op, lambda **kw: compiled(kw), inputs, {}, upstream)
                assert all(_same(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
                assert all(_same(ours[1][k], theirs[1][k]) for k in ours[1])
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1

    Suite.__name__ = Suite.__qualname__ = f"Test_{op.name}"
    return Suite
