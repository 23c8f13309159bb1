"""A library that this torch cannot load: said with both versions, and models run on PyTorch's own code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import re
import pytest, torch, tigon
from hf.tiny import EAGER_LOSS, batch, tiny

assert not tigon.has_kernels("cpu")
versions = f"built for torch >= 2.10, this is torch {re.escape(torch.__version__)}: .*of_another_version"
with pytest.raises(RuntimeError, match=versions):
    tigon.rms_norm(torch.ones(2, 2))
model = tiny()
report = tigon.patch(model)
assert abs(model(**batch()).loss.item() - EAGER_LOSS) < 1e-4
assert report.calls.total() == 0
with pytest.raises(tigon.hf.Unsupported, match="no kernels for device cpu"):
    report.require("rms_norm")
"""


def test_built_for_another_torch(tmp_path: Path) -> None:
    """The loader says `undefined symbol`, as for a wheel of another ABI."""
    pytest.importorskip("transformers")
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    package = tmp_path / "tigon"
    shutil.copytree(ROOT / "python/tigon", package, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    source = tmp_path / "broken.c"
    source.write_text("extern int of_another_version(void); int use(void) { return of_another_version(); }")
    library = package / "_lib/libtigon_torch.so"
    library.parent.mkdir(exist_ok=True)
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "tests/python")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "libtigon_torch.so cannot be loaded, models run in PyTorch: it is built for torch >= 2.10" in done.stderr
