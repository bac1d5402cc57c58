// A bias along n that joins a tile's sums, as one more product of theirs: of a matrix that has it in one column of
// K, and a matrix that has ones there. So it takes wgmma a sixteenth of K, where to add it takes as many
// instructions as there are sums.
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "ptx/wgmma.cuh"
#include "records.cuh"
#include "split.cuh"

// Eight rows of eight k, alike: a one and zeros. It is both halves of the 16 k of wgmma's second operand, of which
// the other half meets zeros.
struct Ones {
    alignas(16) uint32_t rows[8][4];
};

// Of the first operand, which comes from registers, every fourth thread of a warpgroup holds column 0 of K for two
// rows of each block of 64, eight apart (PTX ISA, "Register fragments for wgmma.mma_async.m64k16"). They are copied
// here for it, with the neighbours that they share four bytes with.
template <int blocks>
struct Pairs {
    uint32_t of_block[blocks][2];
};

// A warp readies the ones, for everybody who learns from it that there is a first tile.
template <class Operand>
__device__ __forceinline__ void ready_ones(Ones& ones) {
    const uint32_t lane = threadIdx.x % 32;
    ones.rows[lane / 4][lane % 4] = lane % 4 == 0 ? Operand::one : 0;
    ptx::release_to_own_copies();
}

// Asks for a tile's bias, which this thread waits for later. Of an odd number of them the last comes with what
// shares its four bytes, for a column that is not.
template <class C>
__device__ __forceinline__ void find_pairs_later(Pairs<C::blocks>* pairs, const Tile& tile, uint32_t consumer) {
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    if (thread % 4 != 0) return;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int column = part_of<C>(consumer, block) * 64 + thread / 32 * 16 + h * 8 + thread % 32 / 8 * 2;
            const int left = static_cast<int>(tile.bias_columns()) - column;
            ptx::copy_4(ptx::shared_address(&pairs[thread / 4].of_block[block][h]), tile.bias() + column * 2,
                        left > 0 ? 4 : 0);
        }
}

// Joins it, once it is there, to sums that are.
template <class C, int width>
__device__ __forceinline__ void join_bias(float (&sums)[C::blocks][width / 2], const Ones& ones,
                                          const Pairs<C::blocks>* pairs) {
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    const uint32_t ones_at = wgmma::descriptor_of_alike(ptx::shared_address(&ones));
    uint32_t held[C::blocks][4] = {};
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const uint32_t pair = ptx::load_shared_32(ptx::shared_address(&pairs[thread / 4].of_block[block][h]));
            const uint32_t own = thread / 4 % 2 == 0 ? pair & 0xFFFF : pair >> 16;
            held[block][h] = thread % 4 == 0 ? own : 0;
        }
    wgmma::fence();
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
        wgmma::MultiplyHeld<width>::template issue<typename C::Operand, true, 0>(sums[block], held[block], ones_at);
    wgmma::commit();
    wgmma::wait<0>();
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) asm volatile("" : "+f"(sum));
}
