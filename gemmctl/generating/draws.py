"""Random numbers that are the same on every machine and in every version of everything.

The bits are SHAKE128's (FIPS 202), which is a function of its input and nothing else; numpy and
``random`` promise no such thing of their distributions. From there on there are only integers, and
decimals whose every operation rounds correctly by definition (IEEE 754 and Cowlishaw's General
Decimal Arithmetic, as Python's ``decimal`` has it), where ``math.log`` differs by platform.
"""

from __future__ import annotations

import hashlib
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

DECIMAL = Context(prec=40, rounding=ROUND_HALF_EVEN)  # far more digits than a weight or a size has


def words(count: int, seed: int, purpose: str) -> Words:
    """So many numbers from 0 to 2^32 - 1; another purpose has others."""
    stream = hashlib.shake_128(f"{purpose} {seed}".encode()).digest(4 * count)
    return np.frombuffer(stream, "<u4").astype(np.uint64)


def below(bound: int | Words, given: Words) -> Words:
    """The words scaled to 0 .. bound - 1, with bound at most 2^32; probabilities err by 2^-32."""
    found: Words = given * np.asarray(bound, np.uint64) >> np.uint64(32)
    return found


def shuffled(count: int, seed: int, purpose: str) -> Integers:
    """The numbers from 0 to count - 1 in a random order."""
    return np.argsort(words(count, seed, purpose), kind="stable").astype(np.int64)


def uniform(low: int, high: int, count: int, seed: int, purpose: str) -> list[int]:
    """So many integers from low to high, each as likely; at most 2^32 - 1 apart."""
    steps: list[int] = below(high - low + 1, words(count, seed, purpose)).tolist()
    return [low + step for step in steps]


def log_uniform(low: int, high: int, count: int, seed: int, purpose: str) -> list[int]:
    """So many integers from low (1 or more) to high, as many from 1 to 2 as from 2 to 4."""
    begin, end = DECIMAL.ln(Decimal(low)), DECIMAL.ln(Decimal(high + 1))
    stretch = DECIMAL.divide(DECIMAL.subtract(end, begin), Decimal(2**32))
    powers = (DECIMAL.fma(Decimal(word), stretch, begin)
              for word in words(count, seed, purpose).tolist())  # fmt: skip
    # The exponent of a power of low may round down by its last digit.
    return [min(max(int(DECIMAL.exp(power)), low), high) for power in powers]


def normal(count: int, seed: int, purpose: str) -> list[Decimal]:
    """So many normal numbers of mean 0 and deviation 1, by Marsaglia's polar method.

    G. Marsaglia and T. A. Bray, A convenient method for generating normal variables, 1964: it
    needs no cosine, which decimals do not have.
    """
    found: list[Decimal] = []
    batch = 0
    while len(found) < count:
        pairs = iter(words(2 * count, seed, f"{purpose} {batch}").tolist())
        for first, second in zip(pairs, pairs, strict=True):
            # Odd numerators: never 0, and exact.
            u, v = (DECIMAL.divide(Decimal(2 * word + 1 - 2**32), Decimal(2**32))
                    for word in (first, second))  # fmt: skip
            square = DECIMAL.fma(u, u, DECIMAL.multiply(v, v))
            if square < 1:
                scale = DECIMAL.divide(DECIMAL.multiply(-2, DECIMAL.ln(square)), square)
                found.append(DECIMAL.multiply(u, DECIMAL.sqrt(scale)))
        batch += 1
    return found[:count]
