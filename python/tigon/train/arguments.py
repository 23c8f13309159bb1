"""The arguments of `tigon sft`: names and defaults follow ms-swift, other projects' names are aliases."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tigon.train.options import OptionError, boolean, check_ranges, option, specs

# Names that users of TRL, LLaMA-Factory and older ms-swift know; the value is the name used here.
ALIASES = {
    "model_name_or_path": "model",
    "model_id_or_path": "model",
    "dataset_name": "dataset",
    "train_type": "tuner_type",
    "sft_type": "tuner_type",
    "finetuning_type": "tuner_type",
    "lora_r": "lora_rank",
    "lora_target": "target_modules",
    "lora_target_modules": "target_modules",
    "lora_modules_to_save": "modules_to_save",
    "additional_target": "modules_to_save",
    "cutoff_len": "max_length",
    "max_seq_length": "max_length",
    "val_size": "split_dataset_ratio",
    "dtype": "torch_dtype",
    "attn_implementation": "attn_impl",
    "flash_attn": "attn_impl",
    "use_liger_kernel": "fused",
    "enable_liger_kernel": "fused",
    "activation_checkpointing": "gradient_checkpointing",
    "batch_size": "per_device_train_batch_size",
}

# Others' flags that only state what `tigon sft` does anyway, or that it does not need: allowed with these values (none
# listed: with any), refused with others.
IMPLIED: dict[str, tuple[str, ...]] = {
    "stage": ("sft",),
    "do_train": ("true",),
    "plot_loss": ("true",),
    "overwrite_cache": ("true", "false"),
    "overwrite_output_dir": ("true", "false"),
    "preprocessing_num_workers": (),
    "dataset_num_proc": (),
    "load_from_cache_file": (),
    "completion_only_loss": ("true",),
    "assistant_only_loss": ("true",),
    "packing": ("false",),
}

# Options that training and chat share.
DTYPE: dict[str, Any] = {
    "choices": ("auto", "float32", "bfloat16", "float16"),
    "synonyms": {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"},
}
FUSED: dict[str, Any] = {"kind": str.lower, "choices": ("auto", "true", "false")}

_MODEL = "model"
_TUNER = "tuner"
_DATA = "data"
_OPTIM = "optimiser"
_RUN = "run"


@dataclasses.dataclass
class SftArguments:
    """Everything one fine-tuning run needs; `tigon sft --help` is made from it."""

    model: str = option(
        "", "folder or hub id of the model to train", group=_MODEL, required=True, example="HuggingFaceTB/SmolLM2-135M"
    )
    torch_dtype: str = option(
        "auto",
        "element type in which the weights are loaded; adapters stay float32",
        group=_MODEL,
        **DTYPE,
    )
    attn_impl: str | None = option(
        None,
        "attention implementation: sdpa, eager, flash_attention_2, ...",
        group=_MODEL,
        unset="the model's own",
        synonyms={"flash_attn": "flash_attention_2", "fa2": "flash_attention_2"},
    )
    fused: str = option(
        "auto",
        "train through Tigon's fused operators: auto uses them where they fit, true fails where nothing fits, "
        "false leaves the model alone",
        group=_MODEL,
        **FUSED,
    )

    tuner_type: str = option("lora", "train adapters or every weight", group=_TUNER, choices=("lora", "full"))
    lora_rank: int = option(
        8, "rank of the adapters; more rank, more capacity and memory", group=_TUNER, kind=int, least=1
    )
    lora_alpha: int = option(32, "the adapter's output is scaled by alpha / rank", group=_TUNER, kind=int, least=1)
    lora_dropout: float = option(
        0.05,
        "dropout on the adapter's input; on a CPU, 0 saves about a quarter of a step",
        group=_TUNER,
        kind=float,
        least=0,
        below=1,
    )
    target_modules: list[str] = option(
        ["all-linear"],
        "module names that get an adapter, or all-linear (every linear layer but the head)",
        group=_TUNER,
        many=True,
        example="q_proj v_proj",
        synonyms={"all": "all-linear"},
    )
    modules_to_save: list[str] = option(
        [], "modules trained in full and saved with the adapter", group=_TUNER, many=True, example="lm_head"
    )
    use_rslora: bool = option(False, "scale by alpha / sqrt(rank)", group=_TUNER, kind=boolean)
    use_dora: bool = option(False, "train a magnitude per output row beside the adapter", group=_TUNER, kind=boolean)

    dataset: list[str] = option(
        [],
        "json, jsonl, csv or parquet files; PATH#N takes the first N samples",
        group=_DATA,
        many=True,
        required=True,
        example="train.jsonl more.json#500",
    )
    val_dataset: list[str] = option([], "files to evaluate on, same formats", group=_DATA, many=True)
    split_dataset_ratio: float = option(
        0.0,
        "share of --dataset held out for evaluation when there is no --val_dataset",
        group=_DATA,
        kind=float,
        least=0,
        below=1,
    )
    max_length: int | None = option(
        None, "longest sample in tokens", group=_DATA, kind=int, least=1, unset="what the model allows", example="2048"
    )
    truncation_strategy: str = option(
        "delete",
        "what happens to longer samples: dropped, or cut at the right or left; counts are printed",
        group=_DATA,
        choices=("delete", "right", "left"),
    )
    loss_scale: str = option(
        "default",
        "tokens that are learned: every assistant turn, the last one only, or all tokens (needed for a plain "
        "text column)",
        group=_DATA,
        choices=("default", "last_round", "all"),
    )
    system: str | None = option(
        None, "system message for samples that have none", group=_DATA, unset="the chat template's own"
    )
    pad_to_multiple_of: int | None = option(
        None,
        "pad batches to a multiple of this many tokens",
        group=_DATA,
        kind=int,
        least=1,
        unset="to the longest sample",
    )
    dataloader_num_workers: int = option(0, "processes that prepare batches", group=_DATA, kind=int, least=0)

    per_device_train_batch_size: int = option(
        1,
        "samples per device and forward pass; several short ones in one pass are much faster than one after the other",
        group=_OPTIM,
        kind=int,
        least=1,
    )
    per_device_eval_batch_size: int = option(1, "the same in evaluation", group=_OPTIM, kind=int, least=1)
    gradient_accumulation_steps: int | None = option(
        None,
        "forward passes per optimiser step: fewer make shorter and more steps",
        group=_OPTIM,
        kind=int,
        least=1,
        unset="so many that a step sees 16 samples",
    )
    learning_rate: float | None = option(
        None, "peak learning rate", group=_OPTIM, kind=float, least=0, unset="1e-4 for lora, 1e-5 for full"
    )
    lr_scheduler_type: str = option("cosine", "schedule: cosine, linear, constant, ...", group=_OPTIM)
    warmup_ratio: float = option(0.0, "share of the steps that warm up", group=_OPTIM, kind=float, least=0, most=1)
    weight_decay: float = option(0.1, "AdamW weight decay", group=_OPTIM, kind=float, least=0)
    adam_beta1: float = option(0.9, "AdamW first moment decay", group=_OPTIM, kind=float, least=0, below=1)
    adam_beta2: float = option(0.95, "AdamW second moment decay", group=_OPTIM, kind=float, least=0, below=1)
    adam_epsilon: float = option(1e-8, "AdamW epsilon", group=_OPTIM, kind=float, least=0)
    max_grad_norm: float = option(1.0, "gradients are clipped to this norm", group=_OPTIM, kind=float, least=0)
    label_smoothing_factor: float = option(
        0.0, "label smoothing; computed by the Trainer from whole logits", group=_OPTIM, kind=float, least=0, most=1
    )
    optim: str = option("adamw_torch_fused", "any optimiser name of transformers", group=_OPTIM)
    num_train_epochs: float = option(3.0, "passes over the data", group=_OPTIM, kind=float, least=0)
    max_steps: int = option(-1, "optimiser steps; overrides the epochs when positive", group=_OPTIM, kind=int)
    gradient_checkpointing: bool = option(
        True,
        "recompute activations in backward: much less memory, about a third more time; false for a small model",
        group=_OPTIM,
        kind=boolean,
    )
    bf16: bool | None = option(None, "bfloat16 autocast", group=_OPTIM, kind=boolean, unset="on for bfloat16 weights")
    fp16: bool | None = option(None, "float16 autocast", group=_OPTIM, kind=boolean, unset="on for float16 weights")

    output_dir: str = option("output", "where runs are written", group=_RUN)
    add_version: bool = option(True, "write each run to its own vN-DATE-TIME folder", group=_RUN, kind=boolean)
    logging_steps: int = option(5, "steps between two log lines", group=_RUN, kind=int, least=1)
    save_steps: int = option(
        500, "steps between two checkpoints; the last step always saves", group=_RUN, kind=int, least=1
    )
    eval_steps: int | None = option(
        None, "steps between two evaluations", group=_RUN, kind=int, least=1, unset="as --save_steps"
    )
    save_total_limit: int | None = option(
        None, "checkpoints to keep", group=_RUN, kind=int, least=1, unset="all", example="2"
    )
    resume_from_checkpoint: str | None = option(
        None,
        "checkpoint or run folder to go on from, or true for the newest run in --output_dir; other flags may be "
        "left out and are then taken from it",
        group=_RUN,
        unset="start afresh",
        example="output/v0-20260801-120000",
    )
    report_to: list[str] = option(["tensorboard"], "tensorboard, wandb, swanlab, ... or none", group=_RUN, many=True)
    run_name: str | None = option(None, "name shown by the reporting tools", group=_RUN)
    seed: int = option(42, "seed of data order, dropout and adapter initialisation", group=_RUN, kind=int, least=0)
    use_cpu: bool = option(False, "train on the CPU although there is a GPU", group=_RUN, kind=boolean)
    ddp_backend: str | None = option(None, "gloo, nccl, ...", group=_RUN, unset="chosen by device")

    def resolved(self, *, world_size: int = 1) -> SftArguments:
        """A checked copy in which the defaults that depend on other values are filled in."""
        for name, spec in specs(type(self)).items():
            if spec.required and not getattr(self, name):
                raise OptionError(f"--{name} is required, for example --{name} {spec.example}.")
        if self.bf16 and self.fp16:
            raise OptionError("--bf16 and --fp16 exclude each other.")
        if self.label_smoothing_factor and self.fused == "true":
            raise OptionError(
                "--label_smoothing_factor takes whole logits and so excludes --fused true: say --fused auto."
            )
        check_ranges(self)
        changes: dict[str, Any] = {}
        if self.learning_rate is None:
            changes["learning_rate"] = 1e-4 if self.tuner_type == "lora" else 1e-5
        if self.gradient_accumulation_steps is None:
            samples = self.per_device_train_batch_size * world_size
            changes["gradient_accumulation_steps"] = max(1, math.ceil(16 / samples))
        if self.eval_steps is None:
            changes["eval_steps"] = self.save_steps
        return dataclasses.replace(self, **changes)
