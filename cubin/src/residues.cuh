// C by residues: where its rows do not begin on 16-byte boundaries, a stage has a box of each residue of a
// row modulo RESIDUES. Rows begin in the 16-byte word that their first column lies in, since tensor loads
// begin with whole words.
#pragma once

#include <cstdint>

// Rows of a box, for a tile of so many. Residues r and r + 1 begin r / 2 rows before the tile: each pair of
// them is then 16 bytes further on in the banks of shared memory, and the rows that a warp reads at one
// time are those of all four.
__host__ __device__ constexpr uint32_t residue_rows(uint32_t width) {
    return width / RESIDUES + RESIDUE_LEAD;
}

__device__ __forceinline__ uint32_t residue_lead(uint32_t residue) { return residue / 2; }

// From one box to the next: tensor loads write to multiples of 128 bytes.
__host__ __device__ constexpr uint32_t residue_pitch(uint32_t width) {
    return (residue_rows(width) * RESIDUE_ROW_BYTES + 127) / 128 * 128;
}
