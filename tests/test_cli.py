from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gemmctl.cli import app
from gemmctl.errors import ListError
from gemmctl.kernels import cubins
from gemmctl.kernels.cubins import Kernel
from gemmctl.lists import schema
from gemmctl.lists.problem import LAYOUTS
from gemmctl.measuring import baselines
from gemmctl.showing.report import FORMAT
from support import (
    PROBLEMS,
    ROOT,
    TWO_PROBLEMS,
    Command,
    environment,
    on_terminal,
    started,
    takes_all,
)

BAD = """\
gemmctl: 1
problems:
  - name: one
    groups:
      - {m: 64, n: -1, kk: 64}
      - {m: 64, n: 64, k: 64, d: bf61}
"""
LONG = ("--max-noise", "0", "--runs", "1000000", "--max-time")  # and then the seconds
ESCAPE = "\x1b["

# Each replaces a part of the CPU device and then runs the command line it is given.
WRONG_ELEMENT = """
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
right = CpuSession.run
def run(self):
    right(self)
    self._arena[self._plan.layout.d[1] + 1] ^= 0x40
CpuSession.run = run
main()
"""
INTERRUPTS_THE_SECOND = """right(self)
    if self._plan.problem.name != "one":
        raise KeyboardInterrupt"""
WRONG_AT_FIRST = """
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
right = CpuSession.run
def run(self):
    right(self)
    if not hasattr(self, "runs"):
        self._arena[self._plan.layout.d[1] + 1] ^= 0x40
    self.runs = True
CpuSession.run = run
main()
"""
CHANGES = """
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
right = CpuSession.run
def run(self):
    right(self)
    self.runs = getattr(self, "runs", 0) + 1
    if self.runs > 1:
        self._arena[self._plan.layout.d[1]] ^= self.runs & 1  # a last bit, every other time
CpuSession.run = run
main()
"""
FAILS_WITH = """
from gemmctl import errors
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
right = CpuSession.time
def time(self, count, *, cold):
    if self._plan.problem.name == "two":
        raise {error}
    return right(self, count, cold=cold)
CpuSession.time = time
main()
"""

# Even root is then bound by the permissions of files: it gives CAP_DAC_OVERRIDE away for good.
WITHOUT_PRIVILEGE = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "gemmctl", *sys.argv[1:]])
"""


def lines(text: str) -> list[str]:
    return text.splitlines()


# Bias, activation, gate and C in place

FUSED = """\
gemmctl: 1
problems:
  - name: fused
    groups:
      - {m: 17, n: 40, k: 24, bias: n, activation: silu, gate: halves}
      - {m: 17, n: 40, k: 24, bias: m, bias_type: f32, activation: gelu, beta: 1, inplace: true}
