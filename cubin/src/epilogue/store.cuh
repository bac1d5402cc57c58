// From a tile's sums in registers to D: conversion, staging, stores.
#pragma once

#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// One warpgroup's share of a tile: `2 * count` rows of D from `m0` on by 64 columns of x from `column` on. The
// sums cross the staging buffers, so that rows leave in whole lines; the stores are ordinary ones. TMA stores
// would queue up behind the loads of the next tile, which wait for memory. `turn` counts the buffers.
//
// Rows that are no whole words, and what a gate leaves, go another way, so that this one stays short: with
// branches in its midst short tiles took up to 16% longer.
template <class Output, int count, int buffers, int bytes>
__device__ __forceinline__ void store_tile(float (&sums)[count], uint32_t m0, uint32_t column,
                                           const TargetD& d, Staging<buffers, bytes>& staging,
                                           uint32_t& turn, uint32_t consumer) {
    constexpr uint32_t row_words = Output::half ? 8 : 16;  // of 16 bytes
    constexpr uint32_t width = 2 * count, rows = bytes / 16 / row_words;
    constexpr uint32_t step = 128 / row_words;  // rows that the warpgroup stores at one time
#pragma unroll
    for (uint32_t begin = 0; begin < width; begin += rows) {
        // Opaque, so that addresses are computed here and not, for all buffers and widths, in advance:
        // the compiler would keep them in local memory.
        const uint32_t thread = ptx::opaque(threadIdx.x % 128);
        const uint32_t buffer = ptx::opaque(ptx::shared_address(staging[turn++ % buffers]));
        const uint32_t end = begin + rows < width ? begin + rows : width;
        if constexpr (buffers == 1) ptx::warpgroup_sync(consumer);  // all have read what was in it
        // All but the words themselves is found before they are staged: what is loaded behind that waits until
        // it is done. The rows of a thread lie multiples of eight apart, so that its words have the same place
        // in all of them.
        const uint32_t first = thread / row_words, word = thread % row_words;
        const uint32_t from = buffer + (word / 8 * rows + first) * 128 + ((word ^ first) % 8) * 16;
        WordsOfD<Output, step> to(d, m0 + begin + first, column + word * (64 / row_words));
        if constexpr (width % step != 0) to.end(width - begin - first);
#pragma unroll
        for (uint32_t row = begin; row < end; row += 16) {
            float values[8];
#pragma unroll
            for (int i = 0; i < 8; ++i)  // of a fine width the last eight rows are none
                values[i] = row / 2 + i < count ? sums[row / 2 + i] : 0;
            stage_rows<Output, rows>(buffer, row - begin, thread, values);
        }
        // With two buffers this is enough: who writes this one again has passed the other's barrier,
        // and so have all who read this one before.
        ptx::warpgroup_sync(consumer);
#pragma unroll
        for (uint32_t down = 0; down < end - begin; down += step)
            to.store(down, ptx::load_shared(from + down * 128));
    }
}

