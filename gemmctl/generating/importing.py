"""Lists of other tools, and tokens per expert as routers log them, made into problems.

What a file is, is seen from its contents: an array of numpy, shapes of CUTLASS's profiler
(``[1024x1024x128][16x8x8]``) or of its examples (``0 256x512x128``), lines ``M N K``, JSON or YAML
with numbers, or matmuls as hipBLASLt logs them and hipblaslt-bench reads them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn

import numpy as np

from gemmctl.errors import ListError, Mark, UsageError
from gemmctl.generating.listing import Group, Made, element_types, extents
from gemmctl.lists import yamlfile
from gemmctl.lists.fields import FIELDS
from gemmctl.lists.yamlfile import Node

NPY = b"\x93NUMPY"  # how an array that numpy saved begins
SHAPE = r"(\d+)[xX](\d+)[xX](\d+)"
_BRACKETS = rf"(?:\[\s*{SHAPE.replace('(', '(?:')}\s*\])+"
EXPECTED = "M N K, MxNxK, INDEX MxNxK, or [MxNxK][MxNxK]..."

# hipBLASLt's names of types.
TYPES = {"f16_r": "f16", "bf16_r": "bf16", "f32_r": "f32", "f8_r": "e4m3", "bf8_r": "e5m2"}
# Keys of a matmul that change what is computed, and have no counterpart here: what leaves it alone.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "function": ("matmul",), "activation_type": ("none",), "bias_vector": (False, 0),
    "gradient": (False, 0), "use_e": (False, 0), "scaleA": (False, 0), "scaleB": (False, 0),
    "scaleC": (False, 0), "scaleD": (False, 0), "scaleAlpha_vector": (False, 0),
    "swizzleA": (False, 0), "swizzleB": (False, 0),
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A file's bytes, and its path as it was given; ``-`` is standard input."""

    path: str
    data: bytes

    def __str__(self) -> str:
        return self.path

    @property
    def called(self) -> str:
        """What errors call it."""
        return "<stdin>" if self.path == "-" else self.path

    @property
    def text(self) -> str:
        """Its text; what is not UTF-8 becomes a character that no list has."""
        return self.data.decode(errors="replace").removeprefix("\ufeff")


def read(path: str, stdin: BinaryIO) -> Source:
    """The file at a path; raises UsageError if it cannot be read or is empty."""
    try:
        data = stdin.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; check the path") from None
    source = Source(path, data)
    if not data.strip():
        raise UsageError(f"{source.called} is empty; it should have {EXPECTED}, or tokens")
    return source


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
            what, found = shapes(self.file)
            problems = [[{**given, **group} for group in groups] for groups in found]
        else:
            what, sizes = "tokens per expert", {"n": self.n, "k": self.k}
            problems = [
                [given | {"m": tokens} | sizes for tokens in row] for row in counts(self.file)
            ]
        name = self.name or ("stdin" if self.file.path == "-" else Path(self.file.path).stem)
        if len(problems) == 1:
            return (Made(name, (f"From {what}: {extents(problems[0])}.",), problems[0]),)
        about = (f"From {what}: {len(problems)} problems.",)
        return tuple(Made(f"{name}-{i}", about, groups) for i, groups in enumerate(problems, 1))


def counts(source: Source) -> list[list[int]]:
    """Tokens per expert: of a text or a list one row, of a table a row for each of its own.

    Raises UsageError or ListError for anything else.
    """
    if source.data.startswith(NPY):
        return _array(source)
    if _is_yaml(source.text):
        node = _load(source)
        items = _items(node)
        if all(isinstance(item.value, list) for item in items):
            return [[_integer(cell) for cell in _items(item)] for item in items]
        return [[_integer(item) for item in items]]
    found = []
    for line, text in _lines(source):
        for word in re.finditer(r"[^\s,;]+", text):
            mark = Mark(source.called, line, word.start() + 1, text)
            if re.fullmatch(rf"\[?{SHAPE}.*", word[0]):
                _refuse(mark, "this is a shape with an N and K of its own; leave out --n and --k")
            if not re.fullmatch(r"\d+", word[0], re.ASCII):
                _refuse(mark, f"expected tokens per expert, whole numbers, not '{word[0]}'")
            found.append(_size(int(word[0]), mark))
    return [found]


