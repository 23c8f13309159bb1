from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

import tiny_chat as tiny


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny.make_tokenizer()


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_jsonl(tmp_path_factory.mktemp("data") / "train.jsonl", tiny.sums(24))
