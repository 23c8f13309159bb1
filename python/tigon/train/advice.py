"""What a run says about its own length and speed before the first step."""

from __future__ import annotations

import math

from tigon.train.arguments import SftArguments

FEW_STEPS = 50  # fewer seldom change a model


def plan(args: SftArguments, *, steps: int, processes: int, on_cpu: bool) -> list[str]:
    """Lines for the run of `args` (resolved) that takes `steps` optimiser steps in all."""
    batch, passes = args.per_device_train_batch_size, args.gradient_accumulation_steps
    assert passes is not None
    lines = [
        f"{_count(steps, 'step')} of {_count(batch * passes * processes, 'sample')}: {batch} at a time, "
        f"{_count(passes, 'time')}, in {_count(processes, 'process', 'es')}"
    ]
    if steps < FEW_STEPS and args.max_steps <= 0:  # else the number was asked for
        lines.append(_more_steps(args, steps, passes))
    if on_cpu and args.gradient_checkpointing:
        lines.append(
            "--gradient_checkpointing true computes activations twice; on a CPU, false is faster where memory allows"
        )
    return lines


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _more_steps(args: SftArguments, steps: int, passes: int) -> str:
    epochs = math.ceil(args.num_train_epochs * FEW_STEPS / steps) if steps else 1
    ways = [f"raise --num_train_epochs (now {args.num_train_epochs:g}; {epochs} make about {FEW_STEPS} steps)"]
    if passes > 1:
        ways.append(f"lower --gradient_accumulation_steps (now {passes})")
    elif args.per_device_train_batch_size > 1:
        ways.append(f"lower --per_device_train_batch_size (now {args.per_device_train_batch_size})")
    ways.append(f"raise --learning_rate (now {args.learning_rate:g})")
    few = "1 step is little" if steps == 1 else f"{steps} steps are few"
    return f"{few}: {', '.join(ways[:-1])} or {ways[-1]}"
