// The main loop: the sums of one tile over K.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "ring.cuh"
#include "shared.cuh"
#include "turns.cuh"

// A warpgroup's sums of one tile.
template <class C, int width>
using Sums = float[C::blocks][width / 2];

// One K tile: four multiplies of 16 columns of K. `first` starts the sum instead of adding to it.
template <class C, int width, bool first>
__device__ __forceinline__ void multiply_stage(Sums<C, width>& sums, Shared<C>& shared,
                                               const Cursor& stage, uint32_t consumer) {
    // The shuffle shows the compiler that all lanes have the same index: it then computes descriptors
    // once per warp, with a third of the instructions that lanes for themselves would take.
    const uint32_t index = __shfl_sync(~0u, stage.index, 0);
    const uint32_t ring = ptx::shared_address(shared.ring), at = index * (C::stage_bytes >> 4);
    constexpr uint32_t block = 64 * C::row_bytes >> 4, step = 32 >> 4;  // 64 rows of B, 16 columns
    const uint32_t own = C::pingpong ? 0 : consumer * block;
    const uint32_t b = wgmma::descriptor(ring) + own + at;
    const uint32_t a = wgmma::descriptor(ring + C::b_bytes) + at;
    ptx::barrier_wait(ptx::shared_address(&shared.full[index]), stage.round);
    wgmma::fence();
    using Multiply = wgmma::Multiply<width>;
#pragma unroll
    for (int i = 0; i < C::blocks; ++i) {
        const uint32_t rows = b + i * block;
        Multiply::template issue<typename C::Operand, !first>(sums[i], rows, a);
        Multiply::template issue<typename C::Operand, true>(sums[i], rows + step, a + step);
        Multiply::template issue<typename C::Operand, true>(sums[i], rows + 2 * step, a + 2 * step);
        Multiply::template issue<typename C::Operand, true>(sums[i], rows + 3 * step, a + 3 * step);
    }
    wgmma::commit();
}

// The sum over K of one tile. One multiply stays in flight while the next stage is awaited. The first
// K tile stands before the loop: ptxas serialises wgmma if zeroed registers enter it.
template <class C, int width>
__device__ __forceinline__ void multiply_tile(Sums<C, width>& sums, Shared<C>& shared,
                                              Cursor& stage, const Tile& tile, uint32_t consumer) {
    const uint32_t k_tiles = tile.k_tiles;
    multiply_stage<C, width, true>(sums, shared, stage, consumer);
    uint32_t previous = stage.index;
    stage.advance(C::stages);
#pragma unroll 1
    for (uint32_t k = 1; k < k_tiles; ++k) {
        multiply_stage<C, width, false>(sums, shared, stage, consumer);
        wgmma::wait<1>();
        release_stage<C>(shared, previous);
        previous = stage.index;
        stage.advance(C::stages);
    }
    await_c<C>(shared, stage, tile.c_stages);
    pass_turn<C>(shared, consumer);
    wgmma::wait<0>();
    release_stage<C>(shared, previous);
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) asm volatile("" : "+f"(sum));
}
