"""Tell the allocator to keep what is freed: every step needs the same large tensors again.

By default glibc returns them to the system, which hands them back page by page, zeroed: for models of some
hundred thousand parameters that took longer than the gradients. The price: a process keeps its peak memory.
"""

from __future__ import annotations

import ctypes
import functools
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 1 << 25  # glibc's own limit for blocks on its heap


@functools.cache
def keep_freed_memory() -> bool:
    """Do so once, where the C library is glibc; say whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT) and library.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
    )
