"""What it costs to have more behind a product: which lists are made, and what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support import ROOT, environment

LIST = """\
gemmctl: 1
problems:
  - name: some
    defaults: {a: bf16, b: bf16, d: bf16, n: 16, k: 64}
    groups: [{m: 8}, {m: 24}]
"""
QUICK = ("--against", "", "--options", "--runs 2 --max-noise 0 --warmup 0")


def tool(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it on the CPU device."""
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "beside_plain.py", *args],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def cells(printed: str) -> dict[str, list[str]]:
    """The rows of the table by what is behind the product."""
    lines = [line.strip("|").split("|") for line in printed.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in lines}


def test_each_list_is_timed_as_it_is_and_with_every_addition_that_it_can_have(
    tmp_path: Path,
) -> None:
    for name, text in (("even", LIST), ("odd", LIST.replace("n: 16", "n: 15"))):
        (tmp_path / f"{name}.yaml").write_text(text)
    lists, kept = (tmp_path / "even.yaml", tmp_path / "odd.yaml"), tmp_path / "kept.json"
    done = tool(kept, *QUICK, "--measure", *lists)
    assert done.returncode == 0, done.stderr
    found = cells(done.stdout)
    assert found["behind the product"] == ["even", "odd"]
    assert found["gate halves, silu"][1] == "-" and "-" not in found["beta 1"]
    problems = {one["name"]: one for one in json.loads(kept.read_text())["problems"]}
    assert len(problems) == sum(cell != "-" for row in found.values() for cell in row) - 2
    (first, _) = problems["even/bias_along_n_alpha_0.5"]["groups"]
    assert (first["bias"], first["alpha"], first["m"]) == ("n", 0.5, 8)
    assert {group["n"] for group in problems["odd/odd_n"]["groups"]} == {14}


def test_a_cell_has_the_ratio_to_the_list_as_it_is_and_to_the_fastest_peer(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(LIST)
    kept = tmp_path / "kept.json"
    assert tool(kept, *QUICK, "--measure", tmp_path / "some.yaml").returncode == 0
    saved = json.loads(kept.read_text())
    for one in saved["problems"]:
        one["samples_s"] = [2e-5] if one["name"] == "some/nothing" else [1e-5, 3e-5, 7e-5]
        if one["name"] == "some/silu":
            one |= {"best": "torch", "best_ratio": 0.456}
    kept.write_text(json.dumps(saved))
    found = cells(tool(kept).stdout)
    assert found["nothing"] == ["20"] and found["beta 1"] == ["30, 1.500"]
    assert found["silu"] == ["30, 1.500 (0.46 of torch)"]


def test_a_list_without_defaults_to_add_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(LIST.replace("defaults", "default"))
    done = tool(tmp_path / "kept.json", "--measure", tmp_path / "some.yaml")
    assert done.returncode == 1 and "some.yaml: additions go into" in done.stderr
