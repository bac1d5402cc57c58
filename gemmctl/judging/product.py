"""One group's product as the checker sees it: its operands from the seed, and what is right.

With R = alpha A B + beta C + bias in float64, an element D is right if

    round(R - t) <= D <= round(R + t),
    t = |alpha| g |A||B| + s * 2^-24 (|alpha A B| + |beta C| + |bias|) + u,

where round is to D's type, g bounds the error of the device's sum of k products over the sum of
their magnitudes (see ``_growth``; |beta C| is one of them where the sum begins with it; of |A||B|
no more than honest errors come to, statistic.LIKELY, since the worst case grows like K), the second
term covers the product with alpha, that with beta and the one or two sums, s in all, each rounded
to float32 (none of them where there is only A B; more where a bias joins the sum, since a step of
the tensor core errs by more), and u what all of them lose below float32's smallest number. Rounding
is monotonic, so the ends need no half unit in the last place. Where the device has nothing to round
t is 0: sums of integers are exact in any order, and so is the rest wherever alpha A B, beta C and
all sums are float32 numbers.
What activation and gate make of R and t is expected.py's.

Where R is infinite or NaN, through operands that are, D has to be that. Where a sum or a product
on the way can exceed float32, whatever order it is taken in, D may be infinite or NaN as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gemmctl.device.base import K_BLOCK
from gemmctl.judging import statistic
from gemmctl.judging.expected import Expected, activated, gated
from gemmctl.judging.rounding import OVERFLOW, SMALLEST, UNIT, Doubles, Flags, half_ulps, is_single
from gemmctl.kernels.constants import K_TILE, RECIPE_SPECIAL_ROWS, TILE_C_IN_SUMS, TILE_JOINED
from gemmctl.lists.problem import Group, factors
from gemmctl.operands import data, dtypes
from gemmctl.operands.data import DataSpec, Operand
from gemmctl.operands.dtypes import DType
from gemmctl.planning import tables
from gemmctl.planning.plan import Plan
from gemmctl.planning.tiles import Launch

Device = Literal["cpu", "cuda"]
Indices = npt.NDArray[np.int64]

LARGE = 1 << 31  # multiply-adds of a group above which it is not compared as a whole

# Where in D an entry of a tile list is, its padding included, the parts of its sum over K, whether
# C is in it while it is multiplied, and whether a bias joins it.
PLACE = np.dtype(
    [(name, np.int64) for name in ("row", "col", "rows", "cols", "parts", "begun", "joined")]
)

_EXACT = ("none", "relu")  # activations that round nothing
_CHUNK = 1 << 20  # operand elements that one thread holds at a time


@dataclass(frozen=True, eq=False)
class Product:
    """One group's product: how it is computed, and its operands made from the seed."""

    index: int
    group: Group  # with D by rows: of Plan.exchanged
    exchanged: bool  # whether that is another than the list has: D^T, and C^T
    a: Operand
    b: Operand
    c: Operand  # as the list has it
    bias: Operand  # a column of numbers
    d: DType
    growth: float  # g above
    steps: int  # additions that may each lose SMALLEST
    drift: float  # deviation of a sum's error over the sum of magnitudes: see statistic.py
    likely: float  # what no honest sum's error over that is beyond; infinite where that is unknown
    exact_sums: bool  # of integers that float32 holds, in whatever order they are added
    begun: bool  # whether beta C is in the device's sums before they are done
    joining: float  # what adding a bias errs by, if it joins them, over all that is added up
    tiles: npt.NDArray[np.void]  # PLACE records: the group's entries of the tile list

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
        """Whether no element of D leaves the device a choice."""
        return self.exact_x and self.group.gate == "none" and self.group.activation in _EXACT

    @property
    def exact_x(self) -> bool:
        """Whether no element of x does: a product or sum, rounded once, or sums of integers."""
        group = self.group
        if not self.multiplies and (group.beta == 0 or group.bias == "none"):
            return True
        unscaled = group.beta in (0, 1) and (group.alpha == 1 or not self.multiplies)
        return self.exact_sums and unscaled

    @property
    def varied(self) -> bool:
        """Whether elements are made of numbers of their own, so that their errors differ."""
        return self.multiplies or self.group.beta != 0

    @property
    def roundings(self) -> int:
        """Products and sums that are rounded to float32, once A B is there: s above."""
        return 3 if self.group.bias == "none" else 4

    @property
    def extreme(self) -> bool:
        """Whether anything on the way can be infinite, or exceed float32.

        Sums of normal numbers and of integers stay below 2^40.
        """
        special = self.a.recipe == RECIPE_SPECIAL_ROWS
        return special or max(abs(self.group.alpha), abs(self.group.beta)) > 2.0**64

    def factors(self, cols: range) -> tuple[range, ...]:
        """The columns of x that some columns of D are made of."""
        return factors(self.group.gate, self.group.n, cols)

    def plain(self, rows: Indices, cols: range) -> Flags | None:
        """Where the sums over K have only normal numbers in them; None: everywhere."""
        if self.a.recipe != RECIPE_SPECIAL_ROWS:
            return None
        plain: Flags = self.a.plain(rows)[:, None]
        for taken in self.factors(cols):
            plain = plain & self.b.plain(taken)
        return plain

    def sums(self, rows: Indices, cols: range) -> tuple[Doubles, Doubles]:
        """A B and |A||B| there, of shape (rows, cols); the latter 0 for exact sums.

        Infinities and NaNs have no part in |A||B|, subnormals that of _aligned. A B is exact:
        float64 holds sums up to 2^19 of products of multiples of 2^-17, and float32 those of
        integers. |A||B| is never too small.
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
                magnitude += _aligned(wide_a, self.a.dtype) @ _aligned(wide_b, self.b.dtype).T
            else:
                magnitude += np.abs(a, out=a) @ np.abs(b, out=b).T
        magnitude *= 1 + step * UNIT
        return total, magnitude

    def addends(self, rows: Indices, cols: range) -> tuple[Doubles, Doubles]:
        """beta C and the bias there, of shape (rows, cols); 0 where there is none."""
        group, shape = self.group, (len(rows), len(cols))
        c = bias = np.zeros(shape)
        if group.beta != 0:
            found = self.c.values(cols, rows).T if self.exchanged else self.c.values(rows, cols)
            c = group.beta * found.astype(np.float64)
        if group.bias != "none":
            column = self.bias.values(cols if group.bias == "n" else rows, 1).astype(np.float64)
            bias = np.broadcast_to(column.T if group.bias == "n" else column, shape)
        return c, bias

    def expected(self, rows: Indices, cols: range) -> Expected:
        """What is right for the elements of D at ``rows`` x ``cols``."""
        first, *others = (self.linear(rows, taken) for taken in self.factors(cols))
        y = activated(first, self.group.activation)
        for x in others:
            y = gated(y, x)
        return y

    def linear(self, rows: Indices, cols: range) -> Expected:
        """What is right for the elements of x at ``rows`` x ``cols``."""
        group, alpha = self.group, self.group.alpha
        with np.errstate(all="ignore"):
            sums, magnitude = self.sums(rows, cols)
            lost = self.steps * SMALLEST
            right = scaled = partial = sums
            added = np.zeros(())
            likely = min(self.growth, self.likely)
            if alpha == 1 and group.beta == 0 and group.bias == "none":  # only sums are rounded
                allowed = likely * magnitude + lost
                spread = self.drift * magnitude + lost
            else:
                scaled = alpha * sums if self.multiplies else sums
                added, bias = self.addends(rows, cols)
                partial = scaled + added
                right = partial + bias
                size = np.abs(scaled) + np.abs(added) + np.abs(bias)
                allowed = likely * magnitude + lost
                if self.begun:  # what is infinite or NaN has no part in it, as in that of A B
                    first = np.where(np.isfinite(added), np.abs(added), 0.0)
                    allowed += self.growth * first
                    magnitude = magnitude + first
                rounding = self.roundings * (UNIT * size + SMALLEST)
                if self.joining:
                    rounding += self.joining * (size + _aligned(bias, self.a.dtype))
                if self.exact_sums and not self.joining:
                    whole = [is_single(values) for values in (scaled, added, partial, right)]
                    rounding[np.logical_and.reduce(whole)] = 0
                allowed = abs(alpha) * allowed + rounding
                # Each rounding is uniform over a unit in the last place: a third of its square is
                # its mean.
                spread = np.hypot(abs(alpha) * (self.drift * magnitude + lost), rounding / 3)
                if group.beta != 0 or group.bias != "none":
                    # Where A B has little part in them, errors come from the few bits of C and the
                    # bias: alike for all that share a bias, and of C times 3 many are ties.
                    unit = 2 * half_ulps(right.astype(np.float32), self.d)
                    spread[np.abs(scaled) < 2 * unit] = np.inf
            if self.exact_x:
                right = right.astype(np.float32).astype(np.float64)
                allowed = spread = np.zeros_like(right)
                return Expected(right, allowed, spread, np.zeros(right.shape, np.bool_))
            if not self.extreme:
                return Expected(right, allowed, spread)
            loose = (
                (np.isfinite(scaled) & (np.abs(scaled) + allowed >= OVERFLOW))
                | (np.isfinite(added) & (np.abs(added) * (1 + UNIT) >= OVERFLOW))
                | (magnitude >= OVERFLOW)
            )
            if group.bias != "none":
                loose |= np.isfinite(partial) & (np.abs(partial) + allowed >= OVERFLOW)
            allowed[~np.isfinite(right)] = 0
        return Expected(right, allowed, spread, loose)

    def tile(self, row: int, col: int) -> tuple[int, int, int, int] | None:
        """First row, first column, rows and columns of the tile that holds an element."""
        m0, n0, rows, cols = (self.tiles[name] for name in ("row", "col", "rows", "cols"))
        holds = (m0 <= row) & (row < m0 + rows) & (n0 <= col) & (col < n0 + cols)
        found = self.tiles[holds][:1].tolist()
        return found[0][:4] if found else None


def products_of(plan: Plan, spec: DataSpec, device: Device) -> list[Product]:
    """The products of all groups, in order; ``device`` is the kind whose arithmetic is judged."""
    groups = plan.exchanged.groups
    swapped = plan.problem.columns.across("d").tolist()
    everyone = np.arange(len(groups))
    which = (data.A, data.B, data.C, data.BIAS)
    keys = [data.keys(spec.seed, operand, everyone).tolist() for operand in which]
    recipes = [spec.recipe(operand) for operand in which]
    limits = tables.integer_limits(plan.problem).tolist()
    tiles = [np.empty(0, PLACE)] * len(groups)
    woven = np.zeros(len(groups), bool)
    for launch in plan.launches:
        woven[launch.groups] = launch.kernel.b_unaligned and device == "cuda"
        of = launch.groups[launch.tiles["group"]]
        order = np.argsort(of, kind="stable")
        indices, counts = np.unique(of, return_counts=True)
        parts = np.split(_places(launch, plan)[order], np.cumsum(counts)[:-1])
        for index, part in zip(indices.tolist(), parts, strict=True):
            tiles[index] = part
    products = []
    for index, group in enumerate(groups):
        a, b, c, bias = (
            Operand(recipe, key[index], limits[index], length, dtypes.BY_NAME[name])
            for recipe, key, length, name in zip(
                recipes,
                keys,
                (group.k, group.k, group.m if swapped[index] else group.n, 1),
                (group.a, group.b, group.c, group.bias_type),
                strict=True,
            )
        )
        if swapped[index]:
            a, b = b, a
        added = 1 if group.bias == "none" else 2  # C and a bias, which are no products
        begun = device == "cuda" and bool(tiles[index]["begun"].any())
        joined = device == "cuda" and bool(tiles[index]["joined"].any())
        whole = spec.kind == "int" and (group.beta == 1 or not begun)
        exact_sums = whole and limits[index] * (limits[index] * group.k + added) <= 1 << 24
        exact_adding = exact_sums and group.alpha == 1
        # Woven products are spread over all steps of a slice of K, however few they are.
        k = -(-group.k // K_TILE) * K_TILE if woven[index] else group.k
        drift = 0.0 if exact_sums else statistic.drift(k, device, woven=bool(woven[index]))
        products.append(
            Product(
                index=index,
                group=group,
                exchanged=swapped[index],
                a=a,
                b=b,
                c=c,
                bias=bias,
                d=dtypes.BY_NAME[group.d],
                growth=0.0 if exact_sums else _growth(a.dtype, k, tiles[index], device),
                steps=0 if exact_sums else 2 * group.k,
                drift=drift,
                likely=math.inf if spec.kind == "special" else statistic.LIKELY * drift,
                exact_sums=exact_sums,
                begun=begun,
                joining=2 * a.dtype.accumulate_unit if joined and not exact_adding else 0.0,
                tiles=tiles[index],
            )
        )
    return products


def _places(launch: Launch, plan: Plan) -> npt.NDArray[np.void]:
    """A PLACE record for each entry of a tile list, of D as Plan.exchanged has it."""
    tiles = launch.tiles
    gated = plan.exchanged.columns.gate[launch.groups] != 0
    found = np.empty(len(tiles), PLACE)
    row, rows, col, cols = "row", "rows", "col", "cols"
    if launch.kernel.d_across:
        row, rows, col, cols = col, cols, row, rows
    halved = np.where(gated, 2, 1)[tiles["group"]]  # columns of x for one of D
    found[row], found[rows] = tiles["m0"], tiles["width"]
    found[col], found[cols] = tiles["n0"] // halved, launch.kernel.columns_per_tile // halved
    found["parts"] = tiles["splits"]
    found["begun"] = tiles["flags"] & TILE_C_IN_SUMS
    found["joined"] = tiles["flags"] & TILE_JOINED
    return found


def _growth(operand: DType, k: int, tiles: npt.NDArray[np.void], device: Device) -> float:
    """Largest error of a device's sum of k products over the sum of their magnitudes.

    On a CPU, a product takes part in at most K_BLOCK roundings of BLAS, in whatever order, and one
    for each block after it (Higham, "Accuracy and Stability of Numerical Algorithms", section
    3.1); products of 16-bit elements are exact. On a GPU, twice the truncation of each step of the
    tensor core, one step more than there are blocks along K. Either way one more rounding for each
    part of a split sum.
    """
    parts = int(tiles["parts"].max(initial=0))
    if device == "cpu":
        error = (min(k, K_BLOCK) + -(-k // K_BLOCK) + 2 * parts) * UNIT
        return error / (1 - error)
    steps = -(-k // operand.accumulate_block) + 1
    return 2 * steps * operand.accumulate_unit + parts * UNIT


def _aligned(values: Doubles, operand: DType) -> Doubles:
    """The magnitudes by which a tensor core aligns products; 0 for infinities and NaNs.

    It goes by the operands' exponent fields, so that a subnormal counts like the smallest normal
    number: measured on an H200, 21 November 2026, where 2^-24 in f16 times 65504, which is 2^-8,
    stood in a sum of 0.18 and that was off by 0.83 * 2^-24 * 2^-14 * 65504.
    """
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    return np.where(sizes > 0, np.maximum(sizes, operand.smallest_normal), 0.0)


def ranges(start: int, stop: int, step: int) -> Iterator[range]:
    """Consecutive ranges of at most ``step`` that make up [start, stop)."""
    return (range(i, min(i + step, stop)) for i in range(start, stop, step))
