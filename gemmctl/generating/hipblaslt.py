"""Matmuls as hipBLASLt logs them (HIPBLASLT_LOG_MASK=64) and hipblaslt-bench reads them."""

from __future__ import annotations

from typing import Any

from gemmctl.generating.listing import Group
from gemmctl.generating.source import refuse
from gemmctl.lists.fields import FIELDS
from gemmctl.lists.yamlfile import Node

# hipBLASLt's names of types.
TYPES = {"f16_r": "f16", "bf16_r": "bf16", "f32_r": "f32", "f8_r": "e4m3", "bf8_r": "e5m2"}
# Keys of a matmul that change what is computed, and have no counterpart here: what leaves it alone.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "function": ("matmul",), "activation_type": ("none",), "bias_vector": (False, 0),
    "gradient": (False, 0), "use_e": (False, 0), "scaleA": (False, 0), "scaleB": (False, 0),
    "scaleC": (False, 0), "scaleD": (False, 0), "scaleAlpha_vector": (False, 0),
    "swizzleA": (False, 0), "swizzleB": (False, 0),
}  # fmt: skip
# Keys that no other program gives its shapes.
OWN = {
    *NEUTRAL, "transA", "transB", "batch_count", "compute_type", "scale_type", "bias_type",
    "aux_type", *(f"{each}_type" for each in "abcd"), *(f"ld{each}" for each in "abcd"),
    *(f"stride_{each}" for each in "abcd"),
}  # fmt: skip


def is_matmul(node: Node) -> bool:
    """Whether a mapping is a matmul of hipBLASLt, by its keys."""
    assert isinstance(node.value, dict)
    return not OWN.isdisjoint(node.value)


def matmul(node: Node) -> Group:
    """The group of a matmul of hipBLASLt, with a count if it is a batch.

    Its matrices are column-major. D transposed is row-major, the product of B and A transposed:
    m and n, A and B change places, and nothing moves in memory.
    """
    assert isinstance(node.value, dict)
    given = {key: entry.node for key, entry in node.value.items()}
    for key, neutral in NEUTRAL.items():
        if key in given and given[key].value not in neutral:
            refuse(
                given[key].mark, f"{key} other than {neutral[0]} cannot be imported; take it out"
            )

    def word(key: str, legal: dict[str, str], default: str) -> str:
        if key not in given:
            return default
        found = given[key].value
        if not isinstance(found, str) or found not in legal:
            refuse(given[key].mark, f"{key} must be one of {', '.join(legal)}")
        return legal[found]

    def number(ours: str, *theirs: str, default: int | None = None) -> Any:
        place = next((given[key] for key in theirs if key in given), None)
        if place is None:
            if default is None:
                refuse(node.mark, f"this matmul has no {theirs[0]}; add it")
            return default
        if isinstance(place.value, list):
            refuse(place.mark, f"{theirs[0]} is a list; write a matmul for each")
        if FIELDS[ours].read(place.value) is None:
            refuse(place.mark, f"{theirs[0]} must be {FIELDS[ours]}")
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
    return group | {"count": number("count", "batch_count", default=1)}
