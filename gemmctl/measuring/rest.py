"""The rest that a GPU has before every burst of samples, so that all start after the same power."""

from __future__ import annotations

from math import inf
from time import sleep

from gemmctl.device.base import Device

# A GPU idles for REST_SHARE times as long as it was at work since it last did, REST_S seconds at
# most.
REST_S, REST_SHARE = 0.3, 6


class Rest:
    """What a device rests before bursts, whoever takes them; the first is the longest.

    That is a ``share`` of the time that it was at work, ``most_s`` seconds at most; a CPU has none.
    """

    def __init__(
        self, device: Device, *, share: float = REST_SHARE, most_s: float = REST_S
    ) -> None:
        self._share, self._most_s = share, most_s if device.facts.kind == "cuda" else 0.0
        self._busy_s = inf

    def take(self) -> None:
        """Rest for what is due."""
        sleep(min(self._most_s, self._share * self._busy_s))
        self._busy_s = 0.0

    def after(self, busy_s: float) -> None:
        """Hear of work that took so many seconds."""
        self._busy_s += busy_s
