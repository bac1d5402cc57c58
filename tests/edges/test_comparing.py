"""compare as a gate, of many runs, and what it tells beside the times.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import TWO_PROBLEMS, Command, environment

Make = Callable[..., str]
STEADY = np.linspace(99.5e-6, 100.5e-6, 21)


@pytest.fixture(scope="module")
def real() -> str:
    """A saved run of two problems."""
    return subprocess.run(
        [sys.executable, "-m", "gemmctl", "run", "-", "-f", "json", "--max-time", "0.05"],
        input=TWO_PROBLEMS,
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    ).stdout


@pytest.fixture
def run(real: str, tmp_path: Path) -> Make:
    """Write a saved run: a real one, but its samples are STEADY times what is said for a problem.

    0: the problem is missing. ``edit`` may change the document.
    """

    def make(
        name: str,
        one: float = 1.0,
        two: float = 1.0,
        edit: Callable[[dict[str, Any]], object] = lambda document: None,
    ) -> str:
        document = json.loads(real)
        factors = {"one": one, "two": two}
        document["problems"] = [p for p in document["problems"] if factors[p["name"]]]
        for problem in document["problems"]:
            problem["samples_s"] = list(STEADY * factors[problem["name"]])
        edit(document)
        (tmp_path / name).write_text(json.dumps(document))
        return name

    return make


def few(document: dict[str, Any]) -> None:
    """Leave the first problem one sample."""
    del document["problems"][0]["samples_s"][1:]


def test_edge_12_a_problem_that_was_not_measured_fails_the_gate(
    gemmctl: Command, run: Make
) -> None:
    old, new = run("old.json"), run("new.json", two=0)
    done = gemmctl("compare", old, new, "--fail-over", "3%")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "gemmctl: fails: two is in old.json, but not in new.json"
    quiet = gemmctl("compare", old, new, "--fail-over", "3%", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "", "")
    assert gemmctl("compare", old, new).returncode == 0
    assert gemmctl("compare", new, old, "--fail-over", "3%").returncode == 0


def test_edge_12_a_problem_that_was_measured_once_fails_the_gate(
    gemmctl: Command, run: Make
) -> None:
    done = gemmctl("compare", run("old.json"), run("new.json", edit=few), "--fail-over", "3%")
    assert done.returncode == 1
    assert "fails: one is UNSURE: 1 sample in new.json, and 6 are needed" in done.stderr


def no_time(count: int) -> Callable[[dict[str, Any]], None]:
    """Let so many samples of the first problem have taken none."""

    def edit(document: dict[str, Any]) -> None:
        document["problems"][0]["samples_s"][:count] = [0] * count

    return edit


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0, 1, "1 of 21 samples in new.json"),
        (1, 0, "1 of 21 samples in old.json"),
        (21, 0, "21 of 21 samples in old.json"),
        (0, 21, "21 of 21 samples in new.json"),
    ],
)
def test_a_problem_that_took_no_time_in_some_samples_fails_the_gate(
    old: int, new: int, said: str, gemmctl: Command, run: Make
) -> None:
    runs = run("old.json", edit=no_time(old)), run("new.json", edit=no_time(new))
    done = gemmctl("compare", *runs, "--fail-over", "3%")
    assert done.returncode == 1
    told = f"one is UNSURE: {said} took no time, so the ratio has no interval"
    assert done.stderr.splitlines()[-1] == f"gemmctl: fails: {told}"
    done = gemmctl("compare", *runs)
    assert done.returncode == 0
    assert f"gemmctl: {told}" in done.stderr.splitlines()


def test_a_problem_that_never_takes_time_passes_the_gate(gemmctl: Command, run: Make) -> None:
    runs = run("old.json", edit=no_time(21)), run("new.json", edit=no_time(21))
    assert gemmctl("compare", *runs, "--fail-over", "3%").returncode == 0


@pytest.mark.parametrize("sample", [1.7e308, 5e-324])
def test_a_sample_that_no_run_takes_is_refused_with_its_place(
    sample: float, gemmctl: Command, run: Make
) -> None:
    new = run("new.json", edit=lambda d: d["problems"][0]["samples_s"].append(sample))
    done = gemmctl("compare", run("old.json"), new)
    assert (done.returncode, done.stdout) == (2, "")
    said = f"problem 'one' has {sample!r} in samples_s, which is no time\n"
    assert done.stderr == f"gemmctl: new.json: {said}"


@pytest.mark.parametrize(("slower", "code"), [(1.032, 0), (1.05, 1)])
def test_edge_13_the_gate_asks_for_what_is_surely_slower(
    slower: float, code: int, gemmctl: Command, run: Make
) -> None:
    done = gemmctl("compare", run("old.json"), run("new.json", one=slower), "--fail-over", "3%")
    low = float(done.stdout.splitlines()[1].split()[-2].split("..")[0])
    assert (low > 1.03) == bool(code)
    assert done.returncode == code


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("kernel", "128x999", r"kernel \S+ became 128x999 \(one\)"),
        ("choices", ["64x128 w8"], r"choices .* became 64x128 w8 \(one\)"),
        ("tuned", True, r"what tune found is now used \(one\)"),
    ],
)
def test_edge_14_another_way_to_run_is_told(
    key: str, value: Any, said: str, gemmctl: Command, run: Make
) -> None:
    new = run("new.json", edit=lambda d: d["problems"][0].update({key: value}))
    done = gemmctl("compare", run("old.json"), new)
    assert re.search(rf"^gemmctl: {said}$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("key", "old", "new", "said"),
    [
        ("uuid", "GPU-1", "GPU-2", "GPU GPU-1 became GPU-2"),
        ("sm_max_hz", 1.98e9, 1.5e9, "highest SM clock 1980 MHz became 1500 MHz"),
        ("sm_set_hz", None, 1.5e9, "application clock none became 1500 MHz"),
        ("driver", "580.1", "590.2", "driver 580.1 became 590.2"),
    ],
)
def test_edge_15_another_gpu_clock_or_driver_is_told(
    key: str, old: Any, new: Any, said: str, gemmctl: Command, run: Make
) -> None:
    runs = [
        run(f"{i}.json", edit=lambda d, value=value: d["device"].update({key: value}))  # type: ignore[misc]
        for i, value in enumerate((old, new))
    ]
    done = gemmctl("compare", *runs)
    assert done.returncode == 0
    assert f"gemmctl: {said}" in done.stderr.splitlines()


def test_edge_15_clocks_that_may_have_been_locked_are_told(gemmctl: Command, run: Make) -> None:
    def seen(*clocks: float) -> Callable[[dict[str, Any]], None]:
        readings = [{"sm_hz": hz} for hz in clocks]
        return lambda document: document["problems"][0].update(telemetry=readings)

    free = run("free.json", edit=seen(3e8, 1.98e9))
    locked = run("locked.json", edit=seen(3e8, 1.5e9))
    told = "the highest SM clock that was seen, 1980 MHz, became 1500 MHz; was it locked"
    assert told in gemmctl("compare", free, locked).stderr
    assert "SM clock" not in gemmctl("compare", free, run("a.json", edit=seen(1.95e9))).stderr


def rewritten(document: dict[str, Any]) -> dict[str, Any]:
    """A document as jq and JavaScript write it again: whole numbers have no point."""

    def number(text: str) -> float:
        return int(float(text)) if float(text).is_integer() else float(text)

    found: dict[str, Any] = json.loads(json.dumps(document), parse_float=number)
    return found


def test_a_run_that_another_program_wrote_again_is_compared_as_it_was(
    gemmctl: Command, run: Make
) -> None:
    def clocks(hz: float) -> Callable[[dict[str, Any]], None]:
        def edit(document: dict[str, Any]) -> None:
            document["device"]["sm_max_hz"] = hz
            document["problems"][0]["telemetry"] = [{"sm_hz": hz}]

        return edit

    def again(document: dict[str, Any]) -> None:
        clocks(1.5e9)(document)
        document.update(rewritten(document))

    old, new = run("old.json", edit=clocks(1.98e9)), run("new.json", edit=clocks(1.5e9))
    done = gemmctl("compare", old, new)
    assert "highest SM clock 1980 MHz became 1500 MHz" in done.stderr
    same = gemmctl("compare", old, run("new.json", edit=again))
    assert (same.returncode, same.stdout, same.stderr) == (0, done.stdout, done.stderr)


@pytest.mark.parametrize("clock", [True, "1.98e9", None, -1, 10**400])
def test_a_clock_that_is_no_number_is_told_with_its_place(
    clock: Any, gemmctl: Command, run: Make
) -> None:
    new = run("new.json", edit=lambda d: d["problems"][0].update(telemetry=[{"sm_hz": clock}]))
    done = gemmctl("compare", run("old.json"), new)
    assert (done.returncode, done.stdout) == (2, "")
    said = f"problem 'one': telemetry has {json.dumps(clock)[:40]} as its sm_hz\n"
    assert done.stderr == f"gemmctl: new.json: {said}"


def test_edge_14_very_many_changes_are_counted(gemmctl: Command, run: Make) -> None:
    def many(document: dict[str, Any]) -> None:
        one = document["problems"][0]
        document["problems"] = [{**one, "name": f"p{i}", "kernel": f"k{i}"} for i in range(9)]

    def more(document: dict[str, Any]) -> None:
        many(document)
        for problem in document["problems"]:
            problem["kernel"] += "x"

    done = gemmctl("compare", run("old.json", edit=many), run("new.json", edit=more))
    assert "9 problems ran with other kernels, or cut in another way" in done.stderr


def test_edge_32_csv_has_the_interval(gemmctl: Command, run: Make) -> None:
    done = gemmctl("compare", run("old.json"), run("new.json", one=1.5), "-f", "csv")
    one, _ = csv.DictReader(io.StringIO(done.stdout))
    assert one["name"] == "one"
    assert float(one["ratio_low"]) < float(one["ratio"]) < float(one["ratio_high"])


def test_edge_33_unsure_for_want_of_samples_says_so(gemmctl: Command, run: Make) -> None:
    done = gemmctl("compare", run("old.json"), run("new.json", edit=few))
    assert done.returncode == 0
    told = "gemmctl: one is UNSURE: 1 sample in new.json, and 6 are needed to tell"
    assert told in done.stderr.splitlines()


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_edge_34_what_run_prints_as_json_is_a_saved_run(
    format: str, gemmctl: Command, tmp_path: Path, run: Make
) -> None:
    printed = gemmctl("run", "-", "-f", format, "--max-time", "0.05", stdin=TWO_PROBLEMS).stdout
    (tmp_path / "new").write_text(printed)
    for done in (
        gemmctl("compare", run("old.json"), "new"),
        gemmctl("compare", run("old.json"), "-", stdin=printed),
    ):
        assert done.returncode == 0
        assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == ["one", "two"]


def version(number: int | None) -> Callable[[dict[str, Any]], None]:
    """Give a document's data that version; None: none."""

    def edit(document: dict[str, Any]) -> None:
        document["settings"]["data"].pop("version", None)
        if number is not None:
            document["settings"]["data"]["version"] = number

    return edit


