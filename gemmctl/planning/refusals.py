"""What no kernel can run, with the reason and the nearest legal value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gemmctl.errors import Mark
from gemmctl.kernels.constants import REDUCED_ROWS
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Group, Problem
from gemmctl.operands import dtypes

MAX_TILES = 1 << 24  # entries of a problem's tile lists: 1 GB, for a D that fills an H200's memory


def refusals(group: Group, kernels: Sequence[Kernel]) -> Iterable[tuple[Mark, str]]:
    """What keeps the kernels from running a group, if anything."""
    pairs = {(kernel.operand, kernel.output) for kernel in kernels}
    operands = sorted({operand for operand, _ in pairs})
    outputs = sorted({output for _, output in pairs})
    if group.a != group.b:
        yield (
            group.where("b", "a"),
            f"a is {group.a} and b is {group.b}: the kernels multiply operands of one type; "
            f"set both to the same of {', '.join(operands)}",
        )
    elif group.a not in operands:
        yield (
            group.where("a", "b"),
            f"no kernel multiplies {group.a} operands; use one of {', '.join(operands)}",
        )
    if group.d not in outputs:
        yield (
            group.where("d"),
            f"no kernel writes {group.d}; use one of {', '.join(outputs)}",
        )
    elif group.a in operands and (group.a, group.d) not in pairs:
        outputs = sorted(output for operand, output in pairs if operand == group.a)
        yield (
            group.where("d", "a"),
            f"no kernel writes {group.d} from {group.a} operands; use {', '.join(outputs)}",
        )
    for key, layout, wanted in (
        ("a_layout", group.a_layout, "row"),
        ("b_layout", group.b_layout, "col"),
        ("d_layout", group.d_layout, "row"),
    ):
        if layout != wanted:
            yield (
                group.where(key),
                f"{key} {layout} has no kernel yet; store that matrix as {key}: {wanted}",
            )
    if group.m == 0 or group.n == 0 or group.k == 0:
        return
    # TMA: strides are multiples of 16 bytes and below 2^40 (PTX ISA, tensor maps).
    for key, value, extent, element in (
        ("lda", group.lda, "k", group.a),
        ("ldb", group.ldb, "k", group.b),
    ):
        size = dtypes.BY_NAME[element].size
        step, end = 16 // size, (1 << 40) // size
        legal = _nearest_multiple(value, step, getattr(group, extent), end)
        if value % step:
            packed = "" if key in group.marks else f" ({key} defaults to {extent})"
            yield (
                group.where(key, extent),
                f"{key} is {value}{packed}, but TMA rows start on 16-byte boundaries: {key} must "
                f"be a multiple of {step} for {element}; the nearest is {key}: {legal}",
            )
        elif value >= end:
            yield (
                group.where(key, extent),
                f"{key} is {value}, but TMA rows lie less than 2^40 bytes apart: {key} must be "
                f"below {end} for {element}; the nearest is {key}: {legal}",
            )


def too_many_tiles(problem: Problem) -> Iterable[tuple[Mark, str]]:
    """A problem whose tile list nobody would have the memory for; at its largest group."""
    columns = problem.columns
    rows = np.where(columns.k == 0, REDUCED_ROWS, 64)  # of the smallest tiles
    tiles = -(-columns.m // rows) * -(-columns.n // 64)
    if len(tiles) and (total := int(tiles.sum())) > MAX_TILES:
        yield (
            problem.groups[int(tiles.argmax())].where("m", "n"),
            f"D of problem '{problem.name}' falls into {total} tiles, of which at most {MAX_TILES} "
            "are planned at a time; make this group smaller, or put groups into another problem",
        )


def _nearest_multiple(value: int, step: int, low: int, end: int) -> int:
    """The multiple of ``step`` in [low, end) that is nearest to ``value``; of two, the larger."""
    below = min(value, end - 1) // step * step
    above = below + step
    if above < end and (below < low or value - below >= above - value):
        return above
    return below
