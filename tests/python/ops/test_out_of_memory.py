"""An output that does not fit is refused in the words that trainers search for, with the operator and the bytes."""

from __future__ import annotations

import pytest
import torch

import tigon
from harness import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_the_operator_and_the_bytes_are_named(device: str) -> None:
    x = torch.zeros(1, 1, device=device).expand(2**43, 64)
    words = "CUDA out of memory" if device == "cuda" else "out of memory"
    with pytest.raises(RuntimeError, match=rf"^{words}\. softmax_forward needs {2**51} bytes"):
        tigon.softmax(x)
    assert tigon.softmax(torch.zeros(2, 4, device=device)).shape == (2, 4)
