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


def as_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tensors in the dtype that autocast would have ``F.linear`` compute in; as they are without autocast."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # which knows no meta device
        return x, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
