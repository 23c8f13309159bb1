"""Ctrl-C and SIGTERM end a run after the optimiser step in progress, with a checkpoint."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback

from tigon.train.console import say, world_size

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt(TrainerCallback):  # type: ignore[misc]
    """Within its `with` block, remembers a signal until the step ends; the Trainer then saves and stops.

    Saving from the handler (or from an `except`) would store random states that are ahead of the weights.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        # A launcher may pass on what the terminal has sent already, so only a lone process takes a second Ctrl-C.
        if self.received is not None and number == signal.SIGINT and world_size() == 1:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number)
            hint = " (Ctrl-C again: stop at once)" if world_size() == 1 else ""
            say(f"\n{self.received.name}: finishing this step, then saving{hint}.")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._agreed(args.device):
            control.should_save = control.should_log = control.should_training_stop = True
            control.should_evaluate = False

    def _agreed(self, device: torch.device) -> bool:
        """Whether any process was told to stop: they must all leave at the same step."""
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            number = torch.tensor(self.received or 0, device=device)
            torch.distributed.all_reduce(number, op=torch.distributed.ReduceOp.MAX)
            if int(number) and self.received is None:
                self.received = signal.Signals(int(number))
        return self.received is not None
