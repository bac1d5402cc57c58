// The main loop of kernels whose B is unaligned. It passes through registers, in which every thread moves its
// elements to where words begin; wgmma takes them from there.
#pragma once

#include <type_traits>

#include "multiply.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "shared.cuh"
#include "turns.cuh"
#include "unaligned.cuh"

// What a thread holds of half a stage: for each 16 of K, two words of each of its two rows of B. With a whole
// stage held at one time ptxas finds too few registers, where there is code for more than four widths.
using Held = uint32_t[K_TILE / 32][4];

// Where a thread finds its words of two rows of B in a stage, and by how many bits their elements lie off them.
// From the first row's words to the second one's it is as far, but for those behind all lines.
struct Places {
    static constexpr int words = K_TILE / 8 + 1, last = 4;  // of them, that may lie behind all lines
    uint32_t first[words], second[last];
    uint32_t bits;
};

// wgmma's rows lane / 4 and 8 + lane / 4 of a warp's 16 are a thread's. Rows that are multiples of eight apart
// begin alike; and a thread's elements of each lie side by side, a quarter of a stage's K.
template <class C>
__device__ __forceinline__ Places find_places(const Groups& groups, uint32_t group, uint32_t consumer) {
    const uint32_t lane = threadIdx.x % 32, quarter = lane % 4;
    const uint32_t row = consumer * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    const uint32_t begin = row_of_b(groups, group, row) % 16;  // a tile begins with a multiple of eight
    const auto place = [&](uint32_t row, int i) {
        const uint32_t at = quarter * (K_TILE / 8) + begin / 4 + i;
        return place_of(row, at / 4, C::rows) + at % 4 * 4;
    };
    Places places;
    places.bits = begin % 4 * 8;
#pragma unroll
    for (int i = 0; i < Places::words; ++i) places.first[i] = place(row, i);
#pragma unroll
    for (int i = 0; i < Places::last; ++i) places.second[i] = place(row + 8, Places::words - Places::last + i);
    return places;
}

// Half of a thread's elements of a stage that begins at `stage`, from word `begin` on.
template <int begin>
__device__ __forceinline__ void hold(Held& held, uint32_t stage, const Places& places) {
    constexpr int count = K_TILE / 16, apart = 8 * 128, alike = Places::words - Places::last;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        uint32_t words[count + 1];
#pragma unroll
        for (int i = 0; i <= count; ++i) {
            const int at = begin + i;
            words[i] = row == 1 && at >= alike ? ptx::load_shared_32(stage + places.second[at - alike])
                                               : ptx::load_shared_32(stage + places.first[at] + row * apart);
        }
#pragma unroll
        for (int i = 0; i < count; ++i)
            held[i / 2][i % 2 * 2 + row] = __funnelshift_r(words[i], words[i + 1], places.bits);
    }
}

// Half a K tile: two multiplies of 16 columns of K.
template <class C, int width, bool first>
__device__ __forceinline__ void multiply_held(float (&sums)[width / 2], const Held& held, uint32_t a) {
    using Multiply = wgmma::MultiplyHeld<width>;
    wgmma::fence();
    Multiply::template issue<!first>(sums, held[0], a);
    Multiply::template issue<true>(sums, held[1], a + K_STEP<C, false>);
    wgmma::commit();
}

// The sum over K of a tile, as multiply_tile makes it. While one half of a stage is multiplied, the other
// comes to its registers.
template <class C, int width>
__device__ __forceinline__ void multiply_tile_held(Sums<C, width>& blocks, Shared<C>& shared,
                                                   const Ring& ring, Cursor& stage, const Tile& tile,
                                                   const Groups& groups, uint32_t n, uint32_t turn,
                                                   uint32_t consumer) {
    auto& sums = blocks[0];
    const uint32_t k_tiles = tile.k_tiles;
    const Places places = find_places<C>(groups, tile.group, consumer);
    const bool both = at_one_time<C, width>(tile);
    if (both) pass_turn<C>(shared, stage, consumer);
    Held low, high;
    uint32_t previous = 0;
    const auto multiply_stage = [&](auto first, bool keeps) {  // the stage before
        constexpr bool begins = decltype(first)::value;
        const uint32_t index = __shfl_sync(~0u, stage.index, 0);  // as in multiply.cuh
        const uint32_t b = stage_address(shared, ring, index);
        const uint32_t a = wgmma::descriptor(ptx::shared_address(shared.ring) + C::b_bytes) +
                           index * (ring.stage_bytes >> 4);
        ptx::barrier_wait(ptx::shared_address(&shared.full[index]), stage.round);
        hold<0>(low, b, places);
        multiply_held<C, width, begins>(sums, low, a);
        wgmma::wait<1>();
        if (keeps) release_stage<C>(shared, previous);
        hold<K_TILE / 16>(high, b, places);
        multiply_held<C, width, false>(sums, high, a + 2 * K_STEP<C, false>);
        wgmma::wait<1>();
        previous = index;
        stage.advance(ring);
    };
    multiply_stage(std::true_type(), false);
#pragma unroll 1
    for (uint32_t k = 1; k < k_tiles; ++k) {
        if (width > NARROW_ROWS && k == turn) {
            wgmma::wait<0>();
            release_stage<C>(shared, previous);
            wait_turn<C>(shared, n, consumer);
        }
        multiply_stage(std::false_type(), k != turn);
    }
    if (!both) pass_turn<C>(shared, stage, consumer);
    wgmma::wait<0>();
    release_stage<C>(shared, previous);
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum));
}
