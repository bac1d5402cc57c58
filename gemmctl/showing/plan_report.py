"""What ``plan`` reports: what would run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from gemmctl.errors import ranged
from gemmctl.lists.problem import Group
from gemmctl.planning.packing import readable, remedies
from gemmctl.showing.report import Record, Report, bound_note, head_of, number, percent
from gemmctl.showing.table import Column, View

if TYPE_CHECKING:
    from gemmctl.device.roofline import Roofline
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.planning.plan import Plan


REMEDIES = 3  # that are told of a problem


def about() -> tuple[Column[Plan], ...]:
    """What every table says of a problem."""
    return (
        Column("problem", lambda p: p.problem.name, left=True),
        Column("groups", lambda p: str(len(p.problem.groups)), rank=6),
        Column("dtype", lambda p: p.dtype, left=True, rank=7),
        Column("MxNxK", lambda p: p.shape, left=True, rank=5),
        Column("GFLOP", lambda p: number(p.flops, 1e9), rank=8),
        Column("MB", lambda p: number(p.bytes, 1e6), rank=9),
    )


def record(plan: Plan) -> Record:
    """What would run, in base units."""
    keys = [field.name for field in fields(Group) if field.name != "marks"]
    return {
        "name": plan.problem.name,
        "groups": [
            {**{key: getattr(group, key) for key in keys}, "count": len(list(equal))}
            for group, equal in itertools.groupby(plan.problem.groups)
        ],
        "group_count": len(plan.problem.groups),
        "dtype": plan.dtype,
        "shape": plan.shape,
        "flop": plan.flops,
        "bytes": plan.bytes,
        "arena_bytes": plan.layout.size,
        "packed_bytes": plan.packing.bytes,
        "kernel": plan.kernel,
        "launches": len(plan.launches),
        "streams": plan.streams,
        "choices": list(map(str, plan.choices)),
        "tiles": plan.tiles,
        "waves": plan.waves,
        "ctas": list(plan.ctas),
        "tile_efficiency": plan.tile_efficiency,
        "plan_s": plan.plan_s,
    }


def head(roofline: Roofline, cubins: Manifest) -> Record:
    """What is true of all plans: format, cubins, and what the bound is made of."""
    return {**head_of("plan", cubins), "roofline": asdict(roofline)}


def bounded(plan: Plan, roofline: Roofline) -> Record:
    """What would run, the time that no kernel can beat and the one to expect, in base units."""
    bound_s = roofline.bound_s(plan.flops, plan.bytes)
    return {**record(plan), "bound_s": bound_s, "estimate_s": plan.estimate_s}


def columns(roofline: Roofline) -> tuple[Column[Plan], ...]:
    """What the table says of every plan."""

    def bound_s(plan: Plan) -> float:
        return roofline.bound_s(plan.flops, plan.bytes)

    return (
        *about(),
        Column("kernel", lambda p: p.kernel, left=True, rank=1),
        Column("launches", lambda p: str(len(p.launches)), rank=4),
        Column("side by side", lambda p: str(p.streams), rank=5),
        Column("tiles", lambda p: str(p.tiles), rank=3),
        Column("waves", lambda p: number(p.waves, digits=3), rank=2),
        Column("padding %", lambda p: percent(1 - p.tile_efficiency), rank=2),
        Column("bound us", lambda p: number(bound_s(p), 1e-6)),
        Column("plan us", lambda p: number(p.plan_s, 1e-6), rank=5),
        Column("estimate us", lambda p: number(p.estimate_s, 1e-6), verbose=True, rank=10),
        Column("arena MB", lambda p: number(p.layout.size, 1e6), verbose=True, rank=11),
        Column("CTAs", _ctas, verbose=True, rank=12),
        Column("tile widths", _widths, left=True, verbose=True, rank=12),
    )


def report(plans: Sequence[Plan], roofline: Roofline, cubins: Manifest, view: View) -> Report:
    """What would run, and the time that no kernel can beat."""
    all_columns = columns(roofline)
    plans = view.order(all_columns, plans)
    return Report(
        head=head(roofline, cubins),
        items="problems",
        records=[bounded(plan, roofline) for plan in plans],
        table=view.table(all_columns, plans),
        notes=[
            *bound_note(roofline),
            "plan us is what planning took this machine",
            *map(_packed_note, filter(packs, plans)),
        ],
    )


def packs(plan: Plan) -> bool:
    """Whether operands are copied before the launches of every run."""
    return plan.packing.bytes > 0


def _packed_note(plan: Plan) -> str:
    """What packing copies of a problem, and what would make it needless."""
    reasons, mends = [], []
    if changes := remedies(plan.problem):
        more = f" and {len(changes) - REMEDIES} more" if len(changes) > REMEDIES else ""
        reasons.append("whose rows are not on 16-byte boundaries")
        mends.append(f"with {', '.join(changes[:REMEDIES])}{more}")
    fine = readable(plan.exchanged)
    if any(one.kernel.b_unaligned and fine[one.groups].any() for one in plan.launches):
        # The plan takes such a kernel only beside a B that has to be copied else.
        reasons.append(f"which {plan.kernel} reads in another order")
        mends.append(f"without --kernel {plan.kernel}")
    return (
        f"{plan.problem.name}: every run copies {number(plan.packing.bytes, 1e6)} MB of A and B "
        f"first, {' or '.join(reasons)}; {' and '.join(mends)} it would not"
    )


def _ctas(plan: Plan) -> str:
    """How many each launch starts, from the fewest to the most."""
    return ranged(min(plan.ctas), max(plan.ctas)) if plan.ctas else "-"


def _widths(plan: Plan) -> str:
    widths = sorted({int(width) for launch in plan.launches for width in launch.widths})
    return ",".join(map(str, widths)) or "-"
