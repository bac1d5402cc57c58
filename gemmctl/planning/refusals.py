"""What no kernel can run, with the reason and the nearest legal value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gemmctl.errors import Mark, listed
from gemmctl.kernels.constants import REDUCED_ROWS
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import LAYOUTS, WORD, Columns, Group, Problem
from gemmctl.operands import dtypes
from gemmctl.planning.exchange import exchanged
from gemmctl.planning.fitting import NEAR_BYTES

LEAVE = "leave the choice of a kernel to the plan"
MAX_TILES = 1 << 24  # entries of a problem's tile lists: 1 GB, for a D that fills an H200's memory

Refusal = tuple[Mark, str]
# Which groups of a problem a rule refuses, and in which words.
Rule = tuple[npt.NDArray[np.bool_], Callable[[Group], Iterable[Refusal]]]


def refusals(problem: Problem, kernels: Sequence[Kernel]) -> list[Refusal]:
    """What keeps the kernels from running a problem, each once; nothing if they can.

    A problem whose tile list nobody would have the memory for is refused at its largest group.
    """
    by_rows = exchanged(problem)  # what kernels are asked for, and tiles are cut of
    rules = [
        *_types(problem.columns, kernels),
        *_layouts(by_rows.columns, kernels),
        *_gates(problem.columns),
        *_by_columns(by_rows, kernels),
        *_unaligned(by_rows, kernels),
    ]
    return [*_told(problem, rules), *_too_many_tiles(problem, by_rows.columns)]


def _told(problem: Problem, rules: Sequence[Rule]) -> list[Refusal]:
    """What rules say of a problem's groups, each once, in the order of the groups."""
    refused = np.flatnonzero(np.logical_or.reduce([mask for mask, _ in rules]))
    first = {id(problem.groups[index]): index for index in reversed(refused.tolist())}
    found: dict[Refusal, None] = {}
    for index in sorted(first.values()):
        for mask, told in rules:
            if mask[index]:
                found.update(dict.fromkeys(told(problem.groups[index])))
    return list(found)


def _types(columns: Columns, kernels: Sequence[Kernel]) -> Iterator[Rule]:
    pairs = {(kernel.operand, kernel.output) for kernel in kernels}
    operands = sorted({operand for operand, _ in pairs})
    outputs = sorted({output for _, output in pairs})
    chosen = _chosen(kernels)

    def mixed(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("b", "a"),
            f"a is {group.a} and b is {group.b}: the kernels multiply operands of one type; "
            f"set both to the same of {', '.join(operands)}",
        )

    def operand(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("a", "b"),
            f"no kernel multiplies {group.a} operands; use one of {', '.join(operands)}",
        )

    def output(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("d"),
            f"no kernel writes {group.d}; use one of {', '.join(outputs)}",
        )

    def pair(group: Group) -> Iterator[Refusal]:
        leave = f", or {LEAVE}" if chosen else ""
        possible = sorted(output for operand, output in pairs if operand == group.a)
        yield (
            group.where("d", "a"),
            f"no {chosen or 'kernel'} writes {group.d} from {group.a} operands; use one of "
            f"{', '.join(possible)}{leave}",
        )

    def codes(names: Iterable[str]) -> list[int]:
        return [dtypes.BY_NAME[name].code for name in names]

    def both(a: npt.ArrayLike, d: npt.ArrayLike) -> npt.NDArray[np.int64]:
        joined: npt.NDArray[np.int64] = np.asarray(a) * len(dtypes.BY_NAME) + np.asarray(d)
        return joined

    alike = columns.a == columns.b
    multiplied, written = np.isin(columns.a, codes(operands)), np.isin(columns.d, codes(outputs))
    possible = both(codes(a for a, _ in pairs), codes(d for _, d in pairs))
    yield ~alike, mixed
    yield alike & ~multiplied, operand
    yield ~written, output
    yield multiplied & written & ~np.isin(both(columns.a, columns.d), possible), pair


def _chosen(kernels: Sequence[Kernel]) -> str | None:
    """The name of the only kernel that may be taken; None if there are others."""
    names = {kernel.name for kernel in kernels}
    return names.pop() if len(names) == 1 else None


