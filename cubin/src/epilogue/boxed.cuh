// D of 32 bits that leaves by TMA: alpha A B, or alpha A B + D, which the L2 adds up where D lies.
#pragma once

#include "epilogue/staging.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// One warpgroup's share of a tile: `2 * count` rows of D by 64 columns, those of its part, which are stored or, if it
// `adds`, added to what is there. Sums cross shared memory in boxes. `turn` counts them, each in the next of the places
// that the staging buffers have. The four warps hand them over by turns, so that none has to wait for one that does;
// each waits for its own later, before the place is written again. Who uses the buffers for anything else waits for
// all four at a barrier before. (Whether it adds is asked once: a branch for each box takes up what TMA gains.)
//
// A map of pairs of rows has no last one that is over, and those in D's order are staged more slowly. That delays what is
// stored by 2.5%, and what the L2 adds not at all.
template <bool adds, int count, int buffers, int bytes>
__device__ __forceinline__ void box_tile(const float (&sums)[count], const Tile& tile, uint32_t part,
                                         const TensorMap* map, Staging<buffers, bytes>& staging,
                                         uint32_t& turn, uint32_t consumer) {
    constexpr uint32_t places = buffers * bytes / D_BOX_BYTES, warps = 4;
    static_assert(places > 2, "one is read while another is written");
    static_assert(places <= warps + 1, "who waits for a box has handed over none since");
#pragma unroll
    for (uint32_t row = 0; row < 2 * count; row += BOXED_ROWS, ++turn) {
        const uint32_t place =
            ptx::opaque(ptx::shared_address(staging[0])) + turn % places * D_BOX_BYTES;
        float values[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = sums[row / 2 + i];
        stage_box<!adds>(place, ptx::opaque(threadIdx.x % 128), values);
        ptx::release_to_own_copies();
        // What was in the next place has been read, once all are past the barrier.
        const uint32_t before = (turn + 1 + 2 * warps - places) % warps;
        if (ptx::opaque(threadIdx.x % 128) == before * 32) ptx::bulk_wait_read<0>();
        ptx::warpgroup_sync(consumer);
        if (ptx::opaque(threadIdx.x % 128) == turn % warps * 32) {
            const int columns = (tile.n0 + part * 64) / 32, first = tile.m0 + row;
            if constexpr (adds)
                ptx::tensor_add(map, place, 0, columns, first);
            else
                ptx::tensor_store(map, place, 0, columns, first / 2, 0);
            ptx::bulk_commit();
        }
        __syncwarp();
    }
}
