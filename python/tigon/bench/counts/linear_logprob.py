"""linear_logprob: the FLOPs of its matrix products. T rows that count, H, V."""

from __future__ import annotations


def flops(shape: tuple[int, int, int], direction: str, *, trainable: bool) -> int:
    """One product for the logits; backward computes them again, then dx, and dweight where the head is trained."""
    rows, hidden, vocab = shape
    products = {"forward": 1, "both": 4 if trainable else 3}[direction]
    return products * 2 * rows * hidden * vocab
