"""The curves: an average that starts unbiased, and a picture for each value that was logged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tigon.train import plots


def test_the_average_starts_at_the_first_value_and_passes_over_nan() -> None:
    assert plots.smooth([3.0, 3.0, 3.0]) == pytest.approx([3, 3, 3])
    # Weights 0.1 and 0.9 * 0.1, normalised.
    assert plots.smooth([1.0, 2.0]) == pytest.approx([1, (0.09 * 1 + 0.1 * 2) / 0.19])
    assert plots.smooth([1.0, math.nan, 1.0]) == pytest.approx([1, 1, 1])


def test_one_picture_per_value(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    history = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, {"step": 2, "eval_loss": 1.5}]
    assert [path.name for path in plots.draw(history, tmp_path / "images")] == ["train_loss.png", "eval_loss.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "images").iterdir())
