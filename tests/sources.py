"""What the kernels' sources say, for tests that hold Python to it."""

from __future__ import annotations

import re
from typing import NamedTuple

from gemmctl.kernels import constants
from support import ROOT

FOLDER = ROOT / "cubin" / "src"
SIZES = {
    "uint8_t": 1,
    "uint16_t": 2,
    "uint32_t": 4,
    "float": 4,
    "uint64_t": 8,
    "float4": 16,
    "uint4": 16,
}


class Member(NamedTuple):
    """One member of a struct; ``length`` is 1 unless it is an array."""

    type: str
    name: str
    length: int


def text(file: str = "*.cu*") -> str:
    """A source without its comments, or all of them."""
    found = sorted(FOLDER.rglob(file))
    return re.sub(r"//.*", "", "".join(path.read_text() for path in found))


def members(struct: str) -> list[Member]:
    """The members of a struct in their order."""
    (body,) = re.findall(rf"struct (?:alignas\(\w+\) )?{struct} {{(.*?)\n}};", text(), re.S)
    found = []
    declarations, _, _functions = body.partition("\n\n")
    for declared in declarations.split(";")[:-1]:
        kind, *names = re.split(r" (?=\w+(?:\[|,|$))|, ", declared.strip())
        for name in names:
            bare, _, count = name.rstrip("]").partition("[")
            found.append(Member(kind, bare, constant(count) if count else 1))
    return found


def constant(name: str) -> int:
    """The value of a number, or of a name that the kernels share with gemmctl."""
    return int(name) if name.isdecimal() else getattr(constants, name)


def size(kind: str) -> int:
    """The bytes of a type."""
    return _layout(kind)[0]


def offsets(struct: str) -> dict[str, int]:
    """Where the compiler puts each member of a struct."""
    found, end = {}, 0
    for member in members(struct):
        bytes_each, alignment = _layout(member.type)
        found[member.name] = end + -end % alignment
        end = found[member.name] + member.length * bytes_each
    return found


def parameters(kernel: str) -> list[str]:
    """The types of a kernel's parameters in their order."""
    (listed,) = re.findall(rf"__global__ void [^;{{]*?\b{kernel}\(([^)]*)\)", text())
    plain = listed.replace("const __grid_constant__ ", "")
    return [re.sub(r" ?\w+$", "", declared.strip()) for declared in plain.split(",")]


def _layout(kind: str) -> tuple[int, int]:
    """Bytes and alignment of a type."""
    if kind.endswith("*"):
        return 8, 8
    if kind in SIZES:
        return SIZES[kind], SIZES[kind]
    (asked,) = re.findall(rf"struct (?:alignas\((\w+)\) )?{kind} {{", text())
    alignment = max(constant(asked or "1"), *(_layout(member.type)[1] for member in members(kind)))
    last = members(kind)[-1]
    end = offsets(kind)[last.name] + last.length * size(last.type)
    return end + -end % alignment, alignment
