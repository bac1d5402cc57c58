"""Lists that gemmctl refuses, as documents: those that its JSON Schema refuses, too, and others."""

from __future__ import annotations

from typing import Any

GROUP = {"m": 8, "n": 8, "k": 8}


def listed(*groups: Any, **changes: Any) -> dict[str, Any]:
    """A list of one problem; ``changes`` are keys of the problem."""
    return {"gemmctl": 1, "problems": [{"name": "p", "groups": list(groups), **changes}]}


def _without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


_GROUPS: list[Any] = [
    {}, {"n": 8, "k": 8}, {"m": 8, "k": 8}, {"m": 8, "n": 8}, None, "8x8x8", [8, 8, 8],
    *({**GROUP, "m": value} for value in (-1, 2**31, 1.5, "64", True, None, [1], {})),
    *({**GROUP, "count": value} for value in (0, 2**20 + 1, 1.5, "2")),
    *({**GROUP, "a": value} for value in ("fp8", "f32", "BF16", "", 16, None)),
    *({**GROUP, "a": a, "b": b} for a, b in (("bf16", "f16"), ("f16", "bf16"), ("f32", "f32"))),
    *({**GROUP, key: value} for key, value in (("b", "f32"), ("c", 16), ("d", "tf32"))),
    {**GROUP, "b_layout": "column"},
    {**GROUP, "lda": 0}, {**GROUP, "ldb": 2**40}, {**GROUP, "ldc": -1}, {**GROUP, "ldd": "8"},
    *({**GROUP, "alpha": value} for value in ("1", True, 1e39, 1e-46, None, [])),
    *({**GROUP, "inplace": value} for value in (1, "true", None)),
    *({**GROUP, "bias": value} for value in ("k", True, None)), {**GROUP, "bias_type": "fp32"},
    {**GROUP, "activation": "swish"}, {**GROUP, "gate": "half"},
    *({**GROUP, "gate": gate, "n": 7} for gate in ("halves", "pairs")),
    *({**GROUP, "gate": "pairs", key: "row" if key == "b_layout" else "col"}
      for key in ("b_layout", "d_layout")),
    {**GROUP, "gate": "pairs", "inplace": True}, {**GROUP, "inplace": True, "c": "f32", "d": "f16"},
    *({**GROUP, "a": a, "d": d, key: value} for a, d in (("bf16", "f16"), ("f16", "bf16"))
      for key, value in (("a_layout", "col"), ("b_layout", "row"))),
    {**GROUP, "beta": -1e-46}, {**GROUP, "kk": 64}, {"M": 8, "N": 8, "K": 8},
    {**GROUP, "transpose": 1}, {**GROUP, "<<": {"m": 1}},
]  # fmt: skip
_NAMES: list[Any] = [
    7, None, True, "", " ", " p", "p ", "a\tb", "a\nb", "a\n", "\x1b[2J", "a\x85b", "a\xa0b",
    "a\u200bb", "\u202ep", "a\u2028b", "\ufeffp", ["p"],
]  # fmt: skip

BAD: list[Any] = [
    *(listed(group) for group in _GROUPS),
    *(listed(GROUP, name=name) for name in _NAMES),
    *(listed(GROUP, defaults=defaults) for defaults in ({"a": "f32"}, [], None, {"x": 1})),
    *({**listed(GROUP), "defaults": defaults} for defaults in ({"m": -1}, "none", {"lda": "x"})),
    {**listed({"m": 8}, defaults={"n": 8}), "defaults": {"m": 8}},
    listed(), listed(groups={}), listed(groups=None), listed(GROUP, shapes=1),
    *({**listed(GROUP), "gemmctl": version} for version in (0, 2, True, "1", None)),
    *({**listed(GROUP), "problems": problems} for problems in ([], {}, None, ["p"], [GROUP])),
    {**listed(GROUP), "problms": 1}, _without(listed(GROUP), "gemmctl"),
    _without(listed(GROUP), "problems"), [listed(GROUP)], None, "gemmctl: 1",
    {"gemmctl": 1, "problems": [{"name": "p"}]}, {"gemmctl": 1, "problems": [{"groups": [GROUP]}]},
]  # fmt: skip

_LARGE = {"m": 2**22, "n": 1, "k": 8, "lda": 2**39 - 8}

# What draft 7 cannot say: a part of gemmctl's message, and a list that only gemmctl refuses.
BEYOND: list[tuple[str, Any]] = [
    # It compares no two values: names, extents with leading dimensions.
    ("is taken by", {"gemmctl": 1, "problems": [*listed(GROUP)["problems"]] * 2}),
    ("lie side by side", listed({**GROUP, "k": 16, "lda": 8})),
    ("in place they are the same", listed({**GROUP, "inplace": True, "c": "f32"})),
    # It does not calculate: sums over all groups.
    ("more than 1048576 groups", listed({**GROUP, "count": 2**20}, GROUP)),
    ("more than 2^62 bytes", listed({**_LARGE, "count": 2})),
    ("tiles, of which at most", listed({"m": 400000, "n": 300000, "k": 8})),
    # It sees a group and its defaults apart, so that it cannot tell that they differ.
    ("the kernels multiply operands of one type", listed({**GROUP, "b": "f16"})),
    ("a gate pairs columns", listed({**GROUP, "n": 7}, defaults={"gate": "halves"})),
    ("cannot be its memory", listed({**GROUP, "inplace": True}, defaults={"gate": "pairs"})),
    ("a gate takes columns of B", listed({**GROUP, "gate": "pairs"}, defaults={"b_layout": "row"})),
    # Nor does it know what a key is that is not there.
    ("no kernel takes bf16", listed({**GROUP, "d": "f16", "b_layout": "row"})),
    # It knows no Unicode classes: characters that are not assigned, or beyond U+FFFF.
    ("name must be", listed(GROUP, name="a\u0378")),
]