"""
ANOTHER_GELU = """
from gemmctl.__main__ import main
from gemmctl.device import cpu
activate = cpu.activate
cpu.activate = lambda name, x: activate("gelu_tanh" if name == "gelu" else name, x)
main()
"""


def test_what_is_fused_is_planned_run_and_verified(gemmctl: Command) -> None:
    for command in (("plan",), ("run", "--runs", "3"), ("verify", "--data", "all")):
        done = gemmctl(*command, "-", stdin=FUSED)
        assert done.returncode == 0, done.stderr
        assert any(line.startswith("fused") for line in lines(done.stdout))


def test_verify_says_which_group_has_another_activation(gemmctl: Command) -> None:
    done = gemmctl("verify", "-", stdin=FUSED, python=("-c", ANOTHER_GELU))
    assert done.returncode == 1
    assert "group 1: " in done.stdout and "group 0: " not in done.stdout


# Streams and formats


def test_run_prints_a_line_per_problem_in_a_pipe_and_nothing_else(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems)
    assert done.returncode == 0
    assert [line.split()[0] for line in lines(done.stdout)] == ["problem", "one", "two"]


def test_notes_go_to_stderr_a_line_each(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("run", two_problems)
    assert done.stderr
    assert all(line.startswith("gemmctl: ") for line in lines(done.stderr))


def test_a_dash_is_standard_input(gemmctl: Command) -> None:
    done = gemmctl("run", "-", stdin=TWO_PROBLEMS)
    assert (done.returncode, len(lines(done.stdout))) == (0, 3)


def test_several_files_are_one_long_list(gemmctl: Command, two_problems: Path) -> None:
    more = TWO_PROBLEMS.replace("one", "three").replace("two", "four")
    done = gemmctl("plan", two_problems, "-", stdin=more)
    names = [line.split()[0] for line in lines(done.stdout)]
    assert names == ["problem", "one", "two", "three", "four"]


def test_a_name_that_no_problem_has_is_told_with_the_one_that_was_meant(gemmctl: Command) -> None:
    many = "".join(f"- {{name: layer-{i}, groups: [{{m: 1, n: 1, k: 1}}]}}\n" for i in range(2000))
    done = gemmctl("plan", "-", "--only", "Layer-7", stdin=f"gemmctl: 1\nproblems:\n{many}")
    assert done.returncode == 2
    names = ", ".join(f"layer-{i}" for i in range(20))
    said = "gemmctl: no problem is named 'Layer-7' (did you mean layer-7?); there are "
    assert done.stderr == f"{said}{names} and 1,980 more\n"


def test_only_picks_problems_by_name(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("run", two_problems, "--only", "t*")
    assert [line.split()[0] for line in lines(done.stdout)] == ["problem", "two"]


@pytest.mark.parametrize("command", ["run", "verify", "plan"])
def test_every_line_of_jsonl_is_json(command: str, gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl(command, two_problems, "-f", "jsonl")
    found = [json.loads(line) for line in lines(done.stdout)]
    assert list(dict.fromkeys(record["name"] for record in found)) == ["one", "two"]


@pytest.mark.parametrize("command", ["run", "verify", "plan", "info"])
def test_json_is_one_document_with_its_format_number(
    command: str, gemmctl: Command, two_problems: Path
) -> None:
    files = [] if command == "info" else [two_problems]
    found = json.loads(gemmctl(command, *files, "-f", "json").stdout)
    assert (found["format"], found["command"]) == (FORMAT, command)


def test_info_as_jsonl_is_one_line_with_all_that_json_has(gemmctl: Command) -> None:
    (line,) = lines(gemmctl("info", "-f", "jsonl").stdout)
    assert json.loads(line) == json.loads(gemmctl("info", "-f", "json").stdout)


def test_jsonl_comes_out_problem_by_problem(two_problems: Path) -> None:
    with started("run", two_problems, "-f", "jsonl", *LONG, "1") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["name"] == "one"
        assert process.poll() is None  # the second problem is still being timed


def test_a_verdict_in_json_says_when_how_and_by_which_kernel_it_was_found(
    gemmctl: Command, two_problems: Path
) -> None:
    options = ("--data", "int", "--seed", "7", "--repeat", "3", "--kernel", "64x128")
    found = json.loads(gemmctl("verify", two_problems, *options, "-f", "json").stdout)
    settings = {"data": "int", "seed": 7, "repeat": 3, "launch": "grouped"}
    assert found["settings"] == settings
    assert datetime.fromisoformat(found["date"]).tzinfo is not None
    assert [check["kernel"] for check in found["checks"]] == ["64x128", "64x128"]


def test_csv_of_verify_names_the_kernel(gemmctl: Command, two_problems: Path) -> None:
    options = ("--data", "int", "--kernel", "64x128", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(gemmctl("verify", two_problems, *options).stdout)))
    assert [row["kernel"] for row in rows] == ["64x128", "64x128"]


def test_json_of_info_has_the_folder_of_the_cubins_as_its_table_has(gemmctl: Command) -> None:
    found = json.loads(gemmctl("info", "-f", "json").stdout)
    assert found["cubin_folder"] == str(cubins.folder())


def test_quiet_says_nothing(gemmctl: Command, two_problems: Path) -> None:
    for command in ("run", "verify", "plan"):
        done = gemmctl(command, two_problems, "-q")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_cache_state_is_in_the_title(gemmctl: Command, two_problems: Path) -> None:
    assert "time us (cold)" in gemmctl("run", two_problems).stdout
    assert "time us (warm)" in gemmctl("run", two_problems, "--cache", "warm").stdout


def test_sampling_options_reach_the_result(gemmctl: Command, two_problems: Path) -> None:
    options = ("--warmup", "0", "--runs", "4", "--max-noise", "2%", "--max-time", "5")
    data = ("--data", "int", "--seed", "7")
    found = json.loads(gemmctl("run", two_problems, *options, *data, "-f", "json").stdout)
    assert found["settings"] == {
        "warmup": 0,
        "runs": 4,
        "max_time_s": 5.0,
        "max_noise": 0.02,
        "cache": "cold",
        "data": {"kind": "int", "seed": 7, "version": 2},
        "launch": "grouped",
        "pace": "burst",
    }
    assert [len(one["samples_s"]) for one in found["problems"]] == [4, 4]


def test_the_device_comes_from_the_environment_unless_it_is_given(
    gemmctl: Command, two_problems: Path
) -> None:
    assert gemmctl("run", two_problems, GEMMCTL_DEVICE="nonsense").returncode == 2
    assert gemmctl("run", two_problems, "--device", "cpu", GEMMCTL_DEVICE="x").returncode == 0


def test_falling_back_to_the_cpu_is_one_line_on_stderr(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, "-f", "csv", GEMMCTL_DEVICE="auto", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0
    assert len([note for note in lines(done.stderr) if note.endswith("running on the CPU")]) == 1


@pytest.mark.parametrize("launch", ["serial", "streams"])
def test_groups_can_be_launched_one_by_one(
    launch: str, gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, "--launch", launch, "-f", "json")
    found = json.loads(done.stdout)
    assert found["settings"]["launch"] == launch
    assert [one["launches"] for one in found["problems"]] == [3, 2]  # one group of two is empty


@pytest.mark.parametrize("launch", ["grouped", "graph", "serial", "streams"])
def test_verify_judges_groups_however_they_are_launched(
    launch: str, gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("verify", two_problems, "--launch", launch, "-f", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["settings"]["launch"]) == (0, launch)
    cut = [len(one["choices"]) for one in found["checks"]]
    assert cut == ([3, 3, 2, 2] if launch in ("serial", "streams") else [1, 1, 1, 1])


def test_baselines_are_refused_on_a_cpu_before_anything_runs(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, "--against", "all", "-f", "jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gemmctl: --against times libraries for GPUs and needs a Hopper GPU; "
        "this run is on the CPU\n"
    )


def test_the_help_names_every_baseline(gemmctl: Command) -> None:
    shown = "".join(gemmctl("run", "--help").stdout.split())
    assert ",".join(baselines.BASELINES) in shown


# Terminals


def test_a_terminal_gets_a_table_and_its_notes(two_problems: Path) -> None:
    shown = on_terminal("stdout", "plan", two_problems)
    assert "-------" in shown
    assert "bound is max(flops / peak, bytes / bandwidth)" in shown


def test_verdicts_are_coloured_on_a_terminal_only(gemmctl: Command, two_problems: Path) -> None:
    assert ESCAPE in on_terminal("stdout", "verify", two_problems)
    assert ESCAPE not in gemmctl("verify", two_problems).stdout


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_refused_by_the_environment(env: dict[str, str], two_problems: Path) -> None:
    assert ESCAPE not in on_terminal("stdout", "verify", two_problems, **env)


def test_the_colour_option_overrides_everything(gemmctl: Command, two_problems: Path) -> None:
    assert ESCAPE in gemmctl("verify", two_problems, "--color", "always", NO_COLOR="1").stdout
    assert ESCAPE not in on_terminal("stdout", "verify", two_problems, "--color", "never")


def test_what_takes_longer_than_a_second_shows_a_bar_on_a_terminal(two_problems: Path) -> None:
    long = ("--only", "one", *LONG, "2")
    assert "one" in on_terminal("stderr", "run", two_problems, "-f", "csv", *long)


def test_help_has_no_escape_codes_even_where_rich_would_force_them(gemmctl: Command) -> None:
    assert ESCAPE not in gemmctl("run", "--help", GITHUB_ACTIONS="true").stdout


# Exit codes


def test_help_lists_every_exit_code(gemmctl: Command) -> None:
    codes = re.findall(r"^ +(\d+) {2,}", gemmctl("--help").stdout, re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "70", "129", "130", "141", "143"]


def test_0_what_is_right(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("verify", two_problems)
    assert done.returncode == 0
    table = [line.split() for line in lines(done.stdout)[1:]]
    assert [(row[0], row[1], row[-1]) for row in table] == [
        ("one", "normal", "ok"),
        ("one", "int", "ok"),
        ("two", "normal", "ok"),
        ("two", "int", "ok"),
    ]


def test_1_a_wrong_element_is_named(gemmctl: Command, two_problems: Path) -> None:
    only = ("--only", "one", "--data", "int")
    done = gemmctl("verify", two_problems, *only, python=("-c", WRONG_ELEMENT))
    assert done.returncode == 1
    (message,) = (line for line in lines(done.stdout) if line.startswith("one (int): "))
    assert "group 1" in message
    assert "row 0" in message
    assert "column 0" in message


def test_1_a_slower_run_is_over_the_limit(gemmctl: Command, two_problems: Path) -> None:
    old, new = save_two_runs(gemmctl, two_problems, slower=1.5)
    done = gemmctl("compare", old, new, "--fail-over", "3%")
    assert done.returncode == 1
    assert [line.split()[-1] for line in lines(done.stdout)[1:3]] == ["SLOW", "SLOW"]
    assert gemmctl("compare", old, new).returncode == 0
    assert gemmctl("compare", old, old, "--fail-over", "3%").returncode == 0


def test_2_a_bad_list_with_every_error_and_nothing_run(gemmctl: Command) -> None:
    for command in ("run", "verify", "plan"):
        done = gemmctl(command, "-", stdin=BAD)
        assert (done.returncode, done.stdout) == (2, "")
        found = re.findall(r"^(\S+:\d+:\d+): ", done.stderr, re.MULTILINE)
        assert len(found) >= 3
        assert "did you mean" in done.stderr
        assert re.search(r"^ +\^", done.stderr, re.MULTILINE)


def test_2_what_no_kernel_can_do_is_refused_before_the_device_is_asked(gemmctl: Command) -> None:
    mixed = "{gemmctl: 1, problems: [{name: p, groups: [{m: 8, n: 8, k: 7, b: f16}]}]}"
    done = gemmctl("run", "-", stdin=mixed, GEMMCTL_DEVICE="cuda", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (2, "")
    assert "operands of one type" in done.stderr


def test_2_quiet_plan_checks_a_list(gemmctl: Command, two_problems: Path) -> None:
    assert gemmctl("plan", "-q", two_problems).returncode == 0
    done = gemmctl("plan", "-q", "-", stdin=BAD)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_quiet_plan_checks_a_list_and_plans_nothing(gemmctl: Command, two_problems: Path) -> None:
    never = "from gemmctl.planning import plan; plan.make = None"
    start = f"{never}; from gemmctl.__main__ import main; main()"
    done = gemmctl("plan", "-q", two_problems, python=("-c", start))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "args",
    [
        ("rum",),
        ("run",),
        ("run", "-", "--nonsense"),
        ("run", "-", "-f", "xml"),
        ("run", "-", "--runs", "0"),
        ("run", "-", "--max-noise", "3"),
        ("run", "-", "--seed", "-1"),
        ("run", "-", "--device", "tpu"),
        ("run", "-", "--only", "nothing*"),
        ("run", "-", "--launch", "together"),
        ("run", "-", "--kernel", "128x257"),
        ("verify", "-", "--kernel", "128x257"),
        ("plan", "-", "--kernel", "128x257"),
        ("tune", "-", "--max-time", "-1"),
        ("run", "-", "--against", "cudnn"),
        ("run", "-", "--against", "cublas"),  # on a CPU
        ("run", "missing.yaml"),
        ("compare", "missing.json", "missing.json"),
    ],
)
def test_2_bad_usage(args: Sequence[str], gemmctl: Command) -> None:
    done = gemmctl(*args, stdin=TWO_PROBLEMS)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_2_standard_output_that_is_full(two_problems: Path) -> None:
    with open("/dev/full", "w") as full, started("plan", two_problems, stdout=full) as process:
        error = process.communicate()[1]
    assert process.returncode == 2
    assert error == "gemmctl: cannot write to standard output: No space left on device\n"


def test_3_no_gpu_where_one_was_asked_for(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("run", two_problems, "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(lines(done.stderr)) == 1


def test_3_a_folder_without_cubins(gemmctl: Command, two_problems: Path, tmp_path: Path) -> None:
    done = gemmctl("plan", two_problems, GEMMCTL_CUBINS=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert "manifest" in done.stderr


def test_3_a_damaged_cubin(gemmctl: Command, tmp_path: Path) -> None:
    copy = shutil.copytree(cubins.folder(), tmp_path / "cubin")
    assert gemmctl("info", GEMMCTL_CUBINS=str(copy)).returncode == 0
    damaged = min(copy.glob("*.tar.xz"))
    found = damaged.read_bytes()
    middle = len(found) // 2
    damaged.write_bytes(found[:middle] + bytes([found[middle] ^ 1]) + found[middle + 1 :])
    done = gemmctl("info", GEMMCTL_CUBINS=str(copy))
    assert (done.returncode, done.stdout) == (3, "")
    assert damaged.name in done.stderr


def test_4_operands_that_do_not_fit_in_memory_before_anything_runs(
    gemmctl: Command, two_problems: Path
) -> None:
    huge = "{gemmctl: 1, problems: [{name: huge, groups: [{m: 2097152, n: 8, k: 2097152}]}]}"
    done = gemmctl("run", two_problems, "-", "-f", "jsonl", stdin=huge)
    assert (done.returncode, done.stdout) == (4, "")
    assert re.search(r"the operands of huge take .* GB and .* has .* GB", done.stderr)


@pytest.mark.parametrize("command", ["run", "verify"])
def test_4_operands_that_do_not_fit_beside_their_copies_in_float32(
    command: str, gemmctl: Command
) -> None:
    little = """
