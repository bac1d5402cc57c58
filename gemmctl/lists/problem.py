"""Problems and their groups.

A group is D = alpha A B + beta C with A m x k, B k x n, C and D m x n. Element (i, j) of a matrix
with leading dimension ld lies at i * ld + j in layout ``row`` and at j * ld + i in layout ``col``;
C has D's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmctl.errors import Mark, UsageError


@dataclass(frozen=True, slots=True)
class Group:
    """One matrix product, every default filled in. alpha and beta are float32 values."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str
    a_layout: str
    b_layout: str
    d_layout: str
    lda: int
    ldb: int
    ldc: int
    ldd: int
    alpha: float
    beta: float
    # Where each key stands that was written, in the group or in defaults; "": the group itself.
    marks: Mapping[str, Mark] = field(compare=False, repr=False)

    def where(self, *keys: str) -> Mark:
        """The place of the first of ``keys`` that was written, else the group's own."""
        return next((self.marks[key] for key in keys if key in self.marks), self.marks[""])


@dataclass(frozen=True)
class Columns:
    """A problem's numbers as arrays with one entry per group; read-only."""

    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    lda: npt.NDArray[np.int64]
    ldb: npt.NDArray[np.int64]
    ldc: npt.NDArray[np.int64]
    ldd: npt.NDArray[np.int64]
    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Products that run as one timed unit; a group with a count is there as often as it says."""

    name: str
    groups: tuple[Group, ...]
    mark: Mark = field(compare=False, repr=False)

    @cached_property
    def columns(self) -> Columns:
        """The groups' numbers as arrays."""
        runs = [list(run) for _, run in groupby(self.groups, key=id)]
        counts = [len(run) for run in runs]

        def column(name: str, dtype: type) -> npt.NDArray[Any]:
            firsts = (getattr(run[0], name) for run in runs)
            once: npt.NDArray[Any] = np.fromiter(firsts, dtype, len(runs))
            values = np.repeat(once, counts)
            values.flags.writeable = False
            return values

        integers = {f: column(f, np.int64) for f in ("m", "n", "k", "lda", "ldb", "ldc", "ldd")}
        scalars = {f: column(f, np.float64) for f in ("alpha", "beta")}
        return Columns(**integers, **scalars)


def select(problems: Sequence[Problem], globs: Sequence[str]) -> list[Problem]:
    """The problems whose names match any of ``globs``, in their order; all if there are none.

    Raises UsageError for a glob that matches nothing.
    """
    names = [problem.name for problem in problems]
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise UsageError(f"no problem is named '{glob}'; there are {', '.join(names)}")
    if not globs:
        return list(problems)
    return [p for p in problems if any(fnmatchcase(p.name, glob) for glob in globs)]
