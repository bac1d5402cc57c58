from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmctl.errors import UsageError
from gemmctl.showing import saved
from gemmctl.showing.formats import Report

REPORT = Report(
    head={"format": saved.FORMAT, "command": "run", "device": {"name": "a gpu"}},
    items="problems",
    records=[{"name": "one", "samples_s": [1.5]}],
    titles=[],
    rows=[],
    left=[],
)


def test_a_saved_run_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    saved.save(REPORT, str(path))
    loaded = saved.load(str(path))
    assert loaded.problems == {"one": {"name": "one", "samples_s": [1.5]}}
    assert loaded.head["device"] == {"name": "a gpu"}


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    saved.check_writable(str(path))
    saved.save(REPORT, str(path))
    assert saved.load(str(path)).problems
    assert list(tmp_path.iterdir()) == [path]


def test_saving_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    link, path = tmp_path / "link.json", tmp_path / "run.json"
    link.symlink_to(path)
    saved.save(REPORT, str(link))
    assert link.is_symlink()
    assert saved.load(str(path)).problems


@pytest.mark.parametrize("place", ["missing/run.json", "file/run.json", ".", "/dev/null"])
def test_a_place_that_cannot_be_saved_to_is_told_beforehand(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot save to"):
        saved.check_writable(str(tmp_path / place))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("not json", "is not JSON"),
        ("[]", "is not a saved run"),
        ('{"command": "plan"}', "is not a saved run"),
        ('{"command": "run", "format": 1, "name": "a line of jsonl"}', "is not a saved run"),
        ('{"command": "run", "format": 99, "problems": []}', "has format 99"),
    ],
)
def test_what_is_no_saved_run_is_refused(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        saved.load(str(path))


def test_a_file_without_write_permission_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.touch(mode=0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anything
    with pytest.raises(UsageError, match="no write permission"):
        saved.check_writable(str(path))
