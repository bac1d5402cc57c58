"""Tables: columns that know their cells, and which of them, in which order, are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gemmctl.errors import UsageError, closest, text_width

GAP = 2  # blanks between two columns
NOTHING = "-"  # the cell of what has no value

T = TypeVar("T")


class Figure(str):
    """A cell that shows a number, and the number itself, which the text rounds.

    What is put behind the text (``+``) leaves the number as it is.
    """

    number: float

    def __new__(cls, text: str, number: float) -> Figure:
        """The number is in the unit of the text."""
        made = super().__new__(cls, text)
        made.number = number
        return made

    def __add__(self, more: str) -> Figure:
        """The same number with ``more`` behind it."""
        return Figure(super().__add__(more), self.number)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: its title, and its cell for one item."""

    title: str
    cell: Callable[[T], str]
    left: bool = False  # text, which starts at the left
    verbose: bool = False  # only with -v
    rank: int = 0  # on a narrow terminal the highest leaves first; 0 stays


@dataclass(frozen=True)
class Table:
    """What is seen of some items: a row of cells for each."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[bool]  # which columns are text
    ranks: Sequence[int]  # as those of the columns

    def fitted(self, width: int) -> tuple[Table, list[str]]:
        """The table without those columns that do not fit into a terminal's; their titles."""
        widths = [max(map(_width, column)) for column in zip(self.titles, *self.rows, strict=True)]
        kept = set(range(len(widths)))
        for leaving in sorted(kept, key=lambda i: self.ranks[i], reverse=True):
            if sum(widths[i] + GAP for i in kept) - GAP <= width or not self.ranks[leaving]:
                break
            kept.remove(leaving)
        here = sorted(kept)
        table = Table(
            titles=[self.titles[i] for i in here],
            rows=[[row[i] for i in here] for row in self.rows],
            left=[self.left[i] for i in here],
            ranks=[self.ranks[i] for i in here],
        )
        return table, [title for i, title in enumerate(self.titles) if i not in kept]


@dataclass(frozen=True)
class View:
    """What a user wants to see of a table.

    ``columns`` picks some by their names, with commas between; None: all, and with ``verbose`` more
    than all. ``sort`` names a column to order the rows by, from the smallest to the largest, or the
    other way about after a ``-``; None: as they come. A name is a column's title or words of it.
    """

    verbose: bool = False
    columns: str | None = None
    sort: str | None = None

    def check(self, columns: Sequence[Column[T]]) -> None:
        """Raise UsageError if there is no such column, or more than one."""
        self._chosen(columns)
        if self.sort is not None:
            _find(columns, self.sort.removeprefix("-"))

    def order(self, columns: Sequence[Column[T]], items: Sequence[T]) -> list[T]:
        """The items as their rows are to be ordered; raises UsageError as ``check`` does."""
        if self.sort is None:
            return list(items)
        column = _find(columns, self.sort.removeprefix("-"))
        key: Callable[[str], Any] = _natural if column.left else _number

        def place(item: T) -> Any:
            cell = column.cell(item)
            return None if cell == NOTHING else key(cell)

        there = [item for item in items if place(item) is not None]
        missing = [item for item in items if place(item) is None]
        return sorted(there, key=place, reverse=self.sort.startswith("-")) + missing

    def table(self, columns: Sequence[Column[T]], items: Sequence[T]) -> Table:
        """The items' cells in the columns that are shown; raises UsageError as ``check`` does."""
        shown = self._chosen(columns)
        return Table(
            titles=[column.title for column in shown],
            rows=[[column.cell(item) for column in shown] for item in items],
            left=[column.left for column in shown],
            ranks=[column.rank if self.columns is None else 0 for column in shown],
        )

    def _chosen(self, columns: Sequence[Column[T]]) -> list[Column[T]]:
        if self.columns is not None:
            return [_find(columns, name) for name in self.columns.split(",")]
        return [column for column in columns if self.verbose or not column.verbose]


DEFAULT = View()


def _width(text: str) -> int:
    """Columns of a terminal that a text takes, or a few more."""
    return max(len(text), text_width(text))


def _find(columns: Sequence[Column[T]], name: str) -> Column[T]:
    """The column whose title is ``name``, or begins with it, or has it as a word."""
    wanted = name.strip().casefold()
    titles = [column.title.casefold() for column in columns]
    for matches in (
        [title == wanted for title in titles],
        [title.startswith(f"{wanted} ") for title in titles],
        [wanted in title.split() for title in titles],
    ):
        found = [column for column, match in zip(columns, matches, strict=True) if match]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(column.title for column in found)
            raise UsageError(f"which column is '{name}'? It may be {several}")
    near = closest(wanted, [word for title in titles for word in title.split()])
    hint = f"; did you mean '{near}'?" if near else ""
    there = ", ".join(column.title for column in columns)
    raise UsageError(f"there is no column '{name}'{hint} (columns are {there})")


def _number(cell: str) -> float | None:
    """The number that a cell shows or begins with; None of words such as n/a."""
    if isinstance(cell, Figure):
        return cell.number
    found = re.match(r"-?\d+(\.\d+)?", cell)
    return float(found[0]) if found else None


def _natural(cell: str) -> list[tuple[int, str]]:
    """Text in an order in which a2 comes before a10: of numbers, the one with more digits last."""
    parts = re.findall(r"\d+|\D+", cell)
    numbers = (part.lstrip("0") if part.isdecimal() else None for part in parts)
    return [
        (-1, part) if digits is None else (len(digits), digits)
        for part, digits in zip(parts, numbers, strict=True)
    ]