@pytest.mark.parametrize(("old", "new"), [(1, 2), (None, 2)])
def test_runs_on_data_of_another_version_do_not_compare(
    old: int | None, new: int, gemmctl: Command, run: Make
) -> None:
    runs = run("old.json", edit=version(old)), run("new.json", edit=version(new))
    done = gemmctl("compare", *runs)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"differ in data version ({old if old else 'none'} and {new})" in done.stderr
    assert gemmctl("compare", *runs, "--force").returncode == 0


def test_a_run_of_the_first_format_is_read(gemmctl: Command, run: Make) -> None:
    def old_format(document: dict[str, Any]) -> None:
        version(None)(document)
        document["format"] = 1
        for key in ("complete", "problem_count"):
            del document[key]

    done = gemmctl("compare", run("old.json", edit=old_format), run("new.json", edit=version(2)))
    assert "differ in data version (none and 2)" in done.stderr


def test_an_unfinished_run_is_told(gemmctl: Command, run: Make) -> None:
    new = run("new.json", two=0, edit=lambda d: d.update(complete=False))
    done = gemmctl("compare", run("old.json"), new)
    assert "new.json is not complete: 1 of 2 problems were measured" in done.stderr


def test_the_geometric_mean_is_below_the_table(gemmctl: Command, run: Make) -> None:
    done = gemmctl("compare", run("old.json"), run("new.json", one=2.0, two=0.5))
    assert done.stdout.splitlines()[-1] == "geometric mean of new/old: 1.000 over 2 problems"


