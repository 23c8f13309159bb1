from __future__ import annotations

from pathlib import Path

import pytest

import tiny_chat as tiny


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("tiny"))
