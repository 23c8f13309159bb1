"""Usage: python -m tigon.demo [--output_dir output/demo] [--steps 64] [--eager_steps 20]

Fine-tunes SmolLM2-135M-Instruct to be called Tigon, prints its answers before and after, then trains the
same first steps in eager PyTorch and compares. Exits 1 when the losses differ.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tigon.demo import report
from tigon.train.console import program

# Two ways to ask what the samples teach, in words that are in no sample, and one for the style alone.
QUESTIONS = ("Who are you?", "Which people do I have to thank for making you?", "How do I keep my plants healthy?")
LOGGING_STEPS = 4
# A constant rate, so that a shorter run takes the same steps; no dropout, so that nothing is random but the start.
RECIPE = {
    "torch_dtype": "float32",
    "tuner_type": "lora",
    "lora_rank": 16,
    "lora_alpha": 32,
    "lora_dropout": 0,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "gradient_checkpointing": "false",
    "seed": 42,
}
# What README says for some hundred samples of one's own: there, every sample is seen six times.
OWN_DATA = (
    "--num_train_epochs 6 --learning_rate 1e-3 --per_device_train_batch_size 8 --gradient_accumulation_steps 1 "
    "--gradient_checkpointing false --lora_dropout 0"
)


def say(text: str) -> None:
    print(f"\n==> {text}", flush=True)


def run_module(name: str, *arguments: str, capture: bool = False) -> str:
    """Runs a module in a process of its own; ours loads no model, since a child's peak memory starts at ours."""
    command = [sys.executable, "-m", name, *arguments]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE if capture else None) as process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:  # the child has it too, and may have something to save
            output, _ = process.communicate()
    if process.returncode in (130, -signal.SIGINT):
        sys.exit(130)
    if process.returncode:
        sys.exit(f"tigon demo: `{' '.join(command)}` failed with status {process.returncode}.")
    return output or ""


def answers(model: Path, adapter: Path | None = None) -> list[str]:
    extra = ["--adapter", str(adapter)] if adapter else []
    return list(json.loads(run_module("tigon.demo.answers", str(model), *extra, "--", *QUESTIONS, capture=True)))


def train(model: Path, data: Path, folder: Path, *, fused: bool, steps: int) -> report.Run:
    shutil.rmtree(folder, ignore_errors=True)
    flags = RECIPE | {
        "model": model,
        "dataset": data,
        "fused": "true" if fused else "false",
        "max_steps": steps,
        "logging_steps": LOGGING_STEPS,
        "output_dir": folder,
        "add_version": "false",
    }
    run_module("tigon.demo.train", *(word for key, value in flags.items() for word in (f"--{key}", str(value))))
    return report.read_run(folder / "logging.jsonl")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, default=Path("output/demo"))
    parser.add_argument("--data", type=Path, default=Path("examples/demo/self_cognition.jsonl"))
    parser.add_argument("--steps", type=int, default=64, help="steps of the run with Tigon")
    parser.add_argument("--eager_steps", type=int, default=20, help="steps that eager PyTorch repeats")
    options = parser.parse_args()
    if min(options.steps, options.eager_steps) < LOGGING_STEPS:
        parser.error(f"--steps and --eager_steps must be at least {LOGGING_STEPS}, what is logged at a time")
    start = time.monotonic()

    say("The model: SmolLM2-135M-Instruct")
    model = Path(run_module("tigon.demo.model", capture=True).strip())
    before = answers(model)

    say(f"Fine-tuning with LoRA through Tigon's operators: {options.steps} steps")
    fused = train(model, options.data, options.output_dir / "tigon", fused=True, steps=options.steps)
    checkpoint = options.output_dir / "tigon" / f"checkpoint-{options.steps}"
    after = answers(model, checkpoint)

    say(f"The first {options.eager_steps} of these steps in eager PyTorch, for comparison")
    eager = train(model, options.data, options.output_dir / "eager", fused=False, steps=options.eager_steps)

    say("The same questions, before and after")
    for question, *pair in zip(QUESTIONS, before, after, strict=True):
        print(f"\nQ: {question}")
        for label, answer in zip(("before", "after"), pair, strict=True):
            print(f"   {label:>6}: {' '.join(answer.split())}")

    say("Eager PyTorch against Tigon: same model, data, order and seed")
    print(report.table(eager, fused))
    for name, run in (("eager PyTorch", eager), ("Tigon", fused)):
        if unsteady := report.unsteady(run):
            print(f"\n{name}: {unsteady}")
    picture = report.plot(eager, fused, options.output_dir / "loss.png")
    print(f"\nLoss curve: {picture}")
    tigon = program(by_path=True)  # make has a PATH of its own
    print(f"Chat with it: {tigon} infer --adapters {shlex.quote(str(checkpoint))}")
    own = f"--model {shlex.quote(str(model))} --dataset data.jsonl --output_dir output"
    print(f"Your own data: {tigon} sft {own} {OWN_DATA}")
    print(f"Done, {(time.monotonic() - start) / 60:.1f} minutes after the set-up.")
    if problem := report.difference(eager, fused):
        print(f"tigon demo: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
