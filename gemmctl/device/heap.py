"""Keep freed memory in this process, where threads take and free arrays of megabytes all the time.

glibc gives memory back to the system when the end of a heap is free, and takes it again a page at a
time: 230 page faults for each group of 128x112x280 made verify take 1.6 times as long on one core
(November 2026, glibc 2.36), and all threads wait for one another in them.
"""

from __future__ import annotations

import ctypes
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BYTES = 64 << 20  # at the end of each thread's heap, which glibc lets grow to 64 MB


@cache
def keep_freed_memory() -> None:
    """Do so from now on; nothing where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES // 2)  # the most that mallopt takes
