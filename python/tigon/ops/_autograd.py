"""What the operators' autograd formulas share."""

from __future__ import annotations

import torch
from torch import Tensor

# True while autograd keeps the graph (retain_graph) for another backward: then nothing saved may be overwritten. Not
# public in torch; where it is missing, nothing is ever reused.
keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def autocast(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The tensors in the dtype that autocast would have ``F.linear`` compute in; as they are without autocast."""
    device = x.device.type
    if not torch.is_autocast_enabled(device):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
