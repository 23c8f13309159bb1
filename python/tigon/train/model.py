"""Load the model and its tokenizer; put adapters on it."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from tigon.train.arguments import SftArguments
from tigon.train.console import rank, say
from tigon.train.options import OptionError
from tigon.train.template import PLAIN_TEMPLATE


def load_tokenizer(path: str) -> Any:
    """The tokenizer, with a pad token and a chat template in any case."""
    from transformers import AutoTokenizer

    tokenizer = _from_pretrained(AutoTokenizer, path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if not tokenizer.chat_template:
        say(f"{path} has no chat template: turns are joined by newlines.")
        tokenizer.chat_template = PLAIN_TEMPLATE
    return tokenizer


def load_model(path: str, *, dtype: str = "auto", attn_impl: str | None = None) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    if rank() != 0 or not sys.stderr.isatty():
        logging.disable_progress_bar()
    options: dict[str, Any] = {"dtype": dtype if dtype == "auto" else getattr(torch, dtype)}
    if attn_impl is not None:
        options["attn_implementation"] = attn_impl
    return _from_pretrained(AutoModelForCausalLM, path, **options)


def _from_pretrained(factory: Any, path: str, **options: Any) -> Any:
    from safetensors import SafetensorError

    local = os.path.isdir(os.path.expanduser(path))
    if (path.startswith((".", "/", "~")) or path.count("/") > 1) and not local:
        raise OptionError(f"--model {path}: there is no such folder.")
    try:
        return factory.from_pretrained(os.path.expanduser(path), **options)
    # ValueError: written by another version of transformers, say. SafetensorError: cut off.
    except (OSError, ValueError, SafetensorError) as error:
        where = "" if local else "no folder of this name, and on the hub: "
        raise OptionError(f"--model {path}: {where}{str(error).splitlines()[0]}") from error


def stop_ids(model: Any) -> list[int]:
    """Every token at which the model's own generation settings stop."""
    ids = getattr(model.generation_config, "eos_token_id", None)
    if ids is None:
        return []
    return [int(i) for i in ids] if isinstance(ids, (list, tuple)) else [int(ids)]


def context_length(model: Any, tokenizer: Any) -> int:
    """The longest sequence that both model and tokenizer admit (the latter says 1e30 for "no limit")."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(min(limit or 1 << 30, tokenizer.model_max_length))


def prepare(model: Any, args: SftArguments) -> Any:
    """The model that is trained: with adapters, or itself with every weight trainable."""
    model.config.use_cache = False
    if args.tuner_type == "full":
        # Float16 weights cannot be stepped by a gradient scaler; autocast makes the float16 copies.
        if model.dtype == torch.float16:
            model.float()
    else:
        model = _with_lora(model, args)
    trained, total = (
        sum(p.numel() for p in model.parameters() if p.requires_grad or everything) for everything in (False, True)
    )
    say(f"Training {trained:,} of {total:,} parameters ({100 * trained / total:.2f} %), {args.tuner_type}.")
    return model


def _with_lora(model: Any, args: SftArguments) -> Any:
    from peft import LoraConfig, get_peft_model

    everywhere = args.target_modules == ["all-linear"]
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=args.lora_rank,
        lora_alpha=args.lora_alpha,
        lora_dropout=args.lora_dropout,
        target_modules="all-linear" if everywhere else args.target_modules,
        modules_to_save=args.modules_to_save or None,
        use_rslora=args.use_rslora,
        use_dora=args.use_dora,
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise OptionError(f"--target_modules {' '.join(args.target_modules)}: {error}") from error
