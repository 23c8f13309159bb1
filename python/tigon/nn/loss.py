"""Losses with their options bound, for code that wants a module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tigon import ops


class _Bound(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class CrossEntropyLoss(_Bound):
    """`tigon.cross_entropy` with its keyword options fixed: `CrossEntropyLoss(label_smoothing=0.1)(logits, labels)`."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor | ops.CrossEntropyOutput:
        return ops.cross_entropy(logits, labels, **self.options)


class LinearCrossEntropyLoss(_Bound):
    """`tigon.linear_cross_entropy` with its keyword options fixed; the head's weight stays the caller's."""

    def forward(
        self, x: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None
    ) -> Tensor | ops.CrossEntropyOutput:
        return ops.linear_cross_entropy(x, weight, labels, bias=bias, **self.options)
