"""Keep numpy's BLAS to the thread that calls it.

gemmctl runs many products at once, each on a thread of its own. OpenBLAS would spread each of them
over all cores, let their callers wait for one another, and spin: 1000 groups of about 128x112x280
took 3 to 32 s to verify on two busy cores that way, and take 1 s this way (November 2026, OpenBLAS
0.3.31).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib import import_module
from typing import Any

THREADS = min(
    32, os.cpu_count() or 1
)  # callers at a time: OpenBLAS has memory for a limited number


def keep_to_callers() -> None:
    """From now on a product runs on its caller's thread; a BLAS that is not OpenBLAS stays.

    For good: whoever is interrupted leaves threads behind that are still at their products.
    """
    library = _openblas()
    if library is not None:
        _, write = library
        write(1)


@cache
def _openblas() -> tuple[Any, Any] | None:
    """OpenBLAS's functions that read and set its number of threads, if numpy is linked to it."""
    # A library's handle finds the functions of those it is linked to, too.
    numpy = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
    for prefix, suffix in (("scipy_", "64_"), ("", "64_"), ("", "")):
        try:
            return (
                numpy[f"{prefix}openblas_get_num_threads{suffix}"],
                numpy[f"{prefix}openblas_set_num_threads{suffix}"],
            )
        except AttributeError:
            continue
    return None