def shapes(source: Source) -> tuple[str, list[list[Group]]]:
    """What a file is, and its problems: of each group m, n, k and whatever else it says.

    Raises UsageError or ListError for what is not of a form that is known.
    """
    if source.data.startswith(NPY):
        return "an array of M, N and K", [
            [
                _group(_three(row, f"{source.called}: row {i}"))
                for i, row in enumerate(_array(source))
            ]
        ]
    if _is_yaml(source.text):
        items = _items(_load(source))
        if all(isinstance(item.value, dict) for item in items):
            return "matmuls of hipBLASLt, D transposed", [_matmul(item) for item in items]
        return "rows of M, N and K", [[_row(item) for item in items]]
    if re.match(r"\s*\[", source.text):
        return "shapes of CUTLASS", list(_bracketed(source))
    groups, indexed = [], False
    for line, text in _lines(source):
        found = re.fullmatch(rf"\s*(\d+\s+)?{SHAPE}\s*", text, re.ASCII)
        plain = re.fullmatch(r"\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)[\s,]*", text, re.ASCII)
        mark = Mark(source.called, line, len(text) - len(text.lstrip()) + 1, text)
        if found:
            indexed = indexed or found[1] is not None
            groups.append(_group([_size(int(size), mark) for size in found.groups()[1:]]))
        elif plain:
            groups.append(_group([_size(int(size), mark) for size in plain.groups()]))
        elif re.fullmatch(r"[\d\s,]+", text, re.ASCII):
            told = f"expected {EXPECTED}, not {len(re.findall(r'[0-9]+', text))} numbers"
            _refuse(mark, f"{told}; if they are tokens per expert, give --n and --k")
        else:
            _refuse(mark, f"expected {EXPECTED}")
    return "shapes of CUTLASS" if indexed else "lines of M, N and K", [groups]


def _is_yaml(text: str) -> bool:
    """Whether it is JSON or YAML and not brackets of CUTLASS."""
    return bool(re.match(r"\s*(\[(?!\s*\d+[xX])|\{|-(\s|\{)|[A-Za-z_]+:)", text))


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """The lines that are not blank or comments, counted from 1."""
    for line, text in enumerate(source.text.splitlines(), 1):
        if text.strip() and not text.lstrip().startswith("#"):
            yield line, text


def _bracketed(source: Source) -> Iterator[list[Group]]:
    """A problem for each run of brackets: a line, or what commas make of it."""
    for line, text in _lines(source):
        at = 0
        for part in text.split(","):
            mark = Mark(source.called, line, at + 1, text)
            if part.strip():
                if not re.fullmatch(_BRACKETS, "".join(part.split()), re.ASCII):
                    _refuse(mark, "expected [MxNxK][MxNxK]..., with commas between problems")
                yield [_group([_size(int(size), mark) for size in found])
                       for found in re.findall(SHAPE, part)]  # fmt: skip
            at += len(part) + 1


