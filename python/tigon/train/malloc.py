"""Let glibc keep freed blocks, so that training on a CPU does not fault the same pages in at every step."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Serve large blocks from the heap and never shrink it; False where the C library has no such setting."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    largest = 2**31 - 1  # the settings are C ints
    # Either call also ends glibc's own adjustment of both thresholds.
    return bool(mallopt(_M_MMAP_THRESHOLD, largest)) and bool(mallopt(_M_TRIM_THRESHOLD, largest))
