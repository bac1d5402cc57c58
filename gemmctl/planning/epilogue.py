"""What each group has behind alpha A B, and by which of the kernels' ways that comes about."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gemmctl.kernels.constants import (
    ACTIVATION_RELU,
    BIAS_N,
    BIAS_NONE,
    K_TILE,
    RESIDUES,
    TYPE_F32,
)
from gemmctl.kernels.cubins import OPERAND_BYTES, Kernel
from gemmctl.lists.problem import Columns, Problem
from gemmctl.planning.arrays import Flags, Ints
from gemmctl.planning.fitting import STRIDE_END

# From which the L2 adds to D: it does so at two thirds of the rate that memory allows, which
# shorter sums would wait for. 128 of 1536x2048 with K 512: 1280 us, not 1120; 32 of that size with
# K of about 1030: 336 instead of 403.
ADDED_K = 960
# So much of a problem's D the L2 adds to as it comes, and writes back when the run is over. Of one
# matrix all of whose D is added, H100, over none of it: up to 17 MB 0.78 to 0.87, 34 MB 0.85 to
# 0.99; K of 384 and 512 0.99 and 0.93 of 50 MB, 1.03 and 0.99 of 67 MB, 1.15 and 1.09 of 134 MB.
ADDED_HELD = 34e6 / 4  # elements
# From which it does beside tiles that read C, spread among them: the two wait for different things.
# Sums of K are added as long as no more than K over ADDED_WHOLE of all such D is, since the L2 adds
# while others multiply (docs/kernel.md).
MIXED_K = 384
ADDED_WHOLE = 1200

# Sums of so many k are stored by TMA where D has 32 bits and warpgroups take turns: with 128 they
# take 1.02 to 1.04 of the time so, with 512 to 1024 0.92 to 0.94, with 2048 0.99, with 4096 1.00
# (H200, docs/kernel.md).
BOXED_K = range(384, 2049)

# Up to which rows of A are shuffled: longer sums hide what it saves (H100, 113 problems: 0.98 of
# the time up to it, 1.00 beyond). Rows longer than a slice that begin within a line of the L2 cost
# more than it saves: K of 200 and 600 take 1.00 to 1.07. So short a sum is never split.
SHUFFLED_K = 512


def fused(problem: Problem, groups: Ints) -> Flags:
    """Groups whose D is more than alpha A B, a bias and relu, which a CTA has to finish."""
    without_c = problem.columns.beta[groups] == 0
    found: Flags = ~(without_c & light(problem, groups)) & ~added(problem, groups)
    return found


def light(problem: Problem, groups: Ints) -> Flags:
    """Groups with nothing but a bias and relu behind alpha A B + beta C."""
    columns = problem.columns
    relu = columns.activation[groups] == ACTIVATION_RELU
    found: Flags = (relu | (columns.activation[groups] == 0)) & (columns.gate[groups] == 0)
    return found


def may_begin(problem: Problem, groups: Ints) -> Flags:
    """Groups whose sums beta C may be in: it is of D's type, has 16 bits, and TMA brings it.

    alpha is 1: it would multiply C, too. Sums of a D of 32 bits end with C, since each step of a
    tensor core rounds by the largest of what it adds up.
    """
    columns = problem.columns
    scaled = (columns.beta[groups] != 0) & (columns.alpha[groups] == 1)
    alike = (columns.c[groups] == columns.d[groups]) & (columns.d[groups] != TYPE_F32)
    moved = ~c_by_elements(problem, groups) & ~c_by_residues(problem, groups)
    found: Flags = scaled & alike & moved & (columns.depth[groups] > 0)
    return found


def ends_plain(problem: Problem, groups: Ints) -> Flags:
    """Groups of which nothing is left once C is in their sums that a plain tile has not."""
    columns = problem.columns
    unbiased = (columns.bias[groups] == BIAS_NONE) | may_scale(problem, groups)
    found: Flags = light(problem, groups) & unbiased & columns.whole_words[groups]
    return found


def may_shuffle(problem: Problem, groups: Ints, kernel: Kernel) -> Flags:
    """Groups whose rows of A may come shuffled, if a kernel of such types has that.

    D has whole runs of them. K is short, so that it is worth it, and rows that are longer than a
    slice begin on lines.
    """
    if not kernel.d_across:
        return np.zeros(len(groups), bool)
    columns = problem.columns.exchanged
    k, on_lines = columns.depth[groups], columns.lda[groups] % K_TILE == 0
    worth = (k > 0) & ((k <= K_TILE) | (on_lines & (k <= SHUFFLED_K)))
    near = kernel.run * columns.lda[groups] < STRIDE_END // OPERAND_BYTES  # TMA steps over a run
    found: Flags = worth & near & (columns.m[groups] % kernel.run == 0)
    return found


def may_box(problem: Problem, groups: Ints) -> Flags:
    """Groups whose D TMA may store: alpha A B of 32 bits, in whole words, with such a K.

    It takes rows by pairs, and steps from pair to pair.
    """
    columns = problem.columns
    k, bare = columns.depth[groups], ~columns.more[groups]
    some_k = (k >= BOXED_K.start) & (k < BOXED_K.stop)
    pairs = columns.m[groups] % 2 == 0
    found: Flags = bare & some_k & pairs & _tma_writes(columns, groups, step=2)
    return found


def _tma_writes(columns: Columns, groups: Ints | slice, step: int) -> Flags:
    """Groups whose D of 32 bits TMA can write, or add to.

    It takes columns by 32 (cubin/src/epilogue/staging.cuh), and steps over so many rows no further
    than STRIDE_END bytes. What it added behind the end of a row would turn NaN there into another.
    """
    wide = columns.d[groups] == TYPE_F32
    near = step * columns.ldd[groups] * columns.sizes["d"][groups] < STRIDE_END
    whole = (columns.n[groups] % 32 == 0) & columns.whole_words[groups]
    found: Flags = wide & near & whole
    return found


def may_join(problem: Problem, groups: Ints) -> Flags:
    """Groups whose bias may join their sums, as one more product of theirs, by one.

    It has the type of A and B. With an activation but relu behind it there is nothing to gain: what
    is to be done once the sums are there then takes longer than to multiply the next tile, and this
    would wait for that.
    """
    columns = problem.columns
    alike = (columns.bias[groups] != BIAS_NONE) & (columns.bias_type[groups] == columns.a[groups])
    found: Flags = alike & (columns.depth[groups] > 0) & light(problem, groups)
    return found


def may_scale(problem: Problem, groups: Ints) -> Flags:
    """Groups whose bias may come with alpha: it is along n, and of D's columns, not of a gate's."""
    columns = problem.columns
    along_n = (columns.bias[groups] == BIAS_N) & (columns.gate[groups] == 0)
    found: Flags = along_n & (columns.depth[groups] > 0)
    return found


def added(problem: Problem, groups: Ints) -> Flags:
    """Groups of D = alpha A B + D that the L2 adds up, where D lies: of 32 bits.

    Long sums are added, the fewer of all such D the L2 holds the longer they have to be; and of
    those that are not so long the longest of the problem, for a share of such D that their K
    decides: the L2 adds them while other tiles read C.
    """
    if not problem.columns.adds[groups].any():
        return np.zeros(len(groups), bool)
    return np.take(all_added(problem.columns), groups)


@lru_cache(maxsize=1)  # a plan with a launch for each group asks for every one of them
def all_added(columns: Columns) -> Flags:
    """The same of all groups."""
    adds = columns.adds & (columns.d == TYPE_F32)
    fit = adds & _tma_writes(columns, slice(None), step=1) & (columns.depth > 0)
    by_depth = np.argsort(-columns.depth * fit, kind="stable")
    elements = columns.m * columns.n * adds
    some = np.empty_like(fit)
    most = elements.sum() * columns.depth[by_depth] / ADDED_WHOLE
    some[by_depth] = np.cumsum(elements[by_depth]) <= most
    some &= columns.depth >= MIXED_K
    held = min(1.0, ADDED_HELD / max(1, elements.sum()))
    found: Flags = fit & (some | (columns.depth >= ADDED_K * (1 - held)))
    return found


def c_by_elements(problem: Problem, groups: Ints) -> Flags:
    """Groups whose C TMA cannot bring: in the order that a gate needs, or with rows too long."""
    columns = problem.columns
    row_bytes = columns.ldc[groups] * columns.sizes["c"][groups]
    far = row_bytes >= np.where(columns.off_words["c"][groups], STRIDE_END // RESIDUES, STRIDE_END)
    found: Flags = (columns.beta[groups] != 0) & (far | (columns.gate[groups] != 0))
    return found


def c_by_residues(problem: Problem, groups: Ints) -> Flags:
    """Groups whose C has rows that begin off 16-byte words: every eighth of them begin alike."""
    columns = problem.columns
    off = (columns.beta[groups] != 0) & columns.off_words["c"][groups]
    found: Flags = off & ~c_by_elements(problem, groups)
    return found
