"""tigon bench on a CPU with tiny shapes: rows that add up, peers that fail or are wrong, pictures, training steps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tigon.bench import cases, measure, peers, report, step
from tigon.bench.clock import Clock
from tigon.cli.main import main

CPU = torch.device("cpu")
PEAK = {"copy_gb_s": 10.0}


def rows_of(op: str, shape: tuple[int, ...], tables: dict[str, peers.Table], said: list[str]) -> list[dict[str, Any]]:
    found = []
    for case in cases.cases([op], [shape], [torch.float32], CPU):
        found += measure.measure(case, tables, Clock(CPU, calls=3), PEAK, said.append)
    return found


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        *((op, (8, 64)) for op in cases.ROW_WISE if op != "rope"),
        ("rope", (1, 4, 2, 8, 16, 16)),
        ("linear_cross_entropy", (16, 32, 100)),
    ],
)
def test_rows_add_up(op: str, shape: tuple[int, ...]) -> None:
    """Every operator is measured beside eager, computes the same, and its rates are bytes over time."""
    said: list[str] = []
    rows = rows_of(op, shape, peers.tables(["eager", "F"], said.append), said)
    assert not said
    assert {"tigon", "eager"} <= {row["variant"] for row in rows}
    for row in rows:
        assert row["ms"] > 0
        assert row["shape"] == list(shape)
        if op == "linear_cross_entropy":
            assert row["gb_s"] is None
            assert row["of_gemm"] > 0
        else:
            assert row["of_copy"] == pytest.approx(row["gb_s"] / PEAK["copy_gb_s"])
    for note in {row["note"] for row in rows}:
        norms = [row["gradient_norm"] for row in rows if row["note"] == note]
        assert norms == pytest.approx([norms[0]] * len(norms), rel=1e-4)
        assert norms[0] > 0


def test_bytes_of_both_are_those_of_the_parts() -> None:
    (case,) = cases.cases(["softmax"], [(4, 8)], [torch.bfloat16], CPU)
    assert case.bytes_moved("both") == (2 + 3) * 4 * 8 * 2


def test_a_head_is_compared_with_the_products_of_the_rows_that_count() -> None:
    found = list(cases.cases(["linear_cross_entropy"], [(5, 8, 16)], [torch.float32], CPU))
    products = [(case.products("forward"), case.products("both")) for case in found if case.products is not None]
    forward, dx, dweight = (5, 8, 16), (5, 16, 8), (16, 5, 8)
    assert products[:2] == [([forward], [forward, dx, dweight]), ([forward], [forward, dx])]
    assert products[2] == ([(2, 8, 16)], [(2, 8, 16), (2, 16, 8)])
    assert int((found[2].make(CPU)[2] != -100).sum()) == 2


def test_a_peer_that_fails_says_why_and_the_others_go_on() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such kernel")

    said: list[str] = []
    tables = {"tigon": peers.tables([], said.append)["tigon"], "broken": {"softmax": broken}, "eager": peers.EAGER}
    rows = rows_of("softmax", (4, 8), tables, said)
    assert {row["variant"] for row in rows} == {"tigon", "eager"}
    assert said == ["broken: softmax 4×8 float32: ValueError: no such kernel"]


def test_a_peer_that_is_wrong_is_named() -> None:
    said: list[str] = []
    tables = {"tigon": peers.tables([], said.append)["tigon"], "wrong": {"softmax": lambda x: x.softmax(-1) * 1.01}}
    rows_of("softmax", (4, 8), tables, said)
    assert len(said) == 1
    assert said[0].startswith("wrong: softmax 4×8 float32: its result is 1.0e-02 from Tigon's")


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> peers.Table:
        raise ModuleNotFoundError("No module named 'liger_kernel'")

    monkeypatch.setitem(peers.PEERS, "liger", absent)
    said: list[str] = []
    assert set(peers.tables(["liger", "F"], said.append)) == {"tigon", "F"}
    assert said == ["liger: left out, ModuleNotFoundError: No module named 'liger_kernel'"]


def test_ratio_is_to_the_best_peer_of_the_same_row() -> None:
    common = {"op": "softmax", "shape": [4, 8], "dtype": "float32", "note": "", "direction": "both"}
    ours, slow, fast = ({**common, "variant": v, "ms": ms} for v, ms in (("tigon", 2.0), ("eager", 8.0), ("F", 3.0)))
    other = {**common, "direction": "forward", "variant": "F", "ms": 0.1}
    rows = [ours, slow, fast, other]
    assert report.speed_over_best_peer(ours, rows) == 1.5
    assert report.speed_over_best_peer(fast, rows) == pytest.approx(2 / 3)
    assert report.speed_over_best_peer(other, rows) is None


def test_ops_command_writes_rows_and_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("bars.png", "bars.svg", "report.html")]
    flags = ["--op", "softmax", "swiglu", "--shapes", "16x32", "--dtypes", "float32", "--calls", "3", "--peers", "F"]
    flags += ["--use_cpu", "--json", str(tmp_path / "rows.json"), "--plot", *map(str, files)]
    assert main(["bench", "ops", *flags]) == 0
    shown = capsys.readouterr().out
    assert "softmax 16×32 float32" in shown
    assert "|gradient|" in shown
    result = json.loads((tmp_path / "rows.json").read_text())
    assert set(result) == {"device", "versions", "date", "ceilings", "rows"}
    wanted = {"op", "shape", "dtype", "direction", "variant", "ms", "spread", "of_copy", "of_same_size_copy", "of_gemm"}
    assert all({*wanted, "extra_mib", "host_us"} <= set(row) for row in result["rows"])
    assert {row["direction"] for row in result["rows"]} == set(measure.DIRECTIONS)
    for file in files:
        assert file.stat().st_size > 1000
    page = files[2].read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert "http" not in page  # it needs nothing else


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["ops", "--op", "rope", "--shapes", "16x32"], "rope has 6 sizes, got 16x32"),
        (["ops", "--op", "sofmax"], "must be one of rms_norm"),
        (["ops", "--plot", "bars.gif"], "must end in .png, .svg, .html"),
        (["everything"], "bench knows ops, loss, layer, train, decode, report, not everything"),
        (["train", "--batch", "0"], "--batch must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_sentence(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *flags]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_training_steps_have_equal_losses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft")
    flags = ["--model", "tiny", "--lora_rank", "4", "--batch", "2", "--length", "32", "--steps", "4"]
    flags += ["--torch_dtype", "float32", "--use_cpu", "--peers", "eager", "--json", str(tmp_path / "steps.json")]
    assert main(["bench", "train", *flags]) == 0
    assert "tokens/s" in capsys.readouterr().out
    eager, ours = json.loads((tmp_path / "steps.json").read_text())
    assert (eager["variant"], ours["variant"]) == ("eager", "tigon")
    assert ours["loss"] == pytest.approx(eager["loss"], rel=1e-5)
    assert ours["tok_s"] == pytest.approx(2 * 32 / ours["step_ms"] * 1e3)
    assert "patched" in ours["patched"]
    assert math.isfinite(ours["grad_norm"][0])


def test_a_layer_is_compared_with_its_products(tmp_path: Path) -> None:
    flags = ["--model", "tiny", "--batch", "2", "--length", "16", "--torch_dtype", "float32", "--use_cpu"]
    assert main(["bench", "layer", *flags, "--calls", "3", "--json", str(tmp_path / "layer.json")]) == 0
    rows = json.loads((tmp_path / "layer.json").read_text())["rows"]
    assert {(row["variant"], row["direction"]) for row in rows} == {
        (v, d) for v in ("tigon", "eager") for d in ("forward", "both")
    }
    assert all(row["of_gemm"] > 0 and row["of_copy"] is None for row in rows)
    norms = [row["gradient_norm"] for row in rows]
    assert norms == pytest.approx([norms[0]] * len(norms), rel=1e-4)


def test_decoding_gives_the_same_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", "tiny", "--prompt", "5", "--new_tokens", "7", "--calls", "1", "--torch_dtype", "float32"]
    assert main(["bench", "decode", *flags, "--use_cpu", "--json", str(tmp_path / "decode.json")]) == 0
    ours, eager = json.loads((tmp_path / "decode.json").read_text())
    assert ours["tokens"] == eager["tokens"]
    assert len(ours["tokens"]) == 7
    assert "7 of 7" in capsys.readouterr().out


def test_a_variant_that_fails_says_its_last_line() -> None:
    settings = step.Settings(
        model="tiny",
        tuner_type="lora",
        lora_rank=4,
        target_modules=["no_such_layer"],
        batch=1,
        length=8,
        steps=1,
        torch_dtype="float32",
        gradient_checkpointing=False,
        use_cpu=True,
    )
    with pytest.raises(RuntimeError, match="no_such_layer"):
        step.run(settings)
