// From a plain tile's sums in registers to D: conversion, staging, stores.
#pragma once

#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// One warpgroup's share of a tile: `2 * count` rows of D by 64 columns from `column` on. The sums cross
// the staging buffers, so that rows leave in whole lines; the stores are ordinary ones. TMA stores would
// queue up behind the loads of the next tile, which wait for memory. `turn` counts the buffers.
//
// What is not plain goes the way of rows.cuh, so that this one stays short: with C's loads in its midst
// every tile took 6 to 14% longer at K = 2048 and 768, for want of instruction cache.
template <class Output, int count, int buffers, int bytes>
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
        if constexpr (buffers == 1) ptx::warpgroup_sync(consumer);  // all have read what was in it
#pragma unroll
        for (uint32_t row = begin; row < end; row += 16) {
            float values[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) values[i] = sums[row / 2 + i];
            stage_rows<Output, rows>(buffer, row - begin, thread, values);
        }
        // With two buffers this is enough: who writes this one again has passed the other's barrier,
        // and so have all who read this one before.
        ptx::warpgroup_sync(consumer);
        const TargetD to = d;  // which may lie in shared memory: read once for many stores
#pragma unroll
        for (uint32_t first = 0; first < end - begin; first += 128 / row_words) {
            const uint32_t row = first + thread / row_words, word = thread % row_words;
            const uint32_t from = buffer + (word / 8 * rows + row) * 128 + ((word ^ row) % 8) * 16;
            store_word<Output>(to, tile.m0 + begin + row, column + word * (64 / row_words),
                               ptx::load_shared(from));
        }
    }
}

