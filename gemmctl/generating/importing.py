"""Lists of other tools, and tokens per expert as routers log them, made into problems.

What a file is, is seen from its contents: an array of numpy, shapes of CUTLASS's profiler
(``[1024x1024x128][16x8x8]``) or of its examples (``0 256x512x128``), lines ``M N K``, JSON or YAML
with numbers, or matmuls as hipBLASLt logs them and hipblaslt-bench reads them.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gemmctl.errors import ListError, UsageError, cut
from gemmctl.generating import hipblaslt
from gemmctl.generating.listing import SIZES, Group, Made, Value, element_types, extents, sized
from gemmctl.generating.source import EXPECTED, NPY, TOKENS, Source, keyed, refuse, size
from gemmctl.lists import yamlfile
from gemmctl.lists.fields import FIELDS
from gemmctl.lists.reading import REPORT, is_report, said
from gemmctl.lists.yamlfile import Node

SHAPE = r"(\d+)[xX](\d+)[xX](\d+)"
LIST = "a list of numbers, of [M, N, K], or of objects such as {m: 128, n: 256, k: 64}"
IF_TOKENS = "if they are tokens per expert, give --n and --k"


@dataclass(frozen=True)
class Import:
    """A list from a file; with n and k, its numbers are tokens per expert."""

    file: Source
    n: int | None
    k: int | None
    dtype: str
    name: str | None

    kind: ClassVar[str] = "import"

    def made(self) -> tuple[Made, ...]:
        """A problem, or one for each row or line that is one of its own.

        Raises UsageError or ListError for what is not of a form that is known.
        """
        given = element_types(self.dtype)
        if (self.n is None) != (self.k is None):
            raise UsageError("--n and --k go together: the weights of tokens per expert are n x k")
        if self.n is None or self.k is None:
            what, found = shapes(self.file, given)
            problems = [[{**given, **group} for group in groups] for groups in found]
        else:
            what, sizes = TOKENS, {"n": self.n, "k": self.k}
            rows = counts(self.file, "; leave out --n and --k")
            problems = [[given | {"m": tokens} | sizes for tokens in row] for row in rows]
        if not all(problems):
            raise UsageError(f"{self.file.called} has no numbers; it should have {EXPECTED}")
        name = self.name or ("stdin" if self.file.path == "-" else Path(self.file.path).stem)
        if len(problems) == 1:
            return (Made(name, (f"From {what}: {extents(problems[0])}.",), problems[0]),)
        about = (f"From {what}: {len(problems)} problems.",)
        return tuple(Made(f"{name}-{i}", about, groups) for i, groups in enumerate(problems, 1))


def counts(source: Source, of_shapes: str = f", not {TOKENS}") -> list[list[int]]:
    """Tokens per expert: of a text, whatever its lines, or a list one row, of a table its rows.

    Raises UsageError or ListError for anything else; ``of_shapes`` is said of shapes.
    """
    if source.data.startswith(NPY):
        return _array(source)
    if _is_yaml(source):
        items = _items(_load(source), f"a list of {TOKENS}")
        if all(isinstance(item.value, list) for item in items):
            return [[_integer(cell) for cell in _items(item, "tokens")] for item in items]
        return [[_integer(item) for item in items]]
    found = []
    for line, text in source.lines():
        for word in re.finditer(r"[^\s,;]+", text):
            mark = source.mark(line, text, word.start())
            if re.fullmatch(rf"\[?{SHAPE}.*", word[0]):
                refuse(mark, f"this is a shape with an N and K of its own{of_shapes}")
            if not re.fullmatch(r"\d+", word[0], re.ASCII):
                refuse(mark, f"expected {TOKENS}, whole numbers, not '{cut(word[0])}'")
            found.append(size(word[0], mark))
    if not found:
        raise UsageError(f"{source.called} has no numbers; it should have {TOKENS}")
    return [found]


def shapes(source: Source, types: Mapping[str, Value]) -> tuple[str, list[list[Group]]]:
    """What a file is, and its problems: of each group m, n, k and whatever else it says.

    ``types`` are those of matmuls that have none of their own. Raises UsageError or ListError for
    what is not of a form that is known.
    """
    if source.data.startswith(NPY):
        rows = _array(source)
        if len(rows[0]) != 3:
            told = f"{source.called} has rows of {len(rows[0])} numbers, not of M, N and K"
            raise UsageError(f"{told}; {IF_TOKENS}")
        return "an array of M, N and K", [[sized(row) for row in rows]]
    if _is_yaml(source):
        node = _load(source)
        if isinstance(node.value, dict):
            refuse(node.mark, f"expected {LIST}; write out what test data expand to")
        items = _items(node, LIST)
        if all(isinstance(item.value, dict) for item in items):
            others = [item for item in items if not hipblaslt.is_matmul(item)]
            if len(others) == len(items):
                return "objects with M, N and K", [list(map(_named, items))]
            if others:
                told = "this has no key of hipBLASLt's, as others of the list have, which are "
                refuse(
                    others[0].mark, f"{told}transposed; give it its transA, or a list of its own"
                )
            return "matmuls of hipBLASLt, D transposed", [
                [hipblaslt.matmul(item, types)] for item in items
            ]
        return "rows of M, N and K", [[_row(item) for item in items]]
    if source.beginning.startswith("["):
        return "shapes of CUTLASS", list(_bracketed(source))
    groups, indexed = [], False
    for line, text in source.lines():
        found = re.fullmatch(rf"\s*(\d+\s+)?{SHAPE}\s*", text, re.ASCII)
        plain = re.fullmatch(r"\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)[\s,]*", text, re.ASCII)
        mark = source.mark(line, text, len(text) - len(text.lstrip()))
        if found:
            indexed = indexed or found[1] is not None
            groups.append(sized([size(each, mark) for each in found.groups()[1:]]))
        elif plain:
            groups.append(sized([size(each, mark) for each in plain.groups()]))
        elif negative := re.search(r"-\d+", text, re.ASCII):
            place = source.mark(line, text, negative.start())
            refuse(place, f"a size must be {FIELDS['m']}, not {cut(negative[0])}")
        elif re.fullmatch(r"[\d\s,]+", text, re.ASCII):
            told = f"expected {EXPECTED}, not {len(re.findall(r'[0-9]+', text))} numbers"
            refuse(mark, f"{told}; {IF_TOKENS}")
        elif not re.search(r"\d", text, re.ASCII):
            refuse(mark, f"expected {EXPECTED}, in numbers; take out a line that only names them")
        else:
            refuse(mark, f"expected {EXPECTED}")
    return "shapes of CUTLASS" if indexed else "lines of M, N and K", [groups]


def _is_yaml(source: Source) -> bool:
    """Whether it is JSON or YAML and not brackets of CUTLASS."""
    return bool(re.match(r"\[(?!\s*\d+[xX])|\{|-(?!\d)|[A-Za-z_]+:", source.beginning))


def _bracketed(source: Source) -> Iterator[list[Group]]:
    """A problem for each run of brackets: a line, or what commas make of it."""
    for line, text in source.lines():
        at = 0
        for part in text.split(","):
            mark = source.mark(line, text, at)
            if part.strip():
                if not re.fullmatch(rf"\s*(\[\s*{SHAPE}\s*\]\s*)+", part, re.ASCII):
                    refuse(mark, "expected [MxNxK][MxNxK]..., with commas between problems")
                yield [sized([size(each, mark) for each in found])
                       for found in re.findall(SHAPE, part)]  # fmt: skip
            at += len(part) + 1


def _array(source: Source) -> list[list[int]]:
    """The rows of an array that numpy saved; of one with one axis, one row."""
    stream = io.BytesIO(source.data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how a header came about
            array = np.load(stream, allow_pickle=False)
    except Exception as error:  # whatever numpy's parsers make of a damaged header
        known = isinstance(error, ValueError | EOFError | OSError | MemoryError)
        why = str(error).partition("\n")[0] if known else "its header is damaged"
        raise UsageError(f"{source.called} is no array that numpy can read: {why}") from None
    if stream.read(1):
        raise UsageError(f"{source.called} goes on behind its array; save one array in a file")
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or not array.size:
        shape = "x".join(map(str, array.shape)) or "one"
        told = (
            f"{source.called} holds {shape} of {array.dtype}; save integers, with one axis or two"
        )
        raise UsageError(told)
    wrong = (array < 0) | (array > FIELDS["m"].high)  # type: ignore[union-attr]
    if wrong.any():
        value = array[wrong][0]
        raise UsageError(f"{source.called} holds {value}; a size is {FIELDS['m']}")
    rows: list[list[int]] = np.atleast_2d(array).tolist()
    return rows


def _load(source: Source) -> Node:
    """A document in JSON or YAML that is not of gemmctl's own."""
    errors: yamlfile.Errors = []
    node = yamlfile.load(source.text, source.called, errors)
    if errors:
        lines = list(source.lines())
        if len(lines) > 1 and all(re.fullmatch(r"\s*[\[{].*[\]}]\s*", text) for _, text in lines):
            told = "a list or an object on every line is no list; put all of them into one"
            refuse(source.mark(*lines[1], 0), f"{told}: [..., ...]")
        raise ListError(errors)
    if isinstance(node.value, dict) and "gemmctl" in node.value:
        ours = "this is a problem list already; gemmctl run reads it"
        refuse(node.mark, REPORT if is_report(node.value) else ours)
    return node


