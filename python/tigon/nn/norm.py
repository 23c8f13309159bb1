"""Norms over the last axis. They load the state of `torch.nn`'s and of the models' own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tigon import ops
from tigon.ops.rms_norm import Casting


class RMSNorm(nn.Module):
    """`tigon.rms_norm` with a weight. `weight_offset=1, casting="gemma"` is Gemma's, whose weights start at zero."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *,
        weight_offset: float = 0.0,
        casting: Casting = "llama",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((hidden_size,), 1.0 - weight_offset, device=device, dtype=dtype))
        self.eps = eps
        self.weight_offset = weight_offset
        self.casting: Casting = casting

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps, weight_offset=self.weight_offset, casting=self.casting)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}, weight_offset={self.weight_offset}, casting={self.casting!r}"


class LayerNorm(nn.Module):
    """`tigon.layer_norm` with a weight and, unless `bias=False`, a bias."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(hidden_size, device=device, dtype=dtype)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}, bias={self.bias is not None}"
