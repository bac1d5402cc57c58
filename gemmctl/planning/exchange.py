"""D by columns as D by rows: D = A B is D^T = B^T A^T, the product with its operands exchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmctl.lists.problem import Group, Problem
from gemmctl.planning.arrays import Ints


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
            made[id(group)] = group.exchanged if group.across("d") else group
    return replace(problem, groups=tuple(made[id(group)] for group in problem.groups))


def swapped(problem: Problem, of_a: Ints, of_b: Ints) -> tuple[Ints, Ints]:
    """What belongs to every A and B of a problem, for A and B of ``exchanged(problem)``."""
    across = problem.columns.across("d")
    return np.where(across, of_b, of_a), np.where(across, of_a, of_b)
