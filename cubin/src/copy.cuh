// The copying warps: a B that TMA cannot read, from global memory into the ring.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "shared.cuh"
#include "unaligned.cuh"

// The words of a stage that a thread copies: eight threads have the first eight of a row, which they ask for
// together; the last words of all rows follow.
struct Piece {
    uint32_t row, word;
};
template <class C>
__device__ __forceinline__ Piece piece_of(uint32_t thread, int i) {
    constexpr int line = UNALIGNED_WORDS - 1, rows = C::copying / line;
    if (i < C::rows / rows) return {i * rows + thread / line, thread % line};
    return {(i - C::rows / rows) * C::copying + thread, line};
}

// All threads of these warps: B of every stage, beside the loader, tile after tile. Each arrives at the stage
// as the loader does, once its copies are there.
template <class C>
__device__ __forceinline__ void copy_b(Shared<C>& shared, const Params& params) {
    constexpr int count = C::rows * UNALIGNED_WORDS / C::copying;  // words of a stage for each thread
    static_assert(C::rows % C::copying == 0, "each has as many");
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    const uint32_t own = threadIdx.x % C::copying;
    const Groups& groups = params.groups;
    const Ring& ring = params.ring;
    Cursor stage = {0, 0};
    for (uint32_t n = 0;; ++n) {
        const Tile& tile = wait_tile(shared, n);
        if (tile.width == 0) break;
        const uint32_t group = tile.group, k_tiles = tile.k_tiles, c_stages = tile.c_stages;
        const bool backward = tile.flags & TILE_BACKWARD;
        const uint32_t last_row = groups.n[group] - 1, row_bytes = groups.k[group] * 2;
        const uint32_t first_row = min(tile.n0 + rank * C::rows, last_row);
        uint32_t slice = backward ? tile.k0 + k_tiles - 1 : tile.k0;
        __syncwarp();
        if (threadIdx.x % 32 == 0) release_tile(shared, n);
        // Rows behind the last one are copies of it, and what they make is not stored.
        const auto begin_of = [&](uint32_t row) { return row_of_b(groups, group, min(first_row + row, last_row)); };
        const uint64_t base = begin_of(0) / 16 * 16;
        // Opaque, here and below: else what follows from it for each word is found once for all, and spills.
        uint32_t from[count], thread = ptx::opaque(own);
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const Piece piece = piece_of<C>(thread, i);
            from[i] = begin_of(piece.row) / 16 * 16 - base + piece.word * 16;
        }
        for (uint32_t k = 0; k < k_tiles; ++k) {
            const uint32_t at = stage_address(shared, ring, stage.index), column = slice * K_TILE * 2;
            const auto copy = [&](uint32_t thread, auto bytes_of) {
#pragma unroll
                for (int i = 0; i < count; ++i) {
                    const Piece piece = piece_of<C>(thread, i);
                    ptx::copy_16(at + place_of(piece.row, piece.word, C::rows), base + column + from[i],
                                 bytes_of(piece));
                }
            };
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
            if (column + UNALIGNED_ROW_BYTES <= row_bytes)
                copy(own, [](const Piece&) { return 16; });
            else  // rows end, in zeros
                copy(ptx::opaque(own), [&](const Piece& piece) {
                    const int begin = begin_of(piece.row) % 16;
                    return min(max(begin + static_cast<int>(row_bytes - column - piece.word * 16), 0), 16);
                });
            ptx::barrier_arrive_after_copies(ptx::shared_address(&shared.full[stage.index]));
            slice += backward ? -1 : 1;
            stage.advance(ring);
        }
        for (uint32_t i = 0; i < c_stages; ++i) {
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
            ptx::barrier_arrive(ptx::shared_address(&shared.full[stage.index]));
            stage.advance(ring);
        }
    }
}
