// From a tile's sums in registers to a D by columns: what wgmma leaves is in its order already.
#pragma once

#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "ptx/matrices.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// A line is a column of D. Every warp has 16 of the warpgroup's 64 all to itself, and a share of its staging
// buffers where 128 bytes of each of them stand: no warp waits for another. The 16-byte words of line l are
// permuted by this, so that neither the sums of eight lines nor the words of one meet a bank twice.
__device__ __forceinline__ constexpr uint32_t line_swizzle(uint32_t line) {
    return line % 4 * 2 + line / 4 % 2;
}

// Writes the sums of 16 lines and 16 rows of D, `row` rows along them.
template <class Output>
__device__ __forceinline__ void stage_lines(uint32_t buffer, uint32_t row, uint32_t lane,
                                            const float (&v)[8]) {
    if constexpr (Output::half) {
        // Lane 8i + j addresses line j of matrix i: lines 8 (i % 2), rows 8 (i / 2).
        const uint32_t first = (lane / 16 ^ line_swizzle(lane % 8)) * 16;
        ptx::store_matrices(buffer + lane % 16 * 128 + (first ^ row * 2), Output::pack(v[0], v[1]),
                            Output::pack(v[2], v[3]), Output::pack(v[4], v[5]),
                            Output::pack(v[6], v[7]));
    } else {
        const uint32_t line = lane / 4;
        const uint32_t first = (lane % 4 / 2 ^ line_swizzle(line)) * 16;
        const uint32_t to = buffer + line * 128 + lane % 2 * 8;
#pragma unroll
        for (uint32_t b = 0; b < 2; ++b)
#pragma unroll
            for (uint32_t h = 0; h < 2; ++h)
                ptx::store_shared(to + h * 8 * 128 + (first ^ (row + 8 * b) * 4), v[4 * b + 2 * h],
                                  v[4 * b + 2 * h + 1]);
    }
}

// One warpgroup's share of a tile: 64 columns of D from `column` on by `2 * count` rows from `m0` on. A D whose
// columns are no whole words, or more than alpha A B, goes by rows.
template <class Output, int count, int buffers, int bytes>
__device__ __forceinline__ void store_lines(float (&sums)[count], uint32_t m0, uint32_t column,
                                            const TargetD& d, Staging<buffers, bytes>& staging) {
    constexpr uint32_t width = 2 * count, rows = 128 / Output::size;
    constexpr uint32_t share = bytes / 4, own = 16 * 128;  // bytes: a warp's of each buffer; in use
    static_assert(own <= share, "a warp's lines fit into its share");
    // Opaque, as in store_tile.
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    const uint32_t lane = thread % 32, warp = thread / 32;
    const uint32_t first = lane / 8, word = lane % 8;  // what a thread stores: of every fourth line
    const uint32_t line = column + warp * 16 + first;
    const int lines = static_cast<int>(d.n - line);
    const int left = static_cast<int>(min(width, d.m - m0)) -
                     static_cast<int>(word * (16 / Output::size));
    const uint64_t step = 4 * d.ld * Output::size;
    const uint64_t to = d.address + (line * d.ld + m0) * Output::size + word * 16;
#pragma unroll
    for (uint32_t begin = 0; begin < width; begin += rows) {
        const uint32_t buffer =
            ptx::opaque(ptx::shared_address(staging[begin / rows % buffers])) + warp * share;
        if (buffers == 1 || begin == 0) __syncwarp();  // all have read what was in it
#pragma unroll
        for (uint32_t row = begin; row < begin + rows && row < width; row += 16) {
            float values[8];
#pragma unroll
            for (int i = 0; i < 8; ++i)  // of a fine width the last eight rows are none
                values[i] = row / 2 + i < count ? sums[row / 2 + i] : 0;
            stage_lines<Output>(buffer, row - begin, lane, values);
        }
        // With two buffers, who writes one again has passed the barrier between the other's writes and reads.
        __syncwarp();
        const uint32_t from = buffer + first * 128 + (word ^ line_swizzle(first)) * 16;
#pragma unroll
        for (int down = 0; down < 16; down += 4)
            ptx::store_128(to + down / 4 * step + begin * Output::size,
                           ptx::load_shared((from + down * 128) ^ down / 4 % 2 * 16),
                           left > static_cast<int>(begin) && lines > down);
    }
}
