"""Freivalds' test: which parts of a large group's D deserve to be compared element by element.

For a vector x of signs and zeros, D x should be alpha A (B x) + (beta C + bias) x. The columns of
D are taken in blocks, and each column takes part in TAKEN of a block's VECTORS: few columns in each
vector, so that a single wrong element stands out, and in more than one, so that wrong elements
seldom cancel each other everywhere.

In a right D the two sides differ by the sum of +-e over the errors e of a vector's columns, alike
in every row and block. So the test needs no bound: it doubts where a difference is more than
SUSPICION times the median of all, about four standard deviations: 0.04% of the rows of blocks where
all is right. It is only a filter, and what it doubts is compared. Where most of D is wrong the
median is, too; but then the rows that are compared anyway are wrong.
"""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np

from gemmctl.judging.product import Indices, Product, ranges
from gemmctl.judging.rounding import Flags
from gemmctl.operands.dtypes import Bits

VECTORS = 8  # of each block of columns
TAKEN = 2  # vectors that a column takes part in
BLOCK_COLUMNS = 256  # of D
SUSPICION = 6.0  # times the median |difference|: 4.05 standard deviations of a bell curve

_CHUNK = 1 << 20  # operand elements that one thread holds at a time


class Projection:
    """A large group's B times random vectors.

    ``products`` holds, for each block of D's columns, B X for its vectors X. It is exact: float32
    holds multiples of 2^-17 up to 128, which is 27 standard deviations of such a sum. Columns with
    special values take no part: what they spoil cannot be added up.
    """

    def __init__(self, product: Product, pool: Executor) -> None:
        n, k = product.group.n, product.group.k
        random = np.random.default_rng([product.index, product.b.key, 1])
        self.product = product
        self.blocks = list(ranges(0, n, BLOCK_COLUMNS))
        self.signs = np.zeros((n, VECTORS), np.float32)
        first = random.integers(VECTORS, size=n)
        steps = np.arange(TAKEN)[:, None] * random.integers(1, VECTORS, size=n)
        plain = product.b.plain(n)
        if product.group.bias == "n":
            plain &= product.bias.plain(n)
        if product.group.beta != 0 and product.exchanged:  # whose columns are rows of C
            plain &= product.c.plain(n)
        columns = np.flatnonzero(plain)
        for vectors in (first + steps) % VECTORS:
            signs = random.choice(np.array([-1, 1], np.float32), len(columns))
            self.signs[columns, vectors[columns]] = signs
        # Standard deviations grow like the root of the number of columns added up.
        self.scales = np.sqrt([np.abs(self.signs[block]).sum(axis=0) for block in self.slices])
        self.products = np.empty((k, VECTORS * len(self.blocks)), np.float32)
        list(pool.map(self._project, range(len(self.blocks)), self.blocks))

    @property
    def slices(self) -> list[slice]:
        """The blocks of D's columns."""
        return [slice(block.start, block.stop) for block in self.blocks]

    def _project(self, block: int, cols: range) -> None:
        product = self.product
        signs = self.signs[cols.start : cols.stop]
        plain = np.flatnonzero(signs.any(axis=1))
        into = self.products[:, VECTORS * block : VECTORS * (block + 1)]
        for ks in ranges(0, product.group.k, _CHUNK // BLOCK_COLUMNS):
            b = product.b.values(cols.start + plain, ks)
            into[ks.start : ks.stop] = b.T @ signs[plain]

    def suspects(self, rows: Indices, bits: Bits) -> Flags:
        """The rows of each block of columns that the test doubts, of shape (rows, blocks).

        ``bits`` are those of whole rows of D. Rows with special values cannot be tested, and are
        never doubted.
        """
        product = self.product
        group, d = product.group, product.d
        wanted = np.zeros((len(rows), self.products.shape[1]))
        tested = product.a.plain(rows)
        if group.beta != 0 and not product.exchanged:
            tested &= product.c.plain(rows)
        if group.bias == "m":
            tested &= product.bias.plain(rows)
        with np.errstate(all="ignore"):
            for ks in ranges(0, group.k, max(1, _CHUNK // max(len(rows), wanted.shape[1]))):
                a = product.a.values(rows, ks).astype(np.float64)
                wanted += a @ self.products[ks.start : ks.stop].astype(np.float64)
            wanted *= group.alpha
            differences = np.empty((len(rows), len(self.blocks), VECTORS))
            for block, cols in enumerate(self.blocks):
                signs = self.signs[cols.start : cols.stop].astype(np.float64)
                taken = signs.any(axis=1)
                got = d.to_f32(bits[:, cols.start : cols.stop]).astype(np.float64)
                got[:, ~taken] = 0
                difference = got @ signs - wanted[:, VECTORS * block : VECTORS * (block + 1)]
                if group.beta != 0 or group.bias != "none":
                    added = np.add(*product.addends(rows, cols))
                    added[:, ~taken] = 0
                    difference -= added @ signs
                differences[:, block] = np.abs(difference)
            differences /= self.scales  # a vector without columns leaves NaN, as NaN in D does
            known = differences[tested][np.isfinite(differences[tested])]
            usual = np.median(known) if known.size else 0.0
            doubted: Flags = ~(differences <= SUSPICION * usual)
        doubted &= self.scales > 0
        doubted[~tested] = False
        return np.asarray(doubted.any(axis=2))
