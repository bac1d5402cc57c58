"""The keys of a group: what each may be and what it is by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmctl.lists.problem import ACTIVATIONS, BIASES, GATES, LAYOUTS
from gemmctl.operands import dtypes

FORMAT = 1  # what `gemmctl:` says at the top of a list
MAX_EXTENT = 2**31 - 1  # the kernels' tables hold m, n and k in 32 bits
MAX_LD = 2**40 - 1  # elements: further apart, no two rows fit into any memory
MAX_GROUPS = 2**20  # in one problem
MAX_OFFSET = 127  # elements: as many of 16 bits as lie between boundaries of 256 bytes
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
FLOAT32_MIN = 2.0**-149
# What rounds to 0 and to infinity: from half of the smallest number down, and half a unit in the
# last place beyond the largest up.
FLOAT32_ZERO, FLOAT32_INFINITY = 2.0**-150, (2 - 2.0**-24) * 2.0**127


@dataclass(frozen=True)
class Integer:
    """A whole number in a range."""

    meaning: str
    low: int
    high: int

    def __str__(self) -> str:
        return f"an integer from {self.low} to {self.high}"

    def read(self, value: object) -> int | None:
        """The value, or None if it is not legal."""
        if isinstance(value, float) and value.is_integer():  # 1e3
            value = int(value)
        return value if type(value) is int and self.low <= value <= self.high else None

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {
            "type": "integer",
            "minimum": self.low,
            "maximum": self.high,
            "description": self.meaning,
        }


@dataclass(frozen=True)
class Flag:
    """Yes or no."""

    meaning: str

    def __str__(self) -> str:
        return "true or false"

    def read(self, value: object) -> bool | None:
        """The value, or None if it is not legal."""
        return value if isinstance(value, bool) else None

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "boolean", "description": self.meaning}


@dataclass(frozen=True)
class Choice:
    """One of some words, of which some kernel can run ``runs``; the plan refuses the others."""

    meaning: str
    names: tuple[str, ...]
    runs: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {', '.join(self.runs)}" if len(self.runs) > 1 else self.runs[0]

    def read(self, value: object) -> str | None:
        """The value, or None if it is not legal."""
        return value if isinstance(value, str) and value in self.names else None

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"enum": list(self.runs), "description": self.meaning}


@dataclass(frozen=True)
class Float32:
    """A number, rounded to float32, which is neither to lose it nor to make it infinite."""

    meaning: str

    def __str__(self) -> str:
        return f"0 or a number of magnitude {FLOAT32_MIN:.2g} to {FLOAT32_MAX:.3g} (float32)"

    def read(self, value: object) -> float | None:
        """The value, or None if it is not legal."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        legal = value == 0 or FLOAT32_ZERO < abs(value) < FLOAT32_INFINITY
        return float(np.float32(value)) if legal else None

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {
            "type": "number",
            "exclusiveMinimum": -FLOAT32_INFINITY,
            "exclusiveMaximum": FLOAT32_INFINITY,
            "anyOf": [
                {"const": 0},
                {"exclusiveMinimum": FLOAT32_ZERO},
                {"exclusiveMaximum": -FLOAT32_ZERO},
            ],
            "description": self.meaning,
        }


def unprintable(name: str) -> str | None:
    """The first character that keeps a text from being the name of a problem, as U+0007."""
    return next((f"U+{ord(c):04X}" for c in name if not c.isprintable()), None)


TYPES = tuple(dtypes.BY_NAME)
OPERANDS = ("bf16", "f16")  # what the kernels multiply

_OFFSET = "elements (default 0) from a boundary of 256 bytes to"

# Every key of a group and of defaults.
FIELDS: dict[str, Integer | Flag | Choice | Float32] = {
    "m": Integer("rows of A, C and D", 0, MAX_EXTENT),
    "n": Integer("columns of B, C and D", 0, MAX_EXTENT),
    "k": Integer("columns of A, rows of B", 0, MAX_EXTENT),
    "count": Integer("how many such groups (default 1)", 1, MAX_GROUPS),
    "a": Choice("element type of A (default bf16)", TYPES, OPERANDS),
    "b": Choice("element type of B, that of A (which is the default)", TYPES, OPERANDS),
    "c": Choice("element type of C (default: that of D)", TYPES, TYPES),
    "d": Choice("element type of D (default: that of A)", TYPES, TYPES),
    "a_layout": Choice("layout of A (default row)", LAYOUTS, LAYOUTS),
    "b_layout": Choice("layout of B (default col: n rows of k)", LAYOUTS, LAYOUTS),
    "d_layout": Choice("layout of C and D (default row)", LAYOUTS, LAYOUTS),
    "lda": Integer("leading dimension of A in elements (default: packed)", 1, MAX_LD),
    "ldb": Integer("leading dimension of B in elements (default: packed)", 1, MAX_LD),
    "ldc": Integer("leading dimension of C in elements (default: packed)", 1, MAX_LD),
    "ldd": Integer("leading dimension of D in elements (default: packed)", 1, MAX_LD),
    **{f"{x}_offset": Integer(f"{_OFFSET} {x.upper()}'s first", 0, MAX_OFFSET) for x in "abcd"},
    "alpha": Float32("factor of A B (default 1)"),
    "beta": Float32("factor of C (default 0: C is not read)"),
    "inplace": Flag("C is D's memory (default false)"),
    "bias": Choice("added to each column (n numbers) or row (m) of A B", BIASES, BIASES),
    "bias_type": Choice("element type of the bias (default: that of D)", TYPES, TYPES),
    "activation": Choice("of what was added up (default none)", ACTIVATIONS, ACTIVATIONS),
    "gate": Choice(
        "what goes through the activation times the rest: D has n/2 columns", GATES, GATES
    ),
}


DEFAULTS: dict[str, Any] = {
    "a": "bf16", "a_layout": "row", "b_layout": "col", "d_layout": "row",
    "a_offset": 0, "b_offset": 0, "d_offset": 0,
    "alpha": 1.0, "beta": 0.0, "count": 1,
    "inplace": False, "bias": "none", "activation": "none", "gate": "none",
}  # fmt: skip
