"""`tigon sft`: command line to SftArguments, and NPROC_PER_NODE to a launcher."""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tigon.cli.parser import make_parser, parse
from tigon.train import OptionError, SftArguments, checkpoint, sft
from tigon.train.arguments import ALIASES, IMPLIED
from tigon.train.console import program, say
from tigon.train.options import specs

_DESCRIPTION = """\
Fine-tune a model on demonstrations, with adapters (lora) or in full.

  tigon sft --model MODEL --dataset train.jsonl
  tigon sft config.yaml --learning_rate 2e-4
  NPROC_PER_NODE=2 tigon sft config.yaml

Flag names are ms-swift's; TRL's and LLaMA-Factory's names of the same things are understood too
(--lora_r, --cutoff_len, --model_name_or_path, --use_liger_kernel, ...)."""

_EPILOG = """\
environment variables:
  NPROC_PER_NODE        processes to start on this machine (default: one), through torchrun
  RANK, WORLD_SIZE, ... set by torchrun or accelerate launch, which may also be used directly
  CUDA_VISIBLE_DEVICES  GPUs to use; empty: train on the CPU
  OMP_NUM_THREADS       threads on the CPU; fewer where its cores are shared with other work"""


def arguments(argv: Sequence[str]) -> SftArguments:
    parser = make_parser(SftArguments, "sft", description=_DESCRIPTION, epilog=_EPILOG, implied=tuple(IMPLIED))
    given = parse(parser, SftArguments, argv, aliases=ALIASES, implied=IMPLIED)
    resume = given.get("resume_from_checkpoint")
    if resume is not None:
        if resume.lower() in ("false", "none", "null"):  # a YAML file's way of saying no
            del given["resume_from_checkpoint"]
        else:
            given = _saved(resume, str(given.get("output_dir", SftArguments.output_dir))) | given
    return SftArguments(**given)


def _saved(resume: str, output_dir: str) -> dict[str, object]:
    """What the run that is gone on with was told, for the flags that are not given again."""
    world = int(os.environ.get("WORLD_SIZE", os.environ.get("NPROC_PER_NODE", "1")))
    found, _ = checkpoint.find(resume, output_dir, world)
    table = specs(SftArguments)
    return {name: value for name, value in checkpoint.saved_arguments(found).items() if name in table}


def train(argv: Sequence[str]) -> tuple[Path | None, int]:
    """The checkpoint that the run ended with, and the exit code."""
    args = arguments(argv)
    args.resolved()  # mistakes are told before torch is imported, which takes seconds
    processes = os.environ.get("NPROC_PER_NODE", "1")
    if not processes.isdigit() or int(processes) < 1:
        raise OptionError(f"NPROC_PER_NODE must be a number of processes, got {processes!r}.")
    if int(processes) > 1 and "RANK" not in os.environ:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        os.execv(sys.executable, [sys.executable, *launcher, "-m", "tigon.cli", "sft", *argv])
    result = sft(args)
    _leave_process_group()
    return result.checkpoint, 0 if result.interrupted is None else 128 + result.interrupted


def _leave_process_group() -> None:
    """Its threads abort a process that ends while they run, which happens to one that is done before the others. They
    end when nobody holds the group any more: it is destroyed after the trainer, which lies in a cycle of references."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()


def main(argv: Sequence[str]) -> int:
    saved, code = train(argv)
    if saved is not None and code == 0:
        what = "adapters" if (saved / "adapter_config.json").is_file() else "model"
        say(f"Chat with it: {program()} infer --{what} {shlex.quote(str(saved))}")
    return code
