"""RMSNorm: one operator in place of six, with the rounding points of the model's own class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from tigon import ops
from tigon.hf.family import Part, dress
from tigon.hf.predicate import unfit
from tigon.hf.report import Tally
from tigon.hf.slot import Forward


@dataclass(frozen=True)
class RMSNorm(Part):
    eps: str = "variance_epsilon"
    weight_offset: float = 0.0
    casting: Literal["llama", "gemma"] = "llama"

    part: ClassVar[str] = "rms_norm"
    vocabulary: ClassVar[frozenset[str]] = frozenset(
        {"dtype", "to", "torch", "float32", "pow", "mean", "rsqrt", "variance_epsilon", "weight"}
    )
    arguments: ClassVar[tuple[str, ...] | None] = ("hidden_states",)

    def build(self, original: Forward, tally: Tally) -> Forward:
        eps, weight_offset, casting = self.eps, self.weight_offset, self.casting

        def forward(self: Any, hidden_states: Tensor) -> Any:
            weight = self.weight
            reason = unfit(hidden_states, weight)
            if reason is not None:
                tally.fallback(reason)
                return original(self, hidden_states)
            tally.fused()
            return ops.rms_norm(
                hidden_states, weight, eps=getattr(self, eps), weight_offset=weight_offset, casting=casting
            )

        return dress(forward, original)
