"""Matmuls as hipBLASLt logs them (HIPBLASLT_LOG_MASK=64) and hipblaslt-bench reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemmctl.errors import closest, cut, listed
from gemmctl.generating.listing import SIZES, Group, Value, running
from gemmctl.generating.source import keyed, refuse
from gemmctl.lists.fields import FIELDS, OPERANDS
from gemmctl.lists.yamlfile import Entry, Node

# hipBLASLt's names of the types that there are here.
TYPES = {"f16_r": "f16", "bf16_r": "bf16", "f32_r": "f32"}
NAMES = {ours: theirs for theirs, ours in TYPES.items()}
LAYOUTS = {"N": "row", "T": "col"}  # transposed, what was column-major is row-major
# Keys that change what is computed and have no counterpart here: what leaves it alone.
OFF = ("false", False, 0, "none")
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "function": ("matmul",), "activation_type": ("none",), "compute_type": ("c_f32_r", "f32_r"),
    "scale_type": ("f32_r", "hipblaslt_datatype_invalid"),
    **dict.fromkeys(("compute_input_typeA", "compute_input_typeB"),
                    ("hipblaslt_datatype_invalid",)),
    **dict.fromkeys(("scaleA", "scaleB"), ("none", False, 0)),
    **dict.fromkeys((
        "bias_vector", "gradient", "use_e", "scaleC", "scaleD", "scaleE", "scaleD_vector",
        "scaleAlpha_vector", "amaxScaleA", "amaxScaleB", "isScaleAmaxDivisorA",
        "isScaleAmaxDivisorB", "amaxD", "swizzleA", "swizzleB", "swizzle_a", "swizzle_b",
        "c_equal_d", "grouped_gemm",
    ), OFF),
}  # fmt: skip
READ = {
    *SIZES, "alpha", "beta", "transA", "transB", "batch_count",
    *(f"{each}_type" for each in "abcd"), *(f"ld{each}" for each in "abcd"),
}  # fmt: skip
# Keys that say how it is measured and checked, or belong to what the keys above leave out.
IDLE = {
    "name", "category", "known_bug_platforms", "gpu_arch", "gpu_arch_exclude", "initialization",
    "HMM", "pad", "threads", "streams", "devices", "norm_check", "norm_check_assert",
    "allclose_check", "unit_check", "dump_matrix", "timing", "iters", "cold_iters", "adaptive",
    "measure_time", "call_count", "rotating", "flush", "use_gpu_timer", "skip_slow_solution_ratio",
    "algo", "algo_method", "api_method", "solution_index", "requested_solution_num", "splitk",
    "gsu_vector", "wgm_vector", "tensile_solution_selection_method", "use_ext",
    "use_ext_setproblem", "use_user_args", "workspace", "workspace_size",
    "user_allocated_workspace", "print_solution_found", "print_kernel_info", "any_stride",
    *(f"stride_{each}" for each in "abcde"), "lde", "activation_arg1", "activation_arg2",
    "bias_type", "bias_source", "aux_type", "amaxDividendA", "amaxDividendB",
    "scaleABlockRowSize", "scaleABlockColSize", "scaleBBlockRowSize", "scaleBBlockColSize",
}  # fmt: skip
# Keys that no other program gives its shapes.
OWN = {
    *NEUTRAL, *READ - {*SIZES, "alpha", "beta"}, "bias_type", "aux_type",
    *(f"stride_{each}" for each in "abcd"),
}  # fmt: skip


def is_matmul(node: Node) -> bool:
    """Whether a mapping is a matmul of hipBLASLt, by its keys."""
    assert isinstance(node.value, dict)
    return not OWN.isdisjoint(node.value)


def matmul(node: Node, types: Mapping[str, Value]) -> Group:
    """The group of a matmul of hipBLASLt, with a count if it is a batch.

    Its matrices are column-major. D transposed is row-major, the product of B and A transposed:
    m and n, A and B change places, and nothing moves in memory. ``types`` are those of a matmul
    that has none of its own. Raises ListError for what is no matmul, or none that can be run here.
    """
    given = keyed(node, SIZES)
    for key, entry in given.items():
        _check(key, entry)
    m, n, k = (_integer(node, given, theirs, ours)
               for theirs, ours in (("n", "m"), ("m", "n"), ("k", "k")))  # fmt: skip
    trans = {key: _word(given, key, LAYOUTS, "N") for key in ("transA", "transB")}
    a_layout, b_layout = LAYOUTS[trans["transB"]], LAYOUTS[trans["transA"]]
    group = {**_types(node, given, types, trans), "m": m, "n": n, "k": k}
    if a_layout == "col":
        group["a_layout"] = a_layout
    if b_layout == "row":
        group["b_layout"] = b_layout
    # Of each of our matrices, theirs, and how many elements of it lie side by side.
    along = {
        "lda": ("ldb", "K", k) if a_layout == "row" else ("ldb", "N", m),
        "ldb": ("lda", "M", n) if b_layout == "row" else ("lda", "K", k),
        "ldc": ("ldc", "M", n),
        "ldd": ("ldd", "M", n),
    }
    for ours, (theirs, inner, length) in along.items():
        ld = _integer(node, given, theirs, ours, length)
        if ld < length:
            told = f"{theirs} is {ld}, but {inner} = {length} elements lie side by side"
            refuse(given[theirs].node.mark, f"{told}; write {theirs}: {length} or more")
        if ld != length:
            group[ours] = ld
    for key, usual in (("alpha", 1), ("beta", 0)):
        if key in given:
            _legal(given[key], key)
            written: Any = given[key].node.value  # as float32 it would have more digits
            if written != usual:
                group[key] = written
    return group | {"count": _integer(node, given, "batch_count", "count", 1)}


def _check(key: str, entry: Entry) -> None:
    """Raises ListError for a key that is not known, or means another product than there is here."""
    if key in NEUTRAL:
        word, *_ = neutral = NEUTRAL[key]
        if entry.node.value not in neutral:
            refuse(entry.node.mark, f"{key} other than {word} cannot be imported; take it out")
    elif key not in READ and key not in IDLE:
        close = closest(key, [*READ, *NEUTRAL])
        mend = f"did you mean '{close}'?" if close else "take it out"
        refuse(entry.key.mark, f"unknown key '{cut(key)}' in a matmul; {mend}")


def _legal(entry: Entry, ours: str) -> Any:
    """The value of a key that is a number here; raises ListError if it may not be."""
    word, place = entry.key.value, entry.node
    if isinstance(place.value, list):
        refuse(place.mark, f"{word} is a list; write a matmul for each")
    value = FIELDS[ours].read(place.value)
    if value is None:
        refuse(place.mark, f"{word} must be {FIELDS[ours]}")
    return value


def _integer(
    node: Node, given: Mapping[str, Entry], key: str, ours: str, default: int | None = None
) -> int:
    """The value of a key that is a whole number; raises ListError without one and a default."""
    if key in given:
        return int(_legal(given[key], ours))
    if default is None:
        refuse(node.mark, f"this matmul has no {key.upper()}; add it")
    return default


def _word(given: Mapping[str, Entry], key: str, legal: Mapping[str, str], default: str) -> str:
    """The value of a key that is one of some words; raises ListError if it is none."""
    if key not in given:
        return default
    node = given[key].node
    if not isinstance(node.value, str) or node.value not in legal:
        refuse(node.mark, f"{key} must be one of {', '.join(legal)}")
    return node.value


def _types(
    node: Node, given: Mapping[str, Entry], types: Mapping[str, Value], trans: Mapping[str, str]
) -> dict[str, Value]:
    """The types of A, B and D, and of C if it is given.

    Raises ListError for those that no kernel multiplies where A and B lie so.
    """
    operands = {theirs: ours for theirs, ours in TYPES.items() if ours in OPERANDS}
    legal = {"a_type": operands, "b_type": operands, "d_type": TYPES}
    words = {key: _word(given, key, legal[key], "") for key in legal if key in given}
    found = dict(types)
    if words:
        if missing := [key for key in legal if key not in words]:
            told = f"this matmul has {listed(list(words))} and no {' and no '.join(missing)}"
            refuse(given[next(iter(words))].key.mark, f"{told}; add it")
        a, b, d = words.values()
        if a != b:
            told = f"a_type is {a} and b_type {b}, and the kernels multiply operands of one type"
            refuse(given["b_type"].node.mark, f"{told}; make them the same")
        found |= {"a": TYPES[a], "b": TYPES[a], "d": TYPES[d]}
    if "c_type" in given:
        found["c"] = TYPES[_word(given, "c_type", TYPES, "")]
    lie = LAYOUTS[trans["transB"]], LAYOUTS[trans["transA"]]
    outputs = [output for operand, output in running(*lie) if operand == found["a"]]
    if found["d"] not in outputs:
        told = (f"no kernel takes {found['a']} to {found['d']} where transA is {trans['transA']} "
                f"and transB {trans['transB']}")  # fmt: skip
        if words:
            legible = " or ".join(NAMES[output] for output in outputs)
            refuse(given["d_type"].node.mark, f"{told}; write d_type: {legible}")
        legible = " or ".join(f"{found['a']}:{output}" for output in outputs)
        refuse(node.mark, f"{told}; write --dtype {legible}")
    return found
