from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tigon.hf import unpatch
from tigon.hf.families import FAMILIES

pytest.importorskip("transformers")


_NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=_NO_GPU)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def classes_stay_clean() -> Iterator[None]:
    """No test leaves a class-wide patch behind."""
    yield
    for family in FAMILIES:
        unpatch(family)
