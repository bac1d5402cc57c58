"""``gemmctl gen``: lists from a few options."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from decimal import getcontext, localcontext
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gemmctl.cli import app
from gemmctl.commands import gen as command
from gemmctl.commands.options import MAX_SEED
from gemmctl.errors import UsageError
from gemmctl.generating import listing, models
from gemmctl.generating.family import KINDS as FAMILY
from gemmctl.generating.family import family
from gemmctl.lists import reading
from gemmctl.lists.problem import Group, Problem
from support import PROBLEMS, ROOT, Command, environment, make_plans, started

KINDS = ("moe", "lora", "batched", "wgrad", "random", "sweep", "import", "family")
OWN = ("--experts", "8", "--topk", "2", "--n", "256", "--k", "128")  # in place of a model


def made(*args: str, stdin: str = "") -> str:
    """What ``gemmctl gen`` prints."""
    done = CliRunner().invoke(app, ["gen", *args], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def problems(text: str) -> list[Problem]:
    return reading.load(["-"], io.StringIO(text))


def problems_of(texts: Iterable[str]) -> list[Problem]:
    return [problem for text in texts for problem in problems(text)]


def groups(*args: str, stdin: str = "") -> tuple[Group, ...]:
    """The groups of the one problem that ``gemmctl gen`` prints."""
    (found,) = problems(made(*args, stdin=stdin))
    return found.groups


def shapes(*args: str, stdin: str = "") -> list[tuple[int, int, int]]:
    return [(group.m, group.n, group.k) for group in groups(*args, stdin=stdin)]


# The same bytes everywhere


def test_a_list_says_what_made_it_and_what_it_is() -> None:
    given = "moe", *OWN, "--tokens", "5", "--ep", "2", "--rank", "1", "--seed", "3"
    command, *lines = made(*given).splitlines()
    whole = (*given[:-2], "--routing", "uniform", "--pass", "forward", "--dtype", "bf16")
    assert command == " ".join(("# gemmctl gen", *whole, *given[-2:]))
    assert lines == [
        "# Experts with 256 x 128 weights, forward: 5 tokens choose 2 of 8 experts, uniform.",
        "# Rank 1 of 2 has 4 of them with 4 rows, 0 to 2 an expert, max/mean 2.00, 1 empty.",
        "gemmctl: 1",
        "problems:",
        "  - name: moe-8x256x128-t5-uniform-r1of2",
        "    defaults: {a: bf16, b: bf16, d: bf16, n: 256, k: 128}",
        "    groups:",
        "      - {m: 1}",
        "      - {m: 2}",
        "      - {m: 1}",
        "      - {m: 0}",
    ]


# Whoever changes one of these changes every list that was ever made so: never for a new version.
BYTES = {
    "moe --model deepseek-v3 --tokens 4096 --ep 8 --routing zipf:1.2 --seed 7": "4b79e3c3179462d4",
    "moe --model kimi-k2 --layer down --tokens 999 --routing lognormal:0.8": "1aaee2abd396fb68",
    "moe --model qwen3-next --tokens 64 --routing hot:16 --pass dgrad": "2469f5da4d1d1a82",
    "moe --model glm-5 --tokens 64 --pass wgrad --seed 12345678901234567890": "da0ce731355155ad",
    "lora --adapters 100 --tokens 5000 --routing zipf:0.9 --layer up": "79437e4541d5005a",
    "batched --mnk 512x1536x96 --count 64": "88e060fc8229042c",
    "wgrad --weights 4096x7168:4 --weights 2048x768 --tokens 700:1300 --seed 1": "80c7a4c214c6a6e4",
    "random --groups 50 --m 0:300 --align 64x8x16 --dtype bf16,f16:f32": "8d22b147cc775892",
    "random --groups 300 --m 1:100000 --n 8 --k 16:4096 --log-uniform": "19c684632c4bf1d8",
    "sweep --m 1:4096 --n 4096 --k 7168 --count 8": "8969b1977993d09e",
}  # fmt: skip


@pytest.mark.parametrize("args", BYTES)
def test_a_command_makes_the_bytes_that_it_always_made(args: str) -> None:
    assert hashlib.sha256(made(*args.split()).encode()).hexdigest()[:16] == BYTES[args]


@pytest.mark.parametrize("args", BYTES)
def test_the_precision_of_decimals_elsewhere_in_the_process_does_not_matter(args: str) -> None:
    with localcontext():
        getcontext().prec = 3
        assert hashlib.sha256(made(*args.split()).encode()).hexdigest()[:16] == BYTES[args]


def test_the_help_promises_how_rows_are_spread_of_experts_alone(gemmctl: Command) -> None:
    for args in TAKES:
        comments = [line for line in made(*args.split(), stdin="8 8 8").splitlines() if "#" in line]
        assert ("max/mean" in " ".join(comments)) == args.startswith("moe ")
    told = " ".join(gemmctl("gen", "--help").stdout.split())
    assert "one of experts (moe), too, how unevenly rows are spread, and how many have none" in told
    assert told.count("unevenly") == 1


def test_another_seed_makes_another_list() -> None:
    assert len({made("moe", *OWN, "--tokens", "99", "--seed", f"{seed}") for seed in range(5)}) == 5


@cache
def lists(seed: int = 0) -> dict[str, str]:
    """The texts of a family."""
    return {name: listing.text(request) for name, request in family(seed)}


@pytest.mark.parametrize("kind", FAMILY)
def test_the_command_in_a_list_makes_that_list(kind: str) -> None:
    for number in range(1, FAMILY[kind][0] + 1):
        text = lists()[f"{kind}-{number:03}"]
        line = text.splitlines()[0]
        assert line.startswith(listing.BEGINNING)
        assert made(*shlex.split(line)[3:]) == text


def test_the_command_in_a_list_of_the_last_seed_is_taken() -> None:
    _, request = next(family(MAX_SEED))
    text = listing.text(request)
    assert made(*shlex.split(text.splitlines()[0])[3:]) == text


@pytest.mark.parametrize("name", ["null", "True", "it's", "a: b", "# c", "1e3", "[d]", "é"])
def test_a_name_is_read_as_it_was_given(name: str) -> None:
    (problem,) = problems(made("batched", "--mnk", "8x8x8", "--name", name))
    assert problem.name == name


def test_a_list_may_have_as_many_groups_as_a_problem_may() -> None:
    assert "{m: 8, n: 8, k: 8, count: 1048576}" in made("batched", "--mnk", "8x8x8:1048576")


def test_a_list_can_be_piped_into_run(gemmctl: Command) -> None:
    listed = gemmctl("gen", "moe", *OWN, "--tokens", "16", "--name", "mine")
    assert (listed.returncode, listed.stderr) == (0, "")
    done = gemmctl("run", "-", "-f", "json", "--max-time", "0", stdin=listed.stdout)
    (one,) = json.loads(done.stdout)["problems"]
    assert (one["name"], sum(group["count"] for group in one["groups"])) == ("mine", 8)


# Experts


def test_a_model_has_the_shapes_of_its_layers() -> None:
    for layer, shape in (("gate_up", (4096, 7168)), ("down", (7168, 2048))):
        found = shapes("moe", "--model", "deepseek-v3", "--layer", layer, "--tokens", "8")
        assert {(n, k) for _, n, k in found} == {shape}
        assert len(found) == 256


@pytest.mark.parametrize("name", models.models())
def test_every_model_says_where_its_numbers_stand(name: str) -> None:
    model = models.find(name)
    assert re.fullmatch(r"[\w.-]+/[\w.-]+, config\.json(, \w+)?: \w+(, \w+){3}", model.source)
    assert 1 <= model.top_k < model.experts
    assert not model.hidden % 32
    assert not model.intermediate % 32


def test_the_ranks_have_all_tokens_of_all_experts_between_them() -> None:
    options = ("moe", "--model", "qwen3-30b-a3b", "--tokens", "300", "--routing", "zipf:1")
    whole = shapes(*options)
    parts = [shapes(*options, "--ep", "4", "--rank", f"{rank}") for rank in range(4)]
    assert [shape for part in parts for shape in part] == whole
    assert sum(m for m, _, _ in whole) == 300 * 8


def test_the_comment_has_rows_evenness_and_empty_experts() -> None:
    text = made("moe", "--model", "mixtral-8x7b", "--routing", "counts:-", stdin="0 3 0 9 2 1 1 0")
    assert "tokens of 8 experts as counted." in text
    assert "has 8 of them with 16 rows, 0 to 9 an expert, max/mean 4.50, 3 empty." in text


def test_dgrad_reads_weights_as_the_forward_pass_stores_them() -> None:
    forward, dgrad = (
        groups("moe", *OWN, "--tokens", "9", "--pass", which) for which in ("forward", "dgrad")
    )
    for y, dx in zip(forward, dgrad, strict=True):
        assert (dx.m, dx.n, dx.k) == (y.m, y.k, y.n)
        assert (y.b_layout, y.ldb) == ("col", 128)  # 256 rows of 128
        assert (dx.a_layout, dx.b_layout, dx.d_layout, dx.ldb) == ("row", "row", "row", 128)


def test_wgrad_sums_over_tokens_into_float32_in_place() -> None:
    forward, wgrad = (
        groups("moe", *OWN, "--tokens", "9", "--pass", which) for which in ("forward", "wgrad")
    )
    for y, dw in zip(forward, wgrad, strict=True):
        assert (dw.m, dw.n, dw.k) == (y.n, y.k, y.m)
        assert (dw.a_layout, dw.b_layout, dw.d_layout) == ("col", "row", "row")
        assert (dw.d, dw.beta, dw.inplace) == ("f32", 1, True)


def test_swiglu_multiplies_silu_of_half_the_columns_by_the_others() -> None:
    forward, gated = (groups("moe", *OWN, "--tokens", "9", *more) for more in ([], ["--swiglu"]))
    for y, half in zip(forward, gated, strict=True):
        assert (half.m, half.n, half.k) == (y.m, y.n, y.k)
        assert (half.activation, half.gate, half.d_columns) == ("silu", "halves", 128)


def test_counts_may_be_text_json_or_npy(tmp_path: Path) -> None:
    tokens = [3, 0, 5, 1, 1, 2, 0, 4]
    (tmp_path / "a.txt").write_text("# of a router\n3 0 5\n1, 1, 2\n0;4\n")
    (tmp_path / "a.json").write_text(json.dumps(tokens))
    np.save(tmp_path / "a.npy", np.array(tokens, np.int32))
    for name in ("a.txt", "a.json", "a.npy"):
        found = shapes("moe", *OWN, "--routing", f"counts:{tmp_path / name}")
        assert [m for m, _, _ in found] == tokens


# Other kinds


def test_adapters_are_narrow_on_one_side() -> None:
    options = ("lora", "--adapters", "40", "--tokens", "500", "--ranks", "8,64", "--hidden", "512")
    down, up = (shapes(*options, "--layer", layer) for layer in ("down", "up"))
    assert {(n, k) for _, n, k in down} == {(8, 512), (64, 512)}
    assert up == [(m, k, n) for m, n, k in down]
    assert sum(m for m, _, _ in down) == 500


def test_adapters_that_no_token_goes_through_are_counted_as_empty() -> None:
    options = ("lora", "--adapters", "40", "--tokens", "30")
    empty = [m for m, _, _ in shapes(*options)].count(0)
    assert empty >= 10  # 30 tokens at most have one each
    told = " ".join(made(*options).replace("\n# ", " ").split())
    assert re.search(rf", {empty} empty\. ", told)


def test_batched_takes_shapes_as_run_does() -> None:
    found = shapes("batched", "--mnk", "1x2x3", "--mnk", "4x5x6:3", "--count", "2")
    assert found == [(1, 2, 3)] * 2 + [(4, 5, 6)] * 3


def test_gradients_of_dense_weights_draw_their_tokens_from_a_range() -> None:
    found = groups("wgrad", "--weights", "64x32:50", "--weights", "8x16", "--tokens", "100:110")
    assert {(group.m, group.n) for group in found[:50]} == {(64, 32)}
    assert (found[50].m, found[50].n) == (8, 16)
    assert {group.k for group in found} == set(range(100, 111))
    assert all(
        (g.a_layout, g.b_layout, g.d, g.inplace) == ("col", "row", "f32", True) for g in found
    )


def test_random_sizes_lie_in_their_ranges_and_are_aligned() -> None:
    options = ("--groups", "400", "--m", "10:20", "--n", "30:100", "--k", "1:64")
    found = shapes("random", *options, "--align", "1x16x8")
    assert {m for m, _, _ in found} == set(range(10, 21))
    assert {n for _, n, _ in found} == {32, 48, 64, 80, 96}
    assert {k for _, _, k in found} == set(range(8, 65, 8))


def test_one_alignment_is_that_of_m_n_and_k() -> None:
    options = ("--groups", "100", "--m", "1:64", "--n", "1:64", "--k", "1:64")
    for sizes in zip(*shapes("random", *options, "--align", "8"), strict=True):
        assert set(sizes) == set(range(8, 65, 8))


def test_log_uniform_sizes_are_as_often_small_as_large() -> None:
    found = shapes("random", "--groups", "1000", "--m", "1:4096", "--log-uniform", "--align", "1")
    assert 450 < sum(m < 64 for m, _, _ in found) < 550


def test_random_groups_draw_one_of_the_types() -> None:
    found = groups("random", "--groups", "30", "--dtype", "bf16,f16:f32")
    assert {(g.a, g.b, g.d) for g in found} == {("bf16",) * 3, ("f16", "f16", "f32")}


@pytest.mark.parametrize(
    ("sizes", "values"),
    [("1:9", [1, 2, 4, 8]), ("3:12:4", [3, 7, 11]), ("5,1,9", [5, 1, 9]), ("0:2:1", [0, 1, 2])],
)
def test_a_sweep_has_a_problem_for_each_size(sizes: str, values: list[int]) -> None:
    options = ("sweep", "--m", "7", "--n", sizes, "--k", "64", "--count", "2")
    found = problems(made(*options))
    assert [problem.name for problem in found] == [f"sweep-7x{value}x64" for value in values]
    named = problems(made(*options, "--name", "mine"))
    assert [problem.name for problem in named] == [f"mine-n{value}" for value in values]
    assert [[g.n for g in problem.groups] for problem in found] == [[n, n] for n in values]


def test_a_sweep_has_up_to_1000_problems() -> None:
    assert len(problems(made("sweep", "--m", "1:1000:1", "--n", "8", "--k", "8"))) == 1000


# Files


def test_a_list_can_be_saved_and_made_again(gemmctl: Command, tmp_path: Path) -> None:
    for count in ("1", "2"):
        options = ("--mnk", "8x8x8", "--count", count)
        done = gemmctl("gen", "batched", *options, "-o", "mine.yaml")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (tmp_path / "mine.yaml").read_text() == made("batched", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_family_is_written_whole_or_not_at_all(gemmctl: Command, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "sweep-008.yaml").write_text("mine\n")
    done = gemmctl("gen", "family", "some")
    assert (done.returncode, done.stdout) == (2, "")
    told = "it is not a generated list, and only those are replaced; choose another name"
    assert done.stderr == f"gemmctl: cannot save to some/sweep-008.yaml: {told}\n"
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["sweep-008.yaml"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "ascii"])
def test_lists_are_utf_8_whatever_the_locale_is(encoding: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gemmctl", "gen", "batched", "--mnk", "8x8x8", "--name", "éж"]
    env = environment(PYTHONIOENCODING=encoding, PYTHONUTF8="1")
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=env, check=True)
    assert done.stdout.decode() == made(*command[4:])


def test_only_a_generated_list_is_replaced(gemmctl: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("gemmctl: 1\n")
    done = gemmctl("gen", "batched", "--mnk", "8x8x8", "-o", path)
    assert done.returncode == 2
    assert "it is not a generated list, and only those are replaced" in done.stderr
    assert path.read_text() == "gemmctl: 1\n"


def test_what_would_be_refused_when_it_is_read_is_not_written(
    gemmctl: Command, tmp_path: Path
) -> None:
    request = ("gen", "sweep", "--m", "8,2000000000", "--n", "2000000000", "--k", "8")
    told = "has more than 2^62 bytes; ask for fewer or smaller groups"
    for more in ((), ("-o", tmp_path / "some.yaml")):
        done = gemmctl(*request, *more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"gemmctl: sweep-2000000000x2000000000x8 {told}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("count", "fits"), [(3, True), (4, False)])
def test_a_list_may_have_as_many_bytes_as_a_problem_may(count: int, fits: bool) -> None:
    """C and D of 2^29 by 2^29 numbers of two bytes are 2^60; A and B come on top."""
    args = ("batched", "--mnk", "536870912x536870912x8", "--count", str(count))
    if fits:
        assert len(groups(*args)) == count
    else:
        with pytest.raises(UsageError, match=r"has more than 2\^62 bytes"):
            made(*args)


# What is wrong


WRONG = {
    "moe --model deepseek-v4 --tokens 1": "there is no 'deepseek-v4' (did you mean deepseek-v3?)",
    "moe --model glm-5 --n 4 --tokens 1": "--n is the model's; leave it out, or --model",
    "moe --experts 8 --k 5 --tokens 1": "and --k; --topk --n are missing",
    "moe --experts 2 --topk 3 --n 8 --k 8 --tokens 1": "a token cannot choose 3 of 2",
    "moe --experts 2 --topk 1 --n 8 --k 8 --layer down --tokens 1": "--layer is a model's",
    "moe --model glm-5": "--tokens is missing",
    "moe --model glm-5 --tokens 1 --ep 7": "--ep: 256 experts are not shared evenly by 7",
    "moe --model glm-5 --tokens 1 --ep 8 --rank 8": "--rank: of 8 the last is 7, not 8",
    "moe --model glm-5 --tokens 1 --routing zip:1": "'zip:1' is no routing; write uniform, zipf:S",
    "moe --model glm-5 --tokens 1 --routing zipf:x": "'x' is no number for zipf; write zipf:1.2",
    "moe --model glm-5 --tokens 1 --routing zipf:21": "zipf goes up to 20, not 21",
    "moe --model glm-5 --tokens 1 --routing hot:256": "leaves none that is not hot; write hot:32",
    "moe --model glm-5 --tokens 1 --routing counts:": "'counts:' is no routing",
    "moe --model glm-5 --routing counts:nope.txt": "cannot read nope.txt: No such file",
    "moe --model glm-5 --tokens 1 --routing counts:-": "--tokens: counts:- has the tokens already",
    "moe --model glm-5 --routing counts:-": "the tokens of 2 experts, and there are 256",
    "moe --model glm-5 --tokens 1 --swiglu --pass dgrad": "--swiglu follows the gate and up",
    "moe --model glm-5 --tokens 1 --swiglu --layer down": "--swiglu follows the gate and up",
    "moe --experts 8 --topk 1 --n 9 --k 8 --tokens 1 --swiglu": "--n must be even, not 9",
    "moe --model glm-5 --routing counts:/dev/null": "/dev/null is empty; it should have tokens per",
    "moe --model glm-5 --tokens 1 --routing zipf:100": "zipf goes up to 20, not 100",
    "moe --model glm-5 --tokens 1 --routing zipf:.5": "write S of zipf as 1.2, not '.5'; at most 6",
    "moe --model glm-5 --tokens 1 --routing zipf:1.2345678": "not '1.2345678'; at most 6 digits",
    "moe --model glm-5 --tokens 1 --routing zipf:10": "zipf:10 is too uneven for 8 of 256: once ",
    "moe --model glm-5 --tokens 1 --routing lognormal:20": "; here lognormal goes up to ",
    "moe --model glm-5 --tokens 1 --routing hot:99999999": "leaves none that is not hot; write hot",
    "moe --model glm-5 --tokens 1 --routing hot:0": "H of hot must be an integer from 1 to ",
    "moe --experts 1 --topk 1 --n 8 --k 8 --tokens 1 --routing hot:1": "not hot; write uniform",
    "lora --ranks 0": "--ranks must be an integer from 1 to 2147483647, not 0",
    "lora --ranks 8,9999999999": "--ranks must be an integer from 1 to 2147483647, not 9999999999",
    "lora --ranks few": "--ranks: 'few' are no ranks; write 16, or 16,32,64",
    "lora --routing counts:-": "--routing: counts are of experts",
    "batched --mnk 8x8": "--mnk: '8x8' is no shape; write MxNxK",
    "batched --mnk 8x8x8 --dtype bf17": "--dtype: no kernel takes bf17 to bf17 with A row and B c",
    "moe --model glm-5 --tokens 1 --dtype ''": "--dtype: '' is no type; write bf16, or bf16:f32",
    "batched --mnk 8x8x8 --dtype ,": "--dtype: ',' is no type; write bf16, or bf16:f32",
    "batched --mnk 8x8x9999999999": "k of 8x8x9999999999 must be an integer from 0 to 2147483647",
    f"batched --mnk {'9' * 5000}x8x8": "--mnk: a number of 5000 digits is too long",
    "batched --mnk 8x8x8:2000000": "has 2000000 groups, and a problem at most 1048576",
    "batched --mnk 8x8x8:0": "count of 8x8x8:0 must be an integer from 1 to 1048576, not 0",
    "batched --mnk 8x8x8 --name ' x'": "can be called ' x': it has blanks around; choose a --name",
    "batched --mnk 8x8x8 --name ''": "--name: a problem needs a name of a character or more;",
    "wgrad --weights 8 --tokens 9": "--weights: '8' is no shape of weights; write NxK",
    "wgrad --weights 8x8:0 --tokens 9": "count of 8x8:0 must be an integer from 1 to 1048576",
    "wgrad --weights 8x8 --weights 4x4:0 --tokens 9": "--weights: count of 4x4:0 must be an ",
    "wgrad --weights 8x9999999999 --tokens 9": "--weights: k of 8x9999999999 must be an integer",
    "wgrad --weights 8x8:9999999 --tokens 9": "count of 8x8:9999999 must be an integer from 1 to",
    "wgrad --weights 8x8:600000 --weights 4x4:600000 --tokens 9": "has 1200000 groups, and a prob",
    "wgrad --weights 8x8 --tokens 1:4294967297": "--tokens must be an integer from 0 to 21474",
    "wgrad --weights 8x8 --tokens 9:8": "--tokens: 9 is more than 8; write 8:9",
    "random --m 1:7 --align 8": "--m: no multiple of 8 lies in 1:7",
    "random --m 0:7 --log-uniform": "--m: log-uniform sizes begin with 1 or more, not 0",
    "random --m 1:2147483648": "--m must be an integer from 0 to 2147483647, not 2147483648",
    f"random --m {'9' * 5000}": "--m: a number of 5000 digits is too long",
    "random --align 0": "--align must be an integer from 1 to 2147483647, not 0",
    "random --n few": "--n: 'few' is no size; write 128, or a range such as 64:4096",
    "random --align 8x8": "--align: '8x8' is none; write 8, or 1x8x8 for M, N and K",
    "sweep --m 1 --n 2 --k 3": "none of --m, --n and --k has several values; one has to",
    "sweep --m 1:2 --n 2,4 --k 3": "--m and --n have several values; one has to",
    "sweep --m 0:2 --n 2 --k 3": "--m: 0 doubled stays 0; begin with 1, or write 0:2:STEP",
    "sweep --m 2:1 --n 2 --k 3": "--m: 2:1 begins above its end",
    "sweep --m 1:9:0 --n 2 --k 3": "--m: the step of '1:9:0' is 0",
    "sweep --m 1:9999:1 --n 2 --k 3": "--m: 1:9999:1 has more than 1000 sizes",
    "sweep --m 1,9999999999 --n 2 --k 3": "--m must be an integer from 0 to 2147483647, not 99999",
    "sweep --m 1:9999999999 --n 2 --k 3": "--m must be an integer from 0 to 2147483647, not 99999",
    "sweep --m many --n 2 --k 3": "--m: 'many' is no row of sizes; write 64,96,128",
    "family /dev/null/x": "cannot make the folder /dev/null/x: Not a directory",
    "family ''": "cannot make the folder '': No such file or directory",
    "family -": "a family is a file a list, in a folder; write ./- for one of that name",
}  # fmt: skip


@pytest.mark.parametrize("args", WRONG)
def test_a_wrong_option_is_named_with_its_mend(args: str) -> None:
    done = CliRunner().invoke(app, ["gen", *shlex.split(args)], input="3 4")
    assert isinstance(done.exception, UsageError)
    assert done.stdout == ""
    assert WRONG[args] in str(done.exception)


def test_a_table_of_tokens_is_no_routing_of_one_layer() -> None:
    options = ("moe", "--experts", "2", "--topk", "1", "--n", "8", "--k", "8")
    given = ["gen", *options, "--routing", "counts:-"]
    done = CliRunner().invoke(app, given, input="[[3, 1], [2, 2]]")
    assert str(done.exception) == "--routing: - has 2 rows of tokens; give it one"


def test_a_family_that_is_interrupted_says_how_many_lists_are_written(tmp_path: Path) -> None:
    with started("gen", "family", tmp_path / "some", stderr=subprocess.PIPE) as process:
        while not list(tmp_path.glob("some/*.yaml")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    found = re.fullmatch(r"gemmctl: (\d+) of 140 lists are written\n", told)
    assert found
    there = len(list(tmp_path.glob("some/*.yaml")))
    assert int(found[1]) in (there - 1, there)  # one may be written that is not counted yet


@pytest.mark.parametrize("more", [(), ("--weights", "8x8")])
def test_no_weights_are_left_out_for_a_count_of_0(more: tuple[str, ...], gemmctl: Command) -> None:
    done = gemmctl("gen", "wgrad", *more, "--weights", "10x10:0", "--tokens", "64")
    told = "--weights: count of 10x10:0 must be an integer from 1 to 1048576, not 0"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gemmctl: {told}\n")


TAKES = {
    "moe --model glm-5 --tokens 9": "bf16, bf16:f16, bf16:f32, f16:bf16, f16, f16:f32",
    "moe --model glm-5 --tokens 9 --pass dgrad": "bf16, bf16:f32, f16, f16:f32",
    "moe --model glm-5 --tokens 9 --pass wgrad": "bf16, bf16:f32, f16, f16:f32",
    "wgrad --weights 8x8 --tokens 9": "bf16, bf16:f32, f16, f16:f32",
    "lora --adapters 3 --tokens 9": "bf16, bf16:f16, bf16:f32, f16:bf16, f16, f16:f32",
    "batched --mnk 8x8x8": "bf16, bf16:f16, bf16:f32, f16:bf16, f16, f16:f32",
    "random --groups 3": "bf16, bf16:f16, bf16:f32, f16:bf16, f16, f16:f32",
    "sweep --m 1:2 --n 8 --k 8": "bf16, bf16:f16, bf16:f32, f16:bf16, f16, f16:f32",
    "import -": "bf16, bf16:f16, bf16:f32, f16:bf16, f16, f16:f32",
}
WORDS = ("bf16", "f16", "f32", "bf16:f16", "f16:bf16", "bf16:f32", "f16:f32", "f32:bf16")


@pytest.mark.parametrize("args", TAKES)
def test_types_are_those_that_the_plan_takes_and_the_others_are_told_which(args: str) -> None:
    for word in WORDS:
        options = (*args.split(), "--dtype", word)
        done = CliRunner().invoke(app, ["gen", *options], input="8 8 8")
        if word in TAKES[args].split(", "):
            assert make_plans(done.stdout)
        else:
            assert isinstance(done.exception, UsageError)
            told = str(done.exception)
            assert told.startswith("--dtype: no kernel takes ")
            assert told.endswith(f"; write one of {TAKES[args]}")


def test_a_wrong_option_ends_with_exit_code_2_and_a_line(gemmctl: Command) -> None:
    done = gemmctl("gen", "lora", "--ranks", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gemmctl: --ranks must be an integer from 1 to 2147483647, not 0\n"


def test_the_limits_of_options_are_those_of_lists() -> None:
    from gemmctl.lists.fields import MAX_EXTENT, MAX_GROUPS

    assert (command.EXTENT, command.GROUPS) == (MAX_EXTENT, MAX_GROUPS)


# The family


def test_a_family_has_lists_of_every_kind_each_in_a_file(gemmctl: Command, tmp_path: Path) -> None:
    done = gemmctl("gen", "family", "lists")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = sorted(path.stem for path in (tmp_path / "lists").iterdir())
    assert found == sorted(lists())
    assert len(found) == 140
    kinds = {name.rpartition("-")[0] for name in found}
    assert kinds == {"decode", "prefill", "dgrad", "wgrad", "dense-wgrad", "lora", "batched",
                     "random", "sweep"}  # fmt: skip
    for path in (tmp_path / "lists").iterdir():
        assert path.read_text() == lists()[path.stem]


@pytest.mark.parametrize("kind", FAMILY)
def test_every_list_of_a_family_takes_10_us_to_3_ms_and_fits_a_gpu(kind: str) -> None:
    texts = [text for name, text in lists().items() if name.rpartition("-")[0] == kind]
    for problem in problems_of(texts):
        assert problem.name.startswith(kind)
        columns = problem.columns
        m, n, k = columns.m, columns.n, columns.k
        a, b, d = (columns.sizes[operand] for operand in "abd")
        stored = (a * m * k + b * k * n + 2 * d * m * n).sum()  # in place or not
        moved = (
            (m * n > 0) * (a * m * k + b * k * n) + (1 + columns.accumulates) * d * m * n
        ).sum()
        seconds = max(2 * (m * n * k).sum() / 600e12, moved / 4e12)
        assert 10e-6 <= seconds <= 3e-3
        assert stored < 40e9


def test_the_family_that_is_measured_is_the_one_that_is_made() -> None:
    saved = json.loads(lzma.decompress((ROOT / "docs" / "family-h200.json.xz").read_bytes()))
    keys = ("m", "n", "k", "a", "b", "d", "a_layout", "b_layout", "beta", "inplace")
    measured = {
        problem["name"]: [
            [group[key] for key in keys]
            for group in problem["groups"]
            for _ in range(group["count"])
        ]
        for problem in saved["problems"]
    }
    assert measured == {
        problem.name: [[getattr(group, key) for key in keys] for group in problem.groups]
        for problem in problems_of(lists().values())
    }


def test_another_seed_makes_another_family() -> None:
    assert lists(1).keys() == lists().keys()
    assert not any(text == lists()[name] for name, text in lists(1).items())


# The lists that ship


BY_HAND = (
    "ragged",
    "edge",
    "tiny",
    "accumulate",
    "epilogue",
    "layouts",
    "odd",
    "odd_k",
    "odd_ld",
    "offsets",
    "seed10",
)
SHIPPED = [path for path in sorted(PROBLEMS.glob("*.yaml")) if path.stem not in BY_HAND]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_list_is_what_its_command_prints(path: Path) -> None:
    text = path.read_text()
    text = text[text.index(listing.BEGINNING) :]
    _, _, *args = shlex.split(text.splitlines()[0], comments=False)[1:]
    (found,) = problems(text)
    # What the command read: M N K of every group, or its tokens alone.
    tokens, alone = ("k" if "wgrad" in args else "m"), "--n" in args or "counts:-" in args
    lines = [f"{getattr(g, tokens)}" if alone else f"{g.m} {g.n} {g.k}" for g in found.groups]
    assert made(*args, stdin="\n".join(lines)) == text


# The documents


def test_only_experts_are_offered_counts_of_their_tokens(gemmctl: Command) -> None:
    assert "counts:FILE" in gemmctl("gen", "moe", "--help").stdout
    assert "counts" not in gemmctl("gen", "lora", "--help").stdout


def test_the_readme_names_every_kind_and_option() -> None:
    readme = (ROOT / "README.md").read_text()
    for kind in KINDS:
        assert f"`{kind}`" in readme or f"gemmctl gen {kind}" in readme
        told = CliRunner().invoke(app, ["gen", kind, "--help"]).stdout
        for option in re.findall(r"--[a-z][a-z-]*", told):
            assert option in readme, f"gen {kind} {option}"
