"""tigon bench on a CPU with tiny shapes: rows that add up, peers that fail or are wrong, pictures, training steps."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tigon.bench import cases, measure, names, peers, report, step, sweep
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
        *((op, (8, 64)) for op in names.ROW_WISE if op != "rope"),
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
        assert row["extra_mib"] > 0
        assert not row["host_counted"]
        assert row["shape"] == list(shape)
        if op == "linear_cross_entropy":
            assert row["gb_s"] is None
            assert row["of_gemm"] > 0
            (case,) = (c for c in cases.cases([op], [shape], [torch.float32], CPU) if c.note == row["note"])
            assert row["tflop_s"] == pytest.approx(case.flops(row["direction"]) / row["ms"] / 1e9)
        else:
            assert row["of_copy"] == pytest.approx(row["gb_s"] / PEAK["copy_gb_s"])
    for note in {row["note"] for row in rows}:
        norms = [row["gradient_norm"] for row in rows if row["note"] == note]
        assert norms == pytest.approx([norms[0]] * len(norms), rel=1e-4)
        assert norms[0] > 0


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


def test_no_peer_stands_in_for_tigon() -> None:
    """Where Tigon fails there is nothing to compare with, however wrong a peer is."""

    def broken(*_: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such kernel")

    said: list[str] = []
    tables = {"tigon": {"softmax": broken}, "wrong": {"softmax": lambda x: x.softmax(-1) * 1.01}, "eager": peers.EAGER}
    rows = rows_of("softmax", (4, 8), tables, said)
    assert said == ["tigon: softmax 4×8 float32: ValueError: no such kernel"]
    assert {row["variant"]: row["apart"] for row in rows} == {"wrong": None, "eager": None}


@pytest.mark.parametrize(("printed", "last"), [([], "none"), (["loading", "bye"], "bye")])
def test_a_process_that_prints_no_row_is_said_to_have_none(printed: list[str], last: str) -> None:
    with pytest.raises(RuntimeError, match=f"it ended without a row; its last line: {last}"):
        step._row(printed)
    assert step._row([*printed, '{"tok_s": 1.0}', "bye"]) == {"tok_s": 1.0}


def test_a_result_without_numbers_is_named_and_stays_json() -> None:
    said: list[str] = []
    tables = {"tigon": peers.tables([], said.append)["tigon"], "nan": {"softmax": lambda x: x.softmax(-1) * math.nan}}
    rows = rows_of("softmax", (4, 8), tables, said)
    assert "its result is nan from Tigon's" in said[0]
    assert {row["apart"] for row in rows if row["variant"] == "nan"} == {None}
    assert {row["apart"] for row in rows if row["variant"] == "tigon"} == {0.0}


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
        (["ops", "--sweep", "--shapes", "16x32"], "--sweep has shapes of its own"),
    ],
)
def test_mistakes_are_one_sentence(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *flags]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


STEPS = step.Settings(
    model="tiny",
    tuner_type="lora",
    lora_rank=4,
    target_modules=["all-linear"],
    batch=2,
    length=32,
    steps=4,
    torch_dtype="float32",
    gradient_checkpointing=False,
    use_cpu=True,
)


def test_training_steps_have_equal_losses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    monkeypatch.setattr(step, "run", step.measure)  # here: each process of its own waits for its imports
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
    assert {"torch", "tigon", "transformers", "peft"} == set(ours["versions"])
    assert (ours["device"], len(ours["date"])) == ("cpu", 10)


def test_unsloth_loads_the_same_model_with_its_own_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A double of its loader, made of transformers and peft, on the folder that is saved for it: equal losses."""
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    given: dict[str, Any] = {}

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(folder: str, *, dtype: torch.dtype, **settings: Any) -> Any:
            given.update(settings)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), tokenizer

        @staticmethod
        def get_peft_model(model: Any, *, use_gradient_checkpointing: Any, random_state: int, **settings: Any) -> Any:
            given["checkpointing"] = use_gradient_checkpointing
            torch.manual_seed(random_state)
            return peft.get_peft_model(model, peft.LoraConfig(**settings))

        @staticmethod
        def for_training(model: Any, use_gradient_checkpointing: bool) -> Any:
            return model.train()

    double = ModuleType("unsloth")
    double.FastLanguageModel = FastLanguageModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unsloth", double)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "UNSLOTH_DISABLE_STATISTICS"):
        monkeypatch.setenv(name, "1")  # as it was, afterwards
    step.save(STEPS, str(tmp_path))
    eager = step.measure(dataclasses.replace(STEPS, variant="eager"))
    row = step.measure(dataclasses.replace(STEPS, variant="unsloth", folder=str(tmp_path)))
    assert row["loss"] == pytest.approx(eager["loss"], rel=1e-5)
    assert row["grad_norm"] == pytest.approx(eager["grad_norm"], rel=1e-4)
    assert given["checkpointing"] is False
    assert not given["load_in_4bit"]
    step.measure(
        dataclasses.replace(STEPS, variant="unsloth", folder=str(tmp_path), gradient_checkpointing=True, steps=1)
    )
    assert given["checkpointing"] == "unsloth"


