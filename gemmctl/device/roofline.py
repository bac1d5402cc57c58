"""How fast a problem could run: the larger of its arithmetic and its memory time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Roofline:
    """A device's two ceilings, and where they come from."""

    name: str
    flop_per_s: float
    bytes_per_s: float

    def bound_s(self, flops: int, nbytes: int) -> float:
        """Seconds below which no program can stay: max(flops / peak, bytes / bandwidth)."""
        return max(flops / self.flop_per_s, nbytes / self.bytes_per_s)


# Measured on H200s: cuBLAS bf16 at 8192x8192x8192 on normal data at the 700 W limit (790 TFLOP/s),
# and a device-to-device copy counted read plus written (4.3 TB/s). The data sheet's figures are
# 989.5 TFLOP/s and 4.8 TB/s.
H200 = Roofline("H200 measured: 790 TFLOP/s, 4300 GB/s", 790e12, 4300e9)
