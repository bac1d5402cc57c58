"""Streams that are closed, full, gone or in another encoding; signals; memory that is not there.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmctl.errors import UsageError
from gemmctl.lists import bounded
from support import TWO_PROBLEMS, Command, environment, seen, started, terminal

LONG = ("--max-noise", "0", "--runs", "1000000", "--max-time")  # and then the seconds
HIDE, SHOW, WIPE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"  # the cursor, the cursor, a line

# No more than another half gigabyte of memory may be had.
LITTLE_MEMORY = """
import resource
import numpy
from pathlib import Path
from gemmctl.__main__ import main
from gemmctl.device import cpu
from gemmctl.measuring import baselines, bench
has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (has + (1 << 29), has + (1 << 29)))
main()
"""
NO_THREADS = """
import threading
from gemmctl.__main__ import main
def refused(*args):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refused
main()
"""
# Its operands take two gigabytes.
BIG = "{gemmctl: 1, problems: [{name: big, groups: [{m: 16384, n: 16384, k: 16384}]}]}"


def shell(command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``gemmctl`` is the real command."""
    function = f'gemmctl() {{ {shlex.quote(sys.executable)} -m gemmctl "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", function + command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**env),
        timeout=60,
        check=False,
    )


@pytest.fixture
def not_ignored() -> Iterator[None]:
    """Under nohup these tests ignore SIGHUP, and so would what they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("not_ignored")
@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_edge_01_a_signal_leaves_the_terminal_as_it_was(
    sent: signal.Signals, code: int, two_problems: Path
) -> None:
    with (
        terminal(80) as (ours, theirs),
        started("run", two_problems, *LONG, "9", stderr=theirs, env={"TERM": "xterm"}) as process,
    ):
        os.close(theirs)
        shown = seen(ours, until="left")
        assert HIDE in shown  # the bar is there, to its end
        process.send_signal(sent)
        after = seen(ours)
        assert process.wait() == code, after
    assert after.rindex(SHOW) > (shown + after).rindex(HIDE) - len(shown)
    assert WIPE in after[after.rindex(SHOW) :]
    assert "Traceback" not in after


def test_edge_01_a_signal_that_the_shell_ignores_is_ignored(two_problems: Path) -> None:
    done = shell(
        f"nohup {shlex.quote(sys.executable)} -m gemmctl run two.yaml -f jsonl --max-noise 0 "
        "--runs 1000000 --max-time 1 > out & sleep 1; kill -HUP $!; wait $!; echo $?",
        two_problems.parent,
    )
    assert done.stdout == "0\n"
    assert len((two_problems.parent / "out").read_text().splitlines()) == 2


# A run that is ended as it measures, and what its clean-ups do.
MEASURES = """
import time
from gemmctl.__main__ import main
from gemmctl.device.cpu import CpuSession
def measure(self, count, *, cold):
    try:
        print("measuring", flush=True)
        time.sleep(60)
    finally:
        clean_up
