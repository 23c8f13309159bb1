"""The loss: from hidden states and the head's weight, without the logits.

Asked for logits, the model's own forward runs. In training with labels nobody asks, unless by
`skip_logits=False` or `return_dict=False`; in evaluation everybody does, unless `skip_logits=True`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch.nn.functional as F
from torch import Tensor, nn

from tigon import ops
from tigon.hf.family import Part, dress
from tigon.hf.predicate import observed, unfit
from tigon.hf.report import Tally
from tigon.hf.slot import Forward, origin


@dataclass(frozen=True)
class CausalLM(Part):
    backbone: str = "model"
    head: str = "lm_head"

    part: ClassVar[str] = "loss"
    vocabulary: ClassVar[frozenset[str]] = frozenset(
        {"model", "last_hidden_state", "slice_logits_to_keep", "isinstance", "int", "slice", "lm_head"}
        | {"loss_function", "config", "vocab_size", "CausalLMOutputWithPast"}
        | {"past_key_values", "cache", "hidden_states", "attentions"}
    )

    def build(self, original: Forward, tally: Tally) -> Forward:
        from transformers.loss.loss_utils import ForCausalLMLoss
        from transformers.modeling_outputs import CausalLMOutputWithPast

        table = self
        parameters = list(inspect.signature(original).parameters.values())[1:]
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs.update(zip(names, args, strict=False))
            skip_logits = kwargs.pop("skip_logits", None)
            if kwargs.get("labels") is None and kwargs.get("shift_labels") is None:
                if skip_logits:
                    raise ValueError("skip_logits=True needs labels or shift_labels")
                if self.training:
                    tally.bypassed("called in training without labels: the caller makes its own loss")
                else:
                    tally.declined("no labels")
                return original(self, **kwargs)
            if kwargs.get("labels") is None:  # the model's own forward decides by `labels` alone
                kwargs["labels"] = kwargs["shift_labels"]

            if skip_logits is None:
                skip_logits = self.training
            if not skip_logits or not _returns_dict(self, kwargs) or _is_super_call(self, original):
                tally.declined("logits were asked for")
                return original(self, **kwargs)
            head = getattr(self, table.head)
            reason = _unfused_call(self, kwargs, ForCausalLMLoss) or _unfused_head(head, self.config)
            if reason is not None:
                tally.fallback(reason)
                return original(self, **kwargs)

            tally.fused()
            kwargs.pop("return_dict", None)
            kwargs.pop("logits_to_keep", None)
            loss_kwargs = {name: kwargs.pop(name, None) for name in _LOSS_KWARGS}
            outputs = getattr(self, table.backbone)(**kwargs)
            loss = _loss(outputs.last_hidden_state, _linear(head), **loss_kwargs)
            rest = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
            return CausalLMOutputWithPast(loss=loss, **rest)

        return dress(forward, original)


_LOSS_KWARGS = ("labels", "shift_labels", "num_items_in_batch", "ignore_index")


def _loss(
    hidden: Tensor,
    head: Any,
    labels: Tensor,
    shift_labels: Tensor | None,
    num_items_in_batch: Tensor | int | None,
    ignore_index: int | None,
) -> Any:
    ignore_index = -100 if ignore_index is None else ignore_index
    if shift_labels is None:  # position t predicts token t + 1; the last one predicts nothing
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    loss = ops.linear_cross_entropy(
        hidden,
        head.weight,
        shift_labels.to(hidden.device),
        bias=head.bias,
        num_items=num_items_in_batch,
        ignore_index=ignore_index,
    )
    return cast(Tensor, loss)  # the other statistics are not asked for


def _returns_dict(model: Any, kwargs: dict[str, Any]) -> bool:
    return_dict = kwargs.get("return_dict")
    return bool(model.config.return_dict if return_dict is None else return_dict)


def _is_super_call(model: Any, original: Forward) -> bool:
    """A subclass' own forward called ours by super(): it will want the logits."""
    outermost = type(model).forward
    return outermost is not original and origin(outermost) is None


def _unfused_call(model: Any, kwargs: dict[str, Any], standard_loss: Forward) -> str | None:
    logits_to_keep = kwargs.get("logits_to_keep", 0)
    if not isinstance(logits_to_keep, int) or logits_to_keep != 0:
        return "logits_to_keep was given with labels"
    loss_function = model.loss_function
    if loss_function is not standard_loss:
        return f"model.loss_function is {getattr(loss_function, '__name__', 'not the standard one')}"
    num_items = kwargs.get("num_items_in_batch")
    if isinstance(num_items, Tensor) and num_items.numel() != 1:
        return f"num_items_in_batch has {num_items.numel()} elements"
    return None


def _linear(head: Any) -> Any:
    """The module that computes the logits: PEFT's `modules_to_save` trains a copy of the head."""
    if type(head).__name__ != "ModulesToSaveWrapper" or observed(head):
        return head
    active = head.active_adapters
    if head.disable_adapters or any(name not in head.modules_to_save for name in active):
        return head.original_module
    return head.modules_to_save[active[0]] if len(active) == 1 else head


def _unfused_head(head: Any, config: Any) -> str | None:
    """Why the head must be called as a module, or None. Raises if its weight is not there at all."""
    linear = _linear(head)
    if type(linear) is not nn.Linear:
        return f"lm_head is {type(linear).__module__}.{type(linear).__qualname__}, not nn.Linear"
    why = observed(linear)
    if why is not None:
        return f"lm_head: {why}"
    weight = linear.weight
    if weight.numel() == 0:
        raise RuntimeError(
            f"lm_head.weight has shape {tuple(weight.shape)}: its values are sharded away (DeepSpeed ZeRO-3 "
            "frees them outside a gather). Gather the head around forward and backward, or patch with loss=False"
        )
    if weight.shape[0] != config.vocab_size:
        return f"lm_head has {weight.shape[0]} rows, config.vocab_size is {config.vocab_size}"
    why = unfit(weight, linear.bias)
    return f"lm_head: {why}" if why else None
