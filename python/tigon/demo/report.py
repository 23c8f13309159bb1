"""What two training runs have in common and what not: losses, step time, peak memory."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from pathlib import Path

# fp32 sums in another order, carried on by Adam.
RELATIVE_TOLERANCE = 1e-3
# A stretch of steps this much slower than the run's median was not alone on its cores.
UNSTEADY = 1.5


@dataclasses.dataclass(frozen=True)
class Point:
    """What a run logged at one step."""

    loss: float
    seconds: float  # since the first step began
    peak_gib: float  # so far


Run = dict[int, Point]  # by step


def read_run(path: Path) -> Run:
    rows = (json.loads(line) for line in path.read_text().splitlines())
    run = {}
    for row in rows:
        if "loss" in row:
            step = int(row["global_step/max_steps"].split("/")[0])
            run[step] = Point(row["loss"], step * row["train_speed(s/it)"], row["memory(GiB)"])
    return run


def difference(eager: Run, fused: Run) -> str:
    """Empty when every loss that both runs logged agrees, else one sentence."""
    common = sorted(eager.keys() & fused.keys())
    if not common:
        return "the two runs have no logged step in common."
    for step in common:
        a, b = eager[step].loss, fused[step].loss
        if not abs(a - b) <= RELATIVE_TOLERANCE * abs(a):  # NaN differs
            return f"the loss at step {step} is {b:.6f} with Tigon and {a:.6f} in eager PyTorch."
    return ""


def _stretches(run: Run, steps: list[int]) -> list[float]:
    """Seconds per step from one logged step to the next. The first stretch warms up, and counts only if it is alone."""
    if len(steps) == 1:
        return [run[steps[0]].seconds / steps[0]]
    return [(run[b].seconds - run[a].seconds) / (b - a) for a, b in itertools.pairwise(steps)]


def unsteady(run: Run) -> str:
    """Empty where the steps of a run took about the same time, else one sentence."""
    times = _stretches(run, sorted(run))
    if max(times) < UNSTEADY * statistics.median(times):
        return ""
    return (
        f"steps took {min(times):.1f} to {max(times):.1f} s, some at a time. "
        "Other work on these cores can slow training many times over; the losses stand, the speed says little."
    )


def table(eager: Run, fused: Run) -> str:
    """Markdown, over the steps that both runs took. Seconds per step: the median of the logged stretches."""
    common = sorted(eager.keys() & fused.keys())
    last = common[-1]

    def row(name: str, unit: str, digits: int, a: float, b: float) -> tuple[str, ...]:
        return name, f"{a:.{digits}f}{unit}", f"{b:.{digits}f}{unit}", f"{b / a:.{digits}f}"

    def step_seconds(run: Run) -> float:
        return statistics.median(_stretches(run, common))

    rows = [
        ("", "eager PyTorch", "Tigon", "Tigon / eager"),
        ("---", "---:", "---:", "---:"),
        row("seconds per step", "", 2, step_seconds(eager), step_seconds(fused)),
        row("peak memory", " GiB", 2, eager[last].peak_gib, fused[last].peak_gib),
        *(row(f"loss, step {step}", "", 5, eager[step].loss, fused[step].loss) for step in common),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"| {name:<{widths[0]}} | {a:>{widths[1]}} | {b:>{widths[2]}} | {ratio:>{widths[3]}} |"
        for name, a, b, ratio in rows
    )


def plot(eager: Run, fused: Run, path: Path) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(list(fused), [p.loss for p in fused.values()], color="#FF7043", linewidth=2, label="Tigon")
    axes.plot(
        list(eager), [p.loss for p in eager.values()], "o", color="#37474F", fillstyle="none", label="eager PyTorch"
    )
    axes.set(xlabel="step", ylabel="loss", title="SmolLM2-135M-Instruct, LoRA on about 200 samples")
    axes.grid(alpha=0.2)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    return path
