"""What it costs to have more behind a product: which lists are made, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

from support import ROOT, Command, markdown_rows

TOOL = (str(ROOT / "tools" / "beside_plain.py"),)
LIST = """\
gemmctl: 1
problems:
  - name: some
    defaults: {a: bf16, b: bf16, d: bf16, n: 16, k: 64}
    groups: [{m: 8}, {m: 24}]
"""
QUICK = ("--against", "", "--options", "--runs 2 --max-noise 0 --warmup 0")


def test_each_list_is_timed_as_it_is_and_with_every_addition_that_it_can_have(
    gemmctl: Command, tmp_path: Path
) -> None:
    for name, text in (("even", LIST), ("odd", LIST.replace("n: 16", "n: 15"))):
        (tmp_path / f"{name}.yaml").write_text(text)
    lists, kept = (tmp_path / "even.yaml", tmp_path / "odd.yaml"), tmp_path / "kept.json"
    done = gemmctl(kept, *QUICK, "--measure", *lists, python=TOOL)
    assert done.returncode == 0, done.stderr
    found = markdown_rows(done.stdout)
    assert found["behind the product"] == ["even", "odd"]
    assert found["gate halves, silu"][1] == "-" and "-" not in found["beta 1"]
    problems = {one["name"]: one for one in json.loads(kept.read_text())["problems"]}
    assert len(problems) == sum(cell != "-" for row in found.values() for cell in row) - 2
    (first, _) = problems["even/bias_along_n_alpha_0.5"]["groups"]
    assert (first["bias"], first["alpha"], first["m"]) == ("n", 0.5, 8)
    assert {group["n"] for group in problems["odd/odd_n"]["groups"]} == {14}
    assert {group["ldd"] for group in problems["even/odd_ldd"]["groups"]} == {17}
    assert {group["ldc"] for group in problems["odd/beta_1_odd_ldc"]["groups"]} == {15}


def test_a_cell_has_the_ratio_to_the_list_as_it_is_and_to_the_fastest_peer(
    gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / "some.yaml").write_text(LIST)
    kept = tmp_path / "kept.json"
    done = gemmctl(kept, *QUICK, "--measure", "some.yaml", python=TOOL)
    assert done.returncode == 0
    saved = json.loads(kept.read_text())
    for one in saved["problems"]:
        one["samples_s"] = [2e-5] if one["name"] == "some/nothing" else [1e-5, 3e-5, 7e-5]
        if one["name"] == "some/silu":
            one |= {"best": "torch", "best_ratio": 0.456}
    kept.write_text(json.dumps(saved))
    found = markdown_rows(gemmctl(kept, python=TOOL).stdout)
    assert found["nothing"] == ["20"] and found["beta 1"] == ["30, 1.500"]
    assert found["silu"] == ["30, 1.500 (0.46 of torch)"]


def test_a_list_without_defaults_to_add_to_is_refused(gemmctl: Command, tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(LIST.replace("defaults", "default"))
    done = gemmctl("kept.json", "--measure", "some.yaml", python=TOOL)
    assert done.returncode == 1 and "some.yaml: additions go into" in done.stderr
