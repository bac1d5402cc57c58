"""What a problem's bound is: the time it takes at the rates of a good product and a good copy.

On the GPUs below, both rates are measured. That is what a large product by cuBLAS and a copy reach,
not a limit that nothing can pass: whoever needs less power for a product runs it at a higher clock,
and whoever reads more than a copy does finds the memory faster. Above 100% of this bound means
faster than those.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Roofline:
    """Two rates, and where they come from."""

    name: str
    flop_per_s: float
    bytes_per_s: float

    def bound_s(self, flops: int, nbytes: int) -> float:
        """Seconds at these rates, whichever is longer: max(flops / peak, bytes / bandwidth)."""
        return max(flops / self.flop_per_s, nbytes / self.bytes_per_s)


# cuBLAS bf16 at 8192x8192x8192 on normal data at the 700 W limit, and a device-to-device copy
# counted read plus written; November 2026. The data sheets' figures are 989.5 TFLOP/s for both, 4.8
# and 3.35 TB/s.
H200 = Roofline("what cuBLAS and a copy reach on an H200: 790 TFLOP/s, 4300 GB/s", 790e12, 4300e9)
H100 = Roofline(
    "what cuBLAS and a copy reach on an H100 SXM: 775 TFLOP/s, 3020 GB/s", 775e12, 3020e9
)

# By the driver's whole name for a GPU. Others have that name inside of theirs and are slower: an
# H100 PCIe or NVL, a part of an H200 (MIG), a GH200.
MEASURED = {"NVIDIA H200": H200, "NVIDIA H100 80GB HBM3": H100}


def of_clocks(
    name: str, *, sm_count: int, sm_hz: float, memory_hz: float, bus_bits: int
) -> Roofline:
    """What the highest clocks of a Hopper GPU allow: rates that no program reaches."""
    flop_per_s = sm_count * 4096 * sm_hz  # dense 16-bit FLOP per cycle and SM
    bytes_per_s = 2 * memory_hz * bus_bits / 8
    rates = f"{flop_per_s / 1e12:.0f} TFLOP/s, {bytes_per_s / 1e9:.0f} GB/s"
    return Roofline(f"what the clocks of {name} allow: {rates}", flop_per_s, bytes_per_s)
