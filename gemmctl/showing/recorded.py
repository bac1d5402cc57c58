"""What the fields of a problem in a saved run may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

# What a value may be: what a function allows, a mapping with such fields ("*": of any name), or a
# list of such.
Kind: TypeAlias = "Callable[[Any], bool] | Mapping[str, Kind] | list[Kind]"

MOST = 1e150  # far beyond all seconds, bytes, FLOP and hertz


def is_amount(value: object) -> bool:
    """Whether it is a number of 0 or more, as times are, of which ratios and sums are finite."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or 1 / MOST <= value <= MOST


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_some(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_amount, value))


def _or_null(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or kind(value)


_AMOUNT, _TEXT = _or_null(is_amount), _or_null(_is_text)
_RATIO: Mapping[str, Kind] = {
    "ratio": _AMOUNT,
    "ratio_interval": _or_null(_are_some),
    "ratio_verdict": _TEXT,
}
_SUSTAINED: Mapping[str, Kind] = {
    "settled": _or_null(lambda value: isinstance(value, bool)),
    **dict.fromkeys(("settled_sm_hz", "power_w", "energy_j"), _AMOUNT),
    "burst_median_s": is_amount,
    "burst_samples_s": _are_some,
    "blocks": [
        {
            **dict.fromkeys(("seconds", "host_bound"), is_amount),
            **dict.fromkeys(("sm_hz", "power_w", "energy_j"), _AMOUNT),
        }
    ],
}
PROBLEM: Mapping[str, Kind] = {
    **dict.fromkeys(("dtype", "shape", "kernel"), _is_text),
    **dict.fromkeys(
        ("group_count", "flop", "bytes", "arena_bytes", "packed_bytes", "launches", "streams",
         "tiles", "waves", "tile_efficiency", "plan_s", "median_s", "min_s", "p5_s", "p95_s",
         "host_bound", "setup_host_s"), is_amount,
    ),
    **dict.fromkeys(
        ("spread", "flop_per_s", "bytes_per_s", "bound_s", "bound_fraction", "setup_device_s",
         "replay_s"), _AMOUNT,
    ),
    "telemetry": [
        {
            **dict.fromkeys(("sm_hz", "power_w"), is_amount),
            "memory_hz": _AMOUNT,
            "throttle": [_is_text],
        }
    ],
    "sustained": _SUSTAINED,
    "best": _TEXT,
    **{f"best_{key}": kind for key, kind in _RATIO.items()},
    "against": {
        "*": {
            "verdict": _is_text,
            **dict.fromkeys(("reason", "form", "manner"), _TEXT),
            "median_s": _AMOUNT,
            "host_bound": is_amount,
            **_RATIO,
            "samples_s": [is_amount],
            "sustained": _SUSTAINED,
        }
    },
}  # fmt: skip


def wrong(value: Any, kind: Kind = PROBLEM, path: str = "") -> Iterator[tuple[str, Any]]:
    """What is not as it may be: the path to it, with dots between names, and the value."""
    if callable(kind):
        if not kind(value):
            yield path, value
    elif isinstance(kind, list):
        if isinstance(value, list):
            for each in value:
                yield from wrong(each, kind[0], path)
        else:
            yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if (known := kind.get(name, kind.get("*"))) is not None:
                yield from wrong(inner, known, f"{path}.{name}" if path else name)
    else:
        yield path, value
