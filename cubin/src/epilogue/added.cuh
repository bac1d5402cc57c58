// D = alpha A B + D, of 32 bits and where it lies: no CTA reads D.
#pragma once

#include "epilogue/staging.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// One warpgroup's share of a tile: `2 * count` rows of D by 64 columns, those of its part. The sums
// cross shared memory in boxes as TMA takes them, which the L2 adds to D. `turn` is the next of the
// places for boxes that the staging buffers have: while some are read, the next is written. One thread issues
// them; who uses the buffers for anything else waits for it at a barrier before.
template <int count, int buffers, int bytes>
__device__ __forceinline__ void add_tile(const float (&sums)[count], const Tile& tile,
                                         uint32_t part, const TensorMap* map,
                                         Staging<buffers, bytes>& staging, uint32_t& turn,
                                         uint32_t consumer) {
    constexpr uint32_t box = ADDED_ROWS * 128;  // bytes, of 32 columns; two of them stand in a place
    constexpr uint32_t places = buffers * bytes / (2 * box);
    static_assert(ADDED_ROWS == 16 && box % 1024 == 0, "16 rows are staged; the swizzle counts from 1024");
    static_assert(places > 2, "one is read while another is written");
#pragma unroll
    for (uint32_t row = 0; row < 2 * count; row += ADDED_ROWS) {
        const uint32_t thread = ptx::opaque(threadIdx.x % 128);
        const uint32_t place = ptx::opaque(ptx::shared_address(staging[0])) + turn * (2 * box);
        turn = turn + 1 == places ? 0 : turn + 1;
        float values[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = sums[row / 2 + i];
        stage_sums(Corners(place, thread, ADDED_ROWS), 0, values);
        ptx::release_to_own_copies();
        // What was in the next place has been read, once all are past the barrier.
        if (thread == 0) ptx::bulk_wait_read<places - 2>();
        ptx::warpgroup_sync(consumer);
        if (thread == 0) {
            const uint32_t column = tile.n0 + part * 64;
            ptx::tensor_add(map, place, column, tile.m0 + row);
            ptx::tensor_add(map, place + box, column + 32, tile.m0 + row);
            ptx::bulk_commit();
        }
        __syncwarp();
    }
}
