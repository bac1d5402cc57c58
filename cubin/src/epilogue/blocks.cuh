// What no plain tile has: a C or a bias behind its sums, an activation, a gate, rows off 16 bytes.
#pragma once

#include <cstdint>

#include "epilogue/ending.cuh"
#include "epilogue/following.cuh"
#include "epilogue/fused.cuh"
#include "epilogue/store.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "shared.cuh"
#include "split.cuh"

// Moves the sums of each block but the first to the registers of the one before.
template <int blocks, int count>
__device__ __forceinline__ void move_up(float (&sums)[blocks][count]) {
#pragma unroll
    for (int block = 1; block < blocks; ++block)
#pragma unroll
        for (int i = 0; i < count; ++i) sums[block - 1][i] = sums[block][i];
}

// What is added behind sums, first for all of a warpgroup's blocks, from `first_block` on: C that came through the ring,
// and where their bias is in shared memory, which this returns. `fuses`: whether there is code for more than a bias
// and relu; `turn` counts staging buffers.
template <class C, bool fuses, int blocks, int count>
__device__ __forceinline__ uint32_t add_for_all(float (&sums)[blocks][count], Shared<C>& shared, const Ring& ring,
                                                const Tile& tile, const Kinds& kinds, const TargetD& d,
                                                const Fused& fused, Cursor& stage, uint32_t& turn, int first_block,
                                                uint32_t consumer) {
    if constexpr (fuses && blocks == C::blocks)
        if (tile.c_stages > 0 && !(tile.flags & TILE_C_IN_SUMS))
            add_c(sums, shared, ring, tile, fused.c, kinds.c_type, stage, consumer);
    if (kinds.bias_along == BIAS_NONE) return 0;
    const uint32_t line = bias_line(shared, turn, consumer);
    stage_bias<C>(line, tile, d, fused.bias, kinds, first_block, blocks, consumer);
    return line;
}

// Then for one block, `part` of the tile's columns: another C, and the bias, which lies from `line` on.
template <class C, bool fuses, int count>
__device__ __forceinline__ void add_for_one(float (&sums)[count], const Tile& tile, const Kinds& kinds,
                                            const TargetD& d, const Fused& fused, uint32_t part, uint32_t line) {
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    if constexpr (fuses) add_single<C>(sums, tile, d, fused.c, kinds, part);
    if (kinds.bias_along == BIAS_N)
        add_along_n(sums, line, thread);
    else if (kinds.bias_along == BIAS_M)
        add_along_m(sums, line, thread);
}

// From alpha A B to D, for a warpgroup's blocks from `first_block` on. One after the other, each moved to
// the registers of the first: so this code stands there once for a width, and more of it is in the caches
// of instructions.
template <class C, bool fuses, int blocks, int count>
__device__ __forceinline__ void store_blocks(float (&sums)[blocks][count], Shared<C>& shared,
                                             const Ring& ring, const Tile& tile,
                                             const Ending& ending, const TargetD& d,
                                             const Fused& fused, Cursor& stage, uint32_t& turn,
                                             int first_block, uint32_t consumer) {
    const uint32_t flags = ending.flags;
    const Kinds kinds(ending.kinds);
    auto& staging = shared.staging[consumer];
    // Defined on all paths: else the main loop takes an instruction more, and short K 4% longer.
    uint32_t line = 0;
    if (ending.plus())
        line = add_for_all<C, fuses>(sums, shared, ring, tile, kinds, d, fused, stage, turn, first_block, consumer);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        if (block > 0) move_up(sums);
        const uint32_t part = part_of<C>(consumer, first_block + block), column = tile.n0 + part * 64;
        if (ending.plus()) {
            add_for_one<C, fuses>(sums[0], tile, kinds, d, fused, part, line);
            line += kinds.bias_along == BIAS_N ? 256 : 0;
        }
        if constexpr (fuses) activate<C::gelu_in_pieces>(sums[0], kinds.activation, flags & TILE_GATED);
        if (flags & TILE_RELU) activate(sums[0], ACTIVATION_RELU, false);
        if (ending.words())
            store_tile<typename C::Output>(sums[0], tile.m0, column, d, staging, turn, consumer);
        else
            store_any<typename C::Output, fuses>(sums[0], flags, tile.m0, column, d, staging,
                                                 turn, consumer);
    }
}
