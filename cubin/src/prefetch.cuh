// What is on its way into the L2 before anybody asks for it: the tables, and C.
#pragma once

#include "epilogue/source.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"
#include "schedule.cuh"
#include "shared.cuh"

// Two warps that have nothing else to do, in all CTAs together: bring the tables into the L2, as far as
// one line for each thread goes. Otherwise every first use of a record, a map or a group would wait for
// memory, one after the other.
__device__ __forceinline__ void fetch_tables(const Params& params) {
    const uint64_t at = (blockIdx.x * uint64_t{64} + threadIdx.x % 64) * 128;
    if (at < params.tables_bytes) ptx::prefetch(params.tables + at);
}

// One of these warps, in a launch that adds any C: brings every tile's part of it into the L2, a tile ahead
// of those who will read it. Without C it would only be one more to wait for: 2% on `tiny1k`.
template <class C>
__device__ __forceinline__ void fetch_sources(Shared<C>& shared, const Params& params) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank(), lane = threadIdx.x % 32;
    for (uint32_t n = 0;; ++n) {
        const Tile& tile = wait_tile(shared, n);
        if (tile.width == 0) return;
        const bool stores = tile.splits == 0 || tile.k_tiles == 0;
        if (stores && tile.beta != 0.0f) {
            SourceC c;
            c.find(params.groups, tile.group);
            // Where a gate multiplies halves, half as many columns, twice.
            const uint32_t runs = tile.half ? 2 : 1;
            const uint32_t column = (tile.n0 + rank * C::rows) / runs;
            const uint32_t count = tile.half ? tile.half : params.groups.n[tile.group];
            const int columns = min(static_cast<int>(C::rows / runs), static_cast<int>(count - column));
            const uint32_t rows = min(tile.width, params.groups.m[tile.group] - tile.m0);
            if (columns > 0)
                for (uint32_t i = lane; i < runs * rows; i += 32) {
                    // Whole 16-byte words: those at the ends may reach into a neighbour.
                    const uint32_t row = tile.m0 + i / runs, from = column + i % runs * tile.half;
                    const uint64_t at = c.address + row * c.row_bytes + from * uint64_t{c.bytes()};
                    const uint64_t begin = at / 16 * 16;
                    const uint64_t end = (at + columns * c.bytes() + 15) / 16 * 16;
                    ptx::bulk_prefetch(begin, end - begin);
                }
        }
        __syncwarp();
        if (lane == 0) release_tile(shared, n);
    }
}
