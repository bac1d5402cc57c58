"""What is typed: lists that ship, shapes, options, variables, help and completion.

The number in a test's name is its row in the list of edges of version 0.1.0.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from gemmctl.commands.options import MAX_SEED
from gemmctl.errors import UsageError
from gemmctl.kernels import cubins
from gemmctl.lists import schema, shipped
from gemmctl.measuring import baselines
from gemmctl.operands import data
from support import PROBLEMS, ROOT, Command, environment, on_terminal

QUICK = ("--max-time", "0.05")
ESCAPE = "\x1b["
COMMANDS = ("run", "verify", "plan", "tune", "compare", "gen", "info", "schema")


def names(plain: str) -> list[str]:
    """The problems of a plain table."""
    return [line.split()[0] for line in plain.splitlines()[1:]]


# Lists that ship


def test_edge_27_a_list_that_ships_is_read_by_name_from_an_empty_folder(gemmctl: Command) -> None:
    done = gemmctl("run", "@tiny", "@edge", *QUICK)
    assert (done.returncode, names(done.stdout)) == (0, ["tiny", "edge"])


def test_edge_27_an_at_alone_is_every_list_that_ships(gemmctl: Command) -> None:
    found = json.loads(gemmctl("plan", "@", "-f", "json").stdout)["problems"]
    assert len(found) >= len(list(PROBLEMS.glob("*.yaml"))) == len(shipped.names())


@pytest.mark.parametrize("twice", [("@tiny", "@tiny"), ("@", "@tiny")])
def test_a_list_that_is_given_twice_is_told_as_that(
    twice: tuple[str, str], gemmctl: Command
) -> None:
    done = gemmctl("plan", *twice)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == f"gemmctl: {shipped.folder() / 'tiny.yaml'} is given twice; give it once\n"
    )


def test_a_list_that_is_given_by_two_paths_is_told_as_that(
    gemmctl: Command, two_problems: Path
) -> None:
    (two_problems.parent / "link.yaml").symlink_to("two.yaml")
    for other in ("./two.yaml", two_problems, "link.yaml"):
        done = gemmctl("plan", "two.yaml", other)
        assert (done.returncode, done.stdout) == (2, "")
        told = f"two.yaml is given twice, also as {other}; give it once"
        assert done.stderr == f"gemmctl: {told}\n"


def test_edge_27_info_names_the_lists_that_ship(gemmctl: Command) -> None:
    rows = [line.split() for line in gemmctl("info").stdout.splitlines()]
    found = [name for title, *words in rows if title == "lists" for name in words]
    assert found == [f"@{name}" for name in shipped.names()]


@pytest.mark.parametrize("path", ["problems/seed10.yaml", "seed10.yaml", "seed10"])
def test_edge_27_the_path_of_a_checkout_gets_a_suggestion(path: str, gemmctl: Command) -> None:
    done = gemmctl("run", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gemmctl: there is no {path} here; @seed10 is the list that ships\n"


def test_edge_27_a_name_that_is_not_known_gets_a_suggestion(gemmctl: Command) -> None:
    done = gemmctl("run", "@sed10")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no list that ships is called 'sed10' (did you mean @seed10?); there are " in done.stderr


@pytest.mark.parametrize("args", [("plan", ""), ("gen", "import", ""), ("compare", "", "")])
def test_a_file_without_a_name_is_told(args: tuple[str, ...], gemmctl: Command) -> None:
    done = gemmctl(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gemmctl: cannot read '': No such file or directory")


# Shapes


def test_a_shape_needs_no_list(gemmctl: Command) -> None:
    done = gemmctl("run", "--mnk", "64x128x64", "--count", "3", *QUICK, "-f", "json")
    (one,) = json.loads(done.stdout)["problems"]
    assert (one["name"], one["group_count"], one["dtype"]) == ("64x128x64:3", 3, "bf16")
    (group,) = one["groups"]
    assert [group[key] for key in ("m", "n", "k", "alpha", "beta")] == [64, 128, 64, 1.0, 0.0]


def test_several_shapes_are_groups_of_one_problem(gemmctl: Command) -> None:
    shapes = ("--mnk", "17x128x64:3", "--mnk", "40x96x32", "--count", "2")
    types = ("--dtype", "f16:f32", "--alpha", "0.5", "--beta", "-1e-3")
    (one,) = json.loads(gemmctl("plan", *shapes, *types, "-f", "json").stdout)["problems"]
    assert one["name"] == "17x128x64:3+40x96x32:2"
    assert [(g["m"], g["n"], g["k"], g["count"]) for g in one["groups"]] == [
        (17, 128, 64, 3),
        (40, 96, 32, 2),
    ]
    assert {(g["a"], g["b"], g["c"], g["d"]) for g in one["groups"]} == {
        ("f16", "f16", "f32", "f32")
    }
    assert one["groups"][0]["alpha"] == 0.5
    assert one["groups"][0]["beta"] == pytest.approx(-1e-3)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.4e-45", 2.0**-149),  # float32's smallest number, as C prints it
        ("-3.4028235e38", -(2 - 2.0**-23) * 2.0**127),  # and its largest
        ("7.1e-46", 2.0**-149),
        ("7e-46", None),
        ("3.402823567797336e38", (2 - 2.0**-23) * 2.0**127),
        ("3.4028235677973366e38", None),
    ],
)
def test_a_factor_is_legal_where_it_is_once_it_is_rounded_to_float32(
    written: str, value: float | None, gemmctl: Command
) -> None:
    done = gemmctl("plan", "--mnk", "8x8x8", f"--alpha={written}", "-f", "json")
    validator = jsonschema.Draft7Validator(schema.schema())
    group = {"m": 8, "n": 8, "k": 8, "alpha": float(written)}
    document = {"gemmctl": 1, "problems": [{"name": "p", "groups": [group]}]}
    assert validator.is_valid(document) == (value is not None)
    if value is None:
        assert (done.returncode, done.stdout) == (2, "")
        assert "alpha must be 0 or a number of magnitude 1.4e-45 to 3.4e+38" in done.stderr
    else:
        assert json.loads(done.stdout)["problems"][0]["groups"][0]["alpha"] == value


@pytest.mark.parametrize("command", ["run", "verify", "plan", "tune"])
def test_shapes_stand_beside_lists(command: str, gemmctl: Command, two_problems: Path) -> None:
    options = QUICK if command in ("run", "tune") else ()
    done = gemmctl(command, two_problems, "--mnk", "8x8x8", *options)
    assert done.returncode == 0
    assert list(dict.fromkeys(names(done.stdout))) == ["one", "two", "8x8x8"]


def test_the_arrow_of_the_table_may_be_written_too(gemmctl: Command) -> None:
    done = gemmctl("plan", "--mnk", "8x8x8", "--dtype", "bf16->f32")
    assert done.stdout.splitlines()[1].split()[2] == "bf16->f32"


def test_very_many_shapes_make_a_short_name(gemmctl: Command) -> None:
    shapes = [word for m in range(8, 88, 8) for word in ("--mnk", f"{m}x128x64")]
    assert names(gemmctl("plan", *shapes).stdout) == ["8x128x64+9-more"]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ((), "name a problem list, @NAME for one that ships, or a shape with --mnk"),
        (("--mnk", "8x8"), "--mnk: '8x8' is no shape; write MxNxK"),
        (("--mnk", "8x8x-1"), "--mnk: '8x8x-1' is no shape"),
        (("--mnk", "8x8x8:0"), "--mnk:6:31: count must be an integer from 1"),
        (("--mnk", "8x8x64", "--dtype", "f32"), "--mnk:4:14: no kernel multiplies f32"),
        (("--mnk", "8x8x8", "--dtype", "bf61"), "did you mean 'bf16'?"),
        (("--mnk", "8x8x8", "--dtype", "bf16-"), "put it in quotes"),
        (("--mnk", "8x8x8", "--dtype", ""), "--dtype: '' is no type; write bf16, or bf16:f32"),
        (("--mnk", "8x8x8", "--beta", "inf"), "beta must be"),
        (("@tiny", "--count", "2"), "--count is of the shapes of --mnk"),
        (("@tiny", "--dtype", "f16"), "--dtype is of the shapes of --mnk"),
    ],
)
def test_what_is_wrong_about_shapes_is_said(
    args: tuple[str, ...], complaint: str, gemmctl: Command
) -> None:
    done = gemmctl("plan", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


# Options and variables


def test_a_problem_is_named_before_names_are_matched(gemmctl: Command) -> None:
    groups = [{"m": 8, "n": 8, "k": 8}]
    problems = [{"name": name, "groups": groups} for name in ("a[1]", "a1", "a2")]
    text = json.dumps({"gemmctl": 1, "problems": problems})
    for only, chosen in (("a[1]", ["a[1]"]), ("a[2]", ["a2"]), ("a*", ["a[1]", "a1", "a2"])):
        done = gemmctl("plan", "-", "--only", only, stdin=text)
        assert (done.returncode, names(done.stdout)) == (0, chosen)


def completed(gemmctl: Command, words: str) -> list[str]:
    """What bash would offer behind some words, the last of which is the beginning of one."""
    done = gemmctl(
        _GEMMCTL_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
    )
    return str(done.stdout).split()


def home_files(gemmctl: Command, tmp_path: Path, *args: str) -> list[str]:
    """What a command leaves in a home of its own."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    assert gemmctl(*args, HOME=str(home)).returncode == 0
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_edge_36_completion_is_installed_for_the_shell_that_is_named(
    gemmctl: Command, tmp_path: Path
) -> None:
    assert home_files(gemmctl, tmp_path, "--install-completion", "zsh") == [".zshrc", "_gemmctl"]
    assert "compdef" in gemmctl("--show-completion", "zsh").stdout
    assert gemmctl("--install-completion", "tcsh", HOME=str(tmp_path)).returncode == 2
    without = gemmctl("--install-completion", "powershell", HOME=str(tmp_path), PATH=str(tmp_path))
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("gemmctl: there is no PowerShell here")