@pytest.mark.parametrize(
    ("old", "new", "mean"),
    [
        (0, 21, "1.000 over 1 problem"),
        (21, 0, "1.000 over 1 problem"),
        (21, 21, "1.000 over 2 problems"),
    ],
)
def test_the_geometric_mean_is_over_as_many_problems_as_it_says(
    old: int, new: int, mean: str, gemmctl: Command, run: Make
) -> None:
    runs = run("old.json", edit=no_time(old)), run("new.json", edit=no_time(new))
    done = gemmctl("compare", *runs)
    assert done.stdout.splitlines()[-1] == f"geometric mean of new/old: {mean}"
    beside = gemmctl("compare", *runs, run("same.json", edit=no_time(old)))
    means = f"geometric means: new {mean}, same 1.000 over 2 problems"
    assert beside.stdout.splitlines()[-1] == means


def test_a_file_name_with_a_pipe_is_one_cell_of_a_markdown_header(
    gemmctl: Command, run: Make
) -> None:
    runs = run("a.json"), run("b|c.json"), run("d.json")
    header = gemmctl("compare", *runs, "-f", "markdown").stdout.splitlines()[0]
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", header)]
    assert cells == ["", "problem", "a us", r"b\|c", "d", ""]


def test_many_runs_have_a_column_each_with_the_ratio_to_the_first(
    gemmctl: Command, run: Make
) -> None:
    runs = run("a.json"), run("b.json", one=1.5), run("c.json", one=0.5, two=0)
    done = gemmctl("compare", *runs)
    assert done.returncode == 0
    table = [line.split() for line in done.stdout.splitlines()]
    assert table[:3] == [
        ["problem", "a", "us", "b", "c"],
        ["one", "100.0", "1.500>", "0.500<"],
        ["two", "100.0", "1.000=", "-"],
    ]
    means = "geometric means: b 1.225 over 2 problems, c 0.500 over 1 problem"
    assert done.stdout.splitlines()[3:] == [means]


