// The main loop: the sums of one tile over K.
#pragma once

#include <type_traits>

#include "gather.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "ring.cuh"
#include "shared.cuh"
#include "staged.cuh"
#include "turns.cuh"

// How C joins the sums, if it does: they begin with it, or it comes between two slices of K, by the ring or by the
// staging buffers.
enum class Joining { none, first, between, staged };

// A warpgroup's sums of one tile.
template <class C, int width>
using Sums = float[C::blocks][width / 2];

// How far on the next 16 of K are, in a descriptor: beside these, or 16 lines on.
template <class C, bool across>
constexpr uint32_t K_STEP = (across ? 16 * C::row_bytes : 32) >> 4;

// One K tile: four multiplies of 16 columns of K. `first` starts the sum instead of adding to it.
template <class C, int width, bool first>
__device__ __forceinline__ void multiply_stage(Sums<C, width>& sums, Shared<C>& shared,
                                               const Ring& ring, const Cursor& stage,
                                               uint32_t consumer) {
    // The shuffle shows the compiler that all lanes have the same index: it then computes descriptors
    // once per warp, with a third of the instructions that lanes for themselves would take.
    const uint32_t index = __shfl_sync(~0u, stage.index, 0);
    uint32_t at = index * (ring.stage_bytes >> 4);
    // Where two CTAs share an SM it does not see that the product is the same, either.
    if constexpr (C::ctas_per_sm > 1) at = __shfl_sync(~0u, at, 0);
    const uint32_t first_b = ptx::shared_address(shared.ring);
    constexpr uint32_t block = 64 * C::row_bytes >> 4;  // 64 rows of B, which are one box of them, too
    constexpr uint32_t b_step = K_STEP<C, C::b_across>, a_step = K_STEP<C, C::a_across>;
    constexpr uint32_t leading = C::a_across ? C::box_bytes : 16;
    const uint32_t own = C::pingpong ? 0 : consumer * block;
    const uint32_t b = wgmma::descriptor(first_b) + own + at;
    const uint32_t a = wgmma::descriptor<leading>(first_b + C::b_bytes) + at;
    ptx::barrier_wait(ptx::shared_address(&shared.full[index]), stage.round);
    wgmma::fence();
    using Multiply = wgmma::Multiply<width, C::b_across, C::a_across>;
#pragma unroll
    for (int i = 0; i < C::blocks; ++i)
        Multiply::template issue<!first, b_step, a_step>(sums[i], b + i * block, a);
    wgmma::commit();
}

// The sum over K of tile number `n`, which begins with what is in the sums already if C is there first. One multiply
// stays in flight while the next stage is awaited, but in front of a turn that begins with slice `turn`, and of where C
// joins, which may be behind the last slice. The first K tile stands before the loop: ptxas serialises wgmma if zeroed
// registers enter it. A flag at run time for the two would do so, too.
template <class C, int width, Joining c>
__device__ __forceinline__ void multiply_tile(Sums<C, width>& sums, Shared<C>& shared,
                                              const Ring& ring, Cursor& stage, const Tile& tile,
                                              uint32_t n, uint32_t turn, uint32_t consumer,
                                              const Params& params) {
    const uint32_t k_tiles = slices_of<C>(tile).count;
    uint32_t previous = 0, k = 1;
    const auto next = [&]() {
        previous = stage.index;
        stage.advance(ring);
    };
    const auto multiply_until = [&](uint32_t end) {
#pragma unroll 1
        for (; k < end; ++k) {
            multiply_stage<C, width, false>(sums, shared, ring, stage, consumer);
            wgmma::wait<1>();
            release_stage<C>(shared, previous);
            next();
        }
    };
    const bool both = at_one_time<C, width>(tile);
    if (both) pass_turn<C>(shared, stage, consumer);
    multiply_stage<C, width, c != Joining::first>(sums, shared, ring, stage, consumer);
    next();
    const auto pause = [&]() {
        wgmma::wait<0>();
        release_stage<C>(shared, previous);
    };
    const auto resume = [&]() {
        multiply_stage<C, width, false>(sums, shared, ring, stage, consumer);
        next();
        ++k;
    };
    if constexpr (c == Joining::staged) {
        const auto join = [&](auto piece) {  // its number, known to the compiler: sums are registers
            constexpr int i = decltype(piece)::value;
            multiply_until(adding_slice<width>(i, consumer));
            pause();
            add_piece<C, i>(sums[0], shared, params, tile, consumer);
            resume();
        };
        multiply_until(STAGED_ASKED);
        ask_for_c<C, width>(shared, params, tile, consumer);
        join(std::integral_constant<int, 0>());
        if constexpr (pieces_of(width) > 1) join(std::integral_constant<int, 1>());
    }
    if constexpr (c == Joining::between) {
        multiply_until(min(C::slices_before_c, k_tiles));
        pause();
        add_between<C>(sums[0], shared, ring, tile.beta, stage);
        if (k == k_tiles) return;
        resume();
    }
    if constexpr (C::pingpong || C::consumers == 1 || width <= NARROW_ROWS) {
        multiply_until(k_tiles);
    } else {
        // One loop for what is before the turn and in it: with a comparison in every slice it would have 59
        // instructions, not 43.
        for (uint32_t end = turn > 0 ? turn : k_tiles;; end = k_tiles) {
            multiply_until(end);
            if (end == k_tiles) break;
            pause();
            wait_turn<C>(shared, n, consumer);
            resume();
        }
    }
    const Cursor behind = await_c<C>(shared, ring, stage, c == Joining::first ? 0 : tile.c_stages);
    if (!both) pass_turn<C>(shared, behind, consumer);
    pause();
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) asm volatile("" : "+f"(sum));
}
