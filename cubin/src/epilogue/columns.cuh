// Which columns of x a thread's sums belong to.
#pragma once

#include <cstdint>

#include "records.cuh"

// The two columns of one thread in a warpgroup's 64 (staging.cuh): neighbours' neighbours of x or, with a
// gate, the two that it multiplies, since the loader brings B in that order.
struct Columns {
    uint32_t of_x[2];
    bool exist[2];

    // `part`: of 64 sums' columns in the tile that begins at n0; `n`: that x has.
    __device__ __forceinline__ Columns(const Tile& tile, uint32_t part, uint32_t gate, uint32_t n,
                                       uint32_t thread) {
        const uint32_t lane = thread % 32, warp = thread / 32;
        if (gate == GATE_NONE) {
            of_x[0] = tile.n0 + part * 64 + warp * 16 + lane / 4;
            of_x[1] = of_x[0] + 8;
            exist[0] = of_x[0] < n;
            exist[1] = of_x[1] < n;
        } else {
            const uint32_t of_d = tile.n0 / 2 + part * 32 + warp * 8 + lane / 4;
            of_x[0] = gate == GATE_PAIRS ? 2 * of_d : of_d;
            of_x[1] = gate == GATE_PAIRS ? 2 * of_d + 1 : of_d + n / 2;
            exist[0] = exist[1] = of_d < n / 2;
        }
    }
};