def _layouts(columns: Columns, kernels: Sequence[Kernel]) -> Iterator[Rule]:
    """Layouts that no kernel takes of a pair of types that some kernel multiplies."""

    def missing(operand: str, output: str, a: str, b: str) -> npt.NDArray[np.bool_]:
        layouts = (columns.a_layout == LAYOUTS.index(a)) & (columns.b_layout == LAYOUTS.index(b))
        types = dtypes.BY_NAME[operand].code, dtypes.BY_NAME[output].code
        found: npt.NDArray[np.bool_] = layouts & (columns.a == types[0]) & (columns.d == types[1])
        return found

    chosen = _chosen(kernels)

    def told(group: Group) -> Iterator[Refusal]:
        mend = LEAVE if chosen else f"take d: {group.a} or f32"
        yield (
            group.where("a_layout", "b_layout", "d_layout"),
            f"no {chosen or 'kernel'} takes {group.a} from A {group.a_layout} and B "
            f"{group.b_layout} to {group.d} in D {group.d_layout}; {mend}, or store A row and B "
            "col",
        )

    taken = {kernel.multiplies for kernel in kernels}
    for operand, output in sorted({(kernel.operand, kernel.output) for kernel in kernels}):
        for a in LAYOUTS:
            for b in LAYOUTS:
                if (operand, output, a, b) not in taken:
                    yield missing(operand, output, a, b), told


def _gates(columns: Columns) -> Iterator[Rule]:
    """Gates of columns that do not lie as the kernels' way to multiply them needs it."""

    def by_columns(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("d_layout", "gate"),
            "a gate pairs columns of A B + C, and a D in layout col is computed with rows and "
            "columns exchanged; store it as d_layout: row",
        )

    def in_lines(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("b_layout", "gate"),
            "a gate takes columns of B in an order of its own, which no kernel can do of a B in "
            "layout row; store it as b_layout: col",
        )

    gated, by_rows = columns.gate != 0, ~columns.across("d")
    yield gated & ~by_rows, by_columns
    yield gated & by_rows & columns.across("b"), in_lines


def _by_columns(problem: Problem, kernels: Sequence[Kernel]) -> Iterator[Rule]:
    """What kernels that write D by columns cannot compute, where there are no others."""

    def more(group: Group) -> Iterator[Refusal]:
        behind = {
            "beta": group.beta != 0,
            "bias": group.bias != "none",
            "activation": group.activation != "none",
            "gate": group.gate != "none",
        }
        yield (
            group.where(*(key for key, there in behind.items() if there)),
            f"{kernels[0].name} computes D = alpha A B and nothing more; {LEAVE}",
        )

    def elements(group: Group) -> Iterator[Refusal]:
        run, word = "m" if group.across("d") else "n", WORD // dtypes.BY_NAME[group.d].size
        keys = run, "ldd", "d_offset"
        yield (
            group.where(next((key for key in keys if getattr(group, key) % word), "ldd")),
            f"{kernels[0].name} only writes whole 16-byte words of D; make {listed(keys)} "
            f"multiples of {word}, or {LEAVE}",
        )

    if all(kernel.d_across for kernel in kernels):
        columns = problem.columns
        yield columns.active & columns.more, more
        yield columns.active & ~columns.whole_words, elements


def _unaligned(problem: Problem, kernels: Sequence[Kernel]) -> Iterator[Rule]:
    """What kernels that copy B as it lies cannot compute, where there are no others."""

    def gate(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("gate"),
            f"{kernels[0].name} takes columns of B as they lie, and a gate needs them in another "
            f"order; {LEAVE}",
        )

    def far(group: Group) -> Iterator[Refusal]:
        yield (
            group.where("lda" if group.across("d") else "ldb"),
            f"{kernels[0].name} takes rows that lie less than {NEAR_BYTES} bytes apart; {LEAVE}",
        )

    if all(kernel.b_unaligned for kernel in kernels):
        columns = problem.columns
        yield columns.active & (columns.gate != 0), gate
        yield columns.active & (columns.ldb * columns.sizes["b"] >= NEAR_BYTES), far


def _too_many_tiles(problem: Problem, columns: Columns) -> Iterator[Refusal]:
    rows = np.where(columns.depth == 0, REDUCED_ROWS, 64)  # of the smallest tiles
    tiles = -(-columns.m // rows) * -(-columns.n // 64)
    if len(tiles) and (total := int(tiles.sum())) > MAX_TILES:
        yield (
            problem.groups[int(tiles.argmax())].where("m", "n"),
            f"D of problem '{problem.name}' falls into {total} tiles, of which at most {MAX_TILES} "
            "are planned at a time; make this group smaller, or put groups into another problem",
        )
