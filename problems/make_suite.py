"""Write a problem list from lines of ``M N K``, one product a line.

    python problems/make_suite.py NAME 'What it stands for.' < shapes.txt > problems/NAME.yaml

All lists of this folder but ragged, edge, tiny and accumulate were written by it; they
are the record of their own numbers.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

MODELINE = "# yaml-language-server: $schema=../gemmctl/problem-list.schema.json"


def render(
    name: str, about: str, shapes: Sequence[tuple[int, ...]], a: str = "bf16", d: str = "bf16"
) -> str:
    """The text of a list with one problem: (m, n, k) of every product, types of A and B, and of D.

    Equal neighbours become one group with a count; a size that unequal products share goes into
    defaults.
    """
    shared = {
        key: sizes[0]
        for key, sizes in zip("mnk", zip(*shapes, strict=True), strict=True)
        if len(set(sizes)) == 1 < len(set(shapes))
    }
    lines = [MODELINE, "#", *textwrap.wrap(about, 98, initial_indent="# ", subsequent_indent="# ")]
    lines += ["gemmctl: 1", "problems:", f"  - name: {name}"]
    lines += [f"    defaults: {_flow({'a': a, 'b': a, 'd': d} | shared)}", "    groups:"]
    for shape, run in groupby(shapes):
        fields = {key: size for key, size in zip("mnk", shape, strict=True) if key not in shared}
        count = sum(1 for _ in run)
        lines.append(f"      - {_flow(fields | ({'count': count} if count > 1 else {}))}")
    return "\n".join(lines) + "\n"


def read_shapes(lines: Iterable[str]) -> list[tuple[int, ...]]:
    """(m, n, k) of every line that is not blank."""
    return [tuple(map(int, line.split())) for line in lines if line.strip()]


def _flow(mapping: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in mapping.items()) + "}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Lines of M N K on stdin become a list on stdout.")
    parser.add_argument("name", help="the problem's name")
    parser.add_argument("about", help="what it stands for: the comment at the top")
    parser.add_argument("--a", default="bf16", help="element type of A and B (default bf16)")
    parser.add_argument("--d", default="bf16", help="element type of D (default bf16)")
    args = parser.parse_args()
    sys.stdout.write(render(args.name, args.about, read_shapes(sys.stdin), args.a, args.d))