@pytest.mark.parametrize(
    ("home", "path", "why"),
    [("file", "file", "File exists"), ("/proc", "/proc/.zshrc", "No such file or directory")],
)
def test_completion_that_cannot_be_installed_names_the_path(
    home: str, path: str, why: str, gemmctl: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    done = gemmctl("--install-completion", "zsh", HOME=str(tmp_path / home))
    assert (done.returncode, done.stdout) == (2, "")
    told = f"cannot install completion: cannot write {tmp_path / path}: {why}; set HOME to"
    assert done.stderr.startswith(f"gemmctl: {told}")
    assert len(done.stderr.splitlines()) == 1


def test_edge_37_a_variable_that_names_no_device_is_named(gemmctl: Command) -> None:
    for command in (("run", "@tiny"), ("info",)):
        done = gemmctl(*command, GEMMCTL_DEVICE="CPU")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("gemmctl: GEMMCTL_DEVICE: there is no device 'CPU'")
    by_option = gemmctl("info", "--device", "tpu", GEMMCTL_DEVICE="cpu")
    assert "GEMMCTL_DEVICE" not in by_option.stderr


def test_edge_37_a_variable_that_names_no_cubins_is_named(gemmctl: Command) -> None:
    done = gemmctl("info", GEMMCTL_CUBINS="/nonexistent")
    assert (done.returncode, done.stdout) == (3, "")
    told = "/nonexistent (named by GEMMCTL_CUBINS): No such file or directory; unset"
    assert told in done.stderr
    assert "Errno" not in done.stderr


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("compare", "a.json", "b.json", "--fail-over", "3"), "--fail-over"),
        (("compare", "a.json", "b.json", "--fail-over", "-3%"), "--fail-over"),
        (("run", "@tiny", "--max-noise", "5"), "--max-noise"),
        (("run", "@tiny", "--max-noise", "nan%"), "--max-noise"),
    ],
)
def test_edge_38_what_is_no_percentage_names_its_option(
    args: tuple[str, ...], option: str, gemmctl: Command
) -> None:
    done = gemmctl(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Invalid value for '{option}': '{args[-1]}' is not a percentage" in done.stderr


@pytest.mark.parametrize("text", ["1", "5", "99.9999999", "100", "1e3", "inf", "-3%", "few"])
def test_what_is_suggested_instead_is_a_percentage(text: str, gemmctl: Command) -> None:
    told = gemmctl("compare", "a.json", "b.json", "--fail-over", text).stderr
    suggested = told.rstrip().rpartition("is not a percentage; write ")[2].split(" or ")
    assert suggested != [""]
    for other in suggested:
        done = gemmctl("compare", "a.json", "b.json", "--fail-over", other)
        assert done.stderr.startswith("gemmctl: cannot read a.json: ")


def test_types_that_a_chosen_kernel_lacks_are_refused_in_its_name(gemmctl: Command) -> None:
    shape = ("--mnk", "64x64x64", "--dtype", "bf16:f16")
    assert gemmctl("plan", *shape).returncode == 0
    done = gemmctl("plan", *shape, "--kernel", "64x256-px")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == (
        "--mnk:4:23: no 64x256-px writes f16 from bf16 operands; use one of bf16, f32, or leave "
        "the choice of a kernel to the plan"
    )


@pytest.mark.parametrize(("seed", "bound"), [("-1", "0"), (str(1 << 64), str((1 << 64) - 1))])
@pytest.mark.parametrize(
    "command",
    [
        ("run", "missing.yaml"),
        ("verify", "missing.yaml"),
        ("gen", "moe", "--model", "none"),
        ("gen", "lora", "--ranks", "none"),
        ("gen", "wgrad", "--weights", "none", "--tokens", "none"),
        ("gen", "random", "--m", "none"),
        ("gen", "family", "none"),
    ],
)
def test_a_seed_that_is_none_is_told_before_anything_else(
    command: tuple[str, ...], seed: str, bound: str, gemmctl: Command, tmp_path: Path
) -> None:
    done = gemmctl(*command, f"--seed={seed}")
    assert (done.returncode, done.stdout) == (2, "")
    *_, said = done.stderr.splitlines()
    assert said.startswith("Error: Invalid value for '--seed': ")
    assert said.endswith(f" than or equal to {bound}")
    assert "missing" not in said and "none" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_data_have_no_such_seed_either(seed: int) -> None:
    with pytest.raises(UsageError) as refused:
        data.DataSpec("normal", seed)
    assert str(refused.value) == f"the seed is {seed}; it must be in 0..{(1 << 64) - 1}"


def test_the_largest_seed_of_the_option_is_that_of_the_data() -> None:
    assert MAX_SEED == data.MAX_SEED


@pytest.mark.parametrize(("text", "share"), [("100%", 1.0), ("250%", 2.5), ("0.03", 0.03)])
def test_edge_38_any_percentage_is_one(
    text: str, share: float, gemmctl: Command, two_problems: Path
) -> None:
    done = gemmctl("run", two_problems, *QUICK, "--max-noise", text, "-f", "json")
    assert json.loads(done.stdout)["settings"]["max_noise"] == share


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("plan", "@tiny", "-f", "yaml"), "'-f' / '--format'"),
        (("gen", "moe", "--layer", "up"), "'--layer'"),
        (("--show-completion", "foo"), "'--show-completion'"),
    ],
)
def test_a_word_that_an_option_does_not_know_is_told_plainly(
    args: tuple[str, ...], option: str, gemmctl: Command
) -> None:
    done = gemmctl(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Invalid value for {option}: '{args[-1]}' is not one of" in done.stderr


def test_edge_39_help_is_whole_and_has_examples(gemmctl: Command) -> None:
    text = gemmctl("--help").stdout
    summaries = re.findall(r"^  [a-z]+ {2,}(.*)$", text.partition("Commands:")[2], re.MULTILINE)
    assert len(summaries) == len(COMMANDS)
    assert all(summary.endswith(".") and "..." not in summary for summary in summaries)
    assert "\n  Examples:\n    gemmctl run " in text


def test_edge_39_every_example_of_the_help_is_a_command_line_that_is_understood(
    gemmctl: Command,
) -> None:
    examples = re.findall(r"^    gemmctl (\S+) (.*)$", gemmctl("--help").stdout, re.MULTILINE)
    assert len(examples) >= 3
    for command, rest in examples:
        known = gemmctl(command, "--help").stdout
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest):
            assert re.search(rf"(^|\s){option}(\s|,)", known), option


