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

// Rows of an operand from row `row` on, at K from `column` on: one box, or where K lies across, one for
// every BOX_ROWS of them.
template <class C, bool across>
__device__ __forceinline__ void load_rows(uint32_t to, const TensorMap& map, uint32_t full, int column,
                                          int row, uint32_t rows) {
    if constexpr (!across) {
        ptx::tensor_load(to, &map, full, column, row);
    } else {
#pragma unroll 1
        for (uint32_t done = 0; done < rows; done += BOX_ROWS)
            ptx::tensor_load(to + done * C::row_bytes, &map, full, row + done, column);
    }
}

// The same of A for both CTAs of a cluster, each of which loads half: half of the rows, or where K lies
// across, half of K, so that a single box of rows can be shared out.
template <class C>
__device__ __forceinline__ void load_shared_a(uint32_t to, const TensorMap& map, uint32_t full,
                                              int column, int row, uint32_t rows, uint32_t rank) {
    constexpr uint16_t all = (1 << C::cluster) - 1;
    if constexpr (!C::a_across) {
        const uint32_t share = rows / C::cluster * rank;
        ptx::tensor_load_multicast(to + share * C::row_bytes, &map, full, column, row + share, all);
    } else {
        const uint32_t share = K_TILE / C::cluster * rank;
#pragma unroll 1
        for (uint32_t done = 0; done < rows; done += BOX_ROWS)
            ptx::tensor_load_multicast(to + done * C::row_bytes + share * BOX_ROWS * 2, &map, full,
                                       row + done, column + share, all);
    }
}

// The rows of B of one stage from row `row` on; or where a gate multiplies halves of x, so that every
// warpgroup finds both factors in its 64 rows: half of them, and those `half` further on, in turn. Where the
// first half's last box reaches into the second, the epilogue passes over what comes of it.
template <class C>
__device__ __forceinline__ void load_b(uint32_t to, const Maps& maps, uint32_t full, int column,
                                       int row, uint32_t half) {
    if (C::b_across || half == 0) {
        load_rows<C, C::b_across>(to, maps.b, full, column, row, C::rows);
        return;
    }
#pragma unroll 1
    for (int part = 0; part < C::rows / 64; ++part) {
        ptx::tensor_load(to, &maps.b, full, column, row);
        ptx::tensor_load(to + HALF_ROWS * C::row_bytes, &maps.b, full, column, row + half);
        to += 64 * C::row_bytes;
        row += HALF_ROWS;
    }
}

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
        const uint32_t bytes = C::b_bytes + tile.width * C::row_bytes;
        const int b_row = (tile.n0 + rank * C::rows) / (tile.half ? 2 : 1);
        const int step = tile.backward ? -K_TILE : K_TILE;
        int column = (tile.backward ? tile.k0 + tile.k_tiles - 1 : tile.k0) * K_TILE;
        for (uint32_t k = 0; k < tile.k_tiles; ++k) {
            const uint32_t full = ptx::shared_address(&shared.full[stage.index]);
            const uint32_t b = ptx::shared_address(shared.ring[stage.index]);
            const uint32_t a = b + C::b_bytes;
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
            ptx::barrier_expect(full, bytes);
            load_b<C>(b, maps, full, column, b_row, tile.half);
            if constexpr (C::cluster == 1)
                load_rows<C, C::a_across>(a, maps.a, full, column, tile.m0, tile.width);
            else
                load_shared_a<C>(a, maps.a, full, column, tile.m0, tile.width, rank);
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
