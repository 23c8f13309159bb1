"""What takes seconds to import waits until it is used: torch by `import tigon`, and much else after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tigon
from tigon import hf, ops


def test_import_brings_neither_dynamo_nor_transformers() -> None:
    code = "import sys, torch; before = set(sys.modules); import tigon.hf; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = {name.split(".")[0] if not name.startswith("torch.") else name for name in done.stdout.split()}
    assert "tigon" in brought
    assert not brought & {"torch._dynamo", "torch._inductor", "transformers", "peft", "accelerate", "triton"}


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["--help"], 0, "usage: tigon COMMAND"),
        (["sft", "--help"], 0, "--learning_rate"),
        (["infer", "--help"], 0, "--adapters"),
        (["doctor", "--help"], 0, "usage: tigon doctor"),
        (["train"], 2, "there are sft, infer, bench, doctor. Did you mean tigon sft?"),
        (["sft", "--lora_rnk", "8"], 2, "Did you mean --lora_rank?"),
        (
            ["sft", "--model", "m", "--dataset", "d.jsonl", "--lora_rank", "0"],
            2,
            "--lora_rank must be at least 1, got 0",
        ),
        (["infer", "--top_p", "5", "--model", "m"], 2, "--top_p must be"),
    ],
)
def test_help_and_mistakes_do_not_wait_for_torch(words: list[str], code: int, printed: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "tigon.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert printed in done.stdout + done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "tigon.cli.main" in imported
    assert not imported & {"torch", "numpy", "transformers"}


def test_names_are_found_when_they_are_used() -> None:
    assert tigon.rms_norm is ops.rms_norm
    assert tigon.patch is hf.patch
    assert tigon.nn.RMSNorm
    assert {*ops.__all__, "patch", "unpatch", "PatchReport", "__version__"} <= {*dir(tigon), *tigon.__all__}
    assert not hasattr(tigon, "no_such_name")
    found: dict[str, object] = {}
    exec("from tigon import *", found)
    assert found["softmax"] is ops.softmax
