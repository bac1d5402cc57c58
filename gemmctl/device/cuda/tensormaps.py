"""Tensor maps, by the driver's own encoder."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver

from gemmctl.device.cuda.calls import check
from gemmctl.operands import dtypes

MAP_BYTES = 128  # of a tensor map, which has to lie on a multiple of it


def encode_map(
    dtype: str, address: int, extents: tuple[int, int], row_bytes: int, box: tuple[int, int]
) -> npt.NDArray[np.uint8]:
    """A tensor map of a matrix, by the driver: 128 bytes, extents and box innermost first.

    Called through the driver's entry point: the Python wrapper hands over unaligned memory.
    """
    _, entry, *_ = driver.cuGetProcAddress(b"cuTensorMapEncodeTiled", 12000, 0)
    encode = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
        *[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4,
    )(int(entry))  # fmt: skip
    room = np.zeros(2 * MAP_BYTES, np.uint8)
    skip = -room.ctypes.data % MAP_BYTES
    made = room[skip : skip + MAP_BYTES]
    # CUtensorMapSwizzle, L2promotion, FloatOOBfill. 256 bytes at a time would bring the next K tile
    # along with this one, and delay whoever waits for this one.
    swizzle_128, l2_128, zeros = 3, 2, 0
    result = encode(
        made.ctypes.data,
        dtypes.BY_NAME[dtype].tensormap_code,
        2,
        address,
        (ctypes.c_uint64 * 2)(*extents),
        (ctypes.c_uint64 * 1)(row_bytes),
        (ctypes.c_uint32 * 2)(*box),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        swizzle_128,
        l2_128,
        zeros,
    )
    check(driver.CUresult(result), "the driver refuses a tensor map")
    return made
