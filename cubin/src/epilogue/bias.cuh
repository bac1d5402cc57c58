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

// Which of a warpgroup's 64 columns is a thread's first; the other one is eight further on (staging.cuh).
__device__ __forceinline__ uint32_t first_column(uint32_t thread) { return thread / 32 * 16 + thread % 32 / 4; }

// The numbers of a bias along n for a thread's two columns. It asks for them before their sums are made, and adds them
// as it multiplies these by alpha.
struct ColumnBias {
    uint32_t words[2];  // of four bytes, that they lie in

    // `part`: of the tile's columns by 64.
    __device__ __forceinline__ void find(const Tile& tile, uint32_t part) {
        const uint32_t column = part * 64 + first_column(threadIdx.x % 128);
        const uint32_t shift = tile.bias_type() == TYPE_F32 ? 2 : 1;
        const uint32_t left = tile.flags & TILE_BIAS_SCALED ? tile.bias_left() : 0;
        const uint64_t at = tile.bias() + (column << shift) / 4 * 4;
        words[0] = ptx::load_32(at, column < left);
        words[1] = ptx::load_32(at + (8 << shift), column + 8 < left);
    }
    // sums = alpha sums + bias. Where there is none, -0 takes its place, which changes no sum.
    template <int count>
    __device__ __forceinline__ void scale(float (&sums)[count], const Tile& tile, uint32_t flags,
                                          float alpha) const {
        const bool there = flags & TILE_BIAS_SCALED;
        if (alpha == 1.0f && !there) return;
        float bias[2] = {-0.0f, -0.0f};
        if (there) {
            // As bytes of a word: all four, or the half of it that the number is, above zeros.
            const uint32_t type = tile.bias_type(), half = threadIdx.x / 4 % 2 == 0 ? 0x1044 : 0x3244;
            const uint32_t bytes = type == TYPE_F32 ? 0x3210 : half;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t word = __byte_perm(words[i], 0, bytes);
                bias[i] = type == TYPE_F16 ? decode(word >> 16, TYPE_F16) : __uint_as_float(word);
            }
        }
#pragma unroll
        for (int i = 0; i < count; ++i) sums[i] = fmaf(alpha, sums[i], bias[i / 2 % 2]);
    }
};

// Adds the numbers of a thread's two columns, which lie in shared memory, from `line` on for the first of 64.
template <int count>
__device__ __forceinline__ void add_along_n(float (&sums)[count], uint32_t line, uint32_t thread) {
    const uint32_t from = line + first_column(thread) * 4;
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
