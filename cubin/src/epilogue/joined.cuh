// A bias that joins a tile's sums, as one more product of theirs. So it takes wgmma a sixteenth of K, where to add
// it takes as many instructions as there are sums.
//
// Along n it is one column of K of the first operand, and the second has ones there. Along m, which is wgmma's N, it
// is one k of the second operand, and the first has ones there.
#pragma once

#include <cstdint>

#include "epilogue/staging.cuh"
#include "ptx/barriers.cuh"
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

// Numbers of a bias by two, as they lie in memory. Of the first operand, which comes from registers, every fourth
// thread of a warpgroup holds column 0 of K for two rows of each block of 64, eight apart (PTX ISA, "Register
// fragments for wgmma.mma_async.m64k16"). Along n they are copied here for it, with the neighbours that they share
// four bytes with; along m, one after the other.
template <class C>
union Pairs {
    uint32_t of_columns[32][C::blocks][2];
    uint32_t of_rows[C::max_width / 2];
};

// A warp readies the ones, for everybody who meets it behind this.
__device__ __forceinline__ void ready_ones(Ones& ones) {
    const uint32_t lane = threadIdx.x % 32;
    ones.rows[lane / 4][lane % 4] = wgmma::one_if(lane % 4 == 0);
    ptx::release_to_own_copies();
    __threadfence_block();  // where a cluster meets nothing is ordered
}

// Asks for a tile's bias, which this thread waits for later. Of an odd number of them the last comes with what
// shares its four bytes, for a column or row that is not.
template <class C>
__device__ __forceinline__ void find_pairs_later(Pairs<C>& pairs, const Tile& tile, uint32_t consumer) {
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    const int left = static_cast<int>(tile.bias_left());
    if (tile.flags & TILE_JOINED_M) {
        if (thread < C::max_width / 2)
            ptx::copy_4(ptx::shared_address(&pairs.of_rows[thread]), tile.bias() + thread * 4,
                        left > static_cast<int>(2 * thread) ? 4 : 0);
        return;
    }
    if (thread % 4 != 0) return;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int column = part_of<C>(consumer, block) * 64 + thread / 32 * 16 + h * 8 + thread % 32 / 8 * 2;
            ptx::copy_4(ptx::shared_address(&pairs.of_columns[thread / 4][block][h]), tile.bias() + column * 2,
                        left > column ? 4 : 0);
        }
}

// Of eight k of a tile's rows.
template <class C>
constexpr uint32_t rows_bytes = C::max_width * 16;

// Puts those of the rows that this thread has asked for where wgmma finds them: in a staging buffer, eight k of every
// row, and behind all of these the other eight, which are zeros: an infinity may meet no zero.
template <class C, int buffers, int bytes>
__device__ __forceinline__ void spread_rows(const Pairs<C>& pairs, Staging<buffers, bytes>& staging,
                                            uint32_t consumer) {
    static_assert(2 * rows_bytes<C> <= bytes, "they fit into one");
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    ptx::warpgroup_sync(consumer);  // all have read what was staged
    if (thread < C::max_width / 2) {
        const uint32_t pair = ptx::load_shared_32(ptx::shared_address(&pairs.of_rows[thread]));
        const uint32_t to = ptx::shared_address(staging[0]) + thread * 32;
        ptx::store_shared(to, uint4{pair & 0xFFFF});
        ptx::store_shared(to + 16, uint4{pair >> 16});
        ptx::store_shared(to + rows_bytes<C>, uint4{});
        ptx::store_shared(to + rows_bytes<C> + 16, uint4{});
    }
    ptx::release_to_own_copies();
    ptx::warpgroup_sync(consumer);
}

// Joins it, once it is there, to sums that are.
template <class C, int width, int buffers, int bytes>
__device__ __forceinline__ void join_bias(float (&sums)[C::blocks][width / 2], const Ones& ones,
                                          const Pairs<C>& pairs, Staging<buffers, bytes>& staging,
                                          uint32_t flags, uint32_t consumer) {
    const bool along_m = flags & TILE_JOINED_M;
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    uint32_t held[C::blocks][4] = {};
    uint32_t second = wgmma::descriptor<0>(ptx::shared_address(&ones)), upper = 0;
    if (along_m) {
        spread_rows(pairs, staging, consumer);
        second = wgmma::descriptor<rows_bytes<C>>(ptx::shared_address(staging[0]));
        upper = wgmma::PACKED_STRIDE;
#pragma unroll
        for (auto& block : held) block[0] = block[1] = wgmma::one_if(thread % 4 == 0);
    } else {
#pragma unroll
        for (int block = 0; block < C::blocks; ++block)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t pair =
                    ptx::load_shared_32(ptx::shared_address(&pairs.of_columns[thread / 4][block][h]));
                const uint32_t own = thread / 4 % 2 == 0 ? pair & 0xFFFF : pair >> 16;
                held[block][h] = thread % 4 == 0 ? own : 0;
            }
    }
    wgmma::fence();
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
        wgmma::MultiplyHeld<width>::template issue<true>(sums[block], held[block], second, upper);
    wgmma::commit();
    wgmma::wait<0>();
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) asm volatile("" : "+f"(sum));
}
