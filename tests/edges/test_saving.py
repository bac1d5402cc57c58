"""What is kept of a run, whatever becomes of it, and where.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import TWO_PROBLEMS, Command, environment, started

THREE = TWO_PROBLEMS + "  - name: three\n    groups: [{m: 64, n: 64, k: 64}]\n"
QUICK = ("--max-time", "0.05")
LONG = ("--max-noise", "0", "--runs", "1000000", "--max-time", "1")

# No file may grow beyond what two problems take, as on a disk that is full.
FULL_DISK = """
import resource
from gemmctl.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
main()
"""


@pytest.fixture
def three(tmp_path: Path) -> Path:
    path = tmp_path / "three.yaml"
    path.write_text(THREE)
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def names(path: Path) -> list[str]:
    """The problems of a saved run."""
    return [one["name"] for one in read(path)["problems"]]


def damaged(gemmctl: Command, tmp_path: Path, problem: str, text: str) -> str:
    """What compare says of a saved run in which the text of its problem was replaced."""
    gemmctl("run", "-", "-q", "-o", "a.json", *QUICK, stdin=TWO_PROBLEMS)
    whole = (tmp_path / "a.json").read_text()
    assert problem in whole
    (tmp_path / "b.json").write_text(whole.replace(problem, text))
    done = gemmctl("compare", "a.json", "b.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    message: str = done.stderr
    return message


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ('"samples_s"', "problem 'one' has no samples_s"),
        ('"name":"one"', "problem 1 has no name"),
        ('"groups"', "problem 'one' has no groups"),
        ('"device"', "b.json has no device"),
        ('"settings"', "b.json has no settings"),
        ('"cubin_sha256"', "b.json has no cubin_sha256"),
        ('"problems"', "problem 1 has no name"),  # it then reads like a line of jsonl
    ],
)
def test_edge_04_a_saved_run_that_lacks_something_is_refused_by_name(
    field: str, complaint: str, gemmctl: Command, tmp_path: Path
) -> None:
    renamed = field.replace('"', '"x', 1)
    assert complaint in damaged(gemmctl, tmp_path, field, renamed)


def test_edge_04_problems_that_are_no_list_are_refused(gemmctl: Command, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"format": 2, "command": "run", "problems": null}')
    done = gemmctl("compare", "b.json", "b.json")
    assert done.stderr == "gemmctl: b.json has null as its problems\n"


@pytest.mark.parametrize("samples", ["[]", "[NaN]", "[-1e-3]", '["nan"]'])
def test_edge_05_samples_that_are_no_times_are_refused(
    samples: str, gemmctl: Command, tmp_path: Path
) -> None:
    gemmctl("run", "-", "-q", "-o", "a.json", *QUICK, stdin=TWO_PROBLEMS)
    run = read(tmp_path / "a.json")
    run["problems"][0]["samples_s"] = json.loads(samples)
    (tmp_path / "b.json").write_text(json.dumps(run))
    done = gemmctl("compare", "a.json", "b.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gemmctl: b.json: problem 'one' has ")


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("", "without a name"),
        ("-", "-f json prints"),
        (".", "not a file"),
        ("new/", "new/: it is a folder that does not exist; give --save the path of a file"),
        ("new/.", "new/.: it is a folder that does not exist"),
        ("new/..", "new/..: it is a folder that does not exist"),
        ("/dev/null", "not a file"),
        ("three.yaml", "it is not a saved run, and only those are replaced"),
        ("x" * 256, "File name too long"),
    ],
)
def test_edges_08_29_30_a_place_to_save_is_checked_before_anything_runs(
    place: str, complaint: str, gemmctl: Command, three: Path
) -> None:
    before = sorted(three.parent.parent.iterdir())
    done = gemmctl("run", three, "-f", "jsonl", "-o", place)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr and "measured" not in done.stderr
    assert three.read_text() == THREE
    assert sorted(three.parent.parent.iterdir()) == before
    assert [path.name for path in three.parent.iterdir()] == ["three.yaml"]


def test_a_file_behind_links_in_a_circle_is_told_before_anything_runs(
    gemmctl: Command, three: Path
) -> None:
    (three.parent / "circle").symlink_to("circle")
    done = gemmctl("run", three, "-f", "jsonl", "-o", "circle")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemmctl: cannot save to circle: Too many levels of symbolic links\n"


LEAVES = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"
IN_NO_FOLDER = ("-P", "-c", f"{LEAVES}; from gemmctl.__main__ import main; main()")


def test_a_folder_that_is_gone_is_told_before_anything_runs(gemmctl: Command, three: Path) -> None:
    done = gemmctl("run", three, "-f", "jsonl", "-o", "a.json", python=IN_NO_FOLDER)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemmctl: cannot save to a.json: No such file or directory\n"


@pytest.mark.parametrize("command", ["plan", "run", "verify", "tune"])
def test_a_list_in_a_folder_that_is_gone_cannot_be_read(command: str, gemmctl: Command) -> None:
    done = gemmctl(command, "a.yaml", python=IN_NO_FOLDER)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemmctl: cannot read a.yaml: No such file or directory; check the path\n"


def test_a_folder_that_goes_while_problems_are_measured_is_told_behind_the_results(
    gemmctl: Command, three: Path
) -> None:
    leaves = """
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuDevice
import os, shutil
os.mkdir("gone"), os.chdir("gone")
opens = CpuDevice.open
def open(self, plan, data):
    shutil.rmtree("../gone", ignore_errors=True)
    return opens(self, plan, data)