def test_edge_39_the_usage_of_files_is_plain(gemmctl: Command) -> None:
    assert "Usage: gemmctl run [OPTIONS] [FILE]...\n" in gemmctl("run", "--help").stdout
    for command in COMMANDS:
        assert "list[str]" not in gemmctl(command, "--help").stdout


def test_edge_40_the_bar_has_no_colour_where_none_is_wanted() -> None:
    long = ("--max-noise", "0", "--runs", "1000000", "--max-time", "2", "-f", "csv")
    styled = re.compile(r"\x1b\[[0-9;]*m")
    tiny = ("run", "@tiny", *long)
    assert styled.search(on_terminal("stderr", *tiny))
    for options, env in (((), {"NO_COLOR": "1"}), (("--color", "never"), {})):
        shown = on_terminal("stderr", *tiny, *options, **env)
        assert "tiny" in shown
        assert not styled.search(shown)


def test_edge_41_values_are_completed(gemmctl: Command) -> None:
    kernels = list(dict.fromkeys(kernel.name for kernel in cubins.manifest().kernels))
    assert completed(gemmctl, "gemmctl run --kernel ") == kernels
    assert completed(gemmctl, "gemmctl run --against ") == [*baselines.BASELINES, "all"]
    assert completed(gemmctl, "gemmctl run --against cublas,torch-b") == ["cublas,torch-bmm"]
    assert completed(gemmctl, "gemmctl verify --device c") == ["cpu", "cuda"]
    assert completed(gemmctl, "gemmctl run --format js") == ["json", "jsonl"]


