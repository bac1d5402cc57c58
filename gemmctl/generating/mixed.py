"""Products each of its own shape, drawn from ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from gemmctl.errors import UsageError
from gemmctl.generating import draws
from gemmctl.generating.listing import Group, Made, element_types, extents, sized
from gemmctl.generating.ranges import number, span


@dataclass(frozen=True)
class Random:
    """So many groups with m, n and k of their own, each from ``LOW:HIGH``.

    ``log_uniform``: as many sizes from 1 to 2 as from 2 to 4. ``align``, ``8`` or ``1x8x8``: m, n
    and k are multiples of it. ``dtype``: with commas between, each group draws one.
    """

    groups: int
    m: str
    n: str
    k: str
    log_uniform: bool
    align: str
    dtype: str
    seed: int
    name: str | None

    kind: ClassVar[str] = "random"

    def made(self) -> tuple[Made, ...]:
        """One problem; raises UsageError for ranges without a size that is aligned."""
        sizes = {
            key: self._sizes(key, given, of)
            for (key, given), of in zip(
                (("m", self.m), ("n", self.n), ("k", self.k)), self._alignment(), strict=True
            )
        }
        types = [element_types(each) for each in self.dtype.split(",")]
        which = draws.uniform(0, len(types) - 1, self.groups, self.seed, "types")
        groups: list[Group] = [
            {**types[choice], **sized(shape)}
            for choice, *shape in zip(which, *sizes.values(), strict=True)
        ]
        about = f"{'Log-uniform' if self.log_uniform else 'Uniform'} sizes: {extents(groups)}."
        name = self.name or f"random-{self.groups}-s{self.seed}"
        return (Made(name, (about,), groups),)

    def _sizes(self, key: str, given: str, of: int) -> list[int]:
        option = f"--{key}"
        units = span(option, given).multiples(option, of)
        draw = draws.uniform
        if self.log_uniform:
            if not units.low:
                raise UsageError(f"{option}: log-uniform sizes begin with 1 or more, not 0")
            draw = draws.log_uniform
        return [of * unit for unit in draw(units.low, units.high, self.groups, self.seed, key)]

    def _alignment(self) -> tuple[int, int, int]:
        """What m, n and k are multiples of."""
        found = re.fullmatch(r"([0-9]+)(?:x([0-9]+)x([0-9]+))?", self.align)
        if not found:
            raise UsageError(f"--align: '{self.align}' is none; write 8, or 1x8x8 for M, N and K")
        m, n, k = (number("--align", digits or found[1], 1) for digits in found.groups())
        return m, n, k
