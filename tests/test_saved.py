from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gemmctl.errors import UsageError
from gemmctl.showing import saved, saving
from gemmctl.showing.report import FORMAT
from gemmctl.showing.saving import Saving

HEAD = {
    "format": FORMAT,
    "command": "run",
    "cubin_sha256": "0" * 64,
    "device": {"kind": "cuda", "name": "a gpu", "driver": "580"},
    "settings": {"cache": "cold", "data": {"kind": "normal", "seed": 0}},
}


def problem(name: str, *samples: Any) -> dict[str, Any]:
    return {"name": name, "groups": [{"m": 1, "count": 1}], "samples_s": list(samples or (1.5,))}


def save(path: Path, *names: str, of: int | None = None) -> None:
    """A run of that many problems, less those that it has no names of."""
    missing = [f"missing{i}" for i in range((of or len(names)) - len(names))]
    file = Saving(str(path), HEAD, [*names, *missing])
    for name in names:
        file.add(problem(name))


def test_a_saved_run_comes_back_whole(tmp_path: Path) -> None:
    save(tmp_path / "run.json", "one", "two")
    loaded = saved.load(str(tmp_path / "run.json"))
    assert loaded.problems == {"one": problem("one"), "two": problem("two")}
    assert loaded.head == {**HEAD, "complete": True, "problem_count": 2, "unmeasured": []}


