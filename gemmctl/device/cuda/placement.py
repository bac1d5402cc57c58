"""Which tiles a launch's clusters begin with: those that share operands share a GPC, and no
cluster has two long ones.

CTAs without a cluster fill one GPC (graphics processing cluster: 16 or 18 SMs of an H100) after
the other; clusters are dealt out to the GPCs by turns. But loads of the same bytes at one time are
one to the L2 only if they come from the same GPC. Seen on H200s with Nsight Compute
(docs/kernel.md, "Neighbours").
"""

from __future__ import annotations

import numpy as np

from gemmctl.planning.arrays import Ints


def places(sms: Ints, first: Ints) -> Ints:
    """The place of each cluster in a row of all, neighbours beside each other: 0, 1 and so on.

    ``sms``: the SM of each CTA of a launch without clusters, by the CTA's number. ``first``: that
    of each cluster's first CTA, by the cluster's number.
    """
    beside = np.zeros(int(max(sms.max(), first.max())) + 1, np.int64)
    beside[sms] = np.arange(len(sms))
    return _ranks(beside[first])


def dealt(tiles: int, places: Ints, alike: bool) -> Ints:
    """The order in which a list of so many tiles is handed to clusters of these places.

    Of each cluster the first two tiles go by its number (cubin/src/schedule.cuh): the numbers
    begin anew, and may end before all have a second one. If tiles are ``alike``, only neighbours
    count. Else the list begins with the longest: those go to clusters that have no second tile,
    and whoever has a longer first one has a shorter second one.
    """
    order = np.arange(tiles)
    clusters = len(places)
    both = min(tiles - clusters, clusters)  # clusters that have two
    seconds = _ranks(places[:both])
    order[clusters : clusters + both] = clusters + seconds
    if alike:
        order[:clusters] = places
    else:
        order[:both] = clusters - 1 - seconds
        order[both:clusters] = _ranks(places[both:])
    return order


def _ranks(numbers: Ints) -> Ints:
    """How many of the numbers are less than each."""
    ranks: Ints = np.argsort(np.argsort(numbers))
    return ranks