CpuSession.time = measure
main()
"""
HANGS = MEASURES.replace(
    "clean_up",
    """while True:
            try:
                print("cleaning up", flush=True)
                time.sleep(60)
            except BaseException:
                pass""",
)
FAILS = MEASURES.replace("clean_up", 'raise RuntimeError("cannot release un-acquired lock")')


def test_edge_01_a_clean_up_that_fails_behind_a_signal_is_no_bug(two_problems: Path) -> None:
    streams = {"python": ("-c", FAILS), "stderr": subprocess.PIPE}
    with started("run", two_problems, **streams) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait(timeout=20) == 143
    assert said == "gemmctl: 0 of 2 problems measured\n"


def test_edge_01_a_second_signal_ends_a_clean_up_that_hangs(two_problems: Path) -> None:
    with started("run", two_problems, python=("-c", HANGS)) as process:
        assert process.stdout is not None
        for line in ("measuring\n", "cleaning up\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143


def test_edge_01_one_signal_is_enough_for_a_clean_up_that_hangs(two_problems: Path) -> None:
    script = HANGS.replace("main()", "import gemmctl.__main__ as m; m.PATIENCE_S = 1; main()")
    with started("run", two_problems, python=("-c", script)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "measuring\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143


@pytest.mark.parametrize("signals", [1, 2])
def test_edge_01_a_clean_up_that_hangs_in_a_library_ends_too(
    signals: int, two_problems: Path
) -> None:
    # No handler of Python's runs while a function of C waits for a lock.
    setting = "import ctypes\nlibc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
    hang = "libc.pthread_mutex_lock(lock); libc.pthread_mutex_lock(lock)"
    before, _, after = HANGS.rpartition("time.sleep(60)")
    script = f"{setting}{before}{hang}{after}"
    if signals == 1:
        script = script.replace("main()", "import gemmctl.__main__ as m; m.PATIENCE_S = 1; main()")
    with started("run", two_problems, python=("-c", script)) as process:
        assert process.stdout is not None
        for line in ("measuring\n", "cleaning up\n")[:signals]:
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143


def test_edge_01_the_bar_is_gone_before_a_closed_pipe_ends_the_command(two_problems: Path) -> None:
    options = ("-f", "jsonl", *LONG, "2")
    with (
        terminal(80) as (ours, theirs),
        started("run", two_problems, *options, stderr=theirs, env={"TERM": "xterm"}) as process,
    ):
        os.close(theirs)
        assert process.stdout is not None
        shown = seen(ours, until=HIDE)
        process.stdout.close()
        after = seen(ours)
        assert process.wait() == 141
    assert HIDE in shown
    assert after.rindex(SHOW) < after.rindex(WIPE)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("plan two.yaml >&-", 0),
        ("run two.yaml -q -o x.json >&-", 0),
        ("plan two.yaml 2>&-", 0),
        ("plan - <&-", 2),
        ("plan missing.yaml <&- >&- 2>&-", 2),
    ],
)
def test_edge_02_closed_streams_are_empty_ones(command: str, code: int, two_problems: Path) -> None:
    done = shell(f"gemmctl {command}", two_problems.parent)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_edge_02_what_is_saved_is_not_taken_for_a_closed_stream(two_problems: Path) -> None:
    assert shell("gemmctl run two.yaml -o x.json >&- 2>&-", two_problems.parent).returncode == 0
    assert json.loads((two_problems.parent / "x.json").read_text())["complete"]


def test_edge_02_errors_do_not_go_to_standard_output(two_problems: Path) -> None:
    done = shell("gemmctl plan missing.yaml 2>&-", two_problems.parent)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "command", ["schema", "--help", "--version", "run --help", "plan two.yaml", "info"]
)
def test_edge_03_a_full_standard_output_is_one_sentence(command: str, two_problems: Path) -> None:
    done = shell(f"gemmctl {command} >/dev/full", two_problems.parent)
    assert done.returncode == 2
    assert done.stderr == "gemmctl: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("plan /dev/zero", "/dev/zero"),
        ("plan - </dev/zero", "standard input"),
        ("gen import /dev/zero", "/dev/zero"),
        ("gen import - </dev/zero", "standard input"),
        ("compare /dev/zero one.json", "/dev/zero"),
    ],
)
def test_what_does_not_end_is_not_read_until_memory_does(
    command: str, named: str, tmp_path: Path
) -> None:
    done = shell(f"gemmctl {command}", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    told = "holds more than 512 MiB, which no list or run does; check the path, or split it"
    assert done.stderr == f"gemmctl: {named} {told}\n"


@pytest.mark.parametrize("size", [0, 1, 7, 8])
def test_what_ends_in_time_is_read_to_its_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MOST", 8)
    monkeypatch.setattr(bounded, "PIECE", 3)
    text = "abcdefgh"[:size]
    assert bounded.read(io.StringIO(text), "x") == text
    assert bounded.read(io.BytesIO(text.encode()), "x") == text.encode()
    with pytest.raises(UsageError):
        bounded.read(io.StringIO("abcdefghi"), "x")


BELL = "\x1b]0;x\x07\x9b\u202e"  # a terminal's title, and text from right to left
SHOWN = "\\x1b]0;x\\x07\\x9b\\u202e"


@pytest.mark.parametrize(
    "args",
    [
        ("plan", f"no{BELL}.yaml"), ("gen", "import", f"no{BELL}.txt"), ("gen", "import", "-"),
        ("plan", "@tiny", "--only", f"no{BELL}"), ("plan", "--mnk", f"no{BELL}"),
        ("plan", f"--no{BELL}"), ("compare", "a.json", f"no{BELL}.json"), ("plan", "-"),
        ("compare", "a.json", "a.json"),
    ],
    ids=lambda args: args[0],
)  # fmt: skip
def test_control_characters_in_messages_are_escaped(
    args: tuple[str, ...], gemmctl: Command, tmp_path: Path
) -> None:
    head = {"command": "run", "format": 2, "cubin_sha256": "", "settings": 1, "device": f"no{BELL}"}
    (tmp_path / "a.json").write_text(json.dumps({**head, "problems": []}))
    done = gemmctl(*args, stdin=f"no{BELL}", PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stdout) == (2, "")
    assert not set(BELL) - set("]0;x") & set(done.stderr)


def test_control_characters_in_titles_are_escaped(gemmctl: Command, two_problems: Path) -> None:
    (two_problems.parent / f"no{BELL}.json").touch()
    gemmctl("run", two_problems, "-q", "-o", f"no{BELL}.json", "--max-time", "0.05")
    done = gemmctl("compare", *[f"no{BELL}.json"] * 3, PYTHONIOENCODING="utf-8")
    assert done.returncode == 0
    assert f"no{SHOWN}.json" in done.stdout
    assert not set(BELL) - set("]0;x") & set(done.stdout)


def test_edge_03_a_closed_pipe_is_no_failure_of_help(tmp_path: Path) -> None:
    done = shell("gemmctl --help | true; exit ${PIPESTATUS[0]}", tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


def test_notes_that_cannot_be_written_are_lost_and_results_are_not(two_problems: Path) -> None:
    done = shell("gemmctl plan two.yaml 2>/dev/full", two_problems.parent)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)


def test_edge_06_what_an_encoding_lacks_is_escaped(gemmctl: Command, tmp_path: Path) -> None:
    text = TWO_PROBLEMS.replace("one", "größe")
    (tmp_path / "uni.yaml").write_text(text, encoding="utf-8")
    done = gemmctl("run", "uni.yaml", "-o", "s.json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("gr\\xf6\\xdfe ")
    kept = json.loads((tmp_path / "s.json").read_text())
    assert [one["name"] for one in kept["problems"]] == ["größe", "two"]


def test_lists_on_standard_input_are_utf8_in_every_locale(tmp_path: Path) -> None:
    (tmp_path / "uni.yaml").write_text(TWO_PROBLEMS.replace("one", "größe"), encoding="utf-8")
    done = shell("gemmctl plan - -f json < uni.yaml", tmp_path, PYTHONIOENCODING="latin-1")
    assert json.loads(done.stdout)["problems"][0]["name"] == "größe"


def test_a_thread_that_cannot_be_started_is_no_bug_of_gemmctl(
    gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, python=("-c", NO_THREADS))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[-1] == (
        "gemmctl: no thread can be started; allow this process more threads or memory"
    )


def test_edge_07_memory_that_cannot_be_had_is_told_with_the_bytes_needed(gemmctl: Command) -> None:
    done = gemmctl("run", "-", stdin=BIG, python=("-c", LITTLE_MEMORY))
    assert (done.returncode, done.stdout) == (4, "")
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gemmctl: out of memory: Unable to allocate 2.00 GiB")
