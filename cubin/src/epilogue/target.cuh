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

// Copies one 16-byte word of a staging buffer to D, or of its elements those that lie in D.
template <class Output, bool plain>
__device__ __forceinline__ void store_word(const TargetD& d, uint32_t row, uint32_t column,
                                           uint4 word) {
    constexpr uint32_t size = Output::half ? 2 : 4, elements = 16 / size;
    if (row >= d.m || column >= d.n) return;
    const uint64_t to = d.address + (row * d.ld + column) * size;
    if (plain || (column + elements <= d.n && to % 16 == 0)) {
        ptx::store_128(to, word);
        return;
    }
    const uint32_t words[] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < elements; ++i) {
        if (column + i >= d.n) return;
        if constexpr (Output::half)
            ptx::store_16(to + 2 * i, words[i / 2] >> i % 2 * 16);
        else
            ptx::store_32(to + 4 * i, words[i]);
    }
}
