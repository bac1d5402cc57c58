"""Problems and their groups.

A group is x = alpha A B + beta C + bias with A m x k, B k x n, x and C m x n, and D = act(x). With
a gate D has n/2 columns, each act(x) of one column times x of another. Element (i, j) of a matrix
with leading dimension ld lies at i * ld + j in layout ``row`` and at j * ld + i in layout ``col``;
C has D's layout."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gemmctl.errors import Mark, UsageError, unknown
from gemmctl.operands import activations, dtypes

WORD = 16  # bytes, on multiples of which wide loads and stores lie
LAYOUTS = ("row", "col")
BIASES = ("none", "n", "m")  # n: a number for each column of x; m: for each row
ACTIVATIONS = tuple(activations.FUNCTIONS)
# halves: column j of x goes through the activation, times column j + n/2; pairs: 2j, times 2j + 1
GATES = ("none", "halves", "pairs")
# Of each operand the key of its layout, and the one in which its rows (of B: its columns) are
# contiguous.
_LAYOUT_OF = {
    "a": ("a_layout", "row"),
    "b": ("b_layout", "col"),
    "c": ("d_layout", "row"),
    "d": ("d_layout", "row"),
}


def factors(gate: str, n: int, columns: range) -> tuple[range, ...]:
    """The columns of x that some neighbouring columns of D are made of.

    Without a gate these are the same; with one, those that go through the activation, and those
    that they are multiplied with.
    """
    first, last = columns.start, columns.stop
    if gate == "halves":
        return columns, range(first + n // 2, last + n // 2)
    if gate == "pairs":
        return range(2 * first, 2 * last, 2), range(2 * first + 1, 2 * last + 1, 2)
    return (columns,)


@dataclass(frozen=True, slots=True)
class Group:
    """One matrix product, every default filled in. alpha and beta are float32 values.

    The offsets are elements from a boundary of 256 bytes to an operand's first. inplace: C is D's
    memory. The others of the last five are words in BIASES, an element type, and words in
    ACTIVATIONS and GATES.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str
    a_layout: str
    b_layout: str
    d_layout: str
    lda: int
    ldb: int
    ldc: int
    ldd: int
    a_offset: int
    b_offset: int
    c_offset: int
    d_offset: int
    alpha: float
    beta: float
    inplace: bool
    bias: str
    bias_type: str
    activation: str
    gate: str
    # Where each key stands that was written, in the group or in defaults; "": the group itself.
    marks: Mapping[str, Mark] = field(compare=False, repr=False)

    @property
    def depth(self) -> int:
        """Products that each element sums up: k, or 0 where alpha is 0.

        BLAS then reads neither A nor B (the standard's GEMM, "when alpha is zero"), so that what
        is not finite in them does not come through.
        """
        return self.k if self.alpha else 0

    @property
    def d_columns(self) -> int:
        """Columns of D: n, or half of it with a gate."""
        return self.n if self.gate == "none" else self.n // 2

    @property
    def bias_length(self) -> int:
        """Numbers in the bias: 0, n or m."""
        return {"none": 0, "n": self.n, "m": self.m}[self.bias]

    def across(self, operand: str) -> bool:
        """Whether a row of ``a``, ``c`` or ``d``, or a column of ``b``, lies across memory.

        Its elements are then a leading dimension apart, and its neighbours side by side.
        """
        key, along = _LAYOUT_OF[operand]
        return bool(getattr(self, key) != along)

    @property
    def linear(self) -> bool:
        """Whether D is x itself."""
        return self.activation == self.gate == "none"

    @property
    def plain(self) -> bool:
        """Whether D is alpha A B + beta C, and nothing more."""
        return self.linear and self.bias == "none"

    @property
    def exchanged(self) -> Group:
        """The same product with operands exchanged, D^T = B^T A^T: D by rows is D by columns."""
        return _exchanged(self, _MIRRORED.__getitem__, _ALONG.__getitem__)

    def where(self, *keys: str) -> Mark:
        """The place of the first of ``keys`` that was written, else the group's own."""
        return next((self.marks[key] for key in keys if key in self.marks), self.marks[""])


