// The loader: A and B from global memory into the ring.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/tensor_map.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "shared.cuh"

// One thread of every CTA: keeps the ring full, tile after tile.
template <class C>
__device__ __forceinline__ void load_operands(Shared<C>& shared, const Params& params) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    Cursor stage;
    uint32_t last_group = ~0u;
    for (uint32_t n = 0;; ++n) {
        const Tile tile = wait_tile(shared, n);
        if (tile.width == 0) break;
        const Maps& maps = params.maps[tile.group];
        if (tile.group != last_group) {
            ptx::tensor_map_acquire(&maps.a);
            ptx::tensor_map_acquire(&maps.b);
            last_group = tile.group;
        }
        const uint32_t share = tile.width / C::cluster;  // rows of A that this CTA loads
        const uint32_t bytes = C::b_bytes + tile.width * C::row_bytes;
        const int b_row = tile.n0 + rank * C::rows;
        const int a_row = tile.m0 + rank * share;
        const int step = tile.backward ? -K_TILE : K_TILE;
        int column = (tile.backward ? tile.k0 + tile.k_tiles - 1 : tile.k0) * K_TILE;
        for (uint32_t k = 0; k < tile.k_tiles; ++k) {
            const uint32_t full = ptx::shared_address(&shared.full[stage.index]);
            const uint32_t b = ptx::shared_address(shared.ring[stage.index]);
            const uint32_t a = b + C::b_bytes + rank * share * C::row_bytes;
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
            ptx::barrier_expect(full, bytes);
            ptx::tensor_load(b, &maps.b, full, column, b_row);
            if constexpr (C::cluster == 1)
                ptx::tensor_load(a, &maps.a, full, column, a_row);
            else
                ptx::tensor_load_multicast(a, &maps.a, full, column, a_row,
                                           (1 << C::cluster) - 1);
            column += step;
            stage.advance(C::stages);
        }
        release_tile(shared, n);  // behind the loads: its fence takes time, and the others need longer
    }
    // Leave when nobody will signal this CTA any more: all stages have been given back.
    for (int i = 0; i < C::stages; ++i) {
        ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
        stage.advance(C::stages);
    }
}
