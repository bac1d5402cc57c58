"""DeepGEMM: bf16 groups of one N and K in one launch, contiguous or masked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import accumulate
from typing import Any

from gemmctl.lists.problem import Group
from gemmctl.measuring.baselines.base import (
    Inapplicable,
    active,
    require_none,
    require_same,
    require_words,
)
from gemmctl.measuring.baselines.torch import Operands, Work

ROWS = 128  # of a tile: what its layouts are padded to on Hopper


def grouped(operands: Operands) -> Work:
    """m_grouped_bf16_gemm_nt_contiguous where every M is whole tiles, else _masked.

    Both take gathered operands and write a D of their own, so the gathering comes beforehand and
    D is scattered afterwards.
    """
    plan = operands.plan
    groups = active(plan)
    require_same(plan, groups, "n", "k", "a", "d")
    require_none(plan, groups, "DeepGEMM", "bias", "activation", "gate")
    require_words(plan, groups, "DeepGEMM")
    found = [plan.problem.groups[i] for i in groups]
    if any(group.across(operand) for group in found for operand in "abd"):
        raise Inapplicable("DeepGEMM is asked for A row, B col and D row only")
    if any(group.alpha != 1 or group.beta != 0 for group in found):
        raise Inapplicable("DeepGEMM knows no alpha and beta")
    if (found[0].a, found[0].d) != ("bf16", "bf16"):
        raise Inapplicable("DeepGEMM is asked for bf16 from bf16 only")
    library = _imported()
    if all(group.m % _alignment(library) == 0 for group in found):
        return _contiguous(library, operands, groups, found)
    return _masked(library, operands, groups, found)


def _contiguous(library: Any, operands: Operands, groups: list[int], found: list[Group]) -> Work:
    """All rows in one piece, each with the number of its group."""
    torch = operands.torch
    multiply = _function(library, "m_grouped_bf16_gemm_nt_contiguous")
    a = torch.cat([operands.matrix("a", i) for i in groups])
    b = torch.stack([operands.matrix("b", i) for i in groups])
    d = torch.empty((len(a), found[0].n), dtype=a.dtype, device=a.device)
    rows = torch.tensor([group.m for group in found], device=a.device)
    numbers = torch.arange(len(groups), dtype=torch.int32, device=a.device)
    of_rows = torch.repeat_interleave(numbers, rows)
    ends = list(accumulate(group.m for group in found))

    def deliver() -> None:
        for index, group, end in zip(groups, found, ends, strict=True):
            operands.matrix("d", index).copy_(d[end - group.m : end])

    return Work([lambda: multiply(a, b, d, of_rows)], [deliver], [d])


def _masked(library: Any, operands: Operands, groups: list[int], found: list[Group]) -> Work:
    """Every group padded to the largest, with its number of rows."""
    torch = operands.torch
    multiply = _function(library, "m_grouped_bf16_gemm_nt_masked")
    b = torch.stack([operands.matrix("b", i) for i in groups])
    sizes = [group.m for group in found]
    height = -(-max(sizes) // ROWS) * ROWS
    a = torch.zeros((len(groups), height, found[0].k), dtype=b.dtype, device=b.device)
    for number, (index, m) in enumerate(zip(groups, sizes, strict=True)):
        a[number, :m] = operands.matrix("a", index)
    d = torch.empty((len(groups), height, found[0].n), dtype=b.dtype, device=b.device)
    rows = torch.tensor(sizes, dtype=torch.int32, device=b.device)
    expected = -(-sum(sizes) // len(sizes))

    def deliver() -> None:
        for number, (index, m) in enumerate(zip(groups, sizes, strict=True)):
            operands.matrix("d", index).copy_(d[number, :m])

    return Work([lambda: multiply(a, b, d, rows, expected)], [deliver], [d])


def _alignment(library: Any) -> int:
    """What every M has to be a multiple of in the contiguous layout."""
    for name in ("get_mk_alignment_for_contiguous_layout", "get_m_alignment_for_contiguous_layout"):
        if hasattr(library, name):
            return int(getattr(library, name)())
    return ROWS


def _function(library: Any, name: str) -> Callable[..., None]:
    """One that raises Inapplicable with DeepGEMM's own words if it refuses."""
    found = getattr(library, name, None)
    if found is None:
        raise Inapplicable(f"this deep_gemm has no {name}")

    def call(*arguments: Any) -> None:
        try:
            found(*arguments)
        except (RuntimeError, TypeError) as error:
            said = str(error).partition("\n")[0]
            raise Inapplicable(f"deep_gemm says: {said}") from None

    return call


def _imported() -> Any:
    """The deep_gemm module; what it prints meanwhile goes to stderr. Raises Inapplicable."""
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module("deep_gemm")
    except ModuleNotFoundError as error:
        if error.name != "deep_gemm":
            raise Inapplicable(f"deep_gemm cannot be loaded: {error}") from None
        raise Inapplicable("deep_gemm is not installed") from None
    except (ImportError, OSError, RuntimeError, AssertionError) as error:
        raise Inapplicable(f"deep_gemm cannot be loaded: {error}") from None
