"""The gated MLP: its activation and product in one pass, its projections called as modules.

The projections stay modules so that LoRA, quantised weights and hooks on them keep working.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tigon import ops
from tigon.hf.family import Part, dress
from tigon.hf.predicate import observed, unfit
from tigon.hf.report import Tally
from tigon.hf.slot import Forward

_SILU = frozenset({"SiLU", "SiLUActivation"})  # torch's, transformers'


@dataclass(frozen=True)
class GatedMLP(Part):
    part: ClassVar[str] = "mlp"
    vocabulary: ClassVar[frozenset[str]] = frozenset({"down_proj", "act_fn", "gate_proj", "up_proj"})
    arguments: ClassVar[tuple[str, ...] | None] = ("x",)

    def unfit(self, module: nn.Module) -> str | None:
        return _unfused_activation(module)

    def build(self, original: Forward, tally: Tally) -> Forward:
        def forward(self: Any, x: Tensor) -> Any:
            reason = _unfused_activation(self) or unfit(x)
            if reason is not None:
                tally.fallback(reason)
                return original(self, x)
            gate, up = self.gate_proj(x), self.up_proj(x)
            reason = unfit(gate, up)
            if reason is not None:  # a projection may change the kind of tensor; never call it twice
                tally.fallback(reason)
                return self.down_proj(self.act_fn(gate) * up)
            tally.fused()
            overwrite = _is_own(gate, self.gate_proj) and _is_own(up, self.up_proj)
            return self.down_proj(ops.swiglu(gate, up, overwrite=overwrite))

        return dress(forward, original)


def _unfused_activation(mlp: Any) -> str | None:
    act_fn = mlp.act_fn
    if type(act_fn).__name__ not in _SILU:
        return f"its activation is {type(act_fn).__name__}, not SiLU"
    why = observed(act_fn)
    return f"act_fn: {why}" if why else None


# By these a projection makes a tensor that no node of the graph has saved: a product, a product and a bias, a sum.
_MAKERS = frozenset({"UnsafeViewBackward0", "MmBackward0", "AddmmBackward0", "LinearBackward0", "AddBackward0"})


def _is_own(projected: Tensor, projection: nn.Module) -> bool:
    """Whether nobody but this MLP will read what a projection has made, so that backward may overwrite it."""
    if torch.compiler.is_compiling() or type(projected.grad_fn).__name__ not in _MAKERS:
        return False
    return not any(observed(module) for module in projection.modules())
