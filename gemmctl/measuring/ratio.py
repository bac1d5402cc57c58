"""The ratio of two medians, and how far the samples can tell it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SAME_WITHIN = 0.01  # a change that surely stays below this is none
MIN_SAMPLES = 6  # fewer: even the whole range holds the median with less than 97%
CONFIDENCE = 0.95
RESAMPLES = 4000
AT_ONCE = 2**20  # numbers drawn at one time: 8 MB of them, and as much of the samples they name


@dataclass(frozen=True)
class Ratio:
    """One median over another; ``interval`` holds the true ratio with 95% confidence.

    interval is None where there are too few samples to say.
    """

    value: float
    interval: tuple[float, float] | None

    @property
    def verdict(self) -> str:
        """FASTER, SAME, SLOWER or UNSURE: see the function of that name."""
        return verdict(self.interval)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
    """Our median over theirs: below 1 is faster. None if there are no samples, or no time."""
    if not ours or not theirs or not (median := np.median(theirs)):
        return None
    found = interval(np.array(theirs), np.array(ours))
    return Ratio(float(np.median(ours) / median), found)


def verdict(
    found: tuple[float, float] | None, *, faster: str = "FASTER", slower: str = "SLOWER"
) -> str:
    """What an interval of a ratio of times says.

    SAME: surely within SAME_WITHIN of 1; ``faster``, ``slower``: surely on that side of 1;
    UNSURE: more than one of them is possible.
    """
    if found is None:
        return "UNSURE"
    low, high = found
    if low >= 1 - SAME_WITHIN and high <= 1 + SAME_WITHIN:
        return "SAME"
    if high < 1:
        return faster
    return slower if low > 1 else "UNSURE"


def interval(
    old: npt.NDArray[np.float64], new: npt.NDArray[np.float64]
) -> tuple[float, float] | None:
    """Where new median over old lies with 95% confidence; None if too few samples say.

    Bootstrap: resample both, take the middle 95% of the ratios of medians. The generator's seed is
    fixed, so the same samples always give the same interval.
    """
    if min(len(old), len(new)) < MIN_SAMPLES or min(old.min(), new.min()) <= 0:
        return None
    random = np.random.default_rng(0)

    def medians(samples: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        found, count = np.empty(RESAMPLES), len(samples)
        rows = max(1, AT_ONCE // count)
        for begin in range(0, RESAMPLES, rows):
            some = found[begin : begin + rows]
            drawn = random.integers(count, size=(len(some), count))
            some[:] = np.median(samples[drawn], axis=1)
        return found

    ratios = medians(new) / medians(old)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(ratios, [tail, 100 - tail])
    return float(low), float(high)
