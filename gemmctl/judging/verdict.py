"""What is said about one group, from what was found in its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmctl.judging.interval import BadElement
from gemmctl.judging.product import Product
from gemmctl.judging.statistic import NO_ERRORS, Errors


@dataclass(frozen=True)
class Finding:
    """What a part of a group adds to its verdict."""

    compared: int = 0
    bad: int = 0
    worst: float = 0.0
    first: BadElement | None = None
    unwritten: int = 0
    outside: int = 0
    errors: Errors = NO_ERRORS

    def __add__(self, other: Finding) -> Finding:
        """What both parts add."""
        firsts = [first for first in (self.first, other.first) if first]
        return Finding(
            self.compared + other.compared,
            self.bad + other.bad,
            max(self.worst, other.worst),
            min(firsts, key=lambda bad: (bad.row, bad.col), default=None),
            self.unwritten + other.unwritten,
            self.outside + other.outside,
            self.errors + other.errors,
        )


@dataclass(frozen=True)
class Verdict:
    """What was found about one group.

    method: ``exact`` (each element must be one certain number) or ``bounded``, then ``full``
    (every element was compared), ``rows+freivalds`` or ``rows+float32`` (sampled rows were, and the
    rest went through Freivalds' test, or was computed again in float32).
    bad: wrong elements among those that were compared.
    worst: the largest error over what is allowed: at most 1 if all is right, infinite for NaN.
    rms, rms_limit: the errors as a whole over what the arithmetic explains (statistic.py), and what
    that stays below; None where there is nothing to round.
    first: the bad element that comes first in D's memory.
    unwritten: elements that still hold the poison.
    outside: bytes changed in the fences around D and in the padding of its rows.
    """

    group: int
    method: str
    ok: bool
    bad: int
    worst: float
    rms: float | None
    rms_limit: float | None
    first: BadElement | None
    unwritten: int
    outside: int
    message: str


def verdict(product: Product, finding: Finding) -> Verdict:
    """The verdict on a group."""
    group = product.group
    size = group.m * group.d_columns
    rms, limit = finding.errors.statistic, finding.errors.limit
    first = _in_list(product, finding.first)
    wrong = []
    if first:
        wrong.append(_told(finding, first))
    if rms is not None and not rms <= limit:
        wrong.append(
            f"its errors are {rms:.3g} times what the arithmetic explains (at most {limit:.3g}), "
            "though every element is within its interval: precision is lost on the way, or part "
            "of K is left out"
        )
    if finding.unwritten:
        wrong.append(f"{finding.unwritten} of {size} elements were never written")
    if finding.outside:
        wrong.append(f"{finding.outside} bytes outside D were changed")
    message = "; ".join(wrong) or f"all of {finding.compared} elements compared are right"
    exactness = "exact" if product.exact else "bounded"
    rest = "rows+freivalds" if group.linear else "rows+float32"
    coverage = rest if product.large else "full"
    return Verdict(
        group=product.index,
        method=f"{exactness} {coverage}",
        ok=not wrong,
        bad=finding.bad,
        worst=finding.worst,
        rms=rms,
        rms_limit=None if rms is None else limit,
        first=first,
        unwritten=finding.unwritten,
        outside=finding.outside,
        message=f"group {product.index}: {message}",
    )


def _in_list(product: Product, bad: BadElement | None) -> BadElement | None:
    """A bad element where the list has it, whose rows may be the product's columns."""
    if bad is None or not product.exchanged:
        return bad
    tile = bad.tile and (bad.tile[1], bad.tile[0], bad.tile[3], bad.tile[2])
    return replace(bad, row=bad.col, col=bad.row, tile=tile)


def _told(finding: Finding, bad: BadElement) -> str:
    """The first bad element, and how many there are."""
    tile = "in no tile"
    if bad.tile:
        row, col, rows, _ = bad.tile
        tile = f"tile of {rows} rows at row {row}, column {col}"
    right = f"{bad.low:.9g}" if bad.low == bad.high else f"{bad.low:.9g} to {bad.high:.9g}"
    return (
        f"{finding.bad} of {finding.compared} elements compared are wrong, the first at row "
        f"{bad.row}, column {bad.col} ({tile}): got {bad.got:.9g}, expected {bad.expected:.9g}, "
        f"allowed {right}"
    )
