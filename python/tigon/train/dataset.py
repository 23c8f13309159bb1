"""The encoded data set: read, convert, tokenise, count what was dropped, hold out a part for evaluation."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from torch.utils.data import Dataset

from tigon.train.files import read_rows
from tigon.train.formats import Sample, convert
from tigon.train.options import OptionError
from tigon.train.template import IGNORE, Encoded, Template, truncate


class EncodedDataset(Dataset[Encoded]):
    """Samples as token ids and labels, with a report of what became of the raw rows."""

    def __init__(self, samples: Sequence[Encoded], counts: Counter[str], max_length: int) -> None:
        self.samples = samples
        self.counts = counts
        self.max_length = max_length

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Encoded:
        return self.samples[index]

    def summary(self) -> str:
        lengths = [len(sample.input_ids) for sample in self.samples]
        learned = sum(label != IGNORE for sample in self.samples for label in sample.labels)
        line = (
            f"{len(self)} of {self.counts['rows']} samples, {min(lengths)} to {max(lengths)} tokens long, "
            f"{sum(lengths) / len(lengths):.0f} on average; {learned} of {sum(lengths)} tokens are learned"
        )
        details = {
            "dropped": f"longer than {self.max_length} tokens: dropped",
            "truncated": f"longer than {self.max_length} tokens: truncated, so without their end or beginning",
            "empty": "without an answer: dropped",
        }
        return "\n".join([line, *(f"  {self.counts[key]} {text}" for key, text in details.items() if self.counts[key])])


def load_samples(sources: Iterable[str], *, plain_text: bool = False) -> list[Sample]:
    return [sample for source in sources for sample in convert(read_rows(source), source, plain_text=plain_text)]


def encode(samples: Sequence[Sample], template: Template, max_length: int, strategy: str) -> EncodedDataset:
    counts: Counter[str] = Counter(rows=len(samples))
    kept = []
    for sample in samples:
        encoded = template.encode(sample)
        if encoded is None:
            counts["empty"] += 1
            continue
        fitting = truncate(encoded, max_length, strategy)
        if fitting is None:
            counts["dropped"] += 1
            continue
        counts["truncated"] += fitting is not encoded
        kept.append(fitting)
    if not kept:
        raise OptionError(
            f"no sample is left of {len(samples)}: {counts['dropped']} are longer than --max_length {max_length} or "
            f"lose their answer when cut, {counts['empty']} have no answer."
        )
    return EncodedDataset(kept, counts, max_length)


def split(samples: Sequence[Sample], ratio: float, seed: int) -> tuple[list[Sample], list[Sample]]:
    """Hold out `ratio` of the samples, at least one, the same ones for the same seed."""
    if ratio == 0:
        return list(samples), []
    if len(samples) < 2:
        raise OptionError("--split_dataset_ratio needs at least two samples.")
    held = min(len(samples) - 1, max(1, round(len(samples) * ratio)))
    chosen = set(random.Random(seed).sample(range(len(samples)), held))
    return (
        [sample for i, sample in enumerate(samples) if i not in chosen],
        [sample for i, sample in enumerate(samples) if i in chosen],
    )


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write samples as jsonl that --val_dataset reads back."""
    with path.open("w", encoding="utf-8") as file:
        for sample in samples:
            row = {k: v for k, v in dataclasses.asdict(sample).items() if v}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
