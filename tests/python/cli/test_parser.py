"""The command line and its YAML twin: names, aliases, precedence, and mistakes answered in one sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tigon.cli import main as entry
from tigon.cli.parser import make_parser
from tigon.cli.sft import arguments
from tigon.train import OptionError, SftArguments
from tigon.train.arguments import ALIASES, IMPLIED
from tigon.train.options import specs

BASE = ["--model", "m", "--dataset", "d.json"]


def test_flags_of_every_kind() -> None:
    words = (
        "e.json#5 --lora_rank 16 --learning_rate 2e-4 --gradient_checkpointing false "
        "--target_modules q_proj v_proj --tuner_type=full --torch_dtype bf16 --fused"
    )
    args = arguments([*BASE, *words.split()])
    assert args.dataset == ["d.json", "e.json#5"]
    assert (args.lora_rank, args.learning_rate, args.gradient_checkpointing) == (16, 2e-4, False)
    assert args.target_modules == ["q_proj", "v_proj"]
    assert (args.tuner_type, args.torch_dtype, args.fused) == ("full", "bfloat16", "true")


def test_defaults_are_those_of_the_dataclass() -> None:
    assert arguments(BASE) == SftArguments(model="m", dataset=["d.json"])


@pytest.mark.parametrize(
    ("flag", "value", "name", "expected"),
    [
        ("--use_liger_kernel", "true", "fused", "true"),
        ("--use_liger_kernel", "False", "fused", "false"),
        ("--train_type", "full", "tuner_type", "full"),
        ("--finetuning_type", "lora", "tuner_type", "lora"),
        ("--lora_r", "4", "lora_rank", 4),
        ("--lora-rank", "4", "lora_rank", 4),
        ("--lora_target", "all", "target_modules", ["all-linear"]),
        ("--cutoff_len", "99", "max_length", 99),
        ("--model_name_or_path", "x", "model", "x"),
        ("--val_size", "0.1", "split_dataset_ratio", 0.1),
        ("--enable_liger_kernel", "auto", "fused", "auto"),
    ],
)
def test_aliases(flag: str, value: str, name: str, expected: object) -> None:
    assert getattr(arguments([*BASE, flag, value]), name) == expected
    assert getattr(arguments([*BASE, f"{flag}={value}"]), name) == expected


def test_every_alias_leads_to_a_flag() -> None:
    names = {field.name for field in dataclasses.fields(SftArguments)}
    assert set(ALIASES.values()) <= names
    assert not names & (set(ALIASES) | set(IMPLIED))


def test_a_file_gives_values_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "model_name_or_path: 模型\ndataset: a.json, b.json\nlearning_rate: 1e-4\nlora_rank: 4\n"
        "stage: sft\ndo_train: true\nuse_liger_kernel: true\nsystem: null\nlora_dropout: 0\n",
        encoding="utf-8",
    )
    args = arguments([str(path), "--lora_r", "32"])
    assert (args.model, args.dataset, args.learning_rate) == ("模型", ["a.json", "b.json"], 1e-4)
    assert (args.lora_rank, args.fused, args.system, args.lora_dropout) == (32, "true", None, 0.0)
    assert arguments(["--config", str(path), "--lora_r", "32"]) == args


def test_a_json_file_does_as_well(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"model": "m", "dataset": ["d.json"], "packing": False}))
    assert arguments([str(path)]) == arguments(BASE)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lora_rnk", "4"], "Unknown flag --lora_rnk. Did you mean --lora_rank"),
        (["--pakcing=true"], "Unknown flag --pakcing. Did you mean --packing"),
        (["--zzz", "4"], r"Unknown flag --zzz\.$"),
        (["--lora_rank", "many"], "--lora_rank needs a whole number, got 'many'"),
        (["--learning_rate", "fast"], "--learning_rate needs a number, got 'fast'"),
        (["--use_cpu", "perhaps"], "--use_cpu needs true or false, got 'perhaps'"),
        (["--packing"], "packing can only be false here, got true"),
        (["--tuner_type", "loar"], "--tuner_type must be one of lora, full, got 'loar'"),
        (["--stage", "dpo"], "stage can only be sft"),
        (["--lora_rank"], "expected one argument"),
    ],
)
def test_mistakes_on_the_command_line(argv: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        arguments([*BASE, *argv])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lora_rnk: 4", "unknown key lora_rnk. Did you mean --lora_rank"),
        ("lora_rank: [1, 2]", r"lora_rank takes one value, got \[1, 2\]"),
        ("lora_rank: 1.5", "lora_rank needs a whole number, got '1.5'"),
        ("stage: dpo", "stage can only be sft here, got dpo"),
        ("- a", "expected keys and values"),
        ("a: [", "run.yaml"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(OptionError, match=message):
        arguments([str(path)])


def test_an_absent_file_and_two_files(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file"):
        arguments([str(tmp_path / "absent.yaml")])
    with pytest.raises(OptionError, match="one file"):
        arguments(["a.yaml", "--config", "b.yaml"])


def test_help_shows_every_flag_with_its_default() -> None:
    text = make_parser(SftArguments, "sft", description="").format_help()
    for name, spec in specs(SftArguments).items():
        assert f"--{name} " in text
        assert spec.help
    flat = " ".join(text.split())
    assert "(default: 0.95)" in flat
    assert "(default: 1e-4 for lora, 1e-5 for full)" in flat
    assert "--liger" not in flat


def test_entry_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--help"]) == 0
    assert "sft" in capsys.readouterr().out
    assert entry.main([]) == 2
    assert entry.main(["stf"]) == 2
    assert "Did you mean tigon sft?" in capsys.readouterr().err
    assert entry.main(["sft", "--lora_rnk", "3"]) == 2
    assert capsys.readouterr().err == "tigon: Unknown flag --lora_rnk. Did you mean --lora_rank?\n"
    assert entry.main(["sft", "--model", "m", "--dataset", "absent.json"]) == 2
    assert "absent.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(entry.COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        entry.main([command, "--help"])
    assert stop.value.code == 0
    assert "usage: tigon" in capsys.readouterr().out


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'peft'", name="peft")

    monkeypatch.setattr(entry.importlib, "import_module", missing)
    assert entry.main(["sft"]) == 2
    assert capsys.readouterr().err == "tigon: sft needs the package peft: pip install 'tigon[train]'\n"