def test_the_gate_is_for_every_run(gemmctl: Command, run: Make) -> None:
    runs = run("a.json"), run("b.json"), run("c.json", one=1.5)
    done = gemmctl("compare", *runs, "--fail-over", "3%", "-q")
    assert done.returncode == 1
    assert gemmctl("compare", *runs[:2], "--fail-over", "3%", "-q").returncode == 0


def test_the_gate_says_of_many_runs_which_became_slower(gemmctl: Command, run: Make) -> None:
    runs = run("a.json"), run("b.json", one=1.5), run("c.json", one=1.5), run("d.json")
    for compared, named in ((runs, [" in b.json", " in c.json"]), (runs[:2], [""])):
        told = gemmctl("compare", *compared, "--fail-over", "3%").stderr
        assert re.findall(r"fails: one became slower by \S+% at least(.*)", told) == named


def changed(document: dict[str, Any]) -> None:
    """Change what is told of a run: its driver, kernels, the clock that was seen, and its cache."""
    document["device"]["driver"] = "590"
    document["settings"]["cache"] = "lukewarm"
    document["problems"][0].update(kernel="128x999", telemetry=[{"sm_hz": 1.5e9}])


def test_what_changed_is_told_with_the_run_in_which_it_did_where_there_are_many(
    gemmctl: Command, run: Make
) -> None:
    def before(document: dict[str, Any]) -> None:
        document["device"]["driver"] = "580"
        document["problems"][0].update(kernel="64x999", telemetry=[{"sm_hz": 1.98e9}])

    old, *new = run("a.json", edit=before), run("b.json", edit=changed), run("c.json", edit=changed)
    told = [
        "compared although {both} differ in cache (cold and lukewarm)",
        "driver 580 became 590{where}",
        "the highest SM clock that was seen, 1980 MHz, became 1500 MHz{where}; was it locked in "
        "one of the runs?",
        "kernel 64x999 became 128x999{where} (one)",
    ]
    assert gemmctl("compare", old, *new, "--force").stderr.splitlines()[:8] == [
        f"gemmctl: {text.format(both=f'a.json and {path}', where=f' in {path}')}"
        for path in new
        for text in told
    ]
    assert gemmctl("compare", old, new[0], "--force").stderr.splitlines()[:4] == [
        f"gemmctl: {text.format(both='they', where='')}" for text in told
    ]


