"""Tigon: fused Transformer kernels for PyTorch and Hugging Face models."""

from tigon.ops import *  # noqa: F403
from tigon.ops import __all__ as _operators

__version__ = "0.1.0"

__all__ = [*_operators, "__version__"]