CpuDevice.open = open
main()
"""
    done = gemmctl("run", three, *QUICK, "-o", "a.json", python=("-P", "-c", leaves))
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 2  # titles, and what was measured until then
    assert (
        done.stderr.splitlines()[-1] == "gemmctl: cannot save to a.json: No such file or directory"
    )


@pytest.mark.parametrize("left", ["touch", "ln -s precious"])
def test_what_a_process_of_the_same_number_left_beside_a_file_is_replaced(
    left: str, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("mine\n")
    command = f"{sys.executable} -m gemmctl gen batched --mnk 8x8x8 -o pp.yaml"
    done = subprocess.run(
        ["bash", "-c", f"{left} .pp.yaml.$$.part; exec {command}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pp.yaml", "precious"]
    assert (tmp_path / "pp.yaml").read_text().startswith("# gemmctl gen batched ")
    assert not (tmp_path / "pp.yaml").is_symlink()
    assert (tmp_path / "precious").read_text() == "mine\n"


@pytest.mark.parametrize("place", ["/dev/stdout", "out.txt"])
def test_edge_22_a_file_that_standard_output_goes_to_is_not_replaced(
    place: str, three: Path
) -> None:
    with (
        (three.parent / "out.txt").open("w") as out,
        started("run", three, *QUICK, "-o", place, stdout=out, cwd=three.parent) as process,
    ):
        error = process.communicate()[1]
    assert process.returncode == 2
    assert "it is one of the standard streams" in error
    assert (three.parent / "out.txt").read_text() == ""


def test_a_file_that_is_replaced_keeps_its_mode(gemmctl: Command, tmp_path: Path) -> None:
    for mode in (0o600, 0o660, 0o755):
        assert gemmctl("run", "-", "-q", "-o", "a.json", *QUICK, stdin=TWO_PROBLEMS).returncode == 0
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) != mode
        (tmp_path / "a.json").chmod(mode)
        assert gemmctl("run", "-", "-q", "-o", "a.json", *QUICK, stdin=TWO_PROBLEMS).returncode == 0
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == mode


@pytest.mark.parametrize("character", ["a", "é", "\U0001d518"])
def test_a_file_may_have_the_longest_name_that_there_is(
    character: str, gemmctl: Command, tmp_path: Path
) -> None:
    name = character * ((255 - len(".json")) // len(character.encode())) + ".json"
    done = gemmctl("run", "-", "-q", "-o", name, *QUICK, stdin=TWO_PROBLEMS)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.glob("*.json")] == [name]


def test_edge_09_what_was_finished_before_an_interrupt_is_saved_and_said(three: Path) -> None:
    options = ("-f", "jsonl", "-o", "x.json", *LONG)
    with started("run", three, *options, cwd=three.parent) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1]
    assert process.returncode == 130
    assert error.splitlines()[-1] == (
        "gemmctl: 1 of 3 problems measured; x.json holds 1 of 3, and --resume goes on with it"
    )
    kept = read(three.parent / "x.json")
    assert (kept["complete"], kept["problem_count"]) == (False, 3)
    assert names(three.parent / "x.json") == ["one"]


def test_edge_10_a_run_is_saved_before_it_is_printed(three: Path) -> None:
    command = f"{sys.executable} -m gemmctl run three.yaml --max-time 0.05 -o s.json"
    for options, least in (("", 3), ("-f jsonl", 1)):
        done = subprocess.run(
            ["bash", "-c", f"{command} {options} | true; exit ${{PIPESTATUS[0]}}"],
            cwd=three.parent,
            env=environment(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (141, b"")
        assert len(names(three.parent / "s.json")) >= least
        (three.parent / "s.json").unlink()


def test_edge_11_a_full_disk_leaves_the_last_good_file_and_the_results_on_the_screen(
    gemmctl: Command, three: Path
) -> None:
    done = gemmctl("run", three, *QUICK, "--runs", "50", "-o", "x.json", python=("-c", FULL_DISK))
    assert done.returncode == 2
    shown = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert shown == [*names(three.parent / "x.json"), shown[-1]]
    assert done.stderr.splitlines()[-1] == "gemmctl: cannot save to x.json: File too large"
    assert not list(three.parent.glob(".*.part"))


def test_edge_11_the_exit_code_of_bad_files_does_not_say_that_nothing_ran(
    gemmctl: Command,
) -> None:
    (line,) = (line for line in gemmctl("--help").stdout.splitlines() if line.startswith("    2 "))
    assert "nothing was run" not in line


def test_a_failure_keeps_what_was_finished(gemmctl: Command, three: Path) -> None:
    fails = """
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
from gemmctl.errors import DeviceFailed
right = CpuSession.time
def time(self, count, *, cold):
    if self._plan.problem.name == "three":
        raise DeviceFailed("it broke")
    return right(self, count, cold=cold)
