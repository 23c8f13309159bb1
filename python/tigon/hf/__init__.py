"""Patch Hugging Face models so that they call Tigon's operators."""

from tigon.hf.patching import patch, unpatch
from tigon.hf.report import PatchReport, Unsupported

__all__ = ["PatchReport", "Unsupported", "patch", "unpatch"]
