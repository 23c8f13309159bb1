"""tools/new_op.py: the copy has every part, speaks of the new name alone, and overwrites nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import new_op

PARTS = {
    "include/tigon/ops/scaled_tanh.h",
    "src/ops/scaled_tanh.cpp",
    "src/kernels/scaled_tanh.h",
    "src/cpu/scaled_tanh.cpp",
    "src/cuda/scaled_tanh.cu",
    "bindings/torch/scaled_tanh.cpp",
    "python/tigon/ops/scaled_tanh.py",
    "tests/python/ops/test_scaled_tanh.py",
    "docs/ops/scaled_tanh.md",
    "python/tigon/bench/counts/scaled_tanh.py",
}


def test_copy_has_every_part_and_the_new_name_alone(tmp_path: Path) -> None:
    files = new_op.copy("scaled_tanh", tmp_path)
    assert {str(f.relative_to(tmp_path)) for f in files} >= PARTS
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "skeleton" not in text.lower(), file
        assert "scaled_tanh" in text or "ScaledTanh" in text, file


def test_copy_overwrites_nothing(tmp_path: Path) -> None:
    new_op.copy("scaled_tanh", tmp_path)
    mine = tmp_path / "src/ops/scaled_tanh.cpp"
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="scaled_tanh"):
        new_op.copy("scaled_tanh", tmp_path)
    assert mine.read_text(encoding="utf-8") == "mine"