def _items(node: Node, expected: str) -> list[Node]:
    if not isinstance(node.value, list):
        refuse(node.mark, f"expected {expected}, not {said(node.value)}")
    if not node.value:
        refuse(node.mark, "expected a list of at least one")
    return node.value


def _integer(node: Node) -> int:
    value = FIELDS["m"].read(node.value)
    if not isinstance(value, int):
        refuse(node.mark, f"expected {FIELDS['m']}, not {said(node.value)}")
    return value


def _named(node: Node) -> Group:
    """The group of a mapping with M, N and K, and a count maybe."""
    keys = (*SIZES, "count")
    group: dict[str, int] = {}
    for key, entry in keyed(node, keys).items():
        if key not in keys:
            told = f"unknown key '{cut(key)}' beside M, N and K; take it out"
            refuse(entry.key.mark, f"{told}, or write the matmul as hipBLASLt logs it")
        value = FIELDS[key].read(entry.node.value)
        if not isinstance(value, int):
            refuse(entry.node.mark, f"{entry.key.value} must be {FIELDS[key]}")
        group[key] = value
    missing = [key.upper() for key in SIZES if key not in group]
    if missing:
        refuse(node.mark, f"this object has no {' and no '.join(missing)}; add it")
    return {key: group[key] for key in keys if key in group}


def _row(node: Node) -> Group:
    if FIELDS["m"].read(node.value) is not None:
        refuse(node.mark, f"expected [M, N, K], not a number; {IF_TOKENS}")
    sizes = [_integer(cell) for cell in _items(node, "[M, N, K]")]
    if len(sizes) != 3:
        refuse(node.mark, f"expected M, N and K, not {len(sizes)} numbers; {IF_TOKENS}")
    return sized(sizes)
