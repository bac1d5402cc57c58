"""The kernels that build the tensor maps of a launch, where its groups lie."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmctl.device.cuda.gpu import Gpu
from gemmctl.device.cuda.tensormaps import encode_map
from gemmctl.device.cuda.uploading import Ready
from gemmctl.kernels.constants import (
    BOX_ROWS,
    BOXED_ROWS,
    K_TILE,
    MAP_BYTES,
    MAP_THREADS,
    MAPS,
    RESIDUE_LEAD,
    RESIDUE_ROW_BYTES,
    RESIDUES,
    WIDTH_STEP,
    WIDTHS,
)
from gemmctl.kernels.cubins import Kernel
from gemmctl.operands import dtypes
from gemmctl.planning.tiles import Launch

Box = tuple[str, tuple[int, ...]]  # its elements' type and how many, innermost first


@dataclass(frozen=True)
class Builder:
    """A kernel that builds tensor maps, a thread each."""

    function: Any
    maps: int
    told: list[Any]

    def queue(self, device: Gpu, stream: int) -> None:
        """Queue it on a stream."""
        ctas = -(-self.maps // MAP_THREADS)
        device.launch(self.function, (ctas, 1), MAP_THREADS, self.told, stream=stream)


@dataclass(frozen=True)
class Copy:
    """A copy of the maps of a launch's first groups to constant memory, where its kernel looks."""

    ready: Ready

    def queue(self, device: Gpu, stream: int) -> None:
        """Queue it on a stream."""
        params = self.ready.params
        row = params.constants.each * MAP_BYTES
        to, source = (self.ready.constants, row), (params.maps, MAPS * MAP_BYTES)
        device.copy_rows(to, source, row, params.constants.groups, stream)


class Builders:
    """The kernels for the launches of one plan, loaded. Operands lie behind ``base``."""

    def __init__(self, device: Gpu, launches: Sequence[Launch], base: int) -> None:
        self._base = base
        self._made: dict[Kernel, Any] = {}
        self._of_operands = device.support("build_maps")
        if any(launch.residues for launch in launches):
            self._of_residues = device.support("build_residues")

    def of(self, ready: Ready) -> Iterator[Builder | Copy]:
        """Those of a launch: of its operands and, if some C comes by residues, of that.

        Behind them comes the copy to constant memory, if there is room.
        """
        kernel, params, groups = ready.launch.kernel, ready.params, len(ready.launch.groups)
        if kernel not in self._made:  # there may be a launch for each group
            self._made[kernel] = self._templates(_boxes(kernel))
        told = [
            self._made[kernel],
            params.groups,
            ctypes.c_uint32(groups),
            ctypes.c_uint64(params.maps),
            ctypes.c_uint32(dtypes.BY_NAME[kernel.operand].size),
            ctypes.c_uint32(kernel.a_across),
            ctypes.c_uint32(kernel.b_across),
            ctypes.c_uint32(kernel.b_unaligned),
            ctypes.c_uint32(kernel.run),
        ]
        yield Builder(self._of_operands, MAPS * groups, told)
        if params.residues:
            told = [
                self._templates(_residue_boxes(), swizzled=False),
                params.groups,
                ctypes.c_uint32(groups),
                ctypes.c_uint64(params.residues),
            ]
            yield Builder(self._of_residues, RESIDUES * groups, told)
        if params.constants.groups:
            yield Copy(ready)

    def _templates(self, boxes: Sequence[Box], *, swizzled: bool = True) -> Any:
        """Tensor maps of types and boxes. Only the box counts: kernels put in the rest."""
        templates = b"".join(
            encode_map(
                dtype, self._base, box, (256,) * (len(box) - 1), box, swizzled=swizzled
            ).tobytes()
            for dtype, box in boxes
        )
        return (ctypes.c_uint8 * len(templates)).from_buffer_copy(templates)


def _boxes(kernel: Kernel) -> list[Box]:
    """Every box that A, B, C or a D that leaves by TMA may take: of A and C one for each width."""
    widths = [WIDTH_STEP * (i + 1) for i in range(WIDTHS)]
    a = [
        (BOX_ROWS, K_TILE // kernel.cluster)
        if kernel.a_across
        else (K_TILE, width // kernel.cluster)
        for width in widths
    ]
    # Of rows that are shuffled, whole runs (cubin/src/epilogue/shuffled.cuh).
    runs = [
        (K_TILE, 2, 4, kernel.run // 8, max(1, width // kernel.cluster // kernel.run))
        for width in widths
    ]
    b = (BOX_ROWS, K_TILE) if kernel.b_across else (K_TILE, kernel.rows)
    # Rows of B that a gate multiplies, eight and eight: of a few, and of a tile.
    pairs = [(K_TILE, 8, 2), (K_TILE, 8, 2, kernel.rows // 16)]
    return [
        *((kernel.operand, box) for box in (*a, *runs, b, *pairs)),
        *(("bf16", (64, width)) for width in widths),  # of C, 128 bytes wide
        *(("f32", (32, width)) for width in widths),
        ("f32", (32, 2, BOXED_ROWS)),  # rows of 64 columns,
        ("f32", (32, 2, BOXED_ROWS // 2, 2)),  # the even ones before the odd ones
    ]


def _residue_boxes() -> list[Box]:
    """Every box that C by residues may take."""
    rows = [WIDTH_STEP * (i + 1) // RESIDUES + RESIDUE_LEAD for i in range(WIDTHS)]
    return [
        *(("bf16", (RESIDUE_ROW_BYTES // 2, count)) for count in rows),
        *(("f32", (RESIDUE_ROW_BYTES // 4, count)) for count in rows),
    ]
