"""tools/bench_tables.py: README.md and its pictures say what bench/results says, and nothing is written by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import bench_tables

ROOT = bench_tables.ROOT
README = """# Project
<!-- bench:train -->
an old table
<!-- /bench:train -->
<!-- bench:ops -->
<!-- /bench:ops -->
<!-- bench:sweep -->
<!-- /bench:sweep -->
The end
"""


def operator(op: str, variant: str, direction: str, ms: float, **more: Any) -> dict[str, Any]:
    found = {"op": op, "shape": [16, 32], "dtype": "bfloat16", "note": "", "direction": direction, "variant": variant}
    return found | {"ms": ms, "of_copy": 0.9 / ms, "of_gemm": None} | more


def result(date: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    versions = {"torch": "2.99", "liger-kernel": "0.8.5"}
    return {"device": "NVIDIA H200", "versions": versions, "date": date, "ceilings": {}, "rows": rows}


def ops(date: str, ms: float) -> dict[str, Any]:
    rows = [
        operator("softmax", v, d, t)
        for d in ("forward", "both")
        for v, t in (("tigon", ms), ("F", 4.0), ("liger", 2.0))
    ]
    return result(date, [*rows, operator("softmax", "tigon", "both", 1.0, dtype="float32")])


def steps() -> list[dict[str, Any]]:
    common = {"model": "llama3-8b", "batch": 4, "length": 2048, "dtype": "bfloat16", "peak_gib": 50.25, "loss": [1.0]}
    common |= {"device": "NVIDIA H200", "date": "2026-12-24", "tuner": "lora r=64 q_proj,v_proj"}
    versions = {"liger": {"torch": "2.99", "liger-kernel": "0.8.5"}}
    speeds = (("eager", 1000.0), ("tigon", 1600.0), ("liger", 1250.0))
    return [{**common, "variant": v, "tok_s": s, "versions": versions.get(v, {"torch": "2.99"})} for v, s in speeds]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "bench/results").mkdir(parents=True)
    (tmp_path / "docs/images").mkdir(parents=True)
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    return tmp_path


def put(root: Path, name: str, content: Any) -> None:
    (root / "bench/results" / name).write_text(json.dumps(content), encoding="utf-8")


def test_readme_says_what_the_results_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_tables.main(["--check"]) == 0, capsys.readouterr().out


def test_readme_has_marks_for_every_block() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for block in bench_tables.KINDS:
        assert "anything" in bench_tables.replaced(text, block, "anything")


def test_without_results_nothing_changes(root: Path) -> None:
    put(root, "2026-12-01-h200-row-ops.json", [])  # another kind
    put(root, "2026-12-01-cpu-ops.json", ops("2026-12-01", 1.0))  # another device
    assert bench_tables.main(["--check"], root) == 0
    assert bench_tables.main([], root) == 0
    assert (root / "README.md").read_text(encoding="utf-8") == README


def test_tables_are_made_from_the_newest_results(root: Path) -> None:
    put(root, "2026-12-01-h200-ops.json", ops("2026-12-01", 1.5))
    put(root, "2026-12-24-h200-ops.json", ops("2026-12-24", 1.0))
    put(root, "2026-12-24-h200-train.json", steps())
    assert bench_tables.main([], root) == 0
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "| softmax 16 × 32 | copy | .90 | .45 liger | .90 | .45 liger |" in text
    assert "the fastest of F, liger 0.8.5" in text.replace("\n", " ")
    assert "2026-12-01" not in text
    assert "an old table" not in text
    assert text.endswith("The end\n")
    line = "| llama3-8b | LoRA r = 64 on q, v | 4 × 2048 | 1000 (50.2) | 1250 (50.2) | 1600 (50.2) | 1.60 | 1.28 |"
    assert line in text
    assert "liger 0.8.5 tok/s (GiB)" in text
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))
    assert bench_tables.main(["--check"], root) == 0


def test_a_sweep_is_a_sentence_with_its_worst_case(root: Path) -> None:
    rows = [operator("softmax", v, "both", ms) for v, ms in (("tigon", 1.0), ("F", 4.0), ("liger", 2.0))]
    rows += [operator("softmax", v, "both", ms, shape=[1, 7]) for v, ms in (("tigon", 4.0), ("F", 3.0))]
    rows += [operator("softmax", v, "forward", ms, shape=[1, 7]) for v, ms in (("tigon", 1.0), ("F", 1.0))]
    put(root, "2026-12-24-h200-ops-sweep.json", result("2026-12-24", rows))
    assert bench_tables.main([], root) == 0
    text = (root / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    assert "a sweep over 2 shapes, long, short and odd, forward, backward and both (3 cases)" in text
    assert (
        "the fastest beside F, liger 0.8.5 at 2; at worst it has 0.75 of the speed of F, at softmax 1×7 bfloat16"
        in text
    )
    assert "an old table" in text  # of another block
    assert bench_tables.main(["--check"], root) == 0
    assert not list((root / "docs/images").iterdir())


@pytest.mark.parametrize("what", ["figure", "picture", "result"])
def test_a_figure_by_hand_is_found(root: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(root, "2026-12-24-h200-ops.json", ops("2026-12-24", 1.0))
    assert bench_tables.main([], root) == 0
    readme = root / "README.md"
    picture = root / bench_tables.picture("ops")
    if what == "figure":
        readme.write_text(readme.read_text(encoding="utf-8").replace(".90", ".99", 1), encoding="utf-8")
    elif what == "picture":
        picture.unlink()
    else:
        put(root, "2026-12-25-h200-ops.json", ops("2026-12-25", 0.95))
    before = readme.read_text(encoding="utf-8")
    assert bench_tables.main(["--check"], root) == 1
    assert "make bench-tables" in capsys.readouterr().out
    assert readme.read_text(encoding="utf-8") == before  # a check writes nothing
    assert bench_tables.main([], root) == 0
    assert bench_tables.main(["--check"], root) == 0


def test_a_block_without_marks_is_an_error(root: Path) -> None:
    (root / "README.md").write_text("no marks", encoding="utf-8")
    put(root, "2026-12-24-h200-train.json", steps())
    with pytest.raises(ValueError, match="no <!-- bench:train -->"):
        bench_tables.main([], root)
