// The bias: a number for every column of x, or for every row.
#pragma once

#include <cstdint>

#include "epilogue/source.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// A number of a bias of some type, if `wanted`, else 0.
__device__ __forceinline__ float load_bias(uint64_t bias, uint32_t type, uint32_t index, bool wanted) {
    const uint32_t bits = type == TYPE_F32 ? ptx::load_32(bias + uint64_t{index} * 4, wanted)
                                           : ptx::load_16(bias + uint64_t{index} * 2, wanted);
    return decode(bits, type);
}

// Adds the numbers of a thread's two columns, which lie in shared memory, from `line` on for the first of 64.
template <int count>
__device__ __forceinline__ void add_along_n(float (&sums)[count], uint32_t line, uint32_t thread) {
    const uint32_t from = line + (thread / 32 * 16 + thread % 32 / 4) * 4;
    const float bias[2] = {__uint_as_float(ptx::load_shared_32(from)),
                           __uint_as_float(ptx::load_shared_32(from + 32))};
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] += bias[i / 2 % 2];
}

// Adds the numbers of a thread's rows, which lie in shared memory, from `line` on for the tile's first row.
template <int count>
__device__ __forceinline__ void add_along_m(float (&sums)[count], uint32_t line, uint32_t thread) {
    const uint32_t from = line + thread % 4 * 8;
#pragma unroll
    for (int i = 0; i < count; i += 4) {
        float bias[2];
        ptx::load_shared(bias, from + i / 4 * 32);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i + j] += bias[j % 2];
    }
}
