"""What a generated list is made of, and its text."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from itertools import groupby
from typing import Any, ClassVar, Protocol

from gemmctl.errors import UsageError, ranged
from gemmctl.kernels import cubins
from gemmctl.lists import reading
from gemmctl.lists.fields import FIELDS, FORMAT, MAX_GROUPS, unprintable
from gemmctl.lists.shapes import types

BEGINNING = "# gemmctl gen "  # of every generated list: the command that made it
WIDTH = 98  # characters of a line of comment
SIZES = ("m", "n", "k")

Value = int | float | str | bool
Group = Mapping[str, Value]  # the keys of the list's format, a count maybe; m, n and k are there


@dataclass(frozen=True)
class Made:
    """A problem to be written, and sentences that say what it is."""

    name: str
    about: tuple[str, ...]
    groups: Sequence[Group]


class Request(Protocol):
    """The options of one kind of list, all of them said: a dataclass, a field an option.

    A field called ``file`` is the argument; a tuple is an option given as often; None, an empty
    tuple and False are options not given.
    """

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def made(self) -> tuple[Made, ...]:
        """The problems; raises UsageError for options that mean none."""


def text(request: Request) -> str:
    """The list: the command that makes it, what it is, and its problems.

    Raises UsageError for what no list can hold.
    """
    made = request.made()
    lines = ["# " + command(request)]
    for sentence in dict.fromkeys(sentence for problem in made for sentence in problem.about):
        lines += textwrap.wrap(sentence, WIDTH, initial_indent="# ", subsequent_indent="# ")
    lines += [f"gemmctl: {FORMAT}", "problems:"]
    for problem in made:
        lines += _problem(problem)
    return "\n".join(lines) + "\n"


def command(request: Request) -> str:
    """The command line that makes the list, every option said, so that no default matters.

    A shell reads it as it was given; all of it can be shown.
    """
    words = ["gemmctl", "gen", request.kind]
    for field in fields(request):
        value = getattr(request, field.name)
        option = "--" + field.name.rstrip("_").replace("_", "-")
        if field.name == "file":
            path = str(value)
            words.append(f"./{path}" if path.startswith("-") and path != "-" else path)
        elif isinstance(value, tuple):
            words += [word for each in value for word in (option, str(each))]
        elif value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, str(value)]
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word as a shell reads it; bytes of what cannot be shown stand in it as ``\\011``."""
    if word.isprintable():
        return shlex.quote(word)
    shown = (
        c.replace("\\", "\\\\").replace("'", "\\'")
        if c.isprintable()
        else "".join(f"\\{byte:03o}" for byte in os.fsencode(c))
        for c in word
    )
    return f"$'{''.join(shown)}'"


def element_types(dtype: str, a_layout: str = "row", b_layout: str = "col") -> dict[str, Value]:
    """The types of a group from ``bf16`` or ``bf16:f32``.

    Raises UsageError for what no kernel multiplies where A and B lie so.
    """
    operand, output = types(dtype)
    known = running(a_layout, b_layout)
    if (operand, output) not in known:
        words = [a if a == d else f"{a}:{d}" for a, d in known]
        told = f"--dtype: no kernel takes {operand} to {output} with A {a_layout} and B {b_layout}"
        raise UsageError(f"{told}; write one of {', '.join(words)}")
    return {"a": operand, "b": operand, "d": output}


def running(a_layout: str, b_layout: str) -> list[tuple[str, str]]:
    """The types of A (and B) and of D that some kernel multiplies where A and B lie so."""
    products = sorted(cubins.manifest().products)
    return [(operand, output) for operand, output, *lie in products if lie == [a_layout, b_layout]]


def sized(sizes: Iterable[int]) -> Group:
    """The sizes of a group: its m, n and k."""
    return dict(zip(SIZES, sizes, strict=True))


def how_many(groups: Iterable[Group]) -> int:
    """Groups in all, with those that have a count as often as it says."""
    return sum(int(group.get("count", 1)) for group in groups)


def check_count(name: str, count: int) -> None:
    """Raises UsageError if a problem of that name would have too many groups."""
    if count > MAX_GROUPS:
        told = f"{name} has {count} groups, and a problem at most {MAX_GROUPS}"
        raise UsageError(f"{told}; ask for fewer")


def extents(groups: Sequence[Group]) -> str:
    """How many groups there are and their sizes: ``64 groups of 1..300 x 4096 x 64``."""
    ranges = []
    for key in SIZES:
        low, high = (choose(group[key] for group in groups) for choose in (min, max))
        ranges.append(ranged(low, high))
    count = how_many(groups)
    return f"{'1 group' if count == 1 else f'{count} groups'} of {' x '.join(ranges)}"


def _problem(made: Made) -> Iterator[str]:
    """The lines of a problem: equal neighbours are one group with a count, and what all groups
    share goes into defaults, but for the sizes of a problem that has one shape only."""
    check_count(made.name, how_many(made.groups))
    for key in dict.fromkeys(key for group in made.groups for key in group):
        for value in dict.fromkeys(group[key] for group in made.groups if key in group):
            if FIELDS[key].read(value) is None:
                raise UsageError(f"{key} of {made.name} must be {FIELDS[key]}, not {value}")
    runs = [(group, how_many(run)) for group, run in groupby(made.groups, _without_count)]
    if sum(reading.bytes_of(group) * count for group, count in runs) > reading.MAX_BYTES:
        raise UsageError(f"{made.name} has more than 2^62 bytes; ask for fewer or smaller groups")
    first = runs[0][0]
    shared = {
        key: first[key]
        for key in (*(key for key in first if key not in SIZES), *SIZES)
        if (len(runs) > 1 or key not in SIZES)
        and all(group.get(key) == first[key] for group, _ in runs)
    }
    yield f"  - name: {_name(made.name)}"
    if shared:
        yield f"    defaults: {_flow(shared)}"
    yield "    groups:"
    for group, count in runs:
        own = {key: value for key, value in group.items() if key not in shared}
        yield f"      - {_flow(own | ({'count': count} if count > 1 else {}))}"


def _without_count(group: Group) -> Group:
    return {key: value for key, value in group.items() if key != "count"}


def _flow(mapping: Group) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(value)}" for key, value in mapping.items()) + "}"


def _scalar(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name(name: str) -> str:
    """A name as YAML reads it as text."""
    if not name.strip() or not name.isprintable() or name != name.strip():
        unseen = unprintable(name)
        why = f"{unseen} in it cannot be shown" if unseen else "it has blanks around"
        raise UsageError(f"no problem can be called {name!r}: {why}; choose a --name")
    plain = re.fullmatch(r"[A-Za-z_][\w.+-]*", name, re.ASCII)
    word = name.lower() in ("null", "true", "false")
    return name if plain and not word else "'" + name.replace("'", "''") + "'"
