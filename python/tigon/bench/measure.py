"""One row per case, variant and direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tigon.bench import ceilings
from tigon.bench.cases import Case, Operands
from tigon.bench.clock import Clock
from tigon.bench.peers import Table

Row = dict[str, Any]
DIRECTIONS = ("forward", "backward", "both")
# Results may differ from Tigon's by this many roundings of their type at their largest element.
_ROUNDINGS = 8


def measure(
    case: Case, variants: dict[str, Table], clock: Clock, peak: dict[str, float], say: Callable[[str], None]
) -> list[Row]:
    """The rows of one case. A variant that fails says why and gives none."""
    torch.manual_seed(0)
    operands = case.make(clock.device)
    size = operands[0].numel() * case.dtype.itemsize
    same_size = ceilings.copy_rate(clock, size) if case.products is None else None
    products = {}
    if case.products is not None:
        products = {d: ceilings.product_ms(clock, case.products(d), case.dtype) for d in ("forward", "both")}
    if "compile" in variants:
        torch._dynamo.reset()  # its limit of compilations per function would end in eager code
    reference: list[Tensor] | None = None
    graphed: dict[str, bool] = {}  # by direction, as the first variant was timed
    rows: list[Row] = []
    for name, table in variants.items():
        if case.key not in table:
            continue
        try:
            found, result, lacking = _variant(case, name, table[case.key], operands, clock, graphed)
        except Exception as error:  # whoever fails: the other rows stand
            say(f"{name}: {case.label}: {_reason(error)}")
            found, result, lacking = [], [], ""
        if clock.device.type == "cuda" and not found:
            torch.cuda.empty_cache()  # the next one may fit in what a failed one held
        if not found:
            continue
        if lacking:
            say(f"{name}: {case.label}: forward only, {lacking}")
        if name == "tigon":  # the first
            reference = result
        apart = None if reference is None else _apart(result, reference, case.dtype)
        if apart:
            say(f"{name}: {case.label}: its result is {apart:.1e} from Tigon's")
        for row in found:
            row["apart"] = apart if apart is not None and math.isfinite(apart) else None  # nothing to compare with
            ms = row["ms"]
            moved = case.bytes_moved(row["direction"])
            rate = None if moved is None else moved / ms / 1e6
            row["gb_s"] = rate
            cold = rate if not row["graphed"] else None  # what lies in the caches is no share of the memory's speed
            row["of_copy"] = None if cold is None else cold / peak["copy_gb_s"]
            row["of_same_size_copy"] = None if cold is None or same_size is None else cold / same_size
            product, flops = products.get(row["direction"]), case.flops(row["direction"])
            row["of_gemm"] = None if product is None else product / ms
            row["tflop_s"] = None if flops is None else flops / ms / 1e9
        rows += found
    return sorted(rows, key=lambda row: DIRECTIONS.index(row["direction"]))


def _variant(
    case: Case, name: str, function: Callable[..., Any], operands: Operands, clock: Clock, graphed: dict[str, bool]
) -> tuple[list[Row], list[Tensor], str]:
    """Rows, what was computed (outputs, then gradients), and why there are no gradients where there are none. Some
    peers write over their operands: what is compared is computed on copies of its own, before the clock starts."""

    def fresh(gradients: bool = True) -> list[Tensor]:
        return [t.detach().clone().requires_grad_(gradients and i in case.gradients) for i, t in enumerate(operands)]

    copies = fresh()
    outputs = _outputs(function(*copies))
    torch.manual_seed(1)  # the same for every variant
    # A loss is differentiated as loss.backward() does; the gradients are made before the clock starts.
    upstream = [torch.ones_like(o) if o.dim() == 0 else torch.randn_like(o) for o in outputs]
    gradients: tuple[Tensor, ...] = ()
    lacking = ""
    try:
        gradients = torch.autograd.grad(outputs, [copies[i] for i in case.gradients], upstream)
    except RuntimeError as error:  # no backward at all, or none for one of the operands
        lacking = _reason(error)
    result = [t.detach().float() for t in (*outputs, *gradients)]
    norm = None if lacking else math.sqrt(sum(float(g.float().square().sum()) for g in gradients))
    value = float(outputs[0].detach()) if outputs[0].dim() == 0 else None
    del copies, outputs, gradients

    mine, plain = fresh(), fresh(gradients=False)
    wanted = [mine[i] for i in case.gradients]
    kept = [] if lacking else _outputs(function(*mine))

    def forward() -> Any:
        with torch.no_grad():
            return function(*plain)

    def both() -> Any:
        return torch.autograd.grad(_outputs(function(*mine)), wanted, upstream)

    def backward() -> Any:
        return torch.autograd.grad(kept, wanted, upstream, retain_graph=True)

    rows = []
    for direction, call in zip(DIRECTIONS, (forward, backward, both), strict=True):
        if lacking and direction != "forward":
            continue
        if direction == "backward" and case.bytes_moved(direction) is None:
            continue  # not counted apart: what it costs depends on what forward has done
        timing = clock(call, graphed.get(direction))
        graphed.setdefault(direction, timing.graphed)
        rows.append(
            {
                "op": case.op,
                "shape": list(case.shape),
                "dtype": str(case.dtype).removeprefix("torch."),
                "note": case.note,
                "direction": direction,
                "variant": name,
                "ms": timing.ms,
                "spread": timing.spread,
                "graphed": timing.graphed,
                "host_counted": timing.host_counted,
                "extra_mib": clock.extra_mib(call),
                "host_us": clock.host_us(call),
                "loss": value,
                "gradient_norm": norm,
            }
        )
    return rows, result, lacking


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _outputs(value: Any) -> list[Tensor]:
    return [v for v in value if isinstance(v, Tensor)] if isinstance(value, (tuple, list)) else [value]


def _apart(result: list[Tensor], reference: list[Tensor], dtype: torch.dtype) -> float:
    """The largest distance, relative to the largest element, where it is more than roundings explain; else 0."""
    for a, b in zip(result, reference, strict=False):
        if a.shape != b.shape:
            return math.inf
        distance = float((a - b).abs().max() / b.abs().max().clamp_min(1e-30))
        if not distance <= _ROUNDINGS * torch.finfo(dtype).eps:
            return distance
    return 0.0
