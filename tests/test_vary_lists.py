"""Variants of lists: what is added to each, and that gemmctl reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gemmctl.lists import reading
from gemmctl.lists.problem import Problem
from support import ROOT, environment

LIST = """\
gemmctl: 1
problems:
  - name: decode-001
    defaults: {{a: bf16, b: bf16, d: {output}, n: {n}, k: 64}}
    groups: [{{m: 8}}]
"""


def varied(folder: Path, *lists: str, kind: str = "decode") -> dict[str, Problem]:
    """The variants of lists of a kind, by what is theirs."""
    for number, text in enumerate(lists, 1):
        (folder / f"{kind}-{number:03}.yaml").write_text(text)
    subprocess.run(
        [sys.executable, ROOT / "tools" / "vary_lists.py", folder, folder / "variants"],
        env=environment(),
        check=True,
    )
    made = reading.load(sorted(map(str, (folder / "variants").glob("*.yaml"))), sys.stdin)
    return {problem.name.removeprefix(f"{kind}-"): problem for problem in made}


def test_lists_of_a_kind_take_turns_with_two_variants_each(tmp_path: Path) -> None:
    text = LIST.format(output="bf16", n=128)
    made = varied(tmp_path, text, text, text)
    assert list(made) == [
        *("001-bias", "001-swiglu", "002-beta", "002-oddk", "003-pairs", "003-rows"),
    ]
    (biased,), (gated,) = made["001-bias"].groups, made["001-swiglu"].groups
    assert (biased.bias, biased.gate) == ("n", "none")
    assert (gated.bias, gated.activation, gated.gate) == ("none", "silu", "halves")
    assert [group.k for group in made["002-oddk"].groups] == [60]


def test_an_odd_n_gets_no_gate(tmp_path: Path) -> None:
    assert list(varied(tmp_path, LIST.format(output="bf16", n=127))) == ["001-bias"]


def test_several_problems_get_no_variants(tmp_path: Path) -> None:
    one = LIST.format(output="bf16", n=128)
    several = one + "  - name: other\n    groups: [{m: 8, n: 8, k: 8}]\n"
    assert list(varied(tmp_path, several, one)) == ["002-beta", "002-oddk"]


def test_a_d_that_is_f32_becomes_as_narrow_as_a(tmp_path: Path) -> None:
    text = LIST.format(output="f32", n=128)
    made = varied(tmp_path, *[text] * 6, kind="lora")
    (group,) = made["006-f32"].groups
    assert group.d == "bf16"


def test_a_list_that_ships_gets_every_variant_that_is_named_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "variants"
    subprocess.run(
        [sys.executable, ROOT / "tools" / "vary_lists.py", ROOT / "problems", tmp_path, folder],
        env=environment(),
        check=True,
    )
    made = reading.load(sorted(map(str, folder.glob("short96-*.yaml"))), sys.stdin)
    assert [problem.name for problem in made] == [
        *("short96-beta", "short96-betaf32", "short96-bias", "short96-silu"),
    ]
    assert {group.beta for group in made[0].groups} == {1.0}
