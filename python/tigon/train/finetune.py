"""Fine-tune a model on demonstrations: the run from arguments to result."""

from __future__ import annotations

import dataclasses
import functools
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import ProgressCallback, set_seed

from tigon.train import callbacks, checkpoint, fused, plots, run_folder
from tigon.train.arguments import SftArguments
from tigon.train.collator import PaddingCollator
from tigon.train.console import program, rank, say, world_size
from tigon.train.dataset import EncodedDataset, encode, load_samples, split, write_samples
from tigon.train.formats import Sample
from tigon.train.hf_arguments import training_arguments
from tigon.train.interrupt import Interrupt
from tigon.train.malloc import keep_freed_memory
from tigon.train.metrics import peak_memory_gib
from tigon.train.model import context_length, load_model, load_tokenizer, prepare, stop_ids
from tigon.train.template import Template
from tigon.train.trainer import SftTrainer


@dataclasses.dataclass(frozen=True)
class SftResult:
    """Where a run ended up."""

    run: Path
    checkpoint: Path | None
    step: int
    log_history: list[dict[str, Any]]
    fused_calls: int
    # The signal that ended the run early, if one did.
    interrupted: signal.Signals | None = None


def sft(args: SftArguments) -> SftResult:
    """Train as `args` say; every process of a distributed job calls this."""
    args = args.resolved(world_size=world_size())
    transformers.logging.set_verbosity(transformers.logging.WARNING if rank() == 0 else transformers.logging.ERROR)
    if args.use_cpu or not torch.cuda.is_available():
        keep_freed_memory()
    resume = _resume(args)
    if resume is None:
        run_folder.check(args)
    train_samples, held_out = _samples(args)

    tokenizer = load_tokenizer(args.model)
    model = load_model(args.model, dtype=args.torch_dtype, attn_impl=args.attn_impl)
    max_length = args.max_length or context_length(model, tokenizer)
    template = Template(tokenizer, stop_ids=stop_ids(model), loss_scale=args.loss_scale, system=args.system)
    train_set = _encode("Training", train_samples, template, max_length, args)
    eval_set = _encode("Evaluation", held_out, template, max_length, args) if held_out else None

    hf = training_arguments(args, dtype=model.dtype, evaluate=eval_set is not None)
    folder = resume.absolute().parent if resume else run_folder.create(args)
    hf.output_dir = str(folder)
    set_seed(args.seed)
    model = prepare(model, args)
    report = fused.patch(model, args.fused)
    if args.label_smoothing_factor and report is not None:
        say("Label smoothing is computed by the Trainer from whole logits: the fused loss is bypassed.")

    trainer = SftTrainer(
        model=model,
        args=hf,
        train_dataset=train_set,
        eval_dataset=eval_set,
        processing_class=tokenizer,
        data_collator=PaddingCollator(tokenizer.pad_token_id, args.pad_to_multiple_of),
        write_args=functools.partial(run_folder.write_args, args=args),
        skip_logits=report is not None and report.patched("loss") and not args.label_smoothing_factor,
    )
    log = callbacks.RunLog(folder)
    trainer.remove_callback(ProgressCallback)
    bar = [callbacks.ProgressBar()] if sys.stderr.isatty() else []
    for callback in [callbacks.Plan(args), *bar, log, *_tensorboard(args, folder)]:
        trainer.add_callback(callback)
    if rank() == 0:
        run_folder.write_args(folder, args)
        if args.split_dataset_ratio:
            write_samples(folder / "val_dataset.jsonl", held_out)
    say(f"Writing to {folder}")

    with Interrupt() as interrupt:
        trainer.add_callback(interrupt)
        output = trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    calls = fused.summarise(report, args.fused)
    # Of a resumed run, transformers 4 divides the losses of the new steps by the number of all steps.
    return _finish(trainer, log, interrupt, calls, None if resume else output.training_loss)


def _resume(args: SftArguments) -> Path | None:
    if args.resume_from_checkpoint is None:
        return None
    found, skipped = checkpoint.find(args.resume_from_checkpoint, args.output_dir, world_size())
    for line in skipped:
        say(f"Skipped {line}")
    say(f"Going on from {found}")
    for line in checkpoint.changes(checkpoint.saved_arguments(found), dataclasses.asdict(args)):
        say(f"Changed: {line}")
    return found


def _samples(args: SftArguments) -> tuple[list[Sample], list[Sample]]:
    """Samples to train on and to evaluate on."""
    plain_text = args.loss_scale == "all"
    samples = load_samples(args.dataset, plain_text=plain_text)
    if args.val_dataset:
        return samples, load_samples(args.val_dataset, plain_text=plain_text)
    return split(samples, args.split_dataset_ratio, args.seed)


def _encode(
    title: str, samples: list[Sample], template: Template, max_length: int, args: SftArguments
) -> EncodedDataset:
    encoded = encode(samples, template, max_length, args.truncation_strategy)
    say(f"{title} data: {encoded.summary()}")
    return encoded


def _tensorboard(args: SftArguments, folder: Path) -> list[Any]:
    """A writer of our own: where transformers would put the files changed between its versions."""
    if "tensorboard" not in args.report_to or rank() != 0:
        return []
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        say("No TensorBoard files: the package tensorboard is not installed.")
        return []
    from transformers.integrations import TensorBoardCallback

    return [TensorBoardCallback(SummaryWriter(log_dir=str(folder / "runs")))]


def _finish(
    trainer: SftTrainer, log: callbacks.RunLog, interrupt: Interrupt, fused_calls: int, mean_loss: float | None
) -> SftResult:
    state, folder = trainer.state, log.path.parent
    saved = checkpoint.checkpoints(folder)
    result = SftResult(
        run=folder,
        checkpoint=saved[-1] if saved else None,
        step=state.global_step,
        log_history=state.log_history,
        fused_calls=fused_calls,
        interrupted=interrupt.received,
    )
    if rank() == 0:
        plots.draw(state.log_history, folder / "images")
        parameters = {True: 0, False: 0}
        for parameter in trainer.model.parameters():
            parameters[parameter.requires_grad] += parameter.numel()
        log.summarise(
            {
                "model_parameter_info": f"{parameters[True]:,} trainable, {parameters[False]:,} frozen",
                "last_model_checkpoint": str(result.checkpoint) if result.checkpoint else None,
                "best_model_checkpoint": state.best_model_checkpoint,
                "best_metric": state.best_metric,
                "global_step": state.global_step,
                "log_history": state.log_history,
                "memory": round(peak_memory_gib(), 2),
            }
        )
    if interrupt.received is not None:
        say(f"Stopped by {interrupt.received.name}. Go on with: {program()} sft --resume_from_checkpoint {folder}")
    elif result.checkpoint is not None:
        say("Done" if mean_loss is None else f"Done, mean loss {mean_loss:.4f}")
    return result
