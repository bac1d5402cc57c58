"""One group's product as the checker sees it: its operands from the seed, and what is right.

With R = alpha A B + beta C in float64, an element D is right if

    round(R - t) <= D <= round(R + t),
    t = |alpha| g |A||B| + 3 * 2^-24 (|alpha A B| + |beta C|) + u,

where round is to D's type, g bounds the error of the device's sum of k products over the sum of
their magnitudes (see ``_growth``), the second term covers the product with alpha, that with beta
and their sum, each rounded to float32 (none of them where alpha is 1 and beta 0), and u what all of
them lose below float32's smallest number. Rounding is monotonic, so the ends need no half unit in
the last place. Where the device has nothing to round t is 0: sums of integers are exact in any
order, and so is the rest wherever alpha A B, beta C and R are float32 numbers.

Where R is infinite or NaN, through operands that are, D has to be that. Where a sum or a product
on the way can exceed float32, whatever order it is taken in, D may be infinite or NaN as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gemmctl.device.cpu import K_BLOCK
from gemmctl.judging import statistic
from gemmctl.kernels.constants import RECIPE_SPECIAL_ROWS
from gemmctl.lists.problem import Group
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec, Operand
from gemmctl.operands.dtypes import DType
from gemmctl.planning import tables
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiling import TILE

Device = Literal["cpu", "cuda"]
Indices = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGE = 1 << 31  # multiply-adds of a group above which it is not compared as a whole
UNIT = 2.0**-24  # largest relative error of one rounding to float32
SMALLEST = 2.0**-149  # float32's smallest number: no rounding to it loses more
OVERFLOW = 2.0**128  # what float32 cannot hold

_CHUNK = 1 << 20  # operand elements that one thread holds at a time


@dataclass(frozen=True, eq=False)
class Expected:
    """What is right for a block of elements; all arrays have the block's shape.

    right: R. allowed: t; 0 where R is not finite. spread: the deviation from R that the arithmetic
    explains before D is rounded. loose: where D may be infinite or NaN, too; None: nowhere.
    """

    right: Doubles
    allowed: Doubles
    spread: Doubles
    loose: Flags | None = None


@dataclass(frozen=True, eq=False)
class Product:
    """One group's product: how it is computed, and its operands made from the seed."""

    index: int
    group: Group
    a: Operand
    b: Operand
    c: Operand
    d: DType
    growth: float  # g above
    steps: int  # additions that may each lose SMALLEST
    drift: float  # deviation of a sum's error over the sum of magnitudes: see statistic.py
    exact_sums: bool  # of integers that float32 holds, in whatever order they are added
    tiles: npt.NDArray[np.void]  # the group's entries of the tile list
    tile_columns: int

    @property
    def large(self) -> bool:
        """Whether there is too much to compare all of it."""
        return self.group.m * self.group.n * self.group.k > LARGE

    @property
    def multiplies(self) -> bool:
        """Whether A and B are read at all."""
        return self.group.depth > 0

    @property
    def exact(self) -> bool:
        """Whether no element leaves the device a choice."""
        unscaled = self.group.alpha == 1 and self.group.beta in (0, 1)
        return not self.multiplies or (self.exact_sums and unscaled)

    @property
    def extreme(self) -> bool:
        """Whether anything on the way can be infinite, or exceed float32.

        Sums of normal numbers and of integers stay below 2^40.
        """
        special = self.a.recipe == RECIPE_SPECIAL_ROWS
        return special or max(abs(self.group.alpha), abs(self.group.beta)) > 2.0**64

    def plain(self, rows: Indices, cols: range) -> Flags | None:
        """Where the sum over K has only normal numbers in it; None: everywhere."""
        if self.a.recipe != RECIPE_SPECIAL_ROWS:
            return None
        return self.a.plain(rows)[:, None] & self.b.plain(cols)

    def sums(self, rows: Indices, cols: range) -> tuple[Doubles, Doubles]:
        """A B and |A||B| there, of shape (rows, cols); the latter 0 for exact sums.

        Infinities and NaNs have no part in |A||B|. A B is exact: float64 holds
        sums up to 2^19 of products of multiples of 2^-17, and float32 those of integers.
        |A||B| is never too small.
        """
        total = np.zeros((len(rows), len(cols)))
        magnitude = np.zeros_like(total)
        if not self.multiplies:
            return total, magnitude
        step = max(1, _CHUNK // (len(rows) + len(cols)))
        for ks in ranges(0, self.group.k, step):
            a, b = self.a.values(rows, ks), self.b.values(cols, ks)
            if self.exact_sums:
                total += a @ b.T
                continue
            wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
            total += wide_a @ wide_b.T
            if self.a.recipe == RECIPE_SPECIAL_ROWS:  # whose magnitudes float32 cannot add up
                magnitude += _finite(np.abs(wide_a)) @ _finite(np.abs(wide_b)).T
            else:
                magnitude += np.abs(a, out=a) @ np.abs(b, out=b).T
        magnitude *= 1 + step * UNIT
        return total, magnitude

    def addend(self, rows: Indices, cols: range) -> Doubles:
        """The values of C there."""
        return self.c.values(rows, cols).astype(np.float64)

    def expected(self, rows: Indices, cols: range) -> Expected:
        """What is right for the elements at ``rows`` x ``cols``."""
        alpha, beta = self.group.alpha, self.group.beta
        with np.errstate(all="ignore"):
            right, magnitude = self.sums(rows, cols)
            if self.exact and beta == 0:
                return Expected(right, magnitude, magnitude)
            lost = self.steps * SMALLEST
            scaled, added = right, np.zeros(())
            if alpha == 1 and beta == 0:  # nothing is rounded but sums
                allowed = self.growth * magnitude + lost
                spread = self.drift * magnitude + lost
            else:
                scaled = alpha * right if self.multiplies else right
                added = beta * self.addend(rows, cols) if beta != 0 else np.zeros_like(right)
                right = scaled + added
                if not self.multiplies:  # beta C is rounded once, and that is all
                    right = right.astype(np.float32).astype(np.float64)
                if self.exact:
                    return Expected(right, magnitude, magnitude)
                rounding = 3 * UNIT * (np.abs(scaled) + np.abs(added)) + 3 * SMALLEST
                if self.exact_sums:
                    rounding[is_single(scaled) & is_single(added) & is_single(right)] = 0
                allowed = abs(alpha) * (self.growth * magnitude + lost) + rounding
                # Three roundings, each uniform over a unit in the last place: each has a third of
                # its square as its mean.
                spread = np.hypot(abs(alpha) * (self.drift * magnitude + lost), rounding / 3)
            if not self.extreme:
                return Expected(right, allowed, spread)
            loose = (
                (np.isfinite(scaled) & (np.abs(scaled) + allowed >= OVERFLOW))
                | (np.isfinite(added) & (np.abs(added) >= OVERFLOW))
                | (magnitude >= OVERFLOW)
            )
            allowed[~np.isfinite(right)] = 0
        return Expected(right, allowed, spread, loose)

    def tile(self, row: int, col: int) -> tuple[int, int, int] | None:
        """First row, first column and rows of the tile that holds an element."""
        m0, n0, width = (self.tiles[name].astype(np.int64) for name in ("m0", "n0", "width"))
        holds = (m0 <= row) & (row < m0 + width) & (n0 <= col) & (col < n0 + self.tile_columns)
        return next(((int(m0[i]), int(n0[i]), int(width[i])) for i in np.flatnonzero(holds)), None)


def products_of(plan: Plan, spec: DataSpec, device: Device) -> list[Product]:
    """The products of all groups, in order; ``device`` is the kind whose arithmetic is judged."""
    groups = plan.problem.groups
    everyone = np.arange(len(groups))
    keys = [
        data.keys(spec.seed, operand, everyone).tolist() for operand in (data.A, data.B, data.C)
    ]
    recipes = [spec.recipe(operand) for operand in (data.A, data.B, data.C)]
    limits = tables.integer_limits(plan.problem).tolist()
    tiles = [(np.empty(0, TILE), 0)] * len(groups)
    for launch in plan.launches:
        order = np.argsort(launch.tiles["group"], kind="stable")
        ends = np.cumsum(np.bincount(launch.tiles["group"], minlength=len(launch.groups)))
        parts = np.split(launch.tiles[order], ends[:-1])
        for index, part in zip(launch.groups.tolist(), parts, strict=True):
            tiles[index] = part, launch.kernel.columns_per_tile
    products = []
    for index, group in enumerate(groups):
        a, b, c = (
            Operand(recipe, key[index], limits[index], length, dtypes.BY_NAME[name])
            for recipe, key, length, name in zip(
                recipes,
                keys,
                (group.k, group.k, group.n),
                (group.a, group.b, group.c),
                strict=True,
            )
        )
        exact_sums = spec.kind == "int" and limits[index] ** 2 * (group.k + 1) <= 1 << 24
        products.append(
            Product(
                index=index,
                group=group,
                a=a,
                b=b,
                c=c,
                d=dtypes.BY_NAME[group.d],
                growth=0.0 if exact_sums else _growth(a.dtype, group.k, tiles[index][0], device),
                steps=0 if exact_sums else 2 * group.k,
                drift=0.0 if exact_sums else statistic.drift(group.k, device),
                exact_sums=exact_sums,
                tiles=tiles[index][0],
                tile_columns=tiles[index][1],
            )
        )
    return products


def _growth(operand: DType, k: int, tiles: npt.NDArray[np.void], device: Device) -> float:
    """Largest error of a device's sum of k products over the sum of their magnitudes.

    On a CPU, a product takes part in at most K_BLOCK roundings of BLAS, in whatever order, and one
    for each block after it (Higham, "Accuracy and Stability of Numerical Algorithms", section
    3.1); products of 16-bit elements are exact. On a GPU, twice the truncation of each step of the
    tensor core, one step more than there are blocks along K. Either way one more rounding for each
    part of a split sum.
    """
    parts = int(tiles["splits"].max(initial=0))
    if device == "cpu":
        error = (min(k, K_BLOCK) + -(-k // K_BLOCK) + 2 * parts) * UNIT
        return error / (1 - error)
    steps = -(-k // operand.accumulate_block) + 1
    return 2 * steps * operand.accumulate_unit + parts * UNIT


def _finite(values: Doubles) -> Doubles:
    """Zero in place of what is infinite or NaN."""
    return np.where(np.isfinite(values), values, 0.0)


def is_single(values: Doubles) -> Flags:
    """Where a value is a float32 number."""
    single: Flags = values.astype(np.float32) == values
    return single


def ranges(start: int, stop: int, step: int) -> Iterator[range]:
    """Consecutive ranges of at most ``step`` that make up [start, stop)."""
    return (range(i, min(i + step, stop)) for i in range(start, stop, step))
