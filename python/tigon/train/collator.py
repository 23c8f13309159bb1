"""Batches padded on the right to their longest sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from tigon.train.template import IGNORE, Encoded


@dataclasses.dataclass(frozen=True)
class PaddingCollator:
    """Pads by position, not by token: where pad and end-of-sequence are one token, the real end stays learned."""

    pad_id: int
    multiple_of: int | None = None

    def __call__(self, samples: Sequence[Encoded]) -> dict[str, torch.Tensor | int]:
        longest = max(len(sample.input_ids) for sample in samples)
        length = -(-longest // self.multiple_of) * self.multiple_of if self.multiple_of else longest
        shape = (len(samples), length)
        input_ids = torch.full(shape, self.pad_id, dtype=torch.long)
        labels = torch.full(shape, IGNORE, dtype=torch.long)
        mask = torch.zeros(shape, dtype=torch.long)
        for row, sample in enumerate(samples):
            used = len(sample.input_ids)
            input_ids[row, :used] = torch.tensor(sample.input_ids)
            labels[row, :used] = torch.tensor(sample.labels)
            mask[row, :used] = 1
        return {
            "input_ids": input_ids,
            "attention_mask": mask,
            "labels": labels,
            # Counted here, on the host, where it costs no wait for the device.
            "tokens": int(mask.sum()),
            "learned": int((labels[:, 1:] != IGNORE).sum()),
        }