// Copies staged rows of 64 columns of x, or of the 32 that a gate leaves, to D: `rows` of them, from row m0
// and `column` of x on. Word by word; or where D's rows are no whole words, element by element: a warp then
// takes every fourth row, and writes runs of 32. All lanes take every round, so that they stay together:
// else the main loop, far from here, loses its uniform registers.
template <class Output, uint32_t buffer_rows>
__device__ __forceinline__ void copy_rows(uint32_t buffer, const TargetD& d, uint32_t flags,
                                          uint32_t m0, uint32_t column, int rows) {
    const uint32_t thread = ptx::opaque(threadIdx.x % 128), gated = flags & TILE_GATED ? 1 : 0;
    const uint32_t d_column = column >> gated;
    const int left = static_cast<int>((d.n >> gated) - d_column);
    if (flags & TILE_WORDS) {
        constexpr uint32_t per_word = 16 / Output::size;
        const uint32_t shift = (Output::half ? 3 : 4) - gated, step = 128 >> shift;  // words of a row
        const uint32_t first = thread >> shift, word = thread % (1 << shift);
        // Rows of this thread's words that are left.
        int mine = static_cast<int>(word * per_word) < left ? rows - static_cast<int>(first) : 0;
        uint64_t to = d.address + ((m0 + first) * d.ld + d_column + word * per_word) * Output::size;
        uint32_t from =
            buffer + (word / 8 * buffer_rows + first) * 128 + ((word ^ first) % 8) * 16;
        const uint64_t to_step = step * d.ld * Output::size;
#pragma unroll 4
        for (int row = 0; row < rows; row += step) {
            ptx::store_128(to, ptx::load_shared(from), mine > 0);
            to += to_step;
            from += step * 128;
            mine -= step;
        }
    } else {
        const uint32_t warp = thread / 32, lane = thread % 32;
        const bool one = static_cast<int>(lane) < left;
        const bool other = static_cast<int>(lane + 32) < left && !gated;
        const uint64_t step = 4 * d.ld * Output::size;
        uint64_t to = d.address + ((m0 + warp) * d.ld + d_column + lane) * Output::size;
        // Where every other row has this lane's column, and the one in between: its permutation differs in its
        // last bit but two. The column 32 further on of the former, of 16 bits, is where the latter has the first.
        const uint32_t first = (Output::half ? lane / 8 * 16 + lane % 8 * 2 : lane * 4) ^ warp * 16;
        uint32_t at = buffer + warp * 128 + first, between = buffer + warp * 128 + (first ^ 64);
        const auto load = [](uint32_t address) {
            return Output::half ? ptx::load_shared_16(address) : ptx::load_shared_32(address);
        };
        const auto load_both = [&](uint32_t (&bits)[2], uint32_t at, uint32_t between) {
            bits[0] = load(at);
            bits[1] = load(Output::half ? between : at + buffer_rows * 128);
        };
        const auto store_both = [&](const uint32_t (&bits)[2], bool one, bool other) {
            if constexpr (Output::half) {
                ptx::store_16(to, bits[0], one);
                ptx::store_16(to + 64, bits[1], other);
            } else {
                ptx::store_32(to, bits[0], one);
                ptx::store_32(to + 128, bits[1], other);
            }
            to += step;
        };
        // Two rows of a warp at a time, all of whose columns are loaded first. Beside the sums there are registers
        // for no more: else the compiler lets each store wait for its load again.
#pragma unroll 1
        for (; rows >= 8; rows -= 8) {
            uint32_t bits[2][2];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                load_both(bits[i], (i % 2 ? between : at) + i * 512, (i % 2 ? at : between) + i * 512);
#pragma unroll
            for (int i = 0; i < 2; ++i) store_both(bits[i], one, other);
            at += 1024;
            between += 1024;
        }
        // Of the last rows of D there may be fewer.
#pragma unroll 1
        for (; rows > 0; rows -= 4) {
            uint32_t bits[2];
            load_both(bits, at, between);
            store_both(bits, one && rows > static_cast<int>(warp), other && rows > static_cast<int>(warp));
            const uint32_t next = between + 512;
            between = at + 512;
            at = next;
        }
    }
}

// The same as store_tile for rows of any kind. Registers can only be told apart at compile time, so that all
// chunks that are staged stand in the loop over them, each taking its turn; what comes behind the barrier
// stands there once. `gates`: whether a gate may have left every other pair of columns.
template <class Output, bool gates, int count, int buffers, int bytes>
__device__ __forceinline__ void store_any(float (&sums)[count], uint32_t flags, uint32_t m0,
                                          uint32_t column, const TargetD& d,
                                          Staging<buffers, bytes>& staging, uint32_t& turn,
                                          uint32_t consumer) {
    constexpr uint32_t width = 2 * count, rows = bytes / (Output::half ? 128 : 256);
#pragma unroll 1
    for (uint32_t begin = 0; begin < width; begin += rows) {
        const uint32_t thread = ptx::opaque(threadIdx.x % 128);
        const uint32_t buffer = ptx::opaque(ptx::shared_address(staging[turn++ % buffers]));
        if constexpr (buffers == 1) ptx::warpgroup_sync(consumer);  // all have read what was in it
        const TargetD target = d;  // before rows are staged: what is loaded behind that waits for it
#pragma unroll
        for (uint32_t chunk = 0; chunk < width; chunk += rows) {
            if (chunk != begin) continue;
            const auto stage = [&](const auto& to_rows) {
#pragma unroll
                for (uint32_t row = 0; row < rows && chunk + row < width; row += 16) {
                    float values[8];
#pragma unroll
                    for (int i = 0; i < 8; ++i) values[i] = sums[(chunk + row) / 2 + i];
                    to_rows(row, values);
                }
            };
            if (gates && flags & TILE_GATED) {
                if constexpr (gates)
                    stage([&](uint32_t row, const float(&values)[8]) {
                        stage_gated<Output>(buffer, row, thread, values);
                    });
            } else {
                stage([&](uint32_t row, const float(&values)[8]) {
                    stage_rows<Output, rows>(buffer, row, thread, values);
                });
            }
        }
        ptx::warpgroup_sync(consumer);
        const int height = static_cast<int>(min(width, target.m - m0)) - static_cast<int>(begin);
        copy_rows<Output, rows>(buffer, target, flags, m0 + begin, column, min(height, static_cast<int>(rows)));
    }
}
