"""Names that the command line knows before torch is imported, and the versions of the packages behind them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

import tigon

ROW_WISE = (
    "rms_norm",
    "add_rms_norm",
    "layer_norm",
    "softmax",
    "rope",
    "swiglu",
    "swiglu_packed",
    "geglu",
    "cross_entropy",
)
HEAD = "linear_cross_entropy"
RANK = {"rope": 6, HEAD: 3}  # of a shape; 2 for all others

# By peer: the distribution that it comes from; PyTorch's own have none of their own.
PACKAGES = {
    "eager": None,
    "F": None,
    "compile": None,
    "liger": "liger-kernel",
    "liger-cute": "liger-kernel",
    "quack": "quack-kernels",
    "cce": "cut-cross-entropy",
    "trl": "trl",
    "kernels": "kernels",
    "unsloth": "unsloth",
}
PEERS = tuple(PACKAGES)


def label(op: str, shape: Iterable[int], dtype: str, note: str = "") -> str:
    """`softmax 16384×4096 bfloat16`, and what sets the case apart from others of its operator and shape."""
    words = [op, "×".join(map(str, shape)), dtype, note]
    return " ".join(word for word in words if word)


def versions(peers: Iterable[str], packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of torch, Tigon, these packages and those of these peers, by name; what is not installed is left out."""
    import torch  # whoever measures has it already

    wanted = [*packages, *(name for peer in peers if (name := PACKAGES.get(peer)))]
    found = {"torch": torch.__version__, "tigon": tigon.__version__}
    for name in dict.fromkeys(wanted):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
