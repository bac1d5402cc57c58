// C of a tile whose warpgroups share it: it comes to the staging buffers, which nobody needs before the sums are
// done, and joins these between two slices of K. While one warpgroup adds, the other multiplies at the full rate.
#pragma once

#include "epilogue/source.cuh"
#include "maps.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "shared.cuh"
#include "split.cuh"

// Pieces that a tile's C comes in: as many rows of D as all buffers of a warpgroup have room for, and the rest.
__host__ __device__ constexpr int pieces_of(int width) {
    return width > STAGED_ROWS ? 2 : 1;
}

// Before which slice of K a warpgroup adds piece `i`: soon, since the first one, which stores first, is ahead of the
// other then, and never both at one time. Slices of low tiles, of one piece, take less time.
template <int width>
__device__ __forceinline__ uint32_t adding_slice(int i, uint32_t consumer) {
    return (pieces_of(width) > 1 ? STAGED_FROM + i * STAGED_SLICES : STAGED_LOW_FROM) + consumer;
}

// Asks for piece `i` of a warpgroup's columns, by one thread.
template <class C, int width, int i>
__device__ __forceinline__ void ask_for_piece(Shared<C>& shared, const Params& params, const Tile& tile,
                                              uint32_t consumer) {
    constexpr int first = i * STAGED_ROWS, rows = width - first < STAGED_ROWS ? width - first : STAGED_ROWS;
    constexpr int boxes = (rows + STAGED_BOX - 1) / STAGED_BOX;
    const uint32_t full = ptx::shared_address(&shared.c_full[consumer]);
    const uint32_t to = ptx::shared_address(shared.staging[consumer]);
    const TensorMap& map = maps_of(params, tile.group).c;
    const int column = tile.n0 + part_of<C>(consumer, 0) * 64;
    ptx::barrier_expect(full, boxes * STAGED_BOX * C::row_bytes);
#pragma unroll
    for (int box = 0; box < boxes; ++box)
        ptx::tensor_load(to + box * STAGED_BOX * C::row_bytes, &map, full, ptx::NO_HINT, column,
                         tile.m0 + first + box * STAGED_BOX);
}

// Asks for the first piece.
template <class C, int width>
__device__ __forceinline__ void ask_for_c(Shared<C>& shared, const Params& params, const Tile& tile,
                                          uint32_t consumer) {
    ptx::release_to_own_copies();
    ptx::warpgroup_sync(consumer);  // all have read what was in the buffers
    if (threadIdx.x % 128 == 0) {
        acquire_c(params, tile.group);
        ask_for_piece<C, width, 0>(shared, params, tile, consumer);
    }
    __syncwarp();
}

// Adds piece `i`, times beta, to a warpgroup's sums, and asks for the next one. Of every tile the barrier counts two,
// so that the first is always an even one.
template <class C, int i, int count>
__device__ __forceinline__ void add_piece(float (&sums)[count], Shared<C>& shared, const Params& params,
                                          const Tile& tile, uint32_t consumer) {
    constexpr int first = i * STAGED_ROWS / 2;
    constexpr int some = count - first < STAGED_ROWS / 2 ? count - first : STAGED_ROWS / 2;
    const uint32_t full = ptx::shared_address(&shared.c_full[consumer]);
    ptx::barrier_wait(full, i);
    // What reads sums comes behind the wait for the last multiplication. ptxas wants all of them to be results of
    // something, or serialises all multiplications: to those that have no part in the piece nothing is added.
    const float beta = tile.beta;
    float nothing = -0.0f;
    asm volatile("" : "+f"(nothing));
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum));
#pragma unroll
    for (int j = 0; j < count; ++j)
        if (j < first || j >= first + some) sums[j] += nothing;
    each_of_pairs<typename C::Output::Pair, some>(
        ptx::shared_address(shared.staging[consumer]), ptx::opaque(threadIdx.x % 128),
        [&](int j, float c) { sums[first + j] = fmaf(beta, c, sums[first + j]); });
    if constexpr (i == 0) {
        ptx::release_to_own_copies();
        ptx::warpgroup_sync(consumer);
        if (ptx::opaque(threadIdx.x) % 128 == 0) {
            if constexpr (pieces_of(2 * count) > 1)
                ask_for_piece<C, 2 * count, 1>(shared, params, tile, consumer);
            else
                ptx::barrier_arrive(full);
        }
        __syncwarp();
    }
}
