"""Tensor maps, by the driver's own encoder."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver

from gemmctl.device.cuda.calls import check
from gemmctl.kernels.constants import MAP_BYTES
from gemmctl.operands import dtypes


def encode_map(
    dtype: str,
    address: int,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    *,
    swizzled: bool = True,
) -> npt.NDArray[np.uint8]:
    """A tensor map by the driver: 128 bytes.

    ``extents`` and ``box`` count elements, innermost first; ``strides`` are the bytes from one to
    the next in every dimension but the first. ``swizzled``: rows of a box, of 128 bytes, have their
    16-byte words permuted in shared memory.

    Called through the driver's entry point: the Python wrapper hands over unaligned memory.
    """
    _, entry, *_ = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0)
    encode = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
        *[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4,
    )(int(entry))  # fmt: skip
    rank = len(box)
    room = np.zeros(2 * MAP_BYTES, np.uint8)
    skip = -room.ctypes.data % MAP_BYTES
    made = room[skip : skip + MAP_BYTES]
    # CUtensorMapSwizzle, L2promotion, FloatOOBfill. 256 bytes at a time would bring the next K tile
    # along with this one, and delay whoever waits for this one.
    swizzle_128, l2_128, zeros = 3, 2, 0
    result = encode(
        made.ctypes.data,
        dtypes.BY_NAME[dtype].tensormap_code,
        rank,
        address,
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * (rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,
        swizzle_128 if swizzled else 0,
        l2_128,
        zeros,
    )
    check(driver.CUresult(result), "the driver refuses a tensor map")
    return made
