"""What the kernels take, as C has it."""

from __future__ import annotations

import ctypes
from dataclasses import fields

from gemmctl.planning.tables import Tables

_TABLES = [field.name for field in fields(Tables)]
GROUP_ARRAYS = _TABLES[: _TABLES.index("tiles")]  # what is behind is the CPU's


class GroupArrays(ctypes.Structure):
    """Groups in records.cuh. The arrays of Tables in front of the tiles, in the same order."""

    _fields_ = [(name, ctypes.c_uint64) for name in GROUP_ARRAYS]


class Ring(ctypes.Structure):
    """Ring in records.cuh."""

    _fields_ = [("stages", ctypes.c_uint32), ("stage_bytes", ctypes.c_uint32)]


class ConstantMaps(ctypes.Structure):
    """ConstantMaps in records.cuh."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("first", "groups", "each")]


class Params(ctypes.Structure):
    """Params in records.cuh."""

    _fields_ = [
        ("tiles", ctypes.c_uint64),
        ("tile_count", ctypes.c_uint32),
        ("ahead", ctypes.c_uint32),
        ("ring", Ring),
        ("counter", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("tables", ctypes.c_uint64),
        ("tables_bytes", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("maps", ctypes.c_uint64),  # MAPS for each group
        ("residues", ctypes.c_uint64),  # RESIDUES for each, of C by residues; 0: none comes so
        ("constants", ConstantMaps),
        ("groups", GroupArrays),
    ]