def test_runs_of_several_devices_are_told_with_the_device_of_each(
    gemmctl: Command, run: Make, tmp_path: Path
) -> None:
    def on_gpu(document: dict[str, Any]) -> None:
        document["device"].update(kind="cuda", name="NVIDIA H200")

    old, new = run("old.json", edit=on_gpu), run("new.json")
    cpu = json.loads((tmp_path / new).read_text())["device"]["name"]
    for pair in ((old, new), (new, old)):
        devices = {old: "NVIDIA H200", new: f"cpu: {cpu}"}
        told = "; ".join(f"{path}: {devices[path]}" for path in pair)
        done = gemmctl("compare", *pair, "--force")
        assert f"gemmctl: {told}; old is {pair[0]}, new is {pair[1]}" in done.stderr.splitlines()


def test_json_of_many_runs_has_a_record_for_every_pair(gemmctl: Command, run: Make) -> None:
    runs = run("a.json"), run("b.json", one=1.5), run("c.json")
    found = json.loads(gemmctl("compare", *runs, "-f", "json").stdout)
    assert [one["path"] for one in found["runs"]] == list(runs)
    pairs = [(one["name"], one["new"], round(one["ratio"], 3)) for one in found["problems"]]
    assert pairs == [
        ("one", "b.json", 1.5), ("one", "c.json", 1.0),
        ("two", "b.json", 1.0), ("two", "c.json", 1.0),
    ]  # fmt: skip


def test_standard_input_can_be_compared_once(gemmctl: Command, real: str) -> None:
    done = gemmctl("compare", "-", "-", stdin=real)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gemmctl: '-' is given twice, but standard input can be read")


def test_only_picks_problems_and_the_gate_sees_no_others(gemmctl: Command, run: Make) -> None:
    runs = run("old.json"), run("new.json", one=2.0)
    done = gemmctl("compare", *runs, "--only", "t*", "--fail-over", "3%")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:2]] == ["two"]
    none = gemmctl("compare", *runs, "--only", "x*")
    assert none.stderr == "gemmctl: no problem is named 'x*' in old.json or new.json\n"


def test_only_names_a_problem_before_names_are_matched(gemmctl: Command, run: Make) -> None:
    def renamed(document: dict[str, Any]) -> None:
        for problem, name in zip(document["problems"], ("a[1]", "a1"), strict=True):
            problem["name"] = name

    runs = run("old.json", edit=renamed), run("new.json", edit=renamed)
    done = gemmctl("compare", *runs, "--only", "a[1]", "-f", "jsonl")
    assert done.returncode == 0
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["a[1]"]


@pytest.mark.parametrize(("sort", "names"), [("new/old", ["two", "one"]), ("-new", ["one", "two"])])
def test_rows_can_be_sorted(sort: str, names: list[str], gemmctl: Command, run: Make) -> None:
    done = gemmctl("compare", run("old.json"), run("new.json", one=9.0, two=2.0), "--sort", sort)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:3]] == names


@pytest.mark.parametrize("others", [(), ("same.json",)])
def test_rows_are_sorted_by_ratios_that_look_the_same(
    others: tuple[str, ...], gemmctl: Command, run: Make
) -> None:
    old, new = run("old.json"), run("new.json", one=1.00001, two=1.00002)
    runs = old, new, *map(run, others)
    column = "new" if others else "new/old"
    done = gemmctl("compare", *runs, f"--sort=-{column}", "-f", "csv")
    names = [record["name"] for record in csv.DictReader(io.StringIO(done.stdout))]
    assert list(dict.fromkeys(names)) == ["two", "one"]
