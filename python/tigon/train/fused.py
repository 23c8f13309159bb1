"""Patch the model with Tigon's operators as `--fused` says, and prove afterwards that they ran."""

from __future__ import annotations

from typing import Any

from tigon.train.console import say
from tigon.train.options import OptionError


def patch(model: Any, mode: str, *, quiet: bool = False) -> Any:
    """The patch report, or None where the model runs on its own code."""
    if mode == "false":
        return None
    try:
        from tigon.hf import patch as patch_model

        report = patch_model(model)
    except (ImportError, OSError, RuntimeError) as error:
        if mode == "true":
            raise OptionError(f"--fused true: {error}") from error
        if not quiet:
            say(f"Not fused: {error}")
        return None
    if not quiet:
        say(str(report))
    if mode == "true" and not any(row.reason is None for row in report.rows):
        raise OptionError("--fused true: nothing of this model was patched, see the table above.")
    return report


def summarise(report: Any, mode: str) -> int:
    """Print how many fused calls were made; raise if fusion was requested and never happened."""
    if report is None:
        return 0
    calls: int = sum(report.calls.values()) + sum(report.compiled.values())
    parts = ", ".join(f"{part} {count:,}" for part, count in sorted(report.calls.items()) if count)
    say(f"Fused calls: {calls:,}" + (f" ({parts})" if parts else ""))
    for part, reasons in sorted(report.fallbacks.items()):
        for reason, count in reasons.items():
            say(f"  {part}: {count:,} calls ran in PyTorch: {reason}")
    if mode == "true":
        try:
            report.require()
        except RuntimeError as error:
            raise OptionError(f"--fused true: {error}") from error
    return calls
