"""One picture per logged value, as ms-swift users expect them under images/."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Logged name and the picture it makes; eval_* values make pictures under their own names.
_PICTURES = {
    "loss": "train_loss",
    "grad_norm": "train_grad_norm",
    "learning_rate": "train_learning_rate",
    "tokens_per_second": "train_tokens_per_second",
    "memory(GiB)": "train_memory",
}
_EVAL = ("eval_loss",)
_RAW, _LINE = "#FFE2D9", "#FF7043"
_DECAY = 0.9


def smooth(values: Sequence[float]) -> list[float]:
    """Exponential moving average that starts unbiased; a value that is not finite is left out of it."""
    average, weight, smoothed = 0.0, 0.0, []
    for value in values:
        if math.isfinite(value):
            average = _DECAY * average + (1 - _DECAY) * value
            weight = _DECAY * weight + (1 - _DECAY)
        smoothed.append(average / weight if weight else math.nan)
    return smoothed


def draw(log_history: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write the pictures of all values logged so far; none where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return []
    folder.mkdir(exist_ok=True)
    written = []
    for key, title in {**_PICTURES, **{name: name for name in _EVAL}}.items():
        points = [(entry["step"], entry[key]) for entry in log_history if key in entry]
        if not points:
            continue
        steps, values = zip(*points, strict=True)
        figure = Figure(figsize=(8, 5), dpi=100)
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if len(points) == 1:
            axes.scatter(steps, values, color=_LINE)
        elif key == "loss":
            axes.plot(steps, values, color=_RAW, label="as logged")
            axes.plot(steps, smooth(values), color=_LINE, label="smoothed")
            axes.legend()
        else:
            axes.plot(steps, values, color=_LINE)
        axes.set(title=title, xlabel="step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        written.append(folder / f"{title}.png")
        figure.savefig(written[-1], bbox_inches="tight")
    return written
