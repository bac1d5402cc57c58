"""What a report is, and how its cells and notes are worded alike in all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gemmctl import __version__
from gemmctl.showing.table import Figure, Table

if TYPE_CHECKING:
    from gemmctl.device.base import Facts
    from gemmctl.device.roofline import Roofline
    from gemmctl.kernels.cubins import Manifest
    from gemmctl.planning.plan import Plan

FORMAT = 2  # of every JSON document; a new number whenever a reader of the old one would err
HOST_BOUND = 0.1  # share of samples; fewer move a median by a seventh of a standard deviation
HOST_NOTE = (
    "*: the GPU had begun before the host had queued all of it, in a tenth of the samples or "
    "more: that time may hold the host's"
)
PLACES = 12  # behind the point: two operations are 0.000000002000 GFLOP
MAX_NAMES = 5  # problems that a note names one by one
TUNED_NOTE = "tuned: cut as gemmctl tune found fastest on this device; --no-tune-cache ignores that"

Record = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What a command found, ready for every format.

    ``head`` holds what is true of the whole, ``records`` what is true of each item, both in base
    units with the unit in the name. ``table`` is the same for people, ``details`` results that no
    row holds, ``notes`` what one has to know to read the rows.
    """

    head: Record
    items: str  # the name of the list of records
    records: Sequence[Record]
    table: Table
    details: Sequence[str] = ()
    notes: Sequence[str] = ()


def number(value: float | None, scale: float = 1.0, digits: int = 4) -> str:
    """A value over ``scale`` with that many significant digits, never fewer before the point.

    Nor with more than PLACES behind it: what is less is zeros.
    """
    if value is None:
        return "-"
    scaled = value / scale
    if not scaled or not math.isfinite(scaled):
        return str(scaled if scaled else 0)
    places = min(PLACES, max(0, digits - 1 - math.floor(math.log10(abs(scaled)))))
    return Figure(f"{scaled:.{places}f}", scaled)


def time_cell(median_s: float | None, host_bound: float) -> str:
    """A median in us, marked if it may hold the host's time."""
    return number(median_s, 1e-6) + ("*" if host_bound >= HOST_BOUND else "")


def word(text: str) -> str:
    """Text as one cell that programs which split at blanks see as one, too."""
    return text.replace(" ", "-")


def names(problems: Sequence[str]) -> str:
    """Problems by name, or their number where they are many."""
    return ", ".join(problems) if len(problems) <= MAX_NAMES else f"{len(problems)} problems"


def percent(value: float | None) -> str:
    """A share as percent with one digit, without the sign."""
    return "-" if value is None else Figure(f"{100 * value:.1f}", 100 * value)


def ratio_cell(value: float | None) -> str:
    """A ratio with three digits."""
    return "-" if value is None else Figure(f"{value:.3f}", value)


def interval_cell(interval: tuple[float, float] | None) -> str:
    """An interval of ratios, which is sorted by its low end."""
    if interval is None:
        return "-"
    return Figure("..".join(f"{end:.3f}" for end in interval), interval[0])


def head_of(command: str, cubins: Manifest) -> Record:
    """What the head of every document holds."""
    return {
        "format": FORMAT,
        "command": command,
        "gemmctl": __version__,
        "cubin_sha256": cubins.sha256,
    }


def head_on(command: str, cubins: Manifest, facts: Facts, settings: Record) -> Record:
    """The same where something ran: when, on what device, and as was asked."""
    return {
        **head_of(command, cubins),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": asdict(facts),
        "settings": settings,
    }


def on_cpu(kind: str) -> str:
    """What stands before the name of a CPU, and before the kernels that it stood in for."""
    return "cpu:" if kind == "cpu" else ""


def device_label(kind: str, name: str) -> str:
    """What notes call a device."""
    return f"{on_cpu(kind)} {name}".lstrip()


def kernel_cell(plan: Plan, facts: Facts) -> str:
    """The kernels of a plan as one cell."""
    return on_cpu(facts.kind) + ("tuned:" if plan.tuned else "") + plan.kernel


def tuned_note(plans: Iterable[Plan]) -> list[str]:
    """What ``tuned`` means, if any plan is."""
    return [TUNED_NOTE] if any(plan.tuned for plan in plans) else []


def bound_note(roofline: Roofline | None) -> list[str]:
    """What the bound is, if there is one."""
    if roofline is None:
        return []
    return [f"bound is max(flops / peak, bytes / bandwidth), {roofline.name}"]
