// What two warps that have nothing else to do bring into the L2: the tables, and the D that a CTA's first sums are
// added to.
#pragma once

#include "gather.cuh"
#include "maps.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"
#include "schedule.cuh"

constexpr uint32_t FETCHING = 64;       // threads of a CTA
constexpr uint32_t FETCH_AFTER = 1000;  // ns, so that the loader's first boxes come before

// The tables, by all CTAs together, as far as one line for each thread goes. Otherwise every first use of a record, a
// map or a group would wait for memory, one after the other.
__device__ __forceinline__ void fetch_tables(const Params& params) {
    const uint64_t at = (blockIdx.x * uint64_t{FETCHING} + threadIdx.x % FETCHING) * 128;
    if (at < params.tables_bytes) ptx::prefetch(params.tables + at);
    const ConstantMaps& there = params.constants;
    if (at < there.groups * there.each * sizeof(TensorMap))
        ptx::prefetch(reinterpret_cast<const uint8_t*>(constant_maps + there.first) + at);
}

// D that is added to: the L2 would ask for these lines when the sums come, all at the end of the first tiles. Where
// there are more than two for each, later sums come while others multiply, and asking only holds up what operands
// wait for.
template <class C>
__device__ __forceinline__ void fetch_added(const Params& params) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    const Groups& groups = params.groups;
    const uint32_t clusters = ptx::cluster_count();
    uint32_t index = blockIdx.x / C::ctas;
    if (params.tile_count > 2 * clusters || !adds_up<C>()) return;
    constexpr uint32_t fetching = FETCHING / C::loaders;  // one warp, where another loads
#pragma unroll 1
    for (int turn = 0; turn < (C::pingpong ? 2 : 1) && index < params.tile_count; ++turn) {
        const Tile& tile = params.tiles[index];
        if (!(tile.flags & TILE_ADDED) || tile.splits > 0) return;
        if (turn == 0) __nanosleep(FETCH_AFTER);
        const uint32_t column = tile.n0 + rank * C::rows, n = groups.n[tile.group];
        if (column >= n) return;
        const uint64_t pitch = groups.ld_d[tile.group] * 4, first = groups.ptr_d[tile.group] + column * 4;
        const uint32_t bytes = min(uint32_t{C::rows}, n - column) * 4;
        const uint32_t end = min(tile.m0 + tile.width, groups.m[tile.group]);
        for (uint32_t row = tile.m0 + threadIdx.x % fetching; row < end; row += fetching)
            ptx::bulk_prefetch(first + row * pitch, bytes);
        index = second_tile<C>(index, clusters, params.tile_count);
    }
}
