"""What changed between two runs beside their times, and may be why those did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemmctl.showing.recorded import is_amount
from gemmctl.showing.report import MAX_NAMES, Record, names

SAME_CLOCK = 0.05  # load and heat move the highest clock by less

# What makes two runs' times mean different things, by the path of keys in their heads.
_CLASHING = {
    "device": ("device", "kind"),
    "device name": ("device", "name"),
    "pace": ("settings", "pace"),
    "cache": ("settings", "cache"),
    "data": ("settings", "data", "kind"),
    "seed": ("settings", "data", "seed"),
    "data version": ("settings", "data", "version"),
}
# What may be why the times changed.
_TELLING = {
    "GPU": ("device", "uuid"),
    "highest SM clock": ("device", "sm_max_hz"),
    "application clock": ("device", "sm_set_hz"),
    "driver": ("device", "driver"),
    "launch": ("settings", "launch"),
    "cubins": ("cubin_sha256",),
}
_ABSENT = {"launch": "grouped", "pace": "burst"}  # what runs meant before they said so


def clashes(old: Record, new: Record) -> list[str]:
    """Why the times in runs of these heads do not compare."""
    clashing = dict(_CLASHING)
    if all(_at(head, _CLASHING["pace"], None) == "sustained" for head in (old, new)):
        del clashing["cache"]  # is of the bursts before, which are not compared
    return [f"{what} ({was} and {now})" for what, was, now in _changes(old, new, clashing)]


def told(
    old: Record, new: Record, pairs: Sequence[tuple[Record, Record]], where: str
) -> Iterator[str]:
    """What changed in the heads, and in the problems that both runs have, a sentence each.

    ``where`` names the new run behind what changed, if it has to be named.
    """
    for what, was, now in _changes(old, new, _TELLING):
        yield f"{what} {was} became {now}{where}"
    yield from _other_clocks(pairs, where)
    yield from _other_ways(pairs, where)


def _changes(
    old: Record, new: Record, paths: dict[str, tuple[str, ...]]
) -> Iterator[tuple[str, str, str]]:
    """What differs in two heads: what it is called, and what it was and is."""
    for what, path in paths.items():
        before, after = (_at(head, path, _ABSENT.get(what)) for head in (old, new))
        if before != after:
            said = _megahertz if path[-1].endswith("_hz") else _said
            yield what, said(before), said(after)


def _at(head: Record, path: tuple[str, ...], absent: str | None) -> Any:
    """What stands at a path of keys."""
    value: Any = head
    for key in path:
        value = value.get(key)
        if value is None:
            return absent
    return value


def _said(value: Any) -> str:
    """A value as a note names it: hashes are cut short."""
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 else text


def _megahertz(value: Any) -> str:
    """A clock as a note names it."""
    return f"{value / 1e6:g} MHz" if is_amount(value) else _said(value)


def _other_clocks(pairs: Sequence[tuple[Record, Record]], where: str) -> Iterator[str]:
    """Whether one of the runs may have met locked clocks, which no driver tells of."""
    before, after = (
        max((reading["sm_hz"] for one in run for reading in one.get("telemetry", ())), default=None)
        for run in zip(*pairs, strict=True)
    )
    if before and after and not 1 - SAME_CLOCK < after / before < 1 + SAME_CLOCK:
        yield (
            f"the highest SM clock that was seen, {before / 1e6:.0f} MHz, became "
            f"{after / 1e6:.0f} MHz{where}; was it locked in one of the runs?"
        )


def _other_ways(pairs: Sequence[tuple[Record, Record]], where: str) -> Iterator[str]:
    """Which problems ran in another way, a line for each change or one for very many."""
    changed: dict[str, list[str]] = {}
    for old, new in pairs:
        if (change := _other_way(old, new)) is not None:
            changed.setdefault(change, []).append(old["name"])
    if len(changed) > MAX_NAMES:
        count = sum(map(len, changed.values()))
        yield f"{count} problems ran with other kernels, or cut in another way{where}"
    else:
        yield from (f"{change}{where} ({names(problems)})" for change, problems in changed.items())


def _other_way(old: Record, new: Record) -> str | None:
    """How a problem's kernels, or the way they were cut, changed; None if they did not."""
    for what in ("kernel", "choices"):
        before, after = old.get(what), new.get(what)
        if before != after and None not in (before, after):
            was, now = (
                "+".join(map(str, x)) if isinstance(x, list) else x for x in (before, after)
            )
            return f"{what} {was} became {now}"
    if old.get("tuned") != new.get("tuned"):
        return "what tune found is now used" if new.get("tuned") else "no longer as tune found"
    return None
