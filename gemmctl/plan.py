"""Decide how a problem runs: kernel, tiles and their order, launches, where operands lie.

Everything here is pure: no device is asked, nothing is allocated, and the same problem, kernels
and machine always give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from gemmctl import cost, dtypes, tiling
from gemmctl.cubins import Kernel
from gemmctl.errors import ListError
from gemmctl.kernels.constants import REDUCED_ROWS
from gemmctl.problem import Group, Problem
from gemmctl.tiling import H200, Choice, Ints, Launch, Machine
from gemmctl.yamlfile import Mark

FENCE = 256  # bytes of 0xFF kept before and after every D, to show writes outside it
ALIGNMENT = 256  # bytes; every operand starts on such a boundary (TMA itself needs 16)
MAX_TILES = 1 << 24  # entries of a problem's tile lists: 1 GB, for a D that fills an H200's memory
STREAMS = 8  # that launches of single groups are spread over

# All groups of a pair of element types in one launch, alone or together with the set-up of its
# tensor maps; or one launch for each group, one after another or over STREAMS streams. All but the
# first are CUDA graphs, so that the host does not set the pace.
Launching = Literal["grouped", "graph", "serial", "streams"]
TOGETHER: tuple[Launching, ...] = ("grouped", "graph")  # all groups of a pair of types


@dataclass(frozen=True)
class Layout:
    """Byte offsets of every operand in one arena, one entry per group of the problem.

    The region [d_begin, d_end) holds every D with FENCE bytes before the first and after each.
    Groups with beta 0 share one C that is never to be read.
    """

    a: Ints
    b: Ints
    c: Ints
    d: Ints
    d_begin: int
    d_end: int
    size: int


@dataclass(frozen=True)
class Plan:
    """A problem made ready for a device."""

    problem: Problem
    launches: tuple[Launch, ...]
    layout: Layout
    flops: int  # 2 m n k, summed over groups
    bytes: int  # A, B and D once, C once where beta is not 0
    launch: Launching = "grouped"
    tuned: bool = False  # cut as it measured fastest, not as the cost model finds

    @property
    def streams(self) -> int:
        """Streams that a GPU spreads the launches over."""
        return STREAMS if self.launch == "streams" else 1

    @property
    def tiles(self) -> int:
        """Entries of all tile lists."""
        return sum(len(launch.tiles) for launch in self.launches)

    @property
    def waves(self) -> float:
        """Waves of all launches."""
        return sum(launch.waves for launch in self.launches)

    @property
    def tile_efficiency(self) -> float:
        """Useful multiply-adds over those done with padding; 1 where there are none."""
        padded = sum(launch.padded_macs for launch in self.launches)
        return self.flops / 2 / padded if padded else 1.0

    @property
    def kernel(self) -> str:
        """The names of the kernels used, each once."""
        return "+".join(dict.fromkeys(launch.kernel.name for launch in self.launches)) or "none"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How each launch is cut."""
        return tuple(launch.choice for launch in self.launches)

    @cached_property
    def estimate_s(self) -> float:
        """Seconds that the cost model expects all launches to take."""
        cycles = sum(cost.estimate(launch, self.problem) for launch in self.launches)
        return cycles / cost.CLOCK_HZ

    @cached_property
    def dtype(self) -> str:
        """Element types, as in ``bf16->f32``; several joined by commas."""
        pairs = {(g.a, g.d): None for g in self.problem.groups}
        return ",".join(a if a == d else f"{a}->{d}" for a, d in pairs)

    @cached_property
    def shape(self) -> str:
        """M x N x K of the groups, a range where they differ."""
        columns = self.problem.columns
        return "x".join(_range(values) for values in (columns.m, columns.n, columns.k))


def make(
    problems: Iterable[Problem],
    kernels: Sequence[Kernel],
    machine: Machine = H200,
    launch: Launching = "grouped",
    chosen: Mapping[str, Sequence[Choice]] | None = None,
) -> list[Plan]:
    """Plan every problem.

    ``chosen`` says by problem name how to cut each of its launches, which have to be grouped; the
    cost model decides on the others. Raises ListError with every group that no kernel can run:
    its place, the reason and the nearest legal value.
    """
    problems = list(problems)
    refused: dict[tuple[Mark, str], None] = {}
    for problem in problems:
        for group in {id(group): group for group in problem.groups}.values():
            refused.update(dict.fromkeys(_refusals(group, kernels)))
        refused.update(dict.fromkeys(_too_many_tiles(problem)))
    if refused:
        raise ListError(refused)
    chosen = chosen or {}
    return [
        _plan(problem, kernels, machine, launch, chosen.get(problem.name)) for problem in problems
    ]


