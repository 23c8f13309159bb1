"""What torch.autocast does to the inputs of operators that it does not know."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(t: Tensor) -> Tensor:
    """An input of an operator that is on CUDA autocast's float32 list (norms, softmax, losses): 16 bits become float32.

    The CPU's autocast lists none of them, so there nothing changes.
    """
    narrow = t.dtype in (torch.bfloat16, torch.float16)
    return t.float() if narrow and t.is_cuda and torch.is_autocast_enabled("cuda") else t