@dataclass(frozen=True, eq=False)
class Columns:
    """A problem's groups as arrays with one entry per group; read-only, and equal to no others.

    An element type is its DType.code, a layout its place in LAYOUTS, a bias, activation or gate its
    place in BIASES, ACTIVATIONS or GATES.
    """

    m: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    k: npt.NDArray[np.int64]
    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    c: npt.NDArray[np.int64]
    d: npt.NDArray[np.int64]
    a_layout: npt.NDArray[np.int64]
    b_layout: npt.NDArray[np.int64]
    d_layout: npt.NDArray[np.int64]
    lda: npt.NDArray[np.int64]
    ldb: npt.NDArray[np.int64]
    ldc: npt.NDArray[np.int64]
    ldd: npt.NDArray[np.int64]
    a_offset: npt.NDArray[np.int64]
    b_offset: npt.NDArray[np.int64]
    c_offset: npt.NDArray[np.int64]
    d_offset: npt.NDArray[np.int64]
    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]
    inplace: npt.NDArray[np.bool_]
    bias: npt.NDArray[np.int64]
    bias_type: npt.NDArray[np.int64]
    activation: npt.NDArray[np.int64]
    gate: npt.NDArray[np.int64]

    @cached_property
    def depth(self) -> npt.NDArray[np.int64]:
        """Products that each element sums up: Group.depth."""
        return np.where(self.alpha == 0, 0, self.k)

    @cached_property
    def sizes(self) -> Mapping[str, npt.NDArray[np.int64]]:
        """Bytes of an element of ``a``, ``b``, ``c`` or ``d``, or of a bias, by ``bias_type``."""
        return {operand: _SIZES[getattr(self, operand)] for operand in (*"abcd", "bias_type")}

    def across(self, operand: str) -> npt.NDArray[np.bool_]:
        """Where an operand's rows (columns of B) lie across memory: Group.across."""
        key, along = _LAYOUT_OF[operand]
        found: npt.NDArray[np.bool_] = getattr(self, key) != LAYOUTS.index(along)
        return found

    @cached_property
    def off_words(self) -> Mapping[str, npt.NDArray[np.bool_]]:
        """Where lines of an operand, what is contiguous of it, begin off 16-byte words."""

        def off(operand: str) -> npt.NDArray[np.bool_]:
            ld, offset = getattr(self, f"ld{operand}"), getattr(self, f"{operand}_offset")
            found: npt.NDArray[np.bool_] = (ld | offset) * self.sizes[operand] % WORD != 0
            return found

        return {operand: off(operand) for operand in "abcd"}

    @cached_property
    def d_columns(self) -> npt.NDArray[np.int64]:
        """Columns of each D: n, or half of it with a gate."""
        return np.where(self.gate == 0, self.n, self.n // 2)

    @cached_property
    def product_bytes(self) -> npt.NDArray[np.int64]:
        """Bytes of A and B, where they are multiplied, and of D."""
        a, b = self.m * self.sizes["a"], self.n * self.sizes["b"]
        found: npt.NDArray[np.int64] = self.depth * (a + b)
        return found + self.m * self.d_columns * self.sizes["d"]

    @cached_property
    def bias_length(self) -> npt.NDArray[np.int64]:
        """Numbers in each bias: 0, n or m."""
        along_n, along_m = (self.bias == BIASES.index(word) for word in ("n", "m"))
        return np.where(along_n, self.n, np.where(along_m, self.m, 0))

    @cached_property
    def whole_words(self) -> npt.NDArray[np.bool_]:
        """Groups whose D, which lies by rows, has rows of whole 16-byte words."""
        whole = self.d_columns * self.sizes["d"] % WORD == 0
        found: npt.NDArray[np.bool_] = whole & ~self.off_words["d"]
        return found

    @cached_property
    def follows(self) -> npt.NDArray[np.bool_]:
        """Groups with a bias, an activation or a gate."""
        found: npt.NDArray[np.bool_] = (self.bias | self.activation | self.gate) != 0
        return found

    @cached_property
    def more(self) -> npt.NDArray[np.bool_]:
        """Groups whose D is more than alpha A B."""
        found: npt.NDArray[np.bool_] = (self.beta != 0) | self.follows
        return found

    @cached_property
    def active(self) -> npt.NDArray[np.bool_]:
        """Groups whose D has elements."""
        found: npt.NDArray[np.bool_] = (self.m > 0) & (self.n > 0)
        return found

    @cached_property
    def exchanged(self) -> Columns:
        """The same products with operands exchanged: Group.exchanged."""
        return _exchanged(self, lambda layout: 1 - layout, _ALONG_CODES.__getitem__)

    @cached_property
    def accumulates(self) -> npt.NDArray[np.bool_]:
        """Where D is read before it is written: C in place, and not passed over."""
        found: npt.NDArray[np.bool_] = self.inplace & (self.beta != 0)
        return found

    @cached_property
    def adds(self) -> npt.NDArray[np.bool_]:
        """Groups whose D is alpha A B + D, and nothing more."""
        found: npt.NDArray[np.bool_] = self.accumulates & (self.beta == 1) & ~self.follows
        return found


_MIRRORED = dict(zip(LAYOUTS, reversed(LAYOUTS), strict=True))
_ALONG = {"none": "none", "n": "m", "m": "n"}  # a bias, once rows are columns
_ALONG_CODES = np.array([BIASES.index(_ALONG[word]) for word in BIASES])
_Exchanged = TypeVar("_Exchanged", Group, Columns)


def _exchanged(
    of: _Exchanged, mirrored: Callable[[Any], Any], along: Callable[[Any], Any]
) -> _Exchanged:
    """A group, or all, with operands exchanged, by the other of two layouts and biases."""
    return replace(
        of,
        m=of.n,
        n=of.m,
        a=of.b,
        b=of.a,
        lda=of.ldb,
        ldb=of.lda,
        a_offset=of.b_offset,
        b_offset=of.a_offset,
        a_layout=mirrored(of.b_layout),
        b_layout=mirrored(of.a_layout),
        d_layout=mirrored(of.d_layout),
        bias=along(of.bias),
    )


def _places(words: Sequence[str]) -> dict[str, int]:
    return {word: place for place, word in enumerate(words)}


_TYPES = {dtype.name: dtype.code for dtype in dtypes.BY_NAME.values()}
_CODES = {
    **dict.fromkeys(("a", "b", "c", "d", "bias_type"), _TYPES),
    **{f"{key}_layout": _places(LAYOUTS) for key in "abd"},
    "bias": _places(BIASES),
    "activation": _places(ACTIVATIONS),
    "gate": _places(GATES),
}
_DTYPES = {"alpha": np.float64, "beta": np.float64, "inplace": np.bool_}
_SIZES = np.zeros(max(_TYPES.values()) + 1, np.int64)
_SIZES[list(_TYPES.values())] = [dtype.size for dtype in dtypes.BY_NAME.values()]


@dataclass(frozen=True)
class Problem:
    """Products that run as one timed unit; a group with a count is there as often as it says."""

    name: str
    groups: tuple[Group, ...]
    mark: Mark = field(compare=False, repr=False)

    @cached_property
    def columns(self) -> Columns:
        """The groups as arrays."""
        same = np.fromiter(map(id, self.groups), np.int64, len(self.groups))
        starts = np.flatnonzero(np.diff(same, prepend=0))  # of the runs of one group
        counts = np.diff(starts, append=len(same))
        written = [self.groups[start] for start in starts.tolist()]

        def column(key: str) -> npt.NDArray[Any]:
            values: Iterable[Any] = map(attrgetter(key), written)
            if key in _CODES:
                values = map(_CODES[key].__getitem__, values)
            dtype = _DTYPES.get(key, np.int64)
            once: npt.NDArray[Any] = np.fromiter(values, dtype, len(written))
            repeated = np.repeat(once, counts)
            repeated.flags.writeable = False
            return repeated

        return Columns(**{each.name: column(each.name) for each in fields(Columns)})


def chosen(names: Collection[str], globs: Sequence[str]) -> set[str]:
    """The names that any of ``globs`` is, or, where it is none, matches; all if there are none."""
    if not globs:
        return set(names)
    return {
        name
        for glob in globs
        for name in names
        if (name == glob if glob in names else fnmatchcase(name, glob))
    }


def matching(problems: Sequence[Problem], globs: Sequence[str]) -> list[Problem]:
    """The problems whose names ``globs`` choose, in their order."""
    wanted = chosen({problem.name for problem in problems}, globs)
    return [problem for problem in problems if problem.name in wanted]


def select(problems: Sequence[Problem], globs: Sequence[str]) -> list[Problem]:
    """The same, but a glob that chooses nothing raises UsageError."""
    for glob in globs:
        if not matching(problems, [glob]):
            names = [problem.name for problem in problems]
            raise UsageError(unknown(f"no problem is named '{glob}'", glob, names))
    return matching(problems, globs)
