"""What the harness relies on: outputs of these tests do lie between guard elements."""

from __future__ import annotations

import pytest
import torch

import tigon
from harness import DEVICES, assert_guards


@pytest.mark.parametrize("device", DEVICES)
def test_a_write_beside_an_output_is_seen(device: str) -> None:
    y = tigon.softmax(torch.randn(3, 5, device=device))
    assert_guards(y, "y")
    for beside in (-1, y.numel()):
        whole = torch.as_strided(y, (1,), (1,), y.storage_offset() + beside)
        guard = whole.clone()
        whole.fill_(0.0)
        with pytest.raises(AssertionError, match="y: written 1 elements"):
            assert_guards(y, "y")
        whole.copy_(guard)
