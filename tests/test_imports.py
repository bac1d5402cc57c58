"""The order of the packages, as CONTRIBUTING.md has it: imports only point up its table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import ROOT

PACKAGE = ROOT / "gemmctl"
TABLE = (ROOT / "CONTRIBUTING.md").read_text()
ORDER = re.findall(r"^\| `(\w+)/` \|", TABLE, re.MULTILINE)


def imported(path: Path) -> Iterator[str]:
    """The packages and modules of gemmctl that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = node.module.split(".")
            if whole[0] == "gemmctl":
                yield from [whole[1]] if len(whole) > 1 else [alias.name for alias in node.names]


def test_the_table_has_every_package() -> None:
    assert sorted(ORDER) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("name", ORDER)
def test_a_package_imports_only_those_above_it(name: str) -> None:
    allowed = {*ORDER[: ORDER.index(name) + 1], "errors", "__version__"}
    for path in (PACKAGE / name).rglob("*.py"):
        assert set(imported(path)) <= allowed, path
