"""Whether another library's D is as right as ours, by product.py's rule.

That rule calls a D right if round(R - t) <= D <= round(R + t). Rounding is monotonic, so one right
result D1 puts R - t at D1 - h - 2t or above, where h is half the distance to D1's neighbour, and
R + t at D1 + h + 2t or below. Any other right result D2 therefore lies in

    round(D1 - h - 2t) <= D2 <= round(D1 + h + 2t).

|A||B| of an element, for t, is at most the norm of A's row times that of B's column (Cauchy and
Schwarz). Where t is 0 there is one right result, and both have to be it.

Where C or a bias is added to a product A B of 16 bits, D2 may be further off by half a unit in the
last place of A B: cuBLAS 13.1 rounds it to D's type before it adds C in place (seen on an H100 and
an H200, with integers, whose sums are exact), and torch adds a bias so. A bias that is fused is
added to the sums.

Behind an activation or gate, or where a library adds the bias apart, nothing of that holds: D2 is
compared with what recomputed.py makes of a product in float32, with t as above and with what
follows from the library's manner. As that is another product, of a large group only every
SAMPLED-th row is compared so, which leaves out no 64 rows that follow each other; of all others
only what is infinite or NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from gemmctl.device import blas
from gemmctl.device.base import Session
from gemmctl.judging.interval import judged
from gemmctl.judging.manner import Manner, expected_in
from gemmctl.judging.product import Indices, Product, products_of, ranges
from gemmctl.judging.recomputed import rough
from gemmctl.judging.rounding import UNIT, Doubles, Flags, Singles, half_ulps, rounded
from gemmctl.judging.verify import Bytes
from gemmctl.operands import data
from gemmctl.operands.data import DataSpec, Operand
from gemmctl.operands.dtypes import Bits
from gemmctl.planning.plan import Plan

SAMPLED = 61  # a prime, so that sampled rows are not all at the same place of a tile

_CHUNK = 1 << 20  # elements that one thread holds at a time


@dataclass(frozen=True)
class Disagreement:
    """How another result differs from ours: the first element that does, and how many do."""

    group: int
    row: int
    col: int
    got: float
    ours: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        """One clause, for a note."""
        same = self.low == self.high
        allowed = "" if same else f", which allows {self.low:.9g} to {self.high:.9g}"
        return (
            f"{self.count} of D's elements differ from gemmctl's, the first in group {self.group} "
            f"at row {self.row}, column {self.col}: {self.got:.9g}, and gemmctl has "
            f"{self.ours:.9g}{allowed}"
        )


class Witness:
    """A session's own result, kept to compare others with."""

    def __init__(self, plan: Plan, session: Session, spec: DataSpec) -> None:
        """Run the session, which was opened with ``spec``, and keep its D."""
        self._layout = plan.layout
        self._exchanged = plan.problem.columns.across("d")
        self._products = [
            product
            for product in products_of(plan, spec, "cuda")
            if product.group.m and product.group.d_columns
        ]
        session.poison()
        session.run()
        # A copy: what read gives may change with the arena.
        self._ours = np.array(session.read(plan.layout.d_begin, plan.layout.d_end))
        ours = session.digests().tobytes()
        # Hashes of every D that was found right; of libraries, many give the same bits.
        self._right: dict[Manner, set[bytes]] = defaultdict(lambda: {ours})

    @cached_property
    def _norms(self) -> list[tuple[Doubles, Doubles]]:
        """Of each product's A's rows and B's columns."""
        with ThreadPoolExecutor(blas.THREADS) as pool:
            return list(pool.map(_norms, self._products))

    def disagreement(self, session: Session, manner: Manner = "") -> Disagreement | None:
        """What the D that the same session holds now has other than ours; None if it agrees."""
        digest = session.digests().tobytes()
        if digest in self._right[manner]:
            return None
        theirs = session.read(self._layout.d_begin, self._layout.d_end)
        with ThreadPoolExecutor(blas.THREADS) as pool:
            jobs = [pool.submit(_compare, *job) for job in self._jobs(theirs, manner)]
            found = [one for job in jobs if (one := job.result())]
        if not found:
            self._right[manner].add(digest)
            return None
        first = min(found, key=lambda one: (one.group, one.row, one.col))
        row, col = first.row, first.col
        if self._exchanged[first.group]:
            row, col = col, row
        return replace(first, row=row, col=col, count=sum(one.count for one in found))

    def _jobs(self, theirs: Bytes, manner: Manner) -> Iterator[tuple[_Part, _Rule]]:
        """Some rows of each group's D, ours and theirs, and what says how far they may differ."""
        begin = self._layout.d_begin
        for product, (a_norms, b_norms) in zip(self._products, self._norms, strict=True):
            group = product.group
            offset = int(self._layout.d[product.index]) - begin
            place = (offset, group.m, group.d_columns, group.ldd, product.d)
            ours, others = data.matrix(self._ours, *place), data.matrix(theirs, *place)
            again = (
                product.extreme
                or not group.linear
                or (manner == "unfused" and group.bias != "none")
            )
            by_product: _Rule = partial(_by_product, manner=manner)
            if again and product.large:
                rows = np.arange(0, group.m, SAMPLED)
                yield _Part(product, rows, ours[rows], others[rows]), by_product
            for some in ranges(0, group.m, max(1, _CHUNK // group.n)):
                taken, rows = slice(some.start, some.stop), np.arange(some.start, some.stop)
                part = _Part(product, rows, ours[taken], others[taken])
                if again:
                    yield part, _by_finiteness if product.large else by_product
                else:
                    norms = a_norms[taken], b_norms
                    yield part, partial(_by_ours, norms=norms, manner=manner)


@dataclass(frozen=True, eq=False)
class _Part:
    product: Product
    rows: Indices
    ours: Bits
    theirs: Bits


# The interval of the elements of a part at some rows and columns, where ours and theirs are these
# numbers; and whether theirs are in it.
_Rule = Callable[[_Part, Indices, Indices, Singles, Singles], tuple[Singles, Singles, Flags]]


def _compare(part: _Part, rule: _Rule) -> Disagreement | None:
    """Judge the elements whose bits differ."""
    dtype = part.product.d
    i, j = np.nonzero(part.ours != part.theirs)
    if not len(i):
        return None
    ours, got = dtype.to_f32(part.ours[i, j]), dtype.to_f32(part.theirs[i, j])
    with np.errstate(all="ignore"):
        low, high, good = rule(part, i, j, ours, got)
    bad = np.flatnonzero(~good)
    if not len(bad):
        return None
    first = bad[0]
    return Disagreement(
        group=part.product.index,
        row=int(part.rows[i[first]]),
        col=int(j[first]),
        got=float(got[first]),
        ours=float(ours[first]),
        low=float(low[first]),
        high=float(high[first]),
        count=len(bad),
    )


def _by_ours(
    part: _Part,
    i: Indices,
    j: Indices,
    ours: Singles,
    got: Singles,
    *,
    norms: tuple[Doubles, Doubles],  # of A's rows in the part and of B's columns
    manner: Manner,
) -> tuple[Singles, Singles, Flags]:
    """As far as both may be from R."""
    product, group = part.product, part.product.group
    adds = group.beta != 0 or group.bias != "none"
    between = group.beta != 0 or (group.bias != "none" and manner != "fused")
    rounds_between = between and product.multiplies and product.d.size == 2
    if product.exact and not rounds_between:
        return ours, ours, (got == ours) | (np.isnan(ours) & np.isnan(got))
    added: Doubles = np.zeros(len(i))
    for some in product.addends(part.rows, range(group.n)) if adds else ():
        added += np.abs(some[i, j])
    # Where ours is infinite, R may be as low as the largest number and half a step.
    largest = np.float32(product.d.largest)
    near = np.clip(ours, -largest, largest)
    allowed: Doubles = half_ulps(near, product.d)
    if not product.exact:
        rounding = product.roundings * UNIT
        a_norms, b_norms = norms
        magnitude = abs(group.alpha) * a_norms[i] * b_norms[j]
        begun = product.begun * added  # what the sums begin with, and a bias at most
        allowed += 2 * (product.growth * (magnitude + begun) + rounding * (magnitude + added))
    if rounds_between:
        allowed += half_ulps((np.abs(near) + added).astype(np.float32), product.d)
    low, high = (rounded(near + sign * allowed, product.d) for sign in (-1, 1))
    return low, high, ((low <= got) & (got <= high)) | (np.isnan(ours) & np.isnan(got))


def _by_product(
    part: _Part, i: Indices, j: Indices, ours: Singles, got: Singles, *, manner: Manner
) -> tuple[Singles, Singles, Flags]:
    """As far as theirs may be from what is right, whatever ours is."""
    again = rough(part.product, part.product.growth)
    columns = range(part.product.group.d_columns)
    return judged(again, expected_in(manner, again, part.rows, columns).at(i, j), got)


def _by_finiteness(
    part: _Part, i: Indices, j: Indices, ours: Singles, got: Singles
) -> tuple[Singles, Singles, Flags]:
    """Both are numbers, or the same infinity or NaN."""
    good = np.isfinite(ours) & np.isfinite(got)
    return ours, ours, good | (ours == got) | (np.isnan(ours) & np.isnan(got))


def _norms(product: Product) -> tuple[Doubles, Doubles]:
    """Euclidean norms of A's rows and B's columns; not computed where no bound needs them."""
    group = product.group
    if product.exact or not group.linear:
        return np.zeros(group.m), np.zeros(group.n)
    return _row_norms(product.a, group.m), _row_norms(product.b, group.n)


def _row_norms(operand: Operand, rows: int) -> Doubles:
    norms = np.empty(rows)
    for part in ranges(0, rows, max(1, _CHUNK // operand.length)):
        values = operand.values(part, operand.length)
        squares = np.einsum("ij,ij->i", values, values, dtype=np.float64)
        norms[part.start : part.stop] = np.sqrt(squares)
    return norms
