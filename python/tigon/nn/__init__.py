"""Modules for models of your own: their parameters, and one call of an operator."""

from tigon.nn.loss import CrossEntropyLoss, LinearCrossEntropyLoss
from tigon.nn.mlp import SwiGLUMLP
from tigon.nn.norm import LayerNorm, RMSNorm

__all__ = ["CrossEntropyLoss", "LayerNorm", "LinearCrossEntropyLoss", "RMSNorm", "SwiGLUMLP"]
