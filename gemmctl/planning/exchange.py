"""D by columns as D by rows: D = A B is D^T = B^T A^T, the product with its operands exchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmctl.lists.problem import LAYOUTS, Group, Problem
from gemmctl.planning.tiling import Ints

ALONG = {"none": "none", "n": "m", "m": "n"}  # a bias, once rows are columns


def exchanged(problem: Problem) -> Problem:
    """The same products with every D in layout row, which is what kernels write.

    Groups whose D is col have their operands exchanged, m and n too, and a bias along the other
    of them. Gates pair columns of x and have no such form: refusals.py keeps them away.
    """
    if not problem.columns.across("d").any():
        return problem
    made: dict[int, Group] = {}
    for group in problem.groups:
        if id(group) not in made:
            made[id(group)] = _exchanged(group) if group.across("d") else group
    return replace(problem, groups=tuple(made[id(group)] for group in problem.groups))


def swapped(problem: Problem, of_a: Ints, of_b: Ints) -> tuple[Ints, Ints]:
    """What belongs to every A and B of a problem, for A and B of ``exchanged(problem)``."""
    across = problem.columns.across("d")
    return np.where(across, of_b, of_a), np.where(across, of_a, of_b)


def _exchanged(group: Group) -> Group:
    other = dict(zip(LAYOUTS, reversed(LAYOUTS), strict=True))
    return replace(
        group,
        m=group.n,
        n=group.m,
        a=group.b,
        b=group.a,
        lda=group.ldb,
        ldb=group.lda,
        a_layout=other[group.b_layout],
        b_layout=other[group.a_layout],
        d_layout="row",
        bias=ALONG[group.bias],
    )
