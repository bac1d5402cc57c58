// The gate: which columns of x meet in one of D.
#pragma once

#include <cstdint>

#include "records.cuh"

// 64 staged columns: neighbours in x, whose pairs a gate may multiply; or where it multiplies halves of x, 32
// of the first half and then those 32 of the second that they meet. The loader brings B in that order.
struct StagedColumns {
    bool gated, halves;
    uint32_t first;    // of D
    uint32_t d_count;  // columns that D has

    // From column `column` of x on, which has n; with halves, the columns count as pairs.
    __device__ __forceinline__ StagedColumns(uint32_t gate, uint32_t column, uint32_t n)
        : gated(gate != GATE_NONE),
          halves(gate == GATE_HALVES),
          first(gated ? column / 2 : column),
          d_count(gated ? n / 2 : n) {}

    // The column of x that is staged in column `c`, and how many follow it there, itself included, that exist.
    __device__ __forceinline__ uint32_t of_x(uint32_t c) const {
        if (halves) return first + c % 32 + (c < 32 ? 0 : d_count);
        return (gated ? 2 * first : first) + c;
    }
    __device__ __forceinline__ int left(uint32_t c) const {
        if (halves) return static_cast<int>(d_count - first - c % 32);
        const int d_left = d_count - first;
        return (gated ? 2 * d_left : d_left) - static_cast<int>(c);
    }
    // Columns of x between staged column `c` and c + 32.
    __device__ __forceinline__ uint32_t far() const { return halves ? d_count : 32; }
};
