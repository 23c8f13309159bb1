"""`tigon doctor` prints one table and tells by its exit code whether fused kernels can run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import tigon
from tigon.cli import doctor


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, loaded: bool) -> tuple[int, str]:
    library = tigon.Library(
        "tigon_torch", Path("libtigon_torch.so"), loaded, "" if loaded else "not part of this build"
    )
    monkeypatch.setattr(tigon, "libraries", lambda: (library,))
    monkeypatch.setattr(tigon, "has_kernels", lambda device: loaded and device == "cpu")
    return doctor.main([]), capsys.readouterr().out


def test_usable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(monkeypatch, capsys, loaded=True)
    assert code == 0
    lines = {line.split()[0]: line for line in printed.splitlines()}
    assert torch.__version__ in lines["torch"]
    assert transformers.__version__ in lines["transformers"]
    assert tigon.__version__ in lines["tigon"]
    assert "kernels on cpu" in printed
    assert "loaded" in lines["libtigon_torch.so"]
    if not torch.cuda.is_available():
        assert lines["cuda"].split()[1] == "-"


def test_not_usable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(monkeypatch, capsys, loaded=False)
    assert code == 1
    assert "not part of this build" in printed
    assert "its library is not loaded" in printed
