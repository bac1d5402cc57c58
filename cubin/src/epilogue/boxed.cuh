// D = alpha A B, of 32 bits, by TMA: where warpgroups take turns and sums are neither short nor long.
#pragma once

#include "epilogue/staging.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// One warpgroup's share of a tile, as add_tile has it (added.cuh), stored. `turn` counts boxes, each of 16 rows by
// 64 columns in the next of three places. The four warps hand them over by turns, so that none has to wait for one
// that does; each waits for its own two boxes later, before the place is written again. A branch in the midst of it,
// to add instead, takes up what it gains.
template <int count, int buffers, int bytes>
__device__ __forceinline__ void box_tile(const float (&sums)[count], const Tile& tile, uint32_t part,
                                         const TensorMap* map, Staging<buffers, bytes>& staging,
                                         uint32_t& turn, uint32_t consumer) {
    constexpr uint32_t box = ADDED_ROWS * 128;  // bytes, of 32 columns; two of them stand in a place
    constexpr uint32_t places = buffers * bytes / (2 * box), warps = 4;
    static_assert(ADDED_ROWS == 16 && box % 1024 == 0, "16 rows are staged; the swizzle counts from 1024");
    static_assert(places == 3, "what was handed over two boxes ago is where the next one goes");
#pragma unroll
    for (uint32_t row = 0; row < 2 * count; row += ADDED_ROWS, ++turn) {
        const uint32_t place =
            ptx::opaque(ptx::shared_address(staging[0])) + turn % places * (2 * box);
        float values[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = sums[row / 2 + i];
        stage_sums(Corners(place, ptx::opaque(threadIdx.x % 128), ADDED_ROWS), 0, values);
        ptx::release_to_own_copies();
        if (ptx::opaque(threadIdx.x % 128) == (turn + 2) % warps * 32) ptx::bulk_wait_read<0>();
        ptx::warpgroup_sync(consumer);
        if (ptx::opaque(threadIdx.x % 128) == turn % warps * 32) {
            const uint32_t column = tile.n0 + part * 64;
            ptx::tensor_store(map, place, column, tile.m0 + row);
            ptx::tensor_store(map, place + box, column + 32, tile.m0 + row);
            ptx::bulk_commit();
        }
        __syncwarp();
    }
}
