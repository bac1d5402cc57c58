"""Who is ahead on a family of lists: which lists a part has, what is measured, what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support import ROOT, environment, markdown_rows

LIST = "gemmctl: 1\nproblems: [{{name: {name}, groups: [{{m: 8, n: 8, k: {k}}}]}}]\n"
HEAD = {
    **{"format": 1, "command": "run", "gemmctl": "0", "cubin_sha256": "0123456789abcdef"},
    "device": {"kind": "cuda", "name": "NVIDIA H200", "driver": "580"},
    "settings": {"cache": "cold", "data": {"kind": "normal", "seed": 0}},
}
QUICK = ("--against", "", "--options", "--runs 2 --max-noise 0 --warmup 0")


# Python imports it at its start: the CPU device fails on one list.
FAILING = """
from gemmctl import errors
from gemmctl.device.cpu import CpuSession
right = CpuSession.time
def time(self, count, *, cold):
    if self._plan.problem.name == "lora-002":
        raise errors.DeviceFailed("it broke")
    return right(self, count, cold=cold)
CpuSession.time = time
"""


def lead(*args: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the tool on the CPU device."""
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "lead.py", *args],
        env=env or environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def peer(ratio: float, low: float, high: float) -> dict[str, Any]:
    """What is saved of a baseline that was timed."""
    return {"verdict": "ok", "ratio": ratio, "ratio_interval": [low, high]}


NA = {"verdict": "n/a", "ratio": None, "ratio_interval": None}


def problem(name: str, **peers: dict[str, Any]) -> dict[str, Any]:
    """A problem as it is saved, as far as the table needs it; the first peer is the best."""
    best = next(iter(peers), None)
    ratio = peers[best]["ratio"] if best else None
    told = {"best": best, "best_ratio": ratio, "against": peers}
    return {"name": name, "groups": [], "samples_s": [1.0], **told}


def save(path: Path, *problems: dict[str, Any]) -> Path:
    """A saved run."""
    path.write_text(json.dumps({**HEAD, "problems": problems}))
    return path


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """Eight lists of one kind and four of another."""
    folder = tmp_path / "family"
    folder.mkdir()
    for kind, count in {"lora": 8, "sweep": 4}.items():
        for number in range(1, count + 1):
            name = f"{kind}-{number:03}"
            (folder / f"{name}.yaml").write_text(LIST.format(name=name, k=8 * number))
    return folder


def measured(path: Path) -> list[str]:
    """The names in a saved run, in order."""
    return [found["name"] for found in json.loads(path.read_text())["problems"]]


def test_a_kind_has_its_geometric_mean_its_worst_and_how_often_a_peer_is_surely_ahead(
    tmp_path: Path,
) -> None:
    saved = save(
        tmp_path / "run.json",
        problem("lora-001", cublas=peer(0.5, 0.4, 0.6), torch=NA),
        problem("lora-002", torch=peer(1.28, 1.27, 1.29), cublas=peer(1.1, 0.99, 1.2)),
        problem("dense-wgrad-001-k200", cublaslt=peer(1.01, 1.0, 1.02)),
    )
    printed = lead(saved).stdout
    assert markdown_rows(printed) == {
        "kind": [
            *("problems", "geometric mean", "worst", "of", "beside", "a peer surely ahead"),
        ],
        "dense-wgrad": ["1", "1.010", "1.010", "dense-wgrad-001-k200", "cublaslt", "0"],
        "lora": ["2", "0.800", "1.280", "lora-002", "torch", "1"],
        "all": ["3", "0.865", "1.280", "lora-002", "torch", "1"],
    }
    ahead = [line for line in printed.splitlines() if line.endswith("1.270 to 1.290")]
    assert ahead == ["lora-002: torch is surely ahead, 1.280, 1.270 to 1.290"]
    assert printed.count("surely ahead,") == 1


def test_a_peer_that_is_not_the_best_may_be_the_one_surely_ahead(tmp_path: Path) -> None:
    made = problem("lora-001", torch=peer(1.1, 0.9, 1.3), cublas=peer(1.05, 1.04, 1.06))
    printed = lead(save(tmp_path / "run.json", made)).stdout
    assert "lora-001: cublas is surely ahead, 1.050, 1.040 to 1.060" in printed
    assert markdown_rows(printed)["lora"][-1] == "1"


