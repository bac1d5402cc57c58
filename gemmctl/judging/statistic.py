"""How large a group's errors are as a whole, beside what the arithmetic explains.

The interval around an element is a worst case that grows like K; honest errors grow like sqrt K.
So sums that lose precision on the way, or leave out a small part of K, can stay inside it in every
element. Over many elements they cannot hide: the statistic is the root of the mean of

    (D - R)^2 / (s^2 + h^2 / 3)

where s is the deviation that the sum and the scalars explain (``Expected.spread``) and h half a
unit in D's last place (an error uniform over it has h^2 / 3 as its mean square). It is 1 or less
for an honest device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# The deviation of a sum's error over 2^-24 |A||B|, as measured (docs/verifying.md), times SLACK.
# Hopper's tensor cores truncate towards zero, so errors add up along K: C_CUDA is over sqrt(k) as
# well, and no less for fewer than the MMA_K products of one instruction: at K = 8, f16 operands
# had 1.11 times what their own root would explain. A CPU's BLAS rounds to nearest, in an order of
# its own: C_CPU is what 256 additions one after the other would give, and twice what OpenBLAS does.
C_CUDA = 0.04
MMA_K = 16  # of a 16-bit type (PTX ISA, wgmma)
# The same where A is woven: K of 16 is four sums of four products there, and had 1.13 times what 64
# would explain (f16 to f32, H200).
WOVEN_K = 128
C_CPU = 0.33
SLACK = 1.5
# Of these deviations, SLACK and all, what no element of an honest sum errs by: of 65,536 of them a
# model of Hopper's sums (tests/test_verify.py) comes to 8 at K = 32 and 2 at 32,768, sums of 256
# float32 products to 9. The worst case grows like K: at 131,072 it is 1,500 of them, and more than
# a tenth of a normal sum.
LIKELY = 24.0

UNIT: float = 2.0**-24

EXCESS = 1.1  # of the statistic's square, for what the model does not say
NOISE = 10.0  # of the square over the root of the number of elements; errors are no bell curve


@dataclass(frozen=True)
class Errors:
    """The errors of some elements: the sum of their squares, each over what is explained."""

    count: int = 0
    squares: float = 0.0

    def __add__(self, other: Errors) -> Errors:
        """Those of both."""
        return Errors(self.count + other.count, self.squares + other.squares)

    @property
    def statistic(self) -> float | None:
        """The root of the mean; None where there is nothing to round."""
        return math.sqrt(self.squares / self.count) if self.count else None

    @property
    def limit(self) -> float:
        """What the statistic of so many elements stays below on an honest device."""
        return math.sqrt(EXCESS + NOISE / math.sqrt(max(1, self.count)))


NO_ERRORS = Errors()


def drift(k: int, device: str, *, woven: bool = False) -> float:
    """The deviation of a sum of k products over the sum of their magnitudes."""
    least = WOVEN_K if woven else MMA_K
    return SLACK * UNIT * (C_CPU if device == "cpu" else C_CUDA * math.sqrt(max(k, least)))
