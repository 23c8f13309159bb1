"""tigon bench report: files read again, tables as text and Markdown, pictures, and who is fastest where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tigon.bench import report
from tigon.cli.main import main


def row(variant: str, ms: float, columns: int = 8, direction: str = "both", **more: Any) -> dict[str, Any]:
    found = {"op": "softmax", "shape": [4, columns], "dtype": "bfloat16", "note": "", "direction": direction}
    found |= {"variant": variant, "ms": ms, "spread": 0.1, "gb_s": 10.0, "of_copy": 0.5 / ms, "of_same_size_copy": 0.5}
    found |= {"of_gemm": None, "tflop_s": None, "extra_mib": 1.0, "host_us": 5.0, "loss": None, "gradient_norm": 1.5}
    return found | {"host_counted": False, "graphed": False} | more


def result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    versions = {"torch": "2.99", "tigon": "0.1.0", "liger-kernel": "0.8.5"}
    facts = {"device": "NVIDIA H200", "versions": versions, "date": "2026-12-24"}
    return {**facts, "ceilings": {"copy_gb_s": 4000.0}, "rows": rows}


def step(variant: str, tok_s: float, package: str = "", **more: Any) -> dict[str, Any]:
    found = {"model": "llama3-8b", "batch": 4, "length": 2048, "tuner": "lora r=64 q_proj,v_proj", "dtype": "bfloat16"}
    found |= {
        "variant": variant,
        "tok_s": tok_s,
        "step_ms": 8.0,
        "peak_gib": 50.0,
        "loss": [2.0, 1.0],
        "grad_norm": [3.0],
    }
    found |= {
        "device": "NVIDIA H200",
        "date": "2026-12-24",
        "versions": {"torch": "2.99"} | ({package: "1"} if package else {}),
    }
    return found | more


def written(folder: Path, name: str, content: Any) -> str:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return str(folder / name)


def test_report_prints_what_the_run_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--op", "softmax", "--shapes", "16x32", "--calls", "3", "--peers", "F", "--use_cpu"]
    assert main(["bench", "ops", *flags, "--json", str(tmp_path / "rows.json")]) == 0
    ran = capsys.readouterr().out
    assert main(["bench", "report", str(tmp_path / "rows.json")]) == 0
    assert capsys.readouterr().out == ran
    assert "fastest at" in ran


def test_markdown_and_a_picture_of_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("tigon", 1.0), row("liger", 2.0, host_counted=True)]
    files = [written(tmp_path, "ops.json", result(rows))]
    files.append(
        written(tmp_path, "train.json", [step("eager", 100), step("liger", 300, "liger-kernel"), step("tigon", 360)])
    )
    picture = tmp_path / "all.svg"
    assert main(["bench", "report", *files, "--markdown", "--plot", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "| softmax 4×8 bfloat16 | both | tigon | 1.0000 | 0.1000 | 10 | 0.50 | 1.00 | 5 | 2.00 |" in shown
    assert "| liger | 2.0000h |" in shown
    assert "h: the host had not issued" in shown
    assert "torch 2.99, liger-kernel 1" in shown
    assert "\\|gradient\\|" in shown
    assert all(line.count(" | ") == 8 for line in shown.splitlines() if "llama3-8b" in line)
    drawn = picture.read_text(encoding="utf-8")
    both = rows + report.load(Path(files[1]))
    assert report.digest(both) in drawn
    assert "llama3-8b 4×2048" in drawn
    before = drawn
    report.draw(both, picture)
    assert picture.read_text(encoding="utf-8") == before  # the same again, whenever it is drawn


def test_a_digest_changes_with_what_is_drawn() -> None:
    assert report.digest([row("tigon", 1.0)]) == report.digest([row("tigon", 1.0, host_us=7.0)])
    assert report.digest([row("tigon", 1.0)]) != report.digest([row("tigon", 1.1)])
    assert report.digest([step("eager", 100), step("tigon", 200)]) != report.digest(
        [step("eager", 100), step("tigon", 210)]
    )


def test_standing_counts_shapes_and_names_the_worst() -> None:
    rows = [row(v, ms, columns) for columns, ms in ((8, 1.0), (16, 3.0), (32, 2.0)) for v in ("tigon",)]
    rows += [row("liger", 2.0, 8), row("F", 1.5, 16), row("liger", 2.5, 16), row("F", 2.0, 32)]
    rows += [row("tigon", 1.0, direction="forward"), row("F", 4.0, direction="forward")]
    assert report.standing(rows)[1:] == [
        ["softmax", "bfloat16", "both", "2 of 3", "0.50", "4×16", "F"],
        ["softmax", "bfloat16", "forward", "1 of 1", "4.00", "4×8", "F"],
    ]


def test_steps_are_compared_inside_a_configuration() -> None:
    rows = [step("eager", 100), step("tigon", 150, loss=[2.0, 1.25]), step("tigon", 50, batch=8)]
    header, *lines = report.steps(rows)
    assert [line[header.index("× best peer")] for line in lines] == ["0.67", "1.50", ""]
    assert [line[header.index("apart")] for line in lines] == ["0.0e+00", "2.5e-01", "0.0e+00"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "this is no JSON"),
        ('{"rows": []}', "these are no rows of tigon bench"),
        ('[{"model": "m"}]', "these are no rows of tigon bench"),
        (None, "No such file"),
    ],
)
def test_what_is_no_result_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "f.json").write_text(content, encoding="utf-8")
    assert main(["bench", "report", str(tmp_path / "f.json")]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_report_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report", "--markdown"]) == 2
    assert "The following arguments are required: FILE" in capsys.readouterr().err
