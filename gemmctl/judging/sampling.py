"""Which elements of a large group are compared one by one, whatever else is done with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmctl.judging.product import Indices, Product

SAMPLED_ROWS = 32  # besides the last tiles


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of D that are compared whole, and columns that are in all rows."""

    rows: Indices
    columns: range


def sample(product: Product) -> Sample:
    """Random rows, and the last row and column of tiles."""
    random = np.random.default_rng([product.index, product.b.key])
    m = product.group.m
    last_row = int(product.tiles["row"].max(initial=0))
    rows = random.choice(m, min(m, SAMPLED_ROWS), replace=False)
    last_column = int(product.tiles["col"].max(initial=0))
    return Sample(
        np.union1d(rows, np.arange(last_row, m)), range(last_column, product.group.d_columns)
    )
