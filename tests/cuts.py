"""Problems cut for kernels in any way, for tests of tiling, order and tile lists."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import assume
from hypothesis import strategies as st

from gemmctl.kernels import cubins
from gemmctl.kernels.constants import WIDTH_STEP
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists.problem import Problem
from gemmctl.planning import tail
from gemmctl.planning.epilogue import ADDED_K
from gemmctl.planning.tiles import Launch, cut
from gemmctl.planning.tiling import H200, Choice, Machine, grid
from support import cut_as, make_problem, takes_all

KERNELS = cubins.manifest().kernels
IN_PLACE = {"d": "f32", "beta": 1, "inplace": "true", "k": ADDED_K, "n": 64}

Cut = tuple[Problem, Launch]


def kernel(name: str, output: str = "bf16", layouts: tuple[str, str] = ("row", "col")) -> Kernel:
    """The kernel for A and B in bf16, of products with A and B in these layouts."""
    wanted = (name, "bf16", output, *layouts)
    (found,) = (k for k in KERNELS if (k.name, *k.multiplies) == wanted)
    return found


def launch_of(some: Problem, with_kernel: Kernel, width: int = 0, splits: int = 1) -> Launch:
    """All groups cut for one kernel; without a width, its own."""
    choice = Choice(with_kernel.name, width or with_kernel.max_width, splits)
    return cut_as(some, np.arange(len(some.groups)), with_kernel, choice)


def drawn_problem(draw: st.DrawFn, of: Kernel, k: st.SearchStrategy[int]) -> Problem:
    """Groups that a kernel takes."""
    extent = st.one_of(st.integers(1, 40), st.integers(1, 600))
    scalars, columns = ["", ", alpha: 0.5", ", alpha: 0", ", beta: 2"], extent
    if not takes_all(of):
        scalars, columns = scalars[:-1], st.integers(1, 75).map(lambda words: 8 * words)
    return make_problem(
        *(
            f"m: {draw(extent)}, n: {draw(columns)}, k: {draw(k)}{draw(st.sampled_from(scalars))}"
            for _ in range(draw(st.integers(1, 4)))
        )
    )


def drawn_choice(draw: st.DrawFn, of: Kernel, least_splits: int = 1) -> Choice:
    width = WIDTH_STEP * draw(st.integers(1, of.max_width // WIDTH_STEP))
    return Choice(of.name, width, draw(st.integers(least_splits, 9)))


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Some groups of a problem in any order, cut for any kernel in any way."""
    of = draw(st.sampled_from(KERNELS))
    some = drawn_problem(draw, of, st.integers(0, 3000))
    order = draw(st.permutations(range(len(some.groups))))
    groups = np.array(order[: draw(st.integers(1, len(order)))])
    return some, cut_as(some, groups, of, drawn_choice(draw, of))


@st.composite
def joined_cuts(draw: st.DrawFn) -> Cut:
    """Cuts in which a group's last columns of tiles have another width than its first."""
    of = draw(st.sampled_from(KERNELS))
    some = drawn_problem(draw, of, st.integers(0, 3000))
    choice, other = (drawn_choice(draw, of) for _ in range(2))
    one, two = (
        grid(some, np.arange(len(some.groups)), of, width, H200)
        for width in (choice.width, other.width)
    )
    taken = np.array([draw(st.integers(0, wide)) for wide in one.wide.tolist()])
    return some, cut(some, tail.joined(one, two, taken), choice)


@st.composite
def uneven_cuts(draw: st.DrawFn) -> Cut:
    """Cuts of several waves, in which some groups' last rows of tiles may be lower than others."""
    of = draw(st.sampled_from([one for one in KERNELS if one.pingpong]))
    some = drawn_problem(draw, of, st.integers(300, 4500))
    choice = drawn_choice(draw, of)
    return some, cut_as(some, np.arange(len(some.groups)), of, choice, Machine(2))


@st.composite
def split_cuts(draw: st.DrawFn) -> Cut:
    """Cuts in which the sum over K of one tile at least is split."""
    of = draw(st.sampled_from(KERNELS))
    some = drawn_problem(draw, of, st.one_of(st.integers(1024, 6000), st.integers(0, 6000)))
    launch = cut_as(some, np.arange(len(some.groups)), of, drawn_choice(draw, of, 2))
    assume(launch.slots)
    return some, launch


def stores(launch: Launch) -> npt.NDArray[np.void]:
    """The entries that write to D."""
    return launch.tiles[(launch.tiles["splits"] == 0) | (launch.tiles["k_tiles"] == 0)]


def f32_in_place(m: int, k: int) -> str:
    return f"m: {m}, n: 256, k: {k}, d: f32, beta: 1, inplace: true"
