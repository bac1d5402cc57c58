"""Sentences of the README that were not true.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import json
from pathlib import Path

from support import ROOT, Command, make_problem, on_terminal

README = (ROOT / "README.md").read_text()


def test_edge_19_the_defaults_of_element_types_follow_each_other_as_the_readme_says() -> None:
    assert "| `a`: bf16; `b` and `d`: as `a`; `c`: as `d` |" in README
    for given, types in (
        ("", ("bf16", "bf16", "bf16", "bf16")),
        ("a: f16", ("f16", "f16", "f16", "f16")),
        ("d: f32", ("bf16", "bf16", "f32", "f32")),
        ("c: f16", ("bf16", "bf16", "f16", "bf16")),
    ):
        (group,) = make_problem("m: 8, n: 8, k: 8", defaults=given).groups
        assert (group.a, group.b, group.c, group.d) == types


def test_edge_20_integer_data_is_exact_where_the_readme_says(gemmctl: Command) -> None:
    assert "a group with alpha 1 and beta 0 or 1 must come back exactly" in README
    scalars = ["", "beta: 1", "alpha: 0.5", "beta: 2"]
    groups = ", ".join(f"{{m: 8, n: 8, k: 64, {more}}}" for more in scalars)
    text = f"{{gemmctl: 1, problems: [{{name: p, groups: [{groups}]}}]}}"
    done = gemmctl("verify", "-", "--data", "int", "-f", "json", stdin=text)
    (check,) = json.loads(done.stdout)["checks"]
    methods = [verdict["method"].split()[0] for verdict in check["verdicts"]]
    assert methods == ["exact", "exact", "bounded", "bounded"]


def test_edge_43_only_tables_for_people_have_their_notes_on_standard_output(
    gemmctl: Command, two_problems: Path
) -> None:
    assert "only tables for people (`table`, `markdown`) have the notes" in README
    note = "bound is max(flops / peak, bytes / bandwidth)"
    assert note in on_terminal("stdout", "plan", two_problems)
    assert note in gemmctl("plan", two_problems, "-f", "markdown").stdout
    for format in ("plain", "csv", "json", "jsonl"):
        assert note not in gemmctl("plan", two_problems, "-f", format).stdout
