// The consuming warpgroups: tile after tile, its sums and then D.
#pragma once

#include "epilogue/rows.cuh"
#include "epilogue/store.cuh"
#include "epilogue/target.cuh"
#include "multiply.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "shared.cuh"
#include "split.cuh"
#include "turns.cuh"

// Multiplies sums by alpha in place; those by 1 pass by.
template <int blocks, int count>
__device__ __forceinline__ void scale(float (&sums)[blocks][count], float alpha) {
    if (alpha == 1.0f) return;
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) sum *= alpha;
}

// A warpgroup's share of tile number `n`. Every width has its own copy of the main loop and of the plain
// epilogue: sums that several widths share end up in local memory. `buffer` counts staging buffers.
template <class C>
__device__ __forceinline__ void consume_tile(Shared<C>& shared, const Params& params,
                                             const Tile& tile, uint32_t n, Cursor& stage,
                                             uint32_t& buffer, uint32_t consumer) {
    // Asked for before it is needed. Beside the sums of two blocks there is no room for it; there, one
    // thread puts it aside, and has the time: it is not yet the warpgroup's turn. Everybody reads it
    // after a barrier of the epilogue, and before giving back the tile: so before the next one is put
    // there, which the other warpgroup's tile lies between.
    TargetD d;
    if (!C::pingpong || threadIdx.x % 128 == 0) d.find(params.groups, tile.group);
    if (C::pingpong && threadIdx.x % 128 == 0) shared.target[consumer] = d;
    SourceC& c = shared.source[consumer][C::pingpong ? 0 : n % 2];
    Fused& fused = shared.fused[consumer][C::pingpong ? 0 : n % 2];
    if (threadIdx.x % 128 == 0 && !tile.plain) {
        fused.find(params.groups, tile.group);
        if (tile.beta != 0.0f) c.find(params.groups, tile.group);
    }
    const auto& target = C::pingpong ? shared.target[consumer] : d;
    const auto store = [&](auto& sums, uint32_t part) {
        store_tile<typename C::Output>(sums, tile, tile.n0 + part * 64, target,
                                       shared.staging[consumer], buffer, consumer);
    };
    const auto store_general = [&](auto& sums, int first_block) {
        // Registers for C on its way: what sums and 32 for all else leave. With more than 6, or 4 for a D
        // of f32, beside sums of 192, the compiler spills; more than 24 are never used.
        constexpr int all = C::consumer_registers ? C::consumer_registers : 128;
        constexpr int crowded = C::Output::half ? 6 : 4;
        constexpr int room = all - int(sizeof(sums) / 4) - 32 < 24 ? crowded : 24;
        ptx::warpgroup_sync(consumer);  // one thread has put aside where C lies, and the like
        const auto column = [&] { return tile.n0 + part_of<C>(consumer, first_block) * 64; };
        store_rows<room, typename C::Output>(sums, tile, column, target, c, fused,
                                             shared.staging[consumer], shared.lines[consumer],
                                             buffer, consumer);
    };
    wait_turn<C>(shared, n, consumer);
    if (tile.k_tiles == 0) {
        pass_turn<C>(shared, consumer);
#pragma unroll 1
        for (int i = 0; i < C::blocks; ++i) {
            float sums[1][REDUCED_ROWS / 2];
            const uint32_t part = part_of<C>(consumer, i);
            add_splits<C>(sums[0], params, tile, part, consumer);
            if (tile.plain) {
                scale(sums, tile.alpha);
                store(sums[0], part);
            } else {
                store_general(sums, i);
            }
        }
        return;
    }
    switch (tile.width) {
#define WIDTH(w)                                                                              \
    case w:                                                                                   \
        if constexpr (w <= C::max_width && w % C::width_step == 0) {                          \
            Sums<C, w> sums;                                                                  \
            multiply_tile<C, w>(sums, shared, stage, tile.k_tiles, consumer);                 \
            if (tile.splits == 0 && !tile.plain) {                                            \
                store_general(sums, 0);                                                       \
                /* Lanes meet, so that the compiler sees one path behind: without this the */ \
                /* main loop loses its uniform registers (58 instructions instead of 52). */  \
                __syncwarp();                                                                 \
                break;                                                                        \
            }                                                                                 \
            if (tile.splits == 0) scale(sums, tile.alpha);                                    \
            _Pragma("unroll") for (int i = 0; i < C::blocks; ++i) {                           \
                const uint32_t part = part_of<C>(consumer, i);                                \
                if (tile.splits > 0)                                                          \
                    store_split<C>(sums[i], params, tile, part, consumer);                    \
                else                                                                          \
                    store(sums[i], part);                                                     \
            }                                                                                 \
        }                                                                                     \
        break;
        WIDTH(16) WIDTH(32) WIDTH(48) WIDTH(64) WIDTH(80) WIDTH(96) WIDTH(112) WIDTH(128)
        WIDTH(144) WIDTH(160) WIDTH(176) WIDTH(192) WIDTH(208) WIDTH(224) WIDTH(240) WIDTH(256)
#undef WIDTH
    }
}

// One warpgroup's role: its share of every tile or, where warpgroups take turns, every other tile.
template <class C>
__device__ __forceinline__ void consume_tiles(Shared<C>& shared, const Params& params,
                                              uint32_t consumer) {
    Cursor stage;
    uint32_t buffer = 0;
    // Opaque: what follows from the tile's number is computed anew and not kept beside the sums.
    for (uint32_t n = 0;; n = ptx::opaque(n + 1)) {
        const Tile& tile = wait_tile(shared, n);
        if (tile.width == 0) return;
        if (!C::pingpong || n % 2 == consumer)
            consume_tile<C>(shared, params, tile, n, stage, buffer, consumer);
        else
            stage.skip(tile.k_tiles, C::stages);
        __syncwarp();
        if (threadIdx.x % 32 == 0) release_tile(shared, ptx::opaque(n));
    }
}