CpuSession.time = time
main()
"""
    done = gemmctl("run", three, *QUICK, "-o", "x.json", python=("-c", fails))
    assert done.returncode == 4
    assert names(three.parent / "x.json") == ["one", "two"]
    assert "2 of 3 problems measured" in done.stderr


@pytest.mark.parametrize(
    ("command", "said"), [("verify", "1 of 6 checks done"), ("tune", "0 of 3 problems tuned")]
)
def test_what_other_commands_had_done_before_an_interrupt_is_said(
    command: str, said: str, gemmctl: Command, three: Path
) -> None:
    interrupts = """
import os, signal
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuDevice
right, opened = CpuDevice.open, []
def open_(self, *args):
    opened.append(args)
    if len(opened) == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return right(self, *args)
CpuDevice.open = open_
main()
"""
    done = gemmctl(command, three, python=("-c", interrupts))
    assert done.returncode == 143
    assert done.stderr.splitlines()[-1] == f"gemmctl: {said}"


@pytest.mark.parametrize("format", ["plain", "csv", "jsonl"])
def test_what_was_planned_before_an_interrupt_is_shown(
    format: str, gemmctl: Command, three: Path
) -> None:
    interrupts = """
import os, signal
from gemmctl.__main__ import main
from gemmctl.planning import plan
right = plan.make
def make(problems, kernels):
    if problems[0].name == "three":
        os.kill(os.getpid(), signal.SIGTERM)
    return right(problems, kernels)
