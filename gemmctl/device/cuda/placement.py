"""Which tiles a launch's clusters begin with.

CTAs without a cluster fill one GPC (graphics processing cluster: 16 or 18 SMs of an H100) after
the other; clusters are dealt out to the GPCs by turns. Two things follow, seen on H200s
(docs/kernel.md, "Neighbours"). Loads of the same bytes at one time are one to the L2 only if they
come from the same GPC: so tiles that share operands go to neighbours. But a GPC draws no more than
0.7 TB/s: so where there is work for some CTAs only, these lie apart. And no cluster gets two long
tiles.
"""

from __future__ import annotations

import numpy as np

from gemmctl.planning.arrays import Flags, Ints

# Share of clusters that have to wait at first for the others to lie apart: of 132 CTAs 120 take
# 0.98 of the time so, 112 0.95, 96 0.90, but 124 and 128 1.02 to 1.04 (H200).
WAITING = 0.09


def places(sms: Ints, first: Ints) -> Ints:
    """The place of each cluster in a row of all, neighbours beside each other: 0, 1 and so on.

    ``sms``: the SM of each CTA of a launch without clusters, by the CTA's number. ``first``: that
    of each cluster's first CTA, by the cluster's number.
    """
    beside = np.zeros(int(max(sms.max(), first.max())) + 1, np.int64)
    beside[sms] = np.arange(len(sms))
    return _ranks(beside[first])


def dealt(tiles: int, places: Ints, alike: bool, single: bool) -> Ints:
    """The order in which a list of so many tiles is handed to clusters of these places.

    Of each cluster the first two tiles go by its number (cubin/src/schedule.cuh). Where there are
    not enough second ones for all, the first numbers have them or, of ``single`` CTAs, as many of
    every row of numbers. If tiles are ``alike``, only neighbours count. Else the list begins with
    the longest: those go to clusters that have no second tile, and whoever has a longer first one
    has a shorter second one.
    """
    order = np.arange(tiles)
    clusters = len(places)
    seconds, numbers = min(tiles - clusters, clusters), np.arange(clusters + 1)
    before = numbers * seconds // clusters if single else np.minimum(numbers, seconds)
    both = np.diff(before) > 0  # clusters that have two
    ranks = _ranks(places[both])
    order[clusters : clusters + seconds] = clusters + ranks
    if alike:
        order[:clusters] = places
    else:
        order[:clusters][both] = clusters - 1 - ranks
        order[:clusters][~both] = _ranks(places[~both])
    return order


def apart(working: Flags, places: Ints) -> Ints:
    """The order of a list for clusters of these places: those that begin to work lie apart.

    ``working`` says of each tile of the list that it does not wait for others. If few wait, the
    list stays as it is.
    """
    order, clusters = np.arange(len(working)), len(places)
    works, waits = np.flatnonzero(working[:clusters]), np.flatnonzero(~working[:clusters])
    if len(waits) < WAITING * clusters:
        return order
    row = np.argsort(places)  # of clusters, neighbours beside each other
    at = np.zeros(clusters, bool)
    at[row[np.arange(len(works)) * clusters // max(1, len(works))]] = True
    order[:clusters][at], order[:clusters][~at] = works, waits
    return order


def _ranks(numbers: Ints) -> Ints:
    """How many of the numbers are less than each."""
    ranks: Ints = np.argsort(np.argsort(numbers))
    return ranks
