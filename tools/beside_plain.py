"""What it costs to have more behind a product: lists with one thing more, beside themselves.

    python tools/beside_plain.py FILE --measure problems/qwen3_dn_z.yaml ... [--seconds 200]
    python tools/beside_plain.py FILE

With --measure, ``gemmctl run`` times each list as it is and with every addition of ADDITIONS that
it can have, beside the peers, and saves to FILE after every one; what FILE holds is not measured
again. The table has a column for each list: microseconds, their ratio to those of the list as it
is and, in brackets, to those of the fastest peer.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import lead
import tabulate
import vary_lists

from gemmctl.errors import UsageError
from gemmctl.lists import reading
from gemmctl.showing import saved

PLAIN = "nothing"
PEERS = "cublas,cublaslt,torch"
# What the defaults get, by what the table calls it.
ADDITIONS = {
    "alpha 0.5": {"alpha": "0.5"},
    "beta 1": {"beta": "1"},
    "beta 1, in place": {"beta": "1", "inplace": "true"},
    "beta 1, C off 16 bytes": {"beta": "1", "c_offset": "1"},
    "bias along n": {"bias": "n"},
    "bias along m": {"bias": "m"},
    "bias along n, in f32": {"bias": "n", "bias_type": "f32"},
    "bias along n, alpha 0.5": {"bias": "n", "alpha": "0.5"},
    "bias along n, relu": {"bias": "n", "activation": "relu"},
    "bias along n, beta 1": {"bias": "n", "beta": "1"},
    "relu": {"activation": "relu"},
    "silu": {"activation": "silu"},
    "gelu": {"activation": "gelu"},
    "gelu_tanh": {"activation": "gelu_tanh"},
    "bias along n, gelu": {"bias": "n", "activation": "gelu"},
    "gate halves, silu": {"gate": "halves", "activation": "silu"},
    "gate pairs, silu": {"gate": "pairs", "activation": "silu"},
    "D in f32": {"d": "f32"},
    "D in f32, beta 1": {"d": "f32", "c": "f32", "beta": "1"},
    "B row": {"b_layout": "row"},
    "A col": {"a_layout": "col"},
    "D col": {"d_layout": "col"},
    "f16": {"a": "f16", "b": "f16", "d": "f16"},
}
ODD_N = "odd n"  # one column less
# An odd leading dimension that the longest row of D fits in.
ODD_LD = {"beta 1, odd ldc": ("ldc", {"beta": "1"}), "odd ldd": ("ldd", {})}
TITLES = (PLAIN, *ADDITIONS, *ODD_LD, ODD_N)


def write(lists: Sequence[Path], folder: Path) -> list[Path]:
    """Every list, and with each addition; the files in the order of the table.

    Exits with a word on the first that it cannot add to.
    """
    made = []
    for path in lists:
        text = path.read_text(encoding="utf-8")
        if text.count("- name:") != 1 or text.count("defaults: {") != 1:
            sys.exit(f"{path}: additions go into the one 'defaults: {{...}}' of its one problem")
        made_of: dict[str, str | None] = {PLAIN: text, ODD_N: vary_lists.varied(text, "oddn")}
        for title, added in ADDITIONS.items():
            made_of[title] = vary_lists.with_defaults(text, added)
        (problem,) = reading.load([str(path)], sys.stdin)
        odd = max(group.n for group in problem.groups) | 1
        for title, (dimension, added) in ODD_LD.items():
            made_of[title] = vary_lists.with_defaults(text, {dimension: str(odd), **added})
        for title, varied in made_of.items():
            if varied is None:
                continue
            name = named(path.stem, title)
            made.append(folder / f"{len(made):03}.yaml")
            made[-1].write_text(vary_lists.renamed(varied, name), "utf-8")
    return made


def named(stem: str, title: str) -> str:
    """A problem's name, which says what it is: of the list, and what is added."""
    return f"{stem}/{title}".replace(" ", "_").replace(",", "")


def table(problems: dict[str, saved.Record]) -> str:
    """A line for each addition, in Markdown."""
    stems = list(dict.fromkeys(name.split("/")[0] for name in problems))

    def cell(stem: str, title: str) -> str:
        found = problems.get(named(stem, title))
        plain = problems.get(named(stem, PLAIN))
        if found is None or plain is None:
            return "-"
        taken = median(found["samples_s"])
        over = f", {taken / median(plain['samples_s']):.3f}" if title != PLAIN else ""
        best = f" ({found['best_ratio']:.2f} of {found['best']})" if found.get("best") else ""
        return f"{taken * 1e6:.4g}{over}{best}"

    rows = [[title, *(cell(stem, title) for stem in stems)] for title in TITLES]
    titles = ["behind the product", *stems]
    return tabulate.tabulate(rows, titles, "pipe", disable_numparse=True)


def main() -> None:
    """Measure if asked to; print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE", help="a run as gemmctl saves it")
    parser.add_argument(
        "--measure",
        nargs="+",
        type=Path,
        metavar="LIST",
        help="of one problem: to add to FILE",
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--against", default=PEERS, help=f"the peers; '' for none [{PEERS}]")
    parser.add_argument("--options", default=lead.OPTIONS, help=f"of gemmctl run [{lead.OPTIONS}]")
    told = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            if told.measure:
                files = write(told.measure, Path(folder))
                lead.measure(files, told.file, told.against, told.options, told.seconds)
        print(table(lead.measured(told.file)))
    except UsageError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
