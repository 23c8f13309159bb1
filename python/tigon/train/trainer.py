"""The Hugging Face Trainer with whole checkpoints, honest losses and no logits in evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

from tigon.train import checkpoint
from tigon.train.console import say
from tigon.train.metrics import Meter, peak_memory_gib


class SftTrainer(Trainer):  # type: ignore[misc]
    def __init__(self, *args: Any, write_args: Callable[[Path], None], skip_logits: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.meter = Meter()
        self._write_args = write_args
        # Only a patched forward knows the keyword.
        self._evaluation_kwargs = {"skip_logits": True} if skip_logits else {}
        self._aside: Path | None = None
        self._no_label_reported = False

    # --- steps ---

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        inputs, learned = self._without_counts(inputs)
        if learned == 0:
            self._report_no_label()
            # Other processes wait for this one's backward, and a gradient scaler for a gradient.
            if self.args.world_size == 1 and self.accelerator.scaler is None:
                return torch.zeros((), device=self.args.device)
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        return loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        # A sum over no label is 0; divided by a count of 0 it would be NaN, and so would every gradient.
        if torch.is_tensor(num_items_in_batch):
            num_items_in_batch = num_items_in_batch.clamp(min=1)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[torch.Tensor, None, None]:
        inputs, _ = self._without_counts(inputs)
        inputs = self._prepare_inputs(inputs)
        # Only here, since counting needs the labels alone: the outputs, and so lazy logits, are never looked at.
        count = self._get_num_items_in_batch([inputs], self.args.device)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = self.compute_loss(model, {**inputs, **self._evaluation_kwargs}, num_items_in_batch=count)
        return loss.detach().mean(), None, None

    def _without_counts(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Take the collator's host-side counts out of a batch, so that nothing has to wait for the device."""
        inputs = dict(inputs)
        self.meter.tokens += inputs.pop("tokens")
        return inputs, inputs.pop("learned")

    def _report_no_label(self) -> None:
        if not self._no_label_reported:
            step = self.state.global_step + 1
            print(f"Step {step}: a batch has no label to learn from (reported once).", flush=True)
        self._no_label_reported = True

    # --- logs ---

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        tokens = self.meter.tokens
        with self.meter.paused():
            metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        self.meter.tokens = tokens
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            tokens = self.accelerator.gather(torch.tensor([self.meter.tokens], device=self.args.device)).sum()
            logs["tokens_per_second"] = round(int(tokens) / self.meter.seconds(), 1)
            logs["memory(GiB)"] = round(peak_memory_gib(), 2)
            self.meter.start()
        super().log(logs, start_time)

    # --- checkpoints ---

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._aside or self.args.output_dir)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Let the Trainer write into a folder aside, then rename it."""
        run = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        aside = run / f"{checkpoint.ASIDE}{name}"
        with self.meter.paused():
            self._aside = aside
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._aside = None
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self._write_args(aside / name)
                checkpoint.commit(aside / name, run / name)
                aside.rmdir()
                checkpoint.rotate(run, self.args.save_total_limit)
                say(f"Saved {run / name}")
            self.accelerator.wait_for_everyone()