plan.make = make
main()
"""
    done = gemmctl("plan", three, "-f", format, python=("-c", interrupts))
    assert done.returncode == 143
    assert [name in done.stdout for name in ("one", "two", "three")] == [True, True, False]
    assert done.stderr.splitlines()[-1] == "gemmctl: 2 of 3 problems planned"


def test_a_run_can_be_resumed(gemmctl: Command, three: Path) -> None:
    gemmctl("run", three, *QUICK, "-q", "-o", "x.json", "--only", "two")
    before = read(three.parent / "x.json")["problems"]
    done = gemmctl("run", three, *QUICK, "-o", "x.json", "--resume")
    assert done.returncode == 0
    assert "1 of 3 problems are in x.json already" in done.stderr
    shown = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert shown == ["one", "two", "three"]
    after = read(three.parent / "x.json")
    assert after["complete"]
    assert names(three.parent / "x.json") == ["two", "one", "three"]
    assert after["problems"][0] == before[0]


def test_a_run_that_another_program_wrote_again_is_resumed(gemmctl: Command, three: Path) -> None:
    gemmctl("run", three, *QUICK, "-q", "-o", "x.json", "--only", "two")
    run = read(three.parent / "x.json")
    one = run["problems"][0]
    one["telemetry"] = [{"sm_hz": 1980000000, "power_w": 650, "memory_hz": None, "throttle": []}]
    for group in one["groups"]:  # as jq and JavaScript write whole numbers
        group.update({key: int(group[key]) for key in ("alpha", "beta") if not group[key] % 1})
    (three.parent / "x.json").write_text(json.dumps(run))
    done = gemmctl("run", three, *QUICK, "-o", "x.json", "--resume", "--columns", "problem,SM")
    assert done.stdout.splitlines()[2].split() == ["two", "1980"]
    assert names(three.parent / "x.json") == ["two", "one", "three"]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_run_whose_keys_another_program_sorted_is_resumed(
    backwards: bool, gemmctl: Command, three: Path
) -> None:
    gemmctl("run", three, *QUICK, "-q", "-o", "x.json", "--only", "two")
    run = read(three.parent / "x.json")
    run = {key: run[key] for key in sorted(run, reverse=backwards)}
    (three.parent / "x.json").write_text(json.dumps(run, indent=2))
    done = gemmctl("run", three, *QUICK, "-o", "x.json", "--resume")
    assert done.returncode == 0
    assert "1 of 3 problems are in x.json already" in done.stderr
    assert names(three.parent / "x.json") == ["two", "one", "three"]


@pytest.mark.parametrize(
    "text",
    [
        '{"command": "verify", "format": 2}',
        '{"command": "run", "tasks": []}',
        '{"problems": [{"format": 2, "command": "run"}]}',
        '{"command": "run", "format": 2',
    ],
)
def test_what_only_resembles_a_run_is_not_replaced(
    text: str, gemmctl: Command, three: Path
) -> None:
    (three.parent / "x.json").write_text(text)
    done = gemmctl("run", three, "-o", "x.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is not a saved run, and only those are replaced" in done.stderr
    assert (three.parent / "x.json").read_text() == text


def test_resume_starts_anew_where_there_is_nothing_yet(gemmctl: Command, three: Path) -> None:
    assert gemmctl("run", three, *QUICK, "-q", "-o", "x.json", "--resume").returncode == 0
    assert names(three.parent / "x.json") == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--max-time", "0.1"), "settings.max_time_s (0.05 and 0.1)"),
        ((*QUICK, "--seed", "1"), "settings.data.seed (0 and 1)"),
        ((*QUICK, "--kernel", "128x192-c2p"), "problem 'one' ran with other choices"),
    ],
)
def test_a_run_that_would_be_another_is_not_resumed(
    options: tuple[str, ...], complaint: str, gemmctl: Command, three: Path
) -> None:
    gemmctl("run", three, *QUICK, "-q", "-o", "x.json", "--only", "one", "--kernel", "64x128")
    before = (three.parent / "x.json").read_text()
    done = gemmctl("run", three, *options, "-o", "x.json", "--resume", "-f", "jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert (three.parent / "x.json").read_text() == before


def test_a_saved_field_of_another_kind_is_told_by_name(
    gemmctl: Command, three: Path, tmp_path: Path
) -> None:
    gemmctl("run", three, *QUICK, "-q", "-o", "x.json")
    run = read(tmp_path / "x.json")
    run["problems"][1]["host_bound"] = None
    (tmp_path / "x.json").write_text(json.dumps(run))
    done = gemmctl("run", three, *QUICK, "-o", "x.json", "--resume")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gemmctl: cannot resume x.json: problem 'two' has null as its host_bound, which no run "
        "writes; save to another file\n"
    )


def test_resume_needs_a_file(gemmctl: Command, three: Path) -> None:
    done = gemmctl("run", three, "--resume")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--save" in done.stderr
