"""Fine-tuning with the Hugging Face Trainer, PEFT and Tigon's operators: what `tigon sft` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tigon.train.arguments import SftArguments
from tigon.train.options import OptionError

if TYPE_CHECKING:
    from tigon.train.finetune import SftResult

__all__ = ["OptionError", "SftArguments", "sft"]


def sft(args: SftArguments) -> SftResult:
    """Fine-tune as `args` say: `sft(SftArguments(model="path", dataset=["train.jsonl"]))`."""
    from tigon.train.finetune import sft as run  # transformers takes seconds to import; arguments do not need it

    return run(args)
