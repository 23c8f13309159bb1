"""What a run shows and writes while it trains: its plan, a progress bar and logging.jsonl."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from transformers import ProgressCallback, TrainerCallback

from tigon.train import advice
from tigon.train.arguments import SftArguments
from tigon.train.console import say
from tigon.train.metrics import peak_memory_gib

_SHOWN = {
    "global_step/max_steps": "step {}",
    "loss": "loss {:.4f}",
    "eval_loss": "eval_loss {:.4f}",
    "grad_norm": "grad_norm {:.3g}",
    "learning_rate": "lr {:.2e}",
    "tokens_per_second": "{:.0f} tokens/s",
    "memory(GiB)": "{:.2f} GiB",
    "remaining_time": "{} left",
}


class Plan(TrainerCallback):  # type: ignore[misc]
    """Says how many steps the run takes once the Trainer knows."""

    def __init__(self, args: SftArguments) -> None:
        self._args = args

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        on_cpu = args.device.type == "cpu"
        for line in advice.plan(self._args, steps=state.max_steps, processes=args.world_size, on_cpu=on_cpu):
            say(line)


class ProgressBar(ProgressCallback):  # type: ignore[misc]
    """For a terminal (a file would keep every state of it); tqdm draws in ASCII where the terminal knows no more."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description("Train")
            self.training_bar.update(state.global_step)  # where a resumed run begins
        self.current_step = state.global_step

    def on_log(self, *_: Any, **__: Any) -> None:
        """RunLog prints the line."""


class RunLog(TrainerCallback):  # type: ignore[misc]
    """Appends each log to logging.jsonl, prints it as a short line, and closes the file with a summary."""

    def __init__(self, run: Path) -> None:
        self.path = run / "logging.jsonl"
        self._begin = 0.0
        self._first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._begin, self._first_step = time.perf_counter(), state.global_step
        if state.is_world_process_zero and self.path.exists():
            self._forget_after(state.global_step)

    def _forget_after(self, step: int) -> None:
        """Drop what an earlier run logged after the checkpoint that this one goes on from."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if _step(line) is not None and (_step(line) or 0) <= step]
        self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs or "train_runtime" in logs:
            return
        elapsed = time.perf_counter() - self._begin
        steps = state.global_step - self._first_step
        per_step = elapsed / steps if steps else 0.0
        entry = {
            **logs,
            "global_step/max_steps": f"{state.global_step}/{state.max_steps}",
            "percentage": f"{100 * state.global_step / max(state.max_steps, 1):.2f}%",
            "elapsed_time": _clock(elapsed),
            "remaining_time": _clock(per_step * (state.max_steps - state.global_step)),
            "memory(GiB)": logs.get("memory(GiB)", round(peak_memory_gib(), 2)),
            "train_speed(s/it)": round(per_step, 4),
        }
        self._append(entry)
        say("  ".join(text.format(entry[key]) for key, text in _SHOWN.items() if key in entry))

    def summarise(self, summary: dict[str, Any]) -> None:
        self._append(summary)

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _step(line: str) -> int | None:
    """The step of a log line; None for a summary."""
    progress = json.loads(line).get("global_step/max_steps")
    return None if progress is None else int(progress.partition("/")[0])


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m {seconds}s" if hours else f"{minutes}m {seconds}s"
