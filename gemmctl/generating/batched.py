"""Products of one shape, or of a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmctl.generating.listing import Made, element_types, extents
from gemmctl.lists import shapes


@dataclass(frozen=True)
class Batched:
    """A group, or so many, for each of ``mnk``: ``MxNxK`` or ``MxNxK:COUNT``."""

    mnk: tuple[str, ...]
    count: int  # of those without a COUNT
    dtype: str
    name: str | None

    kind: ClassVar[str] = "batched"

    def made(self) -> tuple[Made, ...]:
        """One problem; raises UsageError for what is no shape."""
        types = element_types(self.dtype)
        written = [shapes.group(shape, self.count) for shape in self.mnk]
        keys = ("m", "n", "k", "count")
        groups = [types | dict(zip(keys, map(int, each), strict=True)) for each in written]
        return (Made(self.name or shapes.name(written), (f"{extents(groups)}.",), groups),)
