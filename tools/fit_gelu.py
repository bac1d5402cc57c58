"""Fit the polynomial that cubin/src/epilogue/activation.cuh makes gelu of.

    python tools/fit_gelu.py [DEGREE]

gelu(x) is x times p(x), the normal distribution's. With v = log(p(x) / p(-x)), p(x) is 1 / (1 +
exp(-v)), and v / x is even: a polynomial P in x^2. Its error counts as much as what it makes of
gelu exceeds what gemmctl/judging/expected.py allows, of both signs of x. The fit is one of least
squares, whose weights follow the error until it is about equal everywhere. Printed are the
coefficients of Q = -P log2(e), lowest first, and the largest share of what is allowed.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from gemmctl.judging.expected import ARGUMENT_ERROR, VALUE_ERROR

MOST = 28.0  # x^2 beyond which the polynomial is held: p(-x) is then below ARGUMENT_ERROR
ROUNDS = 300  # of weights, after which they change no more


def main() -> None:
    """Print the coefficients and their largest error."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("degree", nargs="?", type=int, default=6, help="of Q in x^2 (6)")
    degree = parser.parse_args().degree
    x = np.linspace(1e-3, math.sqrt(MOST), 6000)
    below, above = (
        np.array([math.erfc(sign * value / math.sqrt(2)) / 2 for value in x]) for sign in (1, -1)
    )
    wanted = (np.log(above) - np.log(below)) / x
    # An error e of v changes p by the factor 1 + e (1 - p).
    allowed = np.minimum(
        (VALUE_ERROR + ARGUMENT_ERROR / below) / above,
        (VALUE_ERROR + ARGUMENT_ERROR / above) / below,
    )
    share = x / allowed
    powers = np.vander(x * x / MOST, degree + 1, increasing=True)
    weights = share.copy()
    for _ in range(ROUNDS):
        found, *_ = np.linalg.lstsq(powers * weights[:, None], wanted * weights, rcond=None)
        error = np.abs(powers @ found - wanted) * share
        weights *= (error / error.max() + 1e-3) ** 0.15
    for i, coefficient in enumerate(found / MOST ** np.arange(degree + 1)):
        print(f"x^{2 * i}: {-coefficient / math.log(2):.9e}")
    print(f"worst error: {error.max():.2f} of what is allowed")


if __name__ == "__main__":
    main()
