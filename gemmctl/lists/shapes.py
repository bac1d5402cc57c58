"""Shapes as they are written on the command line, made into a problem list."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmctl.errors import UsageError
from gemmctl.lists.yamlfile import MAX_DIGITS, too_long

TYPED = "--mnk"  # what errors call the list that these make
MAX_NAME = 60  # characters; a longer one says how many shapes there are


def listed(
    shapes: Sequence[str], count: int, dtype: str, alpha: float | None, beta: float | None
) -> str:
    """The text of a list with one problem, which has a group for each ``MxNxK`` or ``MxNxK:COUNT``.

    ``count`` is of those that have none; ``dtype`` is of A, B and D as in ``bf16``, or of A and B
    and of D as in ``bf16:f32`` or ``bf16->f32``. Raises UsageError for what is not written so;
    whether the numbers and types are legal is for who reads the list.
    """
    groups = [group(shape, count) for shape in shapes]
    operand, output = types(dtype)
    defaults = {"a": operand, "d": output, "alpha": alpha, "beta": beta}
    given = ", ".join(f"{key}: {value}" for key, value in defaults.items() if value is not None)
    return "\n".join(
        [
            "gemmctl: 1",
            "problems:",
            f"- name: '{name(groups)}'",
            f"  defaults: {{{given}}}",
            "  groups:",
            *(f"  - {{m: {m}, n: {n}, k: {k}, count: {c}}}" for m, n, k, c in groups),
        ]
    )


def group(shape: str, count: int) -> tuple[str, str, str, str]:
    """M, N, K and count of ``MxNxK`` or ``MxNxK:COUNT``; raises UsageError for anything else."""
    found = re.fullmatch(r"([0-9]+)[xX]([0-9]+)[xX]([0-9]+)(?::([0-9]+))?", shape)
    if not found:
        raise UsageError(
            f"--mnk: '{shape}' is no shape; write MxNxK, or MxNxK:COUNT, such as 2048x14336x4096:8"
        )
    m, n, k, own = found.groups()
    longest = max(m, n, k, own or "", key=len)
    if len(longest) > MAX_DIGITS:
        raise UsageError(f"--mnk: {too_long(longest)}")
    return m, n, k, own or str(count)


def types(dtype: str) -> tuple[str, str]:
    """The types of A and B, and of D, from ``bf16`` or ``bf16:f32``.

    Raises UsageError for what is not written so.
    """
    found = re.fullmatch(r"(\w+)(?:(?:->|:)(\w+))?", dtype)
    if not found:
        hint = "; put it in quotes, for > means something to the shell" * dtype.endswith("-")
        raise UsageError(f"--dtype: '{dtype}' is no type; write bf16, or bf16:f32{hint}")
    return found[1], found[2] or found[1]


def name(groups: Sequence[tuple[str, str, str, str]]) -> str:
    """The shapes of groups, or the first of them and how many more there are."""
    shapes = ["x".join(sizes) + f":{count}" * (count != "1") for *sizes, count in groups]
    whole = "+".join(shapes)
    return whole if len(whole) <= MAX_NAME else f"{shapes[0]}+{len(shapes) - 1}-more"