from gemmctl.__main__ import main
from gemmctl.device import cpu
cpu._free_bytes = lambda: 2_000_000
main()
"""
    fits, does_not = "1024x8x128", "1024x8x512"
    assert gemmctl(command, "--mnk", fits, python=("-c", little)).returncode == 0
    done = gemmctl(command, "--mnk", does_not, python=("-c", little))
    assert done.returncode == 4
    said = "and copies of A and B in float32 take 0.0032 GB and this machine has 0.002 GB free"
    assert said in lines(done.stderr)[-1]


@pytest.mark.parametrize("error", ["DeviceFailed", "DeviceHung"])
def test_4_a_device_that_fails_keeps_the_results_before_it(
    error: str, gemmctl: Command, two_problems: Path
) -> None:
    script = FAILS_WITH.format(error=f"errors.{error}('it broke')")
    done = gemmctl("run", two_problems, "--save", "run.json", python=("-c", script))
    assert done.returncode == 4
    assert [line.split()[0] for line in lines(done.stdout)] == ["problem", "one"]
    assert lines(done.stderr)[-1] == "gemmctl: it broke"
    kept = json.loads(two_problems.with_name("run.json").read_text())
    assert [one["name"] for one in kept["problems"]] == ["one"]


def test_4_results_that_change_from_run_to_run_end_a_run(
    gemmctl: Command, two_problems: Path
) -> None:
    options = ("--warmup", "1", "--runs", "2", "--max-noise", "0", "--only", "one")
    done = gemmctl("run", two_problems, *options, python=("-c", CHANGES))
    assert (done.returncode, done.stdout) == (4, "")
    assert "the same run gave other bits in group 1 of one" in lines(done.stderr)[-1]


def test_1_results_that_change_from_run_to_run_are_wrong(
    gemmctl: Command, two_problems: Path
) -> None:
    options = ("--only", "one", "--data", "normal", "--repeat")
    assert gemmctl("verify", two_problems, *options, "1", python=("-c", CHANGES)).returncode == 0
    done = gemmctl("verify", two_problems, *options, "3", python=("-c", CHANGES))
    assert done.returncode == 1
    assert "group 1: run 3 gave other bits than the first" in done.stdout


def test_70_a_bug_shows_its_traceback(gemmctl: Command, two_problems: Path) -> None:
    script = FAILS_WITH.format(error="RuntimeError('oops')")
    done = gemmctl("run", two_problems, python=("-c", script))
    assert done.returncode == 70
    assert "RuntimeError: oops" in done.stderr
    assert "bug in gemmctl" in lines(done.stderr)[-1]


def test_130_interrupted_without_a_traceback(two_problems: Path) -> None:
    with started("run", two_problems, "-f", "jsonl", *LONG, "1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in error


def test_141_a_closed_pipe_without_a_word(two_problems: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m gemmctl run {shlex.quote(str(two_problems))}"
    done = subprocess.run(
        ["bash", "-c", f"{command} -f jsonl | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 141
    assert json.loads(done.stdout)["name"] == "one"
    assert done.stderr == ""


# Saving and comparing


def save_two_runs(gemmctl: Command, problems: Path, *, slower: float) -> tuple[Path, Path]:
    """A saved run, and one that took longer by a factor; both with steady samples."""
    old, new = problems.with_name("old.json"), problems.with_name("new.json")
    assert gemmctl("run", problems, "-q", "--save", old).returncode == 0
    document = json.loads(old.read_text())
    for path, time_s in ((old, 1e-4), (new, slower * 1e-4)):
        for one in document["problems"]:
            one["samples_s"] = [time_s] * 20
        path.write_text(json.dumps(document))
    return old, new


def test_save_keeps_what_json_prints(gemmctl: Command, two_problems: Path, tmp_path: Path) -> None:
    done = gemmctl("run", two_problems, "-f", "json", "--save", "run.json")
    assert (tmp_path / "run.json").read_text() == done.stdout


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, "-f", "jsonl", "--save", "missing/run.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemmctl: cannot save to missing/run.json: No such file or directory\n"


def test_a_folder_without_write_permission_is_refused(gemmctl: Command, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(mode=0o555)
    done = gemmctl("run", "-", "--save", "results/run.json", stdin=TWO_PROBLEMS,
                   python=("-c", WITHOUT_PRIVILEGE))  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemmctl: cannot save to results/run.json: Permission denied\n"


def test_runs_with_other_settings_do_not_compare(gemmctl: Command, two_problems: Path) -> None:
    for cache in ("cold", "warm"):
        options = ("--cache", cache, "--max-time", "0.1")
        gemmctl("run", two_problems, "-q", *options, "--save", f"{cache}.json")
    done = gemmctl("compare", "cold.json", "warm.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cache" in done.stderr
    assert gemmctl("compare", "cold.json", "warm.json", "--force").returncode == 0


# The other commands


def test_dump_leaves_the_operands_and_a_list_that_runs(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    options = ("--only", "one", "--data", "int", "--dump", "dump")
    done = gemmctl("verify", two_problems, *options, python=("-c", WRONG_ELEMENT))
    assert "dump/one-group1-int" in done.stderr
    arrays = [np.load(path) for path in (tmp_path / "dump").rglob("*.npy")]
    assert (64, 64) in {array.shape for array in arrays}
    (written,) = (tmp_path / "dump").rglob("*.yaml")
    assert gemmctl("verify", written).returncode == 0


def test_dump_leaves_the_d_that_was_judged(
    gemmctl: Command, two_problems: Path, tmp_path: Path
) -> None:
    left = {}
    for folder, code in (("at-first", WRONG_AT_FIRST), ("always", WRONG_ELEMENT)):
        options = ("--only", "one", "--data", "int", "--dump", folder)
        gemmctl("verify", two_problems, *options, python=("-c", code))
        (bits,) = (tmp_path / folder).rglob("d_bits.npy")
        left[folder] = np.load(bits)
    assert (left["at-first"] == left["always"]).all()


def test_what_a_dump_left_before_verify_was_interrupted_is_told(
    gemmctl: Command, two_problems: Path
) -> None:
    interrupted = WRONG_ELEMENT.replace("right(self)", INTERRUPTS_THE_SECOND)
    options = ("--data", "int", "--dump", "dump")
    done = gemmctl("verify", two_problems, *options, python=("-c", interrupted))
    assert done.returncode == 130
    told = lines(done.stderr)
    assert "1 of 2 checks done" in told[-2]
    assert told[-1].endswith("left the operands of the first wrong group in dump/one-group1-int")


def test_verbose_plan_says_how_many_ctas_start(gemmctl: Command) -> None:
    """120 tiles of two CTAs take two rounds of 60 clusters, where 66 fit."""
    done = gemmctl("plan", "@seed10", "-v", "--columns", "tiles,CTAs")
    titles, row = map(str.split, done.stdout.splitlines())
    assert dict(zip(titles, row, strict=True)) == {"tiles": "120", "CTAs": "120"}
    (problem,) = json.loads(gemmctl("plan", "@seed10", "-f", "json").stdout)["problems"]
    assert problem["ctas"] == [120]


def test_verbose_verify_has_a_line_per_group(gemmctl: Command, two_problems: Path) -> None:
    done = gemmctl("verify", two_problems, "--data", "int", "-v")
    assert len(lines(done.stdout)) == 1 + 6


def test_schema_prints_what_is_committed(gemmctl: Command) -> None:
    printed = gemmctl("schema").stdout
    assert json.loads(printed) == schema.schema()
    assert printed == (ROOT / "gemmctl" / "problem-list.schema.json").read_text()


def test_info_names_versions_device_and_kernels(gemmctl: Command) -> None:
    done = gemmctl("info")
    assert done.returncode == 0
    assert "gemmctl " in done.stdout
    assert "cpu: " in done.stdout
    rows = [line.split() for line in lines(done.stdout) if line.startswith("kernel ")]
    assert [row[1] for row in rows] == list(dict.fromkeys(of.name for of in KERNELS))


def test_info_says_of_each_kernel_what_layouts_it_is_for(gemmctl: Command) -> None:
    found = gemmctl("info").stdout
    assert "64x256-px (rcc): 5 to 20 stages, 384 threads, 168 registers" in found
    assert "128x256-c2 (rcr rrr ccr crr): " in found
    records = json.loads(gemmctl("info", "-f", "json").stdout)["kernels"]
    assert len(records) == len(KERNELS)


def test_completion_knows_the_commands(gemmctl: Command) -> None:
    done = gemmctl(
        python=("-c", "from gemmctl.__main__ import main; main()"),
        _GEMMCTL_COMPLETE="complete_bash",
        COMP_WORDS="gemmctl ver",
        COMP_CWORD="1",
    )
    assert done.stdout.split() == ["verify"]


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_what_needs_no_device_imports_nothing_slow(option: str, gemmctl: Command) -> None:
    done = gemmctl(option, python=("-X", "importtime", "-m", "gemmctl"))
    imported = {line.split("|")[-1].strip().partition(".")[0] for line in lines(done.stderr)}
    assert "typer" in imported
    assert not imported & {"cuda", "hypothesis", "numpy", "pydantic", "rich", "tabulate", "yaml"}


# Any list at all


KERNELS = cubins.manifest().kernels


@st.composite
def groups(draw: st.DrawFn, kernels: Sequence[Kernel] = KERNELS) -> dict[str, Any]:
    """Groups that one of the kernels can run."""
    kernel = draw(st.sampled_from(kernels))
    operand, output, a, b = kernel.multiplies
    d, anything, extra = draw(st.sampled_from(LAYOUTS)), takes_all(kernel), st.integers(0, 2)
    if d == "col":  # is computed as B^T A^T
        other = dict(zip(LAYOUTS, reversed(LAYOUTS), strict=True))
        a, b = other[b], other[a]
    m, n, k = (draw(st.integers(0, 70)) for _ in "mnk")
    word = 1 if anything else 8
    if d == "row":
        n = -(-n // word) * word
    else:
        m = -(-m // word) * word
    runs = {"lda": k if a == "row" else m, "ldb": k if b == "col" else n}
    scalars = st.sampled_from([0, 1, -1, 0.5, 3, -0.3])
    return {
        "m": m, "n": n, "k": k, "a": operand, "b": operand, "d": output,
        "a_layout": a, "b_layout": b, "d_layout": d,
        **{key: max(1, run) + draw(extra) for key, run in runs.items()},
        "ldd": max(word, n if d == "row" else m) + word * draw(extra),
        "a_offset": draw(extra), "b_offset": draw(extra), "d_offset": word * draw(extra),
        "alpha": draw(scalars), "beta": draw(scalars) if anything else 0,
        "count": draw(st.integers(1, 3)),
    }  # fmt: skip


@settings(max_examples=40)
@given(st.lists(groups(), min_size=1, max_size=4), st.integers(0, 2**64 - 1))
def test_every_legal_list_verifies(listed: list[dict[str, Any]], seed: int) -> None:
    text = yaml.safe_dump({"gemmctl": 1, "problems": [{"name": "p", "groups": listed}]})
    done = CliRunner().invoke(
        app, ["verify", "-", "--device", "cpu", "--seed", str(seed)], input=text
    )
    assert done.exit_code == 0, done.output


@settings(max_examples=60)
@given(st.sampled_from(sorted({kernel.name for kernel in KERNELS})), st.data())
def test_every_list_that_a_kernel_can_run_verifies_with_it(name: str, data: st.DataObject) -> None:
    those = groups([kernel for kernel in KERNELS if kernel.name == name])
    listed = data.draw(st.lists(those, min_size=1, max_size=4))
    text = yaml.safe_dump({"gemmctl": 1, "problems": [{"name": "p", "groups": listed}]})
    options = ["--device", "cpu", "--kernel", name, "-f", "json"]
    done = CliRunner().invoke(app, ["verify", "-", *options], input=text)
    assert done.exit_code == 0, done.output
    chosen = {choice.split()[0] for choice in json.loads(done.stdout)["checks"][0]["choices"]}
    assert chosen <= {name}


@settings(max_examples=60)
@given(
    listed=st.lists(groups(), min_size=1, max_size=3),
    key=st.sampled_from(["m", "lda", "ldd", "alpha", "a", "d", "count", "q"]),
    value=st.sampled_from([-1, 2**63, 1.5, "x", None, [1], {"m": 1}, True]),
)
def test_every_illegal_list_is_refused_with_its_place(
    listed: list[dict[str, Any]], key: str, value: Any
) -> None:
    legal = {("alpha", -1), ("alpha", 1.5), ("alpha", 2**63)}
    if (key, value if isinstance(value, int | float) else None) in legal:
        value = "x"
    listed[-1][key] = value
    text = yaml.safe_dump({"gemmctl": 1, "problems": [{"name": "p", "groups": listed}]})
    done = CliRunner().invoke(app, ["plan", "-"], input=text)
    assert isinstance(done.exception, ListError)
    assert re.match(r"\S+:\d+:\d+: ", str(done.exception))


# What the documents say


README = (ROOT / "README.md").read_text()


def readme_commands() -> list[str]:
    """The commands of the README's console blocks."""
    blocks = re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in lines(block) if line.startswith("$ ")]


def test_every_command_of_the_readme_works(tmp_path: Path) -> None:
    (tmp_path / "problems").symlink_to(PROBLEMS)
    (tmp_path / "gemmctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m gemmctl "$@"\n')
    (tmp_path / "gemmctl").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    commands = readme_commands()
    assert len(commands) >= 6
    for command in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment(PATH=path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert [command.split(" && ")[-1] for command in commands] == [
        ".venv/bin/gemmctl run problems/seed10.yaml",
        ".venv/bin/python -m pytest -n auto --dist worksteal",
    ]


def test_the_readme_names_every_command_option_and_exit_code(gemmctl: Command) -> None:
    for command in ("run", "verify", "plan", "tune", "compare", "gen", "info", "schema"):
        assert f"gemmctl {command}" in README
        for option in re.findall(r"--[a-z][a-z-]+", gemmctl(command, "--help").stdout):
            assert option in README, f"{command} {option}"
    for code in re.findall(r"^ +(\d+) {2,}", gemmctl("--help").stdout, re.MULTILINE):
        assert re.search(rf"^\| {code} +\|", README, re.MULTILINE), code
