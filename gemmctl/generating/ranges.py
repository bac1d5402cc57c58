"""Sizes as they are written in options: one, a range, several; and shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmctl.errors import UsageError
from gemmctl.lists.fields import MAX_EXTENT, Integer
from gemmctl.lists.yamlfile import MAX_DIGITS, too_long

MAX_SWEPT = 1000  # problems in one list; more is a slip


@dataclass(frozen=True)
class Range:
    """The integers from low to high."""

    low: int
    high: int

    def multiples(self, option: str, of: int) -> Range:
        """What the multiples in it are multiplied by; raises UsageError if there are none."""
        found = Range(-(-self.low // of), self.high // of)
        if found.low > found.high:
            raise UsageError(f"{option}: no multiple of {of} lies in {self.low}:{self.high}")
        return found


def number(what: str, digits: str, low: int = 0, high: int = MAX_EXTENT) -> int:
    """The number with these digits; raises UsageError unless it lies from low to high.

    ``what`` is the option that it stands in, or what of it the number is.
    """
    legal = Integer(what, low, high)
    if len(digits) > MAX_DIGITS:
        raise UsageError(f"{what}: {too_long(digits)}")
    value = legal.read(int(digits))
    if value is None:
        raise UsageError(f"{what} must be {legal}, not {digits}")
    return value


def span(option: str, given: str) -> Range:
    """``N`` or ``LOW:HIGH``; raises UsageError for anything else."""
    found = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", given)
    if not found:
        raise UsageError(f"{option}: '{given}' is no size; write 128, or a range such as 64:4096")
    low, high = (number(option, digits) for digits in (found[1], found[2] or found[1]))
    if low > high:
        raise UsageError(f"{option}: {low} is more than {high}; write {high}:{low}")
    return Range(low, high)


def doubled(low: int, high: int) -> list[int]:
    """``low``, which is 1 or more, doubled again and again, up to ``high``."""
    return [low << power for power in range((high // low).bit_length())]


def several(option: str, given: str) -> list[int]:
    """``64,96,128``: these; ``LOW:HIGH``: low doubled again and again; ``LOW:HIGH:STEP``.

    Raises UsageError for anything else, and for more than MAX_SWEPT sizes.
    """
    found = re.fullmatch(r"([0-9]+):([0-9]+)(?::([0-9]+))?", given)
    if re.fullmatch(r"[0-9]+(,[0-9]+)*", given):
        values = list(dict.fromkeys(number(option, digits) for digits in given.split(",")))
    elif found and found[3]:
        low, high, step = (number(option, digits) for digits in found.groups())
        if not step:
            raise UsageError(f"{option}: the step of '{given}' is 0; write 1 or more")
        values = list(range(low, min(high, low + step * MAX_SWEPT) + 1, step))
    elif found:
        low, high = number(option, found[1]), number(option, found[2])
        if not low:
            raise UsageError(f"{option}: 0 doubled stays 0; begin with 1, or write {given}:STEP")
        values = doubled(low, high)
    else:
        told = f"{option}: '{given}' is no row of sizes"
        raise UsageError(f"{told}; write 64,96,128, or 1:4096 to double, or 64:512:64 with a step")
    if not values:
        raise UsageError(f"{option}: {given} begins above its end; write the smaller one first")
    if len(values) > MAX_SWEPT:
        raise UsageError(f"{option}: {given} has more than {MAX_SWEPT} sizes; take a larger step")
    return values