def _refusals(group: Group, kernels: Sequence[Kernel]) -> Iterable[tuple[Mark, str]]:
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


def _too_many_tiles(problem: Problem) -> Iterable[tuple[Mark, str]]:
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


def _plan(
    problem: Problem,
    kernels: Sequence[Kernel],
    machine: Machine,
    launch: Launching,
    choices: Sequence[Choice] | None,
) -> Plan:
    launches: list[Launch] = []
    for groups, fitting in _by_types(problem, kernels):
        if choices is not None:
            choice = choices[len(launches)]
            kernel = next(kernel for kernel in fitting if kernel.name == choice.kernel)
            launches.append(tiling.cut(problem, groups, kernel, choice, machine))
        elif launch in TOGETHER:
            launches.append(_choose(problem, groups, fitting, machine))
        else:
            launches += _choose_each(problem, groups, fitting, machine, split=launch == "serial")
    columns = problem.columns
    m, n, k = columns.m, columns.n, columns.k
    layout, moved = _lay_out(problem)
    return Plan(
        problem=problem,
        launches=tuple(launches),
        layout=layout,
        flops=2 * sum(int(x) * int(y) * int(z) for x, y, z in zip(m, n, k, strict=True)),
        bytes=moved,
        launch=launch,
        tuned=choices is not None,
    )


def _by_types(problem: Problem, kernels: Sequence[Kernel]) -> Iterator[tuple[Ints, list[Kernel]]]:
    """The groups with elements of each pair of element types, and the kernels for that pair."""
    columns = problem.columns
    active = (columns.m > 0) & (columns.n > 0)
    types = [(group.a, group.d) for group in problem.groups]
    for pair in dict.fromkeys(types):
        same = np.fromiter((kind == pair for kind in types), bool, len(types))
        groups = np.flatnonzero(active & same)
        if len(groups):
            yield groups, [k for k in kernels if (k.operand, k.output) == pair]


def _lay_out(problem: Problem) -> tuple[Layout, int]:
    """Place every operand in one arena; also the bytes that a run has to move."""
    columns = problem.columns
    m, n, k = columns.m, columns.n, columns.k
    size = {name: np.fromiter((dtypes.BY_NAME[getattr(group, name)].size
                               for group in problem.groups), np.int64, len(problem.groups))
            for name in "abcd"}  # fmt: skip
    has_c = columns.beta != 0
    rows = {"a": m, "b": n, "c": m, "d": m}
    lds = {"a": columns.lda, "b": columns.ldb, "c": columns.ldc, "d": columns.ldd}
    spans = {name: rows[name] * lds[name] * size[name] for name in "abcd"}

    def place(lengths: Ints, start: int, gap: int = 0) -> tuple[Ints, int]:
        padded = (lengths + gap + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        ends = start + np.cumsum(padded)
        return ends - padded, int(ends[-1]) if len(ends) else start

    unread = int(spans["c"][~has_c].max(initial=0))
    a, end = place(spans["a"], 0)
    b, end = place(spans["b"], end)
    c, end = place(np.where(has_c, spans["c"], 0), end)
    (shared,), end = place(np.array([unread]), end)
    d_begin = end
    d, end = place(spans["d"], d_begin + FENCE, gap=FENCE)
    useful = m * k * size["a"] + n * k * size["b"] + m * n * (size["d"] + has_c * size["c"])
    layout = Layout(a, b, np.where(has_c, c, shared), d, d_begin, end, end)
    return layout, int(useful[(m > 0) & (n > 0)].sum())


def _choose(
    problem: Problem, groups: Ints, kernels: Sequence[Kernel], machine: Machine, split: bool = True
) -> Launch:
    """The way to cut that the cost model finds fastest; sums are split only if ``split``."""
    candidates = (
        tiling.cut(problem, groups, kernel, choice, machine)
        for kernel in kernels
        for choice in tiling.choices(problem, groups, kernel, machine)
        if split or choice.splits == 1
    )
    return min(candidates, key=lambda launch: cost.estimate(launch, problem))


def _choose_each(
    problem: Problem, groups: Ints, kernels: Sequence[Kernel], machine: Machine, split: bool
) -> list[Launch]:
    """A launch for every group; equal groups are decided once.

    Launches that run side by side must not split sums: CTAs of two of them could hold all SMs,
    each waiting for a part that a CTA without an SM would compute.
    """
    chosen: dict[Group, Launch] = {}
    launches = []
    for index in groups.tolist():
        group, alone = problem.groups[index], np.array([index])
        if group not in chosen:
            chosen[group] = _choose(problem, alone, kernels, machine, split)
        launches.append(replace(chosen[group], groups=alone))
    return launches


def _range(values: Ints) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}..{high}"
