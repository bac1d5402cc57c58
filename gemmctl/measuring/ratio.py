"""The ratio of two medians, and how far the samples can tell it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SAME_WITHIN = 0.01  # a change that surely stays below this is none
MIN_SAMPLES = 6  # fewer: even the whole range holds the median with less than 97%
CONFIDENCE = 0.95
RESAMPLES = 4000


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
        drawn = random.integers(len(samples), size=(RESAMPLES, len(samples)))
        return np.median(samples[drawn], axis=1)

    ratios = medians(new) / medians(old)
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(ratios, [tail, 100 - tail])
    return float(low), float(high)
