"""Write variants of the lists that ship and of a family: what users add to a product, one a list.

    gemmctl gen family FAMILY
    python tools/vary_lists.py problems FAMILY VARIANTS

Every list of prefill, decode, lora, batched and random gets two of what TURNS names for its kind,
in turns: something added to its defaults, or an n or k off 16 bytes. Those that SHIPPED names get
all that it has for them. Lists of several problems get none, and those with an odd n no gate.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ADDED = {
    "beta": {"beta": "1"},
    "inplace": {"beta": "1", "inplace": "true"},
    "betaf32": {"beta": "1", "c": "f32", "d": "f32"},
    "bias": {"bias": "n"},
    "gelu": {"bias": "n", "activation": "gelu"},
    "geltanh": {"activation": "gelu_tanh"},
    "relu": {"activation": "relu"},
    "silu": {"activation": "silu"},
    "swiglu": {"activation": "silu", "gate": "halves"},
    "pairs": {"activation": "silu", "gate": "pairs"},
    "rows": {"b_layout": "row"},
    "acol": {"a_layout": "col"},
    "dcol": {"d_layout": "col"},
    "f32": {"d": "f32"},
    "alpha": {"alpha": "0.5"},
    "abase": {"a_offset": "1"},
    "bbase": {"b_offset": "1"},
    "dbase": {"d_offset": "1"},
}
LESS = {"oddn": ("n", 1), "oddk": ("k", 4)}  # the extent that is taken so much from
TURNS = {
    "prefill": ("swiglu", "rows", "beta", "oddn", "oddk", "pairs", "f32", "inplace"),
    "decode": ("swiglu", "beta", "rows", "bias", "oddk", "pairs"),
    "lora": ("beta", "inplace", "bias", "rows", "oddn", "f32"),
    "batched": (
        *("gelu", "beta", "rows", "bias", "acol"),
        *("betaf32", "dcol", "silu", "alpha", "relu"),
    ),
    "random": ("beta", "gelu", "rows", "bias", "geltanh", "dcol", "silu", "inplace"),
}
SHIPPED = {
    "bmm64": ("beta", "silu"),
    "dsv3_dn_p": ("beta", "bias", "oddn", "inplace"),
    "lora_up": ("beta", "bias", "inplace"),
    "qwen3_dn_z": ("beta", "bias", "silu", "gelu", "oddn"),
    "qwen3_gu_z": ("silu", "swiglu", "pairs", "abase", "bbase", "dbase"),
    "seed10-bf16": ("beta", "bias"),
    "short96": ("beta", "bias", "silu", "betaf32"),
    "tiny1k": ("beta", "gelu"),
}


def variants(folder: Path) -> Iterator[tuple[str, str]]:
    """Names and texts."""
    wanted = [(folder / f"{name}.yaml", each) for name, each in SHIPPED.items()]
    for kind, turns in TURNS.items():
        for number, path in enumerate(sorted(folder.glob(f"{kind}-*.yaml"))):
            places = (number, number + len(turns) // 2)
            wanted.append((path, tuple(turns[place % len(turns)] for place in places)))
    for path, each in wanted:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        for variant in each:
            name = f"{path.stem}-{variant}"
            if made := varied(text, variant):
                yield name, renamed(made, name)


def renamed(text: str, name: str) -> str:
    """A list of one problem that is called so."""
    return re.sub(r"- name: \S+", f"- name: {name}", text)


def varied(text: str, variant: str) -> str | None:
    """A list with one thing more; None if it has several problems, or cannot have that."""
    if text.count("- name:") > 1:
        return None
    if variant in LESS:
        extent, less = LESS[variant]
        return re.sub(rf"\b{extent}: (\d+)", lambda m: f"{extent}: {int(m[1]) - less}", text)
    return with_defaults(text, ADDED[variant])


def with_defaults(text: str, added: Mapping[str, str]) -> str | None:
    """A list of one problem with more in its defaults; None if its groups cannot have that.

    What is f32 in it already becomes narrower where it would become f32.
    """
    (written,) = re.findall(r"defaults: \{(.*)\}", text)
    defaults = dict(pair.split(": ") for pair in written.split(", "))
    if "gate" in added and any(int(n) % 2 for n in re.findall(r"\bn: (\d+)", text)):
        return None
    if added.get("d") == defaults.get("d") == "f32":
        added = {key: value for key, value in added.items() if key != "c"} | {"d": defaults["a"]}
    words = ", ".join(f"{key}: {value}" for key, value in {**defaults, **added}.items())
    return text.replace(f"{{{written}}}", f"{{{words}}}", 1)


def main() -> None:
    """Write a file for every variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="where the lists are")
    parser.add_argument("variants", type=Path, help="the folder to write to")
    arguments = parser.parse_args()
    arguments.variants.mkdir(parents=True, exist_ok=True)
    for folder in arguments.folders:
        for name, text in variants(folder):
            (arguments.variants / f"{name}.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