def test_every_finished_problem_is_there_at_once_and_the_file_says_that_more_are_to_come(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.json"
    file = Saving(str(path), HEAD, ["one", "two"])
    assert not path.exists()
    file.add(problem("one"))
    loaded = saved.load(str(path))
    assert list(loaded.problems) == ["one"]
    assert (loaded.head["complete"], loaded.total) == (False, 2)
    assert loaded.unmeasured == ["two"]
    assert file.left() == f"; {path} holds 1 of 2, and --resume goes on with it"


def test_going_on_with_a_run_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save(path, "one", of=2)
    file = Saving(str(path), HEAD, ["one", "missing0"], saved.load(str(path)))
    file.add(problem("missing0"))
    loaded = saved.load(str(path))
    assert list(loaded.problems) == ["one", "missing0"]
    assert loaded.head["complete"]


@pytest.mark.parametrize("names", [["one"], ["three"]])
def test_what_a_run_lacked_is_lacking_still_when_others_are_measured(
    names: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    save(path, "one", of=2)
    file = Saving(str(path), HEAD, names, saved.load(str(path)))
    for name in {*names} - {"one"}:
        file.add(problem(name))
    loaded = saved.load(str(path))
    assert (loaded.head["complete"], loaded.unmeasured) == (False, ["missing0"])
    assert loaded.total == len({"one", "missing0", *names})


def test_a_file_that_something_else_has_written_to_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    first, second = (Saving(str(path), HEAD, [name, "more"]) for name in ("one", "two"))
    first.add(problem("one"))
    with pytest.raises(UsageError, match="something else has written to it meanwhile"):
        second.add(problem("two"))
    assert list(saved.load(str(path)).problems) == ["one"]
    path.unlink()  # of what is gone nothing can be lost
    first.add(problem("more"))
    assert list(saved.load(str(path)).problems) == ["one", "more"]


def test_a_run_that_an_editor_put_a_mark_before_is_read(tmp_path: Path) -> None:
    save(tmp_path / "run.json", "one")
    text = (tmp_path / "run.json").read_text()
    assert list(load(tmp_path, "\ufeff" + text).problems) == ["one"]


def test_a_run_that_goes_on_with_more_problems_is_not_complete_before_they_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.json"
    save(path, "one")
    assert saved.load(str(path)).head["complete"]
    Saving(str(path), HEAD, ["one", "two"], saved.load(str(path)))
    loaded = saved.load(str(path))
    assert list(loaded.problems) == ["one"]
    assert (loaded.head["complete"], loaded.total) == (False, 2)


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    save(path, "old")
    saving.check(str(path))
    save(path, "new")
    assert list(saved.load(str(path)).problems) == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_saving_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    link, path = tmp_path / "link.json", tmp_path / "run.json"
    link.symlink_to(path)
    save(link, "one")
    assert link.is_symlink()
    assert saved.load(str(path)).problems


def test_what_is_interrupted_while_it_saves_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    save(path, "one")

    def interrupt(*paths: str) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(SystemExit):
        save(path, "two")
    assert list(saved.load(str(path)).problems) == ["one"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["missing/run.json", "file/run.json", ".", "/dev/null"])
def test_a_place_that_cannot_be_saved_to_is_told_beforehand(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot save to"):
        saving.check(str(tmp_path / place))


def test_an_empty_file_may_be_saved_to(tmp_path: Path) -> None:
    path = tmp_path / "run.json"  # as mktemp leaves it
    path.touch()
    saving.check(str(path))


def test_a_run_of_an_older_format_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{\n "format": 1,\n "command": "run",\n')
    saving.check(str(path))


def test_a_file_without_write_permission_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.touch(mode=0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anything
    with pytest.raises(UsageError, match="no write permission"):
        saving.check(str(path))


# Reading


def load(tmp_path: Path, content: str) -> saved.Saved:
    path = tmp_path / "run.json"
    path.write_text(content)
    return saved.load(str(path))


def document(**changes: Any) -> dict[str, Any]:
    whole = {**HEAD, "problems": [problem("tiny")], **changes}
    return {key: value for key, value in whole.items() if value is not ...}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("not json", r"is not JSON \(line 1, column 1: Expecting value\)"),
        ("", "is empty"),
        ('{"command": "run"}\n{"command": "ru', r"is not JSON \(line 2, column 13: "),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a saved run"),
        ('{"command": "plan"}', "is not a saved run"),
        ('{"command": "run", "format": 99, "problems": []}', "has format 99"),
        ('{"command": "run", "format": [], "problems": []}', r"has format \[\]"),
        ('{"command": "run", "format": true, "problems": []}', "has format true"),
        ('{"command": "run", "problems": []}', "has format null"),
    ],
)
def test_what_is_no_saved_run_is_refused(content: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(tmp_path, content)


@pytest.mark.parametrize("key", ["cubin_sha256", "device", "settings"])
def test_a_run_that_lacks_what_every_run_has_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"run\.json has no {key}$"):
        load(tmp_path, json.dumps(document(**{key: ...})))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"device": {"kind": "cpu"}}, "run.json: device has no name"),
        ({"device": "cpu"}, 'run.json has "cpu" as its device'),
        ({"settings": {"cache": "cold"}}, "run.json: settings has no data"),
        ({"problem_count": True}, "run.json has true as its problem_count"),
        ({"problem_count": "3"}, 'run.json has "3" as its problem_count'),
        ({"unmeasured": "one"}, 'run.json has "one" as its unmeasured'),
        ({"unmeasured": ["one", 2]}, "run.json has 2 in unmeasured, not a name"),
        ({"problems": [{**problem("a"), "telemetry": [{}]}]}, "'a': telemetry has no sm_hz"),
        ({"problems": None}, "run.json has null as its problems"),
        ({"problems": [None]}, "run.json: problem 1 is null, not a mapping"),
        ({"problems": [{}]}, "run.json: problem 1 has no name"),
        ({"problems": [{"name": "a"}]}, "run.json: problem 'a' has no groups"),
        ({"problems": [problem("a"), problem("a")]}, "run.json: there are two problems 'a'"),
        ({"problems": [{"name": "a", "groups": [], "samples_s": 1}]}, "has 1 as its samples_s"),
    ],
)
def test_what_is_wrong_in_a_run_is_named_with_its_place(
    changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path, json.dumps(document(**changes)))
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    "sample",
    ["NaN", "Infinity", "-1e-6", '"1e-6"', "null", "true", "1" * 400, "1.7e308", "5e-324"],
)
def test_a_sample_that_is_no_time_is_refused(sample: str, tmp_path: Path) -> None:
    text = json.dumps(document()).replace("1.5", sample)
    with pytest.raises(UsageError, match=r"problem 'tiny' has .* in samples_s, which is no time"):
        load(tmp_path, text)


def test_lines_of_jsonl_are_one_run(tmp_path: Path) -> None:
    lines = [json.dumps({**HEAD, **problem(name)}) for name in ("one", "two")]
    loaded = load(tmp_path, "\n".join(lines) + "\n")
    assert list(loaded.problems) == ["one", "two"]
    assert loaded.head == HEAD
    assert loaded.total == 2


def test_one_line_of_jsonl_is_a_run_of_one_problem(tmp_path: Path) -> None:
    assert list(load(tmp_path, json.dumps({**HEAD, **problem("one")})).problems) == ["one"]


def test_lines_of_two_runs_are_refused(tmp_path: Path) -> None:
    other = {**HEAD, "device": {"kind": "cpu", "name": "a cpu", "driver": None}}
    lines = [json.dumps({**head, **problem(name)}) for head, name in ((HEAD, "a"), (other, "b"))]
    with pytest.raises(UsageError, match="line 2 is of another run than line 1: its device"):
        load(tmp_path, "\n".join(lines))
