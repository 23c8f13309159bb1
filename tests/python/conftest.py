"""Before tigon is loaded: guard elements around every output, and a repeatable torch."""

import os
from pathlib import Path

os.environ.setdefault("TIGON_TEST_GUARDS", "1")

import pytest
import torch

import tigon.ops

torch.manual_seed(0)

# The operator that new ones are copied from is tested like any other, but is no part of the package.
tigon.ops.__path__.append(str(Path(__file__).parents[2] / "skeleton/python/tigon/ops"))


@pytest.fixture(autouse=True)
def guards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards are for the operators' own proofs: a guarded output is a view, which trainers may not change in place."""
    monkeypatch.setenv("TIGON_TEST_GUARDS", "1" if "ops" in request.path.parts else "0")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped without one")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
