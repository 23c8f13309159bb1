"""The one matrix product of ATen that the operator libraries cannot reach by themselves.

Products of 16-bit tensors that add to a float32 tensor (partial sums of a weight's gradient) are ``addmm.dtype_out``,
whose Scalar arguments the stable dispatcher cannot carry. The CUDA library calls this operator instead.
"""

from __future__ import annotations

import torch
from torch import Tensor

torch.library.define("tigon::add_product", "(Tensor(a!) d, Tensor a, Tensor b) -> ()")


@torch.library.impl("tigon::add_product", "CUDA")
def _add_product(d: Tensor, a: Tensor, b: Tensor) -> None:
    torch.addmm(d, a, b, out_dtype=torch.float32, out=d)
