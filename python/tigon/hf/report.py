"""What was patched, what was left alone and why, and how often the fused code has run since."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

import torch

PARTS = ("rms_norm", "rope", "mlp", "loss")

_log = logging.getLogger("tigon")


class Unsupported(RuntimeError):
    """A part was asked for by name and cannot be had."""


@dataclass(frozen=True)
class Row:
    """One module class of the model. `count` is None for a class-wide patch."""

    part: str
    module_class: str
    count: int | None
    reason: str | None = None  # why left alone; None: patched


@dataclass
class PatchReport:
    """Returned by `patch`; goes on counting while the model runs.

    `calls[part]` fused calls made. `compiled[part]` fused calls traced into compiled graphs, whose
    runs cannot be counted. `fallbacks[part][reason]` calls that went to PyTorch.
    """

    rows: list[Row] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    compiled: Counter[str] = field(default_factory=Counter)
    fallbacks: dict[str, Counter[str]] = field(default_factory=dict)

    def patched(self, part: str) -> bool:
        return any(row.part == part and row.reason is None for row in self.rows)

    def require(self, *parts: str) -> None:
        """Raise unless each part (default: every part that was patched) has run fused.

        A forward that somebody installed above ours, or a loss computed outside the model, shows
        up here: patched, and never called.
        """
        for part in parts or tuple(part for part in PARTS if self.patched(part)):
            if self.calls[part] or self.compiled[part]:
                continue
            reasons = [*self.fallbacks.get(part, ())]
            reasons += [row.reason for row in self.rows if row.part == part and row.reason]
            why = "; ".join(reasons) or "its forward was never reached"
            raise Unsupported(f"{part} was requested and made 0 fused calls: {why}")

    def __str__(self) -> str:
        table = [("part", "module class", "count", "")]
        for row in sorted(self.rows, key=lambda row: PARTS.index(row.part)):
            count = "class" if row.count is None else str(row.count)
            table.append((row.part, row.module_class, count, row.reason or "patched"))
        widths = [max(len(line[column]) for line in table) for column in range(3)]
        lines = []
        for *cells, state in table:
            padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            lines.append("  ".join([*padded, state]).rstrip())
        for part in PARTS:
            counts = [f"{self.calls[part]} fused"] if self.calls[part] else []
            if self.compiled[part]:
                counts.append(f"{self.compiled[part]} traced into compiled graphs")
            counts += [f"{n} PyTorch ({reason})" for reason, n in self.fallbacks.get(part, {}).items()]
            if counts:
                lines.append(f"{part} calls: " + ", ".join(counts))
        return "\n".join(lines)


class Tally:
    """Counts the calls of one part. A compiled graph never reads or writes the counters."""

    def __init__(self, report: PatchReport, part: str, by_name: bool) -> None:
        self._report = report
        self._part = part
        self._by_name = by_name
        # Dynamo runs these while it traces, and puts only their constant result into the graph. Marked here and not by
        # a decorator: the mark imports Dynamo, and `import tigon` should not.
        for function in (Tally._traced, Tally._note_fallback):
            torch.compiler.assume_constant_result(function)

    def fused(self) -> None:
        if torch.compiler.is_compiling():
            self._traced()
        else:
            self._report.calls[self._part] += 1

    def fallback(self, reason: str) -> None:
        """PyTorch runs although fusion was wanted: said once, and refused if asked for by name."""
        if torch.compiler.is_compiling():
            self._note_fallback(reason)
        else:
            self._fallback(reason)

    def bypassed(self, reason: str) -> None:
        """The caller went around us: said once, never refused."""
        if not torch.compiler.is_compiling():
            self._say_once(reason)

    def declined(self, reason: str) -> None:
        """PyTorch runs because the caller wants what only it gives: counted, not said."""
        if not torch.compiler.is_compiling():
            self._count(reason)

    def _traced(self) -> bool:
        self._report.compiled[self._part] += 1
        return True

    def _note_fallback(self, reason: str) -> bool:
        self._fallback(reason)
        return True

    def _fallback(self, reason: str) -> None:
        if self._by_name:
            raise Unsupported(f"{self._part}=True, but {reason}")
        self._say_once(reason)

    def _say_once(self, reason: str) -> None:
        if self._count(reason) == 1:
            _log.warning("tigon: %s runs in PyTorch: %s", self._part, reason)

    def _count(self, reason: str) -> int:
        reasons = self._report.fallbacks.setdefault(self._part, Counter())
        reasons[reason] += 1
        return reasons[reason]
