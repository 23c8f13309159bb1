"""`tigon sft` as its users start it: by itself, by torchrun, by accelerate, and on a terminal without UTF-8."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
import torch

import tiny_chat as tiny
from tigon.cli import sft
from tigon.train import OptionError

MODULE = ["-m", "tigon.cli", "sft"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
ACCELERATE = [
    "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes=2", "--num_machines=1",
    "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_jsonl(tmp_path_factory.mktemp("data") / "train.jsonl", tiny.sums(16))


def train(
    launcher: list[str], model: Path, data: Path, out: Path, *flags: str, stderr: int = subprocess.PIPE, **env: str
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    options = {
        "model": str(model),
        "dataset": str(data),
        "output_dir": str(out),
        "max_steps": "3",
        "logging_steps": "1",
        "learning_rate": "1e-3",
        "lora_dropout": "0",
        "gradient_checkpointing": "false",
        "report_to": "none",
        "fused": "false",
        "use_cpu": "true",
    }
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    python = os.pathsep.join(["python", os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *launcher, *words, *flags],
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": python, **env},
    )
    assert done.returncode == 0, done.stdout + (done.stderr or "")
    (run,) = out.iterdir()
    return run, done


def losses(run: Path) -> list[float]:
    lines = (run / "logging.jsonl").read_text(encoding="utf-8").splitlines()
    return [entry["loss"] for entry in map(json.loads, lines) if "loss" in entry]


@pytest.fixture(scope="module")
def alone(model_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """What two processes with one sample each must reproduce: one process with two."""
    flags = ["--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"]
    run, _ = train(MODULE, model_dir, data, tmp_path_factory.mktemp("alone"), *flags)
    return losses(run)


TWO = ["--gradient_accumulation_steps", "2", "--save_steps", "2"]


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_two_processes(launcher: list[str], model_dir: Path, data: Path, tmp_path: Path, alone: list[float]) -> None:
    run, done = train([*launcher, *MODULE], model_dir, data, tmp_path, *TWO)
    assert losses(run) == pytest.approx(alone, rel=1e-5)
    assert done.stdout.count("Writing to") == 1
    checkpoint = run / "checkpoint-3"
    assert {path.name for path in checkpoint.iterdir()} >= {
        "adapter_model.safetensors", "args.json", "rng_state_0.pth", "rng_state_1.pth"
    }  # fmt: skip
    assert not list(run.glob("tmp-*"))


def test_nproc_per_node_starts_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def execv(path: str, command: list[str]) -> None:
        started.append(command)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    with pytest.raises(SystemExit):
        sft.main(["--model", "m", "--dataset", "d.json"])
    assert started == [[sys.executable, *TORCHRUN, *MODULE, "--model", "m", "--dataset", "d.json"]]
    monkeypatch.setenv("NPROC_PER_NODE", "two")
    with pytest.raises(OptionError, match="NPROC_PER_NODE must be a number"):
        sft.main(["--model", "m", "--dataset", "d.json"])


def test_a_locale_without_utf8(model_dir: Path, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"question": f"你好{i}", "answer": "细胞是由微小的单元构成的"} for i in range(8)]
    data = tiny.write_jsonl(tmp_path / "中文.jsonl", rows)
    (tmp_path / "out").mkdir()
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    flags = ["--split_dataset_ratio", "0.25", "--system", "说中文"]
    run, done = train(MODULE, model_dir, data, tmp_path / "out", *flags, **ascii_only)
    assert json.loads((run / "args.json").read_text(encoding="utf-8"))["system"] == "说中文"
    assert "你好" in (run / "val_dataset.jsonl").read_text(encoding="utf-8")
    assert len(losses(run)) == 3
    assert done.stderr.isascii()
    assert done.stdout.isascii()


def test_a_log_file_has_plain_lines_and_the_command_to_go_on(model_dir: Path, data: Path, tmp_path: Path) -> None:
    run, done = train(MODULE, model_dir, data, tmp_path)
    assert "\r" not in done.stdout + done.stderr
    assert "it/s" not in done.stderr  # a bar
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("step")] == ["step 1/3", "step 2/3", "step 3/3"]
    assert all(line.endswith("s left") for line in lines if line.startswith("step"))
    assert lines[-1].startswith("Chat with it: ")
    assert lines[-1].endswith(f"infer --adapters {run / 'checkpoint-3'}")


def test_a_terminal_has_a_bar_in_its_encoding(model_dir: Path, data: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))  # rows, columns
    drawn: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the end, on Linux
            while piece := os.read(ours, 4096):
                drawn.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    try:
        _, done = train(MODULE, model_dir, data, tmp_path, stderr=theirs, **ascii_only)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    shown = b"".join(drawn).decode("ascii")
    assert "Train: 100%|#" in shown
    assert "step 3/3" in done.stdout


NO_LABELS = '''
"""Rank 0 has nothing to learn from; rank 1 has. One step, then every rank prints its weights' digest."""
import gc
import sys
import torch
import tiny_chat as tiny
from tigon.train import SftArguments
from tigon.train.collator import PaddingCollator
from tigon.train.hf_arguments import training_arguments
from tigon.train.template import Encoded
from tigon.train.trainer import SftTrainer

ids = list(range(3, 15))
samples = [Encoded(ids, [-100] * 12), Encoded(ids, [-100, *ids[1:]])][-int(sys.argv[3]) :]
args = SftArguments(
    model="m", dataset=["d"], output_dir=sys.argv[1], use_cpu=True, max_steps=1, logging_steps=1, learning_rate=1e-2,
    gradient_accumulation_steps=1, gradient_checkpointing=False, tuner_type="full",
).resolved()
hf = training_arguments(args, dtype=torch.float32, evaluate=False)
hf.save_strategy = "no"
trainer = SftTrainer(
    model=tiny.make_model(264), args=hf, train_dataset=samples, data_collator=PaddingCollator(2),
    write_args=lambda folder: None, skip_logits=False,
)
trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(samples)
trainer.train()
if hf.process_index == 0:
    torch.save({"loss": trainer.state.log_history[0]["loss"], "weights": trainer.model.state_dict()}, sys.argv[2])
del trainer  # which holds the group, in a cycle of references
gc.collect()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()  # its threads must not outlive the interpreter
'''


def test_a_process_without_labels_does_not_hold_up_the_others(tmp_path: Path) -> None:
    script = tmp_path / "no_labels.py"
    script.write_text(NO_LABELS, encoding="utf-8")
    root = Path(__file__).parents[3]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(root / "python"), str(root / "tests/python")]),
    }
    results = []
    # The same step in one process needs the learned sample alone.
    for launcher, samples in ((TORCHRUN, "2"), ([], "1")):
        saved = tmp_path / f"result-{samples}.pt"
        command = [sys.executable, *launcher, str(script), str(tmp_path / "out"), str(saved), samples]
        done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        results.append(torch.load(saved))
    two, one = results
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-6)
    torch.testing.assert_close(two["weights"], one["weights"], rtol=1e-5, atol=1e-6)