def test_several_files_are_one_table_and_the_last_counts(tmp_path: Path) -> None:
    first = save(
        tmp_path / "1.json",
        problem("lora-001", cublas=peer(2.0, 1.9, 2.1)),
        problem("lora-002", cublas=peer(0.5, 0.4, 0.6)),
    )
    second = save(tmp_path / "2.json", problem("lora-001", cublas=peer(0.5, 0.4, 0.6)))
    printed = lead(first, second).stdout
    assert markdown_rows(printed)["lora"][:2] == ["2", "0.500"]
    assert "no peer is surely ahead on any problem" in printed


def test_problems_that_no_peer_was_timed_on_are_in_no_row(tmp_path: Path) -> None:
    saved = save(tmp_path / "run.json", problem("lora-001"))
    assert lead(saved).stdout.splitlines()[1:] == ["no peer was timed on any problem"]


def test_a_reader_that_has_seen_enough_ends_it_without_a_word(tmp_path: Path) -> None:
    behind = {f"p{i}": peer(1.1, 1.05, 1.15) for i in range(3000)}  # more than a pipe holds
    path = save(tmp_path / "a.json", problem("lora-001", **behind))
    command = [sys.executable, ROOT / "tools" / "lead.py", path]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        assert tool.stderr is not None
        assert tool.stdout.readline().startswith(str(path))
        tool.stdout.close()
        assert tool.stderr.read() == ""


def test_what_is_no_saved_run_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    found = lead(tmp_path / "x.json")
    assert found.returncode == 1
    assert found.stderr.endswith("x.json is not a saved run; run --save writes one\n")


def test_parts_share_each_kind_and_together_are_the_family(tmp_path: Path, family: Path) -> None:
    parts = []
    for number in (1, 2):
        path = tmp_path / f"{number}.json"
        lead(path, "--measure", "--family", family, "--part", f"{number}/2", *QUICK)
        parts.append(measured(path))
        assert Counter(name[:4] for name in parts[-1]) == {"lora": 4, "swee": 2}
    assert sorted(parts[0] + parts[1]) == sorted(path.stem for path in family.iterdir())


def test_lists_come_in_an_order_that_mixes_the_kinds(tmp_path: Path, family: Path) -> None:
    path = tmp_path / "run.json"
    lead(path, "--measure", "--family", family, *QUICK)
    kinds = [name[:4] for name in measured(path)]
    assert Counter(kinds[:6]) == {"lora": 4, "swee": 2}


def test_what_a_file_holds_is_not_measured_again(tmp_path: Path, family: Path) -> None:
    path = tmp_path / "run.json"
    lead(path, "--measure", "--family", family, *QUICK)
    whole = json.loads(path.read_text())
    kept = whole["problems"][:5]
    path.write_text(json.dumps({**whole, "complete": False, "problems": kept}))
    found = lead(path, "--measure", "--family", family, *QUICK)
    assert "12 of 12 problems reached" in found.stderr
    assert json.loads(path.read_text())["problems"][:5] == kept


def test_when_the_time_is_up_what_is_done_is_kept(tmp_path: Path, family: Path) -> None:
    path = tmp_path / "run.json"
    slow = ("--against", "", "--options", "--runs 1000000 --max-noise 0 --max-time 1")
    found = lead(path, "--measure", "--family", family, "--seconds", "5", *slow)
    assert found.returncode == 0
    assert 1 <= len(measured(path)) < 12
    assert f"{len(measured(path))} of 12 problems reached" in found.stderr


def test_a_list_that_fails_is_left_out_and_named(tmp_path: Path, family: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAILING)
    path, env = tmp_path / "run.json", environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    found = lead(path, "--measure", "--family", family, *QUICK, env=env)
    assert "lora-002 failed with exit code 4 and is left out" in found.stderr
    assert "11 of 12 problems reached" in found.stderr
    assert "lora-002" not in measured(path)


def test_a_failure_before_the_first_list_is_no_lists_fault(tmp_path: Path, family: Path) -> None:
    text = LIST.format(name="lora-002", k=1 << 30)  # more than there is memory
    (family / "lora-002.yaml").write_text(text.replace("m: 8, n: 8", "m: 10000000, n: 8"))
    found = lead(tmp_path / "run.json", "--measure", "--family", family, *QUICK)
    assert found.returncode == 4
    assert "left out" not in found.stderr


def test_options_that_run_refuses_end_it(tmp_path: Path, family: Path) -> None:
    options = ("--options", "--runs 0")
    found = lead(tmp_path / "run.json", "--measure", "--family", family, "--against", "", *options)
    assert found.returncode == 2


@pytest.mark.parametrize("part", ["0/2", "3/2", "2"])
def test_a_part_that_there_is_not_is_refused(tmp_path: Path, part: str) -> None:
    found = lead(tmp_path / "run.json", "--measure", "--part", part)
    assert f"'{part}' is no part" in found.stderr
