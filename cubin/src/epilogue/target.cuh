// D in global memory.
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "records.cuh"

// Where a group's D lies.
struct TargetD {
    uint64_t address, ld;
    uint32_t m, n;

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group) {
        address = groups.ptr_d[group];
        ld = groups.ld_d[group];
        m = groups.m[group];
        n = groups.n[group];
    }
};

// Copies one 16-byte word of a staging buffer to D, if it lies there.
template <class Output>
__device__ __forceinline__ void store_word(const TargetD& d, uint32_t row, uint32_t column,
                                           uint4 word) {
    if (row >= d.m || column >= d.n) return;
    ptx::store_128(d.address + (row * d.ld + column) * Output::size, word);
}
