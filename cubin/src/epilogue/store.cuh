// From a tile's sums in registers to D: conversion, staging, stores.
#pragma once

#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// Copies staged rows to D as the usual case does not: the 32 columns that a gate leaves, word by word; or
// 64 or 32 element by element, where D's rows are no whole words. A warp then takes every fourth row, and
// writes runs of 32. `rows` of them exist, from row m0 on.
template <class Output, uint32_t buffer_rows>
__device__ __forceinline__ void copy_rows(uint32_t buffer, const TargetD& d, uint32_t flags,
                                          uint32_t m0, uint32_t column, int rows) {
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    const bool gated = flags & TILE_GATED;
    const uint32_t d_column = gated ? column / 2 : column, d_count = gated ? d.n / 2 : d.n;
    const int left = static_cast<int>(d_count - d_column);
    if (flags & TILE_WORDS) {
        constexpr uint32_t row_words = Output::half ? 4 : 8, step = 128 / row_words;
        constexpr uint32_t per_word = 16 / Output::size;
        const uint32_t word = thread % row_words;
        uint32_t row = thread / row_words;
        uint64_t to = d.address + ((m0 + row) * d.ld + d_column + word * per_word) * Output::size;
        uint32_t from = buffer + row * 128 + ((word ^ row) % 8) * 16;
        if (static_cast<int>(word * per_word) >= left) return;
#pragma unroll 2
        for (; static_cast<int>(row) < rows; row += step) {
            ptx::store_128(to, ptx::load_shared(from));
            to += step * d.ld * Output::size;
            from += step * 128;
        }
        return;
    }
    const uint32_t warp = thread / 32, lane = thread % 32;
    // Two columns, 32 apart. The permutation of row + 4 differs in its last bit but two.
    const uint32_t first = Output::half ? lane / 8 * 16 + lane % 8 * 2 : lane * 4;
    const uint32_t second = Output::half ? first + 64 : first + buffer_rows * 128;
    const bool has_first = static_cast<int>(lane) < left;
    const bool has_second = static_cast<int>(lane + 32) < left && !gated;
    uint64_t to = d.address + ((m0 + warp) * d.ld + d_column + lane) * Output::size;
    uint32_t flip = warp * 16, from = buffer + warp * 128;
#pragma unroll 4
    for (int row = warp; row < rows; row += 4) {
        const auto load = [&](uint32_t at) {
            return Output::half ? ptx::load_shared_16(at) : ptx::load_shared_32(at);
        };
        const auto store = [&](uint64_t at, uint32_t bits, bool wanted) {
            if constexpr (Output::half)
                ptx::store_16(at, bits, wanted);
            else
                ptx::store_32(at, bits, wanted);
        };
        store(to, load(from + (first ^ flip)), has_first);
        store(to + 32 * Output::size, load(from + (second ^ flip)), has_second);
        to += 4 * d.ld * Output::size;
        from += 512;
        flip ^= 64;
    }
}

// One warpgroup's share of a tile: `2 * count` rows of D by 64 columns of x from `column` on. The sums cross
// the staging buffers, so that rows leave in whole lines; the stores are ordinary ones. TMA stores would
// queue up behind the loads of the next tile, which wait for memory. `turn` counts the buffers.
// `gates`: whether a gate may have left every other pair of columns.
template <class Output, bool gates, int count, int buffers, int bytes>
__device__ __forceinline__ void store_tile(float (&sums)[count], const Tile& tile, uint32_t column,
                                           const TargetD& d, Staging<buffers, bytes>& staging,
                                           uint32_t& turn, uint32_t consumer) {
    constexpr uint32_t row_words = Output::half ? 8 : 16;  // of 16 bytes
    constexpr uint32_t width = 2 * count, rows = bytes / 16 / row_words;
#pragma unroll
    for (uint32_t begin = 0; begin < width; begin += rows) {
        // Opaque, so that addresses are computed here and not, for all buffers and widths, in advance:
        // the compiler would keep them in local memory.
        const uint32_t thread = ptx::opaque(threadIdx.x % 128);
        const uint32_t buffer = ptx::opaque(ptx::shared_address(staging[turn++ % buffers]));
        const uint32_t end = begin + rows < width ? begin + rows : width;
        const auto stage = [&](const auto& to_rows) {
#pragma unroll
            for (uint32_t row = begin; row < end; row += 16) {
                float values[8];
#pragma unroll
                for (int i = 0; i < 8; ++i) values[i] = sums[row / 2 + i];
                to_rows(row - begin, values);
            }
        };
        const auto stage_all = [&](uint32_t row, const float(&values)[8]) {
            stage_rows<Output, rows>(buffer, row, thread, values);
        };
        if constexpr (buffers == 1) ptx::warpgroup_sync(consumer);  // all have read what was in it
        if constexpr (gates) {
            if (tile.flags & TILE_GATED)
                stage([&](uint32_t row, const float(&values)[8]) {
                    stage_gated<Output>(buffer, row, thread, values);
                });
            else
                stage(stage_all);
        } else {
            stage(stage_all);
        }
        // With two buffers this is enough: who writes this one again has passed the other's barrier,
        // and so have all who read this one before.
        ptx::warpgroup_sync(consumer);
        const TargetD to = d;  // which may lie in shared memory: read once for many stores
        if ((tile.flags & (TILE_WORDS | TILE_GATED)) == TILE_WORDS) {
#pragma unroll
            for (uint32_t first = 0; first < end - begin; first += 128 / row_words) {
                const uint32_t row = first + thread / row_words, word = thread % row_words;
                const uint32_t from =
                    buffer + (word / 8 * rows + row) * 128 + ((word ^ row) % 8) * 16;
                store_word<Output>(to, tile.m0 + begin + row, column + word * (64 / row_words),
                                   ptx::load_shared(from));
            }
        } else {
            const int height = min(static_cast<int>(end), static_cast<int>(to.m - tile.m0));
            copy_rows<Output, rows>(buffer, to, tile.flags, tile.m0 + begin, column,
                                    height - static_cast<int>(begin));
        }
    }
}
