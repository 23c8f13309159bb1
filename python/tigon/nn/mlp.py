"""The gated MLP of Llama and its kin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tigon import ops


class SwiGLUMLP(nn.Module):
    """`down_proj(silu(gate_proj(x)) * up_proj(x))`, with the parameter names of transformers' Llama."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bias, device=device, dtype=dtype)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bias, device=device, dtype=dtype)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = ops.swiglu(self.gate_proj(x), self.up_proj(x))
        return self.down_proj(product)  # type: ignore[no-any-return]
