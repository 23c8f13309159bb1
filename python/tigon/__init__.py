"""Tigon: fused Transformer kernels for PyTorch and Hugging Face models."""

from tigon.hf import PatchReport, patch, unpatch
from tigon.ops import *  # noqa: F403
from tigon.ops import __all__ as _operators
from tigon.version import __version__

__all__ = [*_operators, "PatchReport", "__version__", "patch", "unpatch"]