def test_edge_41_problems_of_the_lists_on_the_command_line_are_completed(
    gemmctl: Command, two_problems: Path
) -> None:
    assert completed(gemmctl, f"gemmctl run {two_problems} @tiny --only t") == ["two", "tiny"]
    assert completed(gemmctl, "gemmctl run missing.yaml --only t") == []
    gemmctl("run", two_problems, "-q", "-o", "a.json", *QUICK)
    assert completed(gemmctl, "gemmctl compare a.json b.json --only ") == ["one", "two"]


def test_lists_that_ship_are_completed(gemmctl: Command) -> None:
    assert completed(gemmctl, "gemmctl plan @tiny") == ["@tiny", "@tiny1k"]
    # As bash splits words, which replaces the @, too.
    assert completed(gemmctl, "gemmctl plan @ tiny") == ["@tiny", "@tiny1k"]
    assert completed(gemmctl, "gemmctl plan mine.yaml @ seed10_") == ["@seed10_tn"]
    assert len(completed(gemmctl, "gemmctl plan @")) == len(list(PROBLEMS.glob("*.yaml")))
    assert completed(gemmctl, "gemmctl plan tiny") == []  # a path, which the shell completes


def test_completion_looks_at_no_standard_input(gemmctl: Command, two_problems: Path) -> None:
    read, write = os.pipe()  # nobody writes to it: who reads waits for ever
    for words in ("gemmctl compare - --only ", "gemmctl run - --only "):
        done = subprocess.run(
            [sys.executable, "-m", "gemmctl"],
            stdin=read,
            capture_output=True,
            env=environment(_GEMMCTL_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD="4"),
            timeout=30,
            check=False,
        )
        assert done.stdout.strip() == b""
    os.close(read)
    os.close(write)


def test_edge_46_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.match(r"[\w-]+", line)[0].lower() for line in project["dependencies"]}  # type: ignore[index]
    modules = {"yaml": "pyyaml", "cuda": "cuda-python"}
    imported = {
        found
        for path in (ROOT / "gemmctl").rglob("*.py")
        for found in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
    }
    optional = {"gemmctl", "torch", "typing_extensions"}
    foreign = {name for name in imported if name not in sys.stdlib_module_names} - optional
    assert "rich" in foreign
    assert {modules.get(name, name) for name in foreign} <= declared
