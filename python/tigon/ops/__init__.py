"""The operators: public functions, autograd formulas and fake kernels."""

from tigon.ops import _gemm  # noqa: F401  registers an operator that the CUDA library calls
from tigon.ops._library import Library, has_kernels, libraries
from tigon.ops.add_rms_norm import add_rms_norm
from tigon.ops.cross_entropy import CrossEntropyOutput, cross_entropy
from tigon.ops.geglu import geglu
from tigon.ops.layer_norm import layer_norm
from tigon.ops.linear_cross_entropy import linear_cross_entropy
from tigon.ops.linear_logprob import LogProbOutput, linear_logprob
from tigon.ops.rms_norm import rms_norm
from tigon.ops.rope import rope
from tigon.ops.softmax import softmax
from tigon.ops.swiglu import swiglu

__all__ = [
    "CrossEntropyOutput",
    "Library",
    "LogProbOutput",
    "add_rms_norm",
    "cross_entropy",
    "geglu",
    "has_kernels",
    "layer_norm",
    "libraries",
    "linear_cross_entropy",
    "linear_logprob",
    "rms_norm",
    "rope",
    "softmax",
    "swiglu",
]
