"""`import tigon` is as fast as torch allows: what takes seconds to import waits until it is used."""

from __future__ import annotations

import subprocess
import sys


def test_import_brings_neither_dynamo_nor_transformers() -> None:
    code = "import sys, torch; before = set(sys.modules); import tigon; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = {name.split(".")[0] if not name.startswith("torch.") else name for name in done.stdout.split()}
    assert "tigon" in brought
    assert not brought & {"torch._dynamo", "torch._inductor", "transformers", "peft", "accelerate", "triton"}