def test_a_loader_that_is_not_installed_is_named() -> None:
    if importlib.util.find_spec("unsloth"):
        pytest.skip("unsloth is installed")
    with pytest.raises(RuntimeError, match="the package unsloth is not installed"):
        step.run(dataclasses.replace(STEPS, variant="unsloth"))


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
    pytest.importorskip("peft")
    with pytest.raises(RuntimeError, match="no_such_layer"):
        step.run(dataclasses.replace(STEPS, target_modules=["no_such_layer"]))


def test_a_sweep_has_long_short_and_odd_rows() -> None:
    """On a GPU with room for all of them; tensors of 128 MiB where only the row length varies."""
    for op in ("rms_norm", "softmax", "swiglu"):
        found = sweep.shapes(op, 2, 2**38)
        assert all(rows * columns * 2 == pytest.approx(2**27, rel=0.01) for rows, columns in found[:13])
        assert {64, 96, 576, 4096, 65536} <= {columns for _, columns in found[:13]}
        assert [rows for rows, _ in found[13:]] == [1, 7, 64, 1000, 8192, 131072]
    assert {(1, 32001), (64, 50257), (2048, 262144)} <= set(sweep.shapes("cross_entropy", 2, 2**38))
    assert {(17, 4096, 128256), (65536, 4096, 128256), (2048, 4096, 50257)} <= set(
        sweep.shapes("linear_cross_entropy", 2, 2**38)
    )
    assert {dim for *_, dim in sweep.shapes("rope", 2, 2**38)} == {64, 96, 128, 256}


@pytest.mark.parametrize("op", [*names.ROW_WISE, names.HEAD])
@pytest.mark.parametrize("room", [2**36, None])
def test_a_sweep_takes_a_64th_of_the_room(op: str, room: int | None) -> None:
    found = sweep.shapes(op, 2, room)
    assert found
    assert len(set(found)) == len(found)
    assert all(len(shape) == names.RANK.get(op, 2) for shape in found)
    for shape in found:
        if op in ("softmax", "cross_entropy"):
            assert 2 * math.prod(shape) <= (2**24 if room is None else room // 64)


def test_a_sweep_says_who_is_fastest_at_how_many_shapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sweep, "shapes", lambda op, itemsize, room: [(1, 16), (3, 17)])
    path = tmp_path / "sweep.json"
    flags = ["--op", "softmax", "--sweep", "--peers", "F", "--use_cpu", "--calls", "3", "--json", str(path)]
    assert main(["bench", "ops", *flags]) == 0
    shown = capsys.readouterr().out
    assert "softmax 3×17 bfloat16" in shown
    assert "of 2" in next(line for line in shown.splitlines() if line.startswith("softmax ") and " of " in line)
    assert {tuple(row["shape"]) for row in json.loads(path.read_text())["rows"]} == {(1, 16), (3, 17)}


def test_a_head_of_one_row_has_none_to_ignore() -> None:
    found = list(cases.cases([names.HEAD], [(1, 8, 16)], [torch.float32], CPU))
    assert not any("ignored" in case.note for case in found)
