"""A problem for each value of m, n or k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmctl.errors import UsageError
from gemmctl.generating.listing import SIZES, Group, Made, element_types, extents
from gemmctl.generating.ranges import several


@dataclass(frozen=True)
class Sweep:
    """Problems of ``count`` equal groups: one of m, n and k has several values, the others one."""

    m: str
    n: str
    k: str
    count: int
    dtype: str
    name: str | None

    kind: ClassVar[str] = "sweep"

    def made(self) -> tuple[Made, ...]:
        """A problem for each value, named after it; raises UsageError unless one size varies."""
        values = {key: several(f"--{key}", getattr(self, key)) for key in SIZES}
        varying = [key for key in SIZES if len(values[key]) > 1]
        if len(varying) != 1:
            which = " and ".join(f"--{key}" for key in varying) or "none of --m, --n and --k"
            told = f"{which} {'have' if varying else 'has'} several values"
            raise UsageError(f"{told}; one has to, such as --m 1:4096, and the others one each")
        (key,) = varying
        types = element_types(self.dtype)
        groups: list[Group] = []
        for value in values[key]:
            sizes = {k: value if k == key else values[k][0] for k in SIZES}
            groups.append(types | sizes | {"count": self.count})
        about = (f"{len(groups)} problems, {extents(groups)}.",)
        return tuple(Made(self._name(key, group), about, [group]) for group in groups)

    def _name(self, key: str, group: Group) -> str:
        """What the problem with this group is called, where the size called key varies."""
        if self.name is None:
            return "sweep-" + "x".join(str(group[k]) for k in SIZES)
        return f"{self.name}-{key}{group[key]}"