def _array(source: Source) -> list[list[int]]:
    """The rows of an array that numpy saved; of one with one axis, one row."""
    try:
        array = np.load(io.BytesIO(source.data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UsageError(f"{source.called} is no array that numpy can read: {error}") from None
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
    errors: yamlfile.Errors = []
    node = yamlfile.load(source.text, source.called, errors)
    if errors:
        raise ListError(errors)
    if isinstance(node.value, dict):
        if "gemmctl" in node.value:
            _refuse(node.mark, "this is a problem list already; gemmctl run reads it")
        _refuse(node.mark, "expected a list of numbers, of [M, N, K], or of matmuls such as "
                "{M: 128, N: 256, K: 64}; write out what test data expand to")  # fmt: skip
    return node


def _items(node: Node) -> list[Node]:
    if not isinstance(node.value, list) or not node.value:
        _refuse(node.mark, "expected a list of at least one")
    return node.value


def _integer(node: Node) -> int:
    if type(node.value) is not int:
        _refuse(node.mark, f"expected {FIELDS['m']}")
    return _size(node.value, node.mark)


def _row(node: Node) -> Group:
    if type(node.value) is int:
        _refuse(node.mark, "expected [M, N, K]; if these are tokens per expert, give --n and --k")
    where = node.mark
    sizes = [_integer(cell) for cell in _items(node)]
    if len(sizes) != 3:
        _refuse(where, f"expected M, N and K, not {len(sizes)} numbers; "
                "if they are tokens per expert, give --n and --k")  # fmt: skip
    return _group(sizes)


def _matmul(node: Node) -> list[Group]:
    """The group of a matmul of hipBLASLt, with a count if it is a batch.

    Its matrices are column-major. D transposed is row-major, the product of B and A transposed:
    m and n, A and B change places, and nothing moves in memory.
    """
    assert isinstance(node.value, dict)
    given = {key: entry.node for key, entry in node.value.items()}
    for key, neutral in NEUTRAL.items():
        if key in given and given[key].value not in neutral:
            _refuse(
                given[key].mark, f"{key} other than {neutral[0]} cannot be imported; take it out"
            )

    def word(key: str, legal: dict[str, str], default: str) -> str:
        if key not in given:
            return default
        found = given[key].value
        if not isinstance(found, str) or found not in legal:
            _refuse(given[key].mark, f"{key} must be one of {', '.join(legal)}")
        return legal[found]

    def number(ours: str, *theirs: str, default: int | None = None) -> Any:
        place = next((given[key] for key in theirs if key in given), None)
        if place is None:
            if default is None:
                _refuse(node.mark, f"this matmul has no {theirs[0]}; add it")
            return default
        if isinstance(place.value, list):
            _refuse(place.mark, f"{theirs[0]} is a list; write a matmul for each")
        if FIELDS[ours].read(place.value) is None:
            _refuse(place.mark, f"{theirs[0]} must be {FIELDS[ours]}")
        return place.value

    m, n, k = number("m", "N", "n"), number("n", "M", "m"), number("k", "K", "k")
    group: dict[str, Any] = {"m": m, "n": n, "k": k}
    for ours, theirs in zip("abcd", "bacd", strict=True):
        name = word(f"{theirs}_type", TYPES, "")
        if name:
            group[ours] = name
    # Transposed, what was column-major is row-major.
    a_layout = word("transB", {"N": "row", "T": "col"}, "row")
    b_layout = word("transA", {"N": "row", "T": "col"}, "row")
    if a_layout == "col":
        group["a_layout"] = a_layout
    if b_layout == "row":
        group["b_layout"] = b_layout
    packed = {"lda": k if a_layout == "row" else m, "ldb": n if b_layout == "row" else k,
              "ldc": n, "ldd": n}  # fmt: skip
    for (ours, length), theirs in zip(packed.items(), ("ldb", "lda", "ldc", "ldd"), strict=True):
        ld = number(ours, theirs, default=length)
        if ld != length:
            group[ours] = ld
    group |= {key: value for key, usual in (("alpha", 1), ("beta", 0))
              if (value := number(key, key, default=usual)) != usual}  # fmt: skip
    return [group | {"count": number("count", "batch_count", default=1)}]


def _three(row: list[int], where: str) -> list[int]:
    if len(row) != 3:
        told = f"{where} has {len(row)} numbers, not M, N and K"
        raise UsageError(f"{told}; if they are tokens per expert, give --n and --k")
    return row


def _group(sizes: list[int]) -> Group:
    return dict(zip("mnk", sizes, strict=True))


def _size(value: int, mark: Mark) -> int:
    if FIELDS["m"].read(value) is None:
        _refuse(mark, f"a size must be {FIELDS['m']}, not {value}")
    return value


def _refuse(mark: Mark, message: str) -> NoReturn:
    raise ListError([(mark, message)])
