"""Translate our arguments into the TrainingArguments of whichever transformers is installed."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from transformers import TrainingArguments

from tigon.train.arguments import SftArguments
from tigon.train.options import OptionError

# Passed on under their own names; a version that lacks one is an error, not a silent change of the run.
_SAME_NAME = (
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "dataloader_num_workers",
    "ddp_backend",
    "eval_steps",
    "gradient_accumulation_steps",
    "label_smoothing_factor",
    "learning_rate",
    "logging_steps",
    "lr_scheduler_type",
    "max_grad_norm",
    "max_steps",
    "num_train_epochs",
    "optim",
    "output_dir",
    "per_device_eval_batch_size",
    "per_device_train_batch_size",
    "run_name",
    "save_steps",
    "save_total_limit",
    "seed",
    "weight_decay",
)


def training_arguments(args: SftArguments, *, dtype: torch.dtype, evaluate: bool) -> TrainingArguments:
    """`dtype` is that of the loaded weights: it decides about autocast unless the user did."""
    cuda = torch.cuda.is_available() and not args.use_cpu
    known = set(inspect.signature(TrainingArguments.__init__).parameters)
    values: dict[str, Any] = {name: getattr(args, name) for name in _SAME_NAME}
    values |= {
        "average_tokens_across_devices": True,
        "bf16": dtype == torch.bfloat16 if args.bf16 is None else args.bf16,
        "dataloader_pin_memory": cuda,
        "ddp_find_unused_parameters": False,
        "eval_strategy": "steps" if evaluate else "no",
        "fp16": cuda and dtype == torch.float16 if args.fp16 is None else args.fp16,
        "label_names": ["labels"],
        "logging_nan_inf_filter": False,  # a NaN must be seen
        "prediction_loss_only": True,
        "remove_unused_columns": False,
        "report_to": [name for name in args.report_to if name not in ("none", "tensorboard")] or "none",
        "save_strategy": "steps",
        "use_cpu": not cuda,
    }
    # Renamed or folded into another argument between 4.57 and 5.24.
    checkpointing = "activation_checkpointing" if "activation_checkpointing" in known else "gradient_checkpointing"
    values[checkpointing] = args.gradient_checkpointing
    if args.gradient_checkpointing:
        values[f"{checkpointing}_kwargs"] = {"use_reentrant": False}
    warmup = "warmup_ratio" if "warmup_ratio" in known else "warmup_steps"  # there, below 1 means a share
    values[warmup] = args.warmup_ratio
    try:
        hf = TrainingArguments(**values)
    except ValueError as error:  # e.g. an unknown scheduler or optimiser
        raise OptionError(str(error).splitlines()[0]) from error
    if hf.n_gpu > 1:
        hf._n_gpu = 1  # one process drives one device; more of them come from a launcher
    return hf
