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

// From alpha A B to D, for a warpgroup's blocks from `first_block` on. One after the other, each moved to
// the registers of the first: so this code stands there once for a width, and more of it is in the caches
// of instructions. `fuses`: whether there is code for more than a bias and relu. `turn` counts staging buffers.
template <class C, bool fuses, int blocks, int count>
__device__ __forceinline__ void store_blocks(float (&sums)[blocks][count], Shared<C>& shared,
                                             const Ring& ring, const Tile& tile,
                                             const Ending& ending, const TargetD& d,
                                             const Fused& fused, Cursor& stage, uint32_t& turn,
                                             int first_block, uint32_t consumer) {
    const uint32_t flags = ending.flags;
    const bool follows = fuses && ending.fused();
    auto& staging = shared.staging[consumer];
    // Defined on all paths: else the main loop takes an instruction more, and short K 4% longer.
    Kinds kinds = {};
    uint32_t line = 0;
    if (follows || ending.biased()) {
        kinds = fused.all_kinds();
        if constexpr (fuses && blocks == C::blocks)
            if (follows && ending.beta != 0.0f && !(flags & TILE_C_IN_SUMS) && tile.c_stages > 0)
                add_c(sums, shared, ring, tile, fused.c, stage, consumer);
        if (C::scales_bias && flags & TILE_BIAS_SCALED) kinds.bias_along = BIAS_NONE;  // it is there
        if (kinds.bias_along != BIAS_NONE) {
            line = bias_line(shared, turn, consumer);
            stage_bias<C>(line, tile, d, fused.bias, kinds, first_block, blocks, consumer);
        }
    }
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        if (block > 0) move_up(sums);
        const uint32_t part = part_of<C>(consumer, first_block + block), column = tile.n0 + part * 64;
        const uint32_t thread = ptx::opaque(threadIdx.x % 128);
        if constexpr (fuses)
            if (follows) add_single<C>(sums[0], tile, d, fused.c, kinds.gate, part);
        if (kinds.bias_along == BIAS_N) {
            add_along_n(sums[0], line, thread);
            line += 256;
        } else if (kinds.bias_along == BIAS_M) {
            add_along_m(sums[0], line, thread);
        }
        if constexpr (fuses)
            if (follows) activate<C::gelu_in_pieces>(sums[0], kinds.activation, flags & TILE_GATED);
        if (flags & TILE_RELU) activate(sums[0], ACTIVATION_RELU, false);
        if (ending.words())
            store_tile<typename C::Output>(sums[0], tile.m0, column, d, staging, turn, consumer);
        else
            store_any<typename C::Output, fuses>(sums[0], flags, tile.m0, column, d, staging,
                                                 turn, consumer);
    }
}
