"""Edges that newcomers found in reading lists; the numbers are those of their table."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from bad_lists import BAD, listed
from gemmctl.device.cpu import CpuDevice
from gemmctl.errors import SHOWN
from gemmctl.kernels import cubins
from gemmctl.measuring.tune_cache import TuneCache
from support import ROOT, Command, make_plans

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("command", ["plan", "run", "verify", "tune"])
def test_edge_17_all_that_is_wrong_with_all_lists_is_told_at_once(
    command: str, gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(
        "gemmctl: 1\n"
        "problems:\n"
        "  - name: p\n"
        "    groups:\n"
        "      - {m: 64, n: 64, k: 64, a: f32}\n"
        "      - {m: -1, n: 64, k: 64}\n"
    )
    (tmp_path / "worse.yaml").write_text("gemmctl: 1\nproblems: [\n")
    done = gemmctl(command, "nope.yaml", "worse.yaml", "bad.yaml", "--only", "p")
    assert (done.returncode, done.stdout) == (2, "")
    told = [line for line in done.stderr.splitlines() if not line.startswith("  ")]
    assert [line.split(" ", 1)[0] for line in told] == [
        "gemmctl:", "worse.yaml:3:1:", "bad.yaml:5:31:", "bad.yaml:6:13:",
    ]  # fmt: skip
    assert told[0] == "gemmctl: cannot read nope.yaml: No such file or directory; check the path"
    assert "no kernel multiplies f32 operands" in told[2]
    assert "m must be an integer from 0" in told[3]


def test_what_is_wrong_within_one_group_is_told_at_once(gemmctl: Command) -> None:
    group = {"m": 8, "n": 8, "k": 8, "a": "bf16", "b": "f16", "lda": 3}
    done = gemmctl("plan", "-", stdin=json.dumps(listed(group)))
    assert (done.returncode, done.stdout) == (2, "")
    mixed, lda = (line for line in done.stderr.splitlines() if line.startswith("<stdin>"))
    assert "a is bf16 and b is f16" in mixed
    assert "lda is 3, but k = 8 elements of A lie side by side" in lda
    inplace = {"m": 8, "n": 8, "k": 8, "inplace": True, "ldc": 3, "ldd": 3}
    told = gemmctl("plan", "-", stdin=json.dumps(listed(inplace))).stderr
    assert [line.split()[1:4] for line in told.splitlines()[::3]] == [["ldd", "is", "3,"]]


def test_edge_18_a_wrong_type_is_told_what_can_run(gemmctl: Command) -> None:
    def told(element_type: str) -> str:
        group = {"m": 8, "n": 8, "k": 8, "a": element_type}
        done = gemmctl("plan", "-", stdin=json.dumps(listed(group)))
        assert done.returncode == 2
        return str(done.stderr.splitlines()[0])

    assert told("fp8").endswith("a must be one of bf16, f16, not the text 'fp8'")
    assert told("f32").endswith("no kernel multiplies f32 operands; use one of bf16, f16")


def test_edge_18_the_schema_names_what_can_run(gemmctl: Command) -> None:
    group = json.loads(gemmctl("schema").stdout)["definitions"]["group"]["properties"]
    assert group["a"]["enum"] == group["b"]["enum"] == ["bf16", "f16"]
    assert group["d"]["enum"] == ["bf16", "f16", "f32"]
    assert [group[f"{key}_layout"]["enum"] for key in "abd"] == [["row", "col"]] * 3


def test_edge_24_a_long_list_is_read_by_libyaml(gemmctl: Command) -> None:
    groups = "".join(f"      - {{m: {8 + i}, n: 64, k: 64}}\n" for i in range(10_000))
    text = f"gemmctl: 1\nproblems:\n  # so many?\n  - name: p\n    groups:\n{groups}"
    without = (
        "import sys, yaml; assert yaml.__with_libyaml__; del yaml.SafeLoader; "
        "from gemmctl.__main__ import main; main()"
    )
    done = gemmctl("plan", "-", "-f", "json", stdin=text, python=("-c", without))
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["problems"]
    assert found["group_count"] == 10_000


def test_edge_25_of_many_errors_the_first_are_shown_and_the_others_counted(
    gemmctl: Command,
) -> None:
    groups = [{"m": 64, "n": 64 + 8 * i, "k": 64, "a": "f32"} for i in range(10_000)]
    text = json.dumps(listed(*groups)).replace("{", "\n{")
    done = gemmctl("plan", "-", stdin=text)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, SHOWN) == (2, "", 20)
    assert len(lines) == 3 * SHOWN + 1
    assert lines[-1] == "gemmctl: ... and 9,980 more"
    for error in lines[: 3 * SHOWN : 3]:
        assert "no kernel multiplies f32 operands; use one of bf16, f16" in error


def test_edge_28_one_slip_is_one_error(gemmctl: Command) -> None:
    text = "{gemmctl: 1, problems: [{name: p, groups: [{M: 64, N: 256, K: 64}, {m: 64, kk: 64}]}]}"
    done = gemmctl("plan", "-", stdin=text)
    assert done.returncode == 2
    first, _, _, second, _, _, third, _, _ = done.stderr.splitlines()
    assert first == (
        "<stdin>:1:45: unknown keys 'M', 'N' and 'K' in a group; did you mean 'm', 'n' and 'k'?"
    )
    assert second == "<stdin>:1:68: this group has no n; give it here or in defaults"
    assert third == "<stdin>:1:76: unknown key 'kk' in a group; did you mean 'k'?"


def test_edge_42_what_tune_found_holds_for_the_same_groups_in_the_same_order(
    gemmctl: Command, tmp_path: Path
) -> None:
    groups = [{"m": 64, "n": 64, "k": k} for k in (64, 128)]
    for name, written in (("list", groups), ("turned", groups[::-1])):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(listed(*written)))
    (made,) = make_plans(json.dumps(listed(*groups)))
    assert TuneCache(CpuDevice().facts, cubins.manifest(), pytest.fail).keep(made, 1e-3)
    tuned = [
        json.loads(gemmctl("run", f"{name}.yaml", "-f", "json").stdout)["problems"][0]["tuned"]
        for name in ("list", "turned")
    ]
    assert tuned == [True, False]
    assert "Any list of the same groups in the same order finds it" in README


def test_edge_45_the_schema_refuses_what_gemmctl_refuses(gemmctl: Command, tmp_path: Path) -> None:
    validator = jsonschema.Draft7Validator(json.loads(gemmctl("schema").stdout))
    assert len(BAD) >= 43
    names = [f"{number}.yaml" for number in range(len(BAD))]
    for name, document in zip(names, BAD, strict=True):
        (tmp_path / name).write_text(json.dumps(document))
        assert not validator.is_valid(document), document
    several = SHOWN // 2 - 2  # all errors are shown: two of each but one, since all have one name
    for first in range(0, len(BAD), several):
        own = names[first : first + several]
        done = gemmctl("plan", "-q", *own)
        assert done.returncode == 2
        assert {line.split(":")[0] for line in done.stderr.splitlines() if ".yaml:" in line} == set(
            own
        )


def test_edge_47_every_line_of_an_error_says_whose_it_is(gemmctl: Command) -> None:
    done = gemmctl("plan", "nope1.yaml", "nope2.yaml")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"gemmctl: cannot read {name}: No such file or directory; check the path"
        for name in ("nope1.yaml", "nope2.yaml")
    ]
