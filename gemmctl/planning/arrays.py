"""Arrays with an entry for each group of one or more launches: types, and what numpy lacks."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)

ALONE = np.zeros(1, np.int64)  # where the groups of a single launch begin


def within(counts: Ints) -> Ints:
    """0, 1, 2, ... anew for each of ``counts``."""
    ends = np.cumsum(counts)
    steps: Ints = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    return steps


def each(of_launches: npt.NDArray[Number], starts: Ints, groups: Ints) -> npt.NDArray[Number]:
    """For each group, what its launch has; of a single launch or one for all, one entry."""
    if len(of_launches) == 1:
        return of_launches
    return np.repeat(of_launches, np.append(starts[1:], len(groups)) - starts)


def ceil_div(value: Ints, step: Ints | int) -> Ints:
    """The quotient, rounded up."""
    return (value + step - 1) // step
