// The loader: A, B and C from global memory into the ring.
#pragma once

#include "gather.cuh"
#include "maps.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/tensor_map.cuh"
#include "records.cuh"
#include "residues.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "shared.cuh"

// Rows of an operand from row `row` on, at K from `column` on: one box, or where K lies across, one for
// every BOX_ROWS of them.
template <class C, bool across>
__device__ __forceinline__ void load_rows(uint32_t to, const TensorMap& map, uint32_t full,
                                          uint64_t policy, int column, int row, uint32_t rows) {
    if constexpr (!across) {
        ptx::tensor_load(to, &map, full, policy, column, row);
    } else {
#pragma unroll 1
        for (uint32_t done = 0; done < rows; done += BOX_ROWS)
            ptx::tensor_load(to + done * C::row_bytes, &map, full, policy, row + done, column);
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

// The rows of A of one stage, at K from `column` on, and in a cluster this CTA's share of them. Shuffled ones come in
// runs, whose rows the map counts in three dimensions.
template <class C>
__device__ __forceinline__ void load_a(uint32_t to, const TensorMap& map, uint32_t full, uint64_t policy,
                                       int column, const Tile& tile, uint32_t rank) {
    if constexpr (C::shuffles)
        if (tile.flags & TILE_SHUFFLED) {
            const uint32_t share = tile.box / C::cluster * rank;
            const int run = (tile.m0 + share) / C::run;
            if constexpr (C::cluster == 1)
                ptx::tensor_load(to, &map, full, policy, column, 0, 0, 0, run);
            else
                ptx::tensor_load_multicast(to + share * C::row_bytes, &map, full, column, 0, 0, 0, run,
                                           (1 << C::cluster) - 1);
            return;
        }
    if constexpr (C::cluster == 1)
        load_rows<C, C::a_across>(to, map, full, policy, column, tile.m0, tile.box);
    else
        load_shared_a<C>(to, map, full, column, tile.m0, tile.box, rank);
}

// The rows of B of one stage, from row `row` on; or with a gate, which multiplies columns of x, pairs of
// them that meet in one thread (staging.cuh): eight first ones and then their eight others, and so on. One
// box brings them all where there are whole eights; else each brings eight of both. Where K lies across B
// there are no gates.
template <class C>
__device__ __forceinline__ void load_b(uint32_t to, const Maps& maps, uint32_t full,
                                       uint64_t policy, int column, int row, uint32_t flags) {
    if (C::b_across || !(flags & TILE_GATED)) {
        load_rows<C, C::b_across>(to, maps.b, full, policy, column, row, C::rows);
        return;
    }
    if (flags & TILE_EIGHTS) {
        ptx::tensor_load(to, &maps.b, full, policy, column, 0, 0, row / 16);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < C::rows / 16; ++i)
        ptx::tensor_load(to + i * 16 * C::row_bytes, &maps.b, full, policy, column, row / 2 + i * 8, 0);
}

// The stages that a loader fills, of a run of them: from number `skip` on, each `step`-th. All, or where two load by
// turns, every other one.
template <class C, bool all = C::loaders == 1>
struct Filled : Cursor {
    static constexpr uint32_t skip = 0, step = 1;
};
template <class C>
struct Filled<C, false> : Cursor {
    uint32_t skip, step;

    __device__ __forceinline__ void advance(const Ring& ring) { Cursor::advance(ring, step); }
};

// Waits for a stage that C may be copied to. Who multiplies an unaligned B has read it there through the generic
// proxy, and told so without a fence, for which the main loop has no time.
template <class C>
__device__ __forceinline__ void wait_empty(Shared<C>& shared, const Cursor& stage) {
    ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
    ptx::acquire_for_copies();
    if constexpr (C::b_unaligned) ptx::release_to_own_copies();
}

// C of a tile, in stages of their own: 128 bytes of its rows in each.
template <class C>
__device__ __forceinline__ void load_c(Shared<C>& shared, const Params& params, const Maps& maps,
                                       const Tile& tile, int column, bool new_group, Filled<C>& stage) {
    if (new_group) acquire_c(params, tile.group);
    const Ring& ring = params.ring;
    const int step = C::rows / tile.c_stages;  // columns: 64, or 32 of a C of 32 bits
    uint32_t i = stage.skip;
    column += i * step;
    for (; i < tile.c_stages; i += stage.step) {
        const uint32_t full = ptx::shared_address(&shared.full[stage.index]);
        wait_empty(shared, stage);
        ptx::barrier_expect(full, tile.box * C::row_bytes);
        ptx::tensor_load(stage_address(shared, ring, stage.index), &maps.c, full, ptx::NO_HINT,
                         column, tile.m0);
        column += stage.step * step;
        stage.advance(ring);
    }
    if constexpr (C::loaders > 1) stage.skip = i - tile.c_stages;
}

// Says where the C of tile number `n` is, if its sums begin with it: all of its stages have been waited for,
// so that a warpgroup that looks at them before its turn is less than a round ahead. The barriers go round
// with the records, so every tile's is arrived at.
template <class C>
__device__ __forceinline__ void show_c(Shared<C>& shared, uint32_t n, const Cursor& begin) {
    shared.c_begin[n % RECORDS] = begin;
    ptx::barrier_arrive(ptx::shared_address(&shared.c_there[n % RECORDS]));
}

// What load_c does, of a C that comes by residues: a box of each. A loop of its own, so that the one there,
// in which a C on 16 bytes comes, stays unrolled.
template <class C>
__device__ __forceinline__ void load_c_residues(Shared<C>& shared, const Params& params, const Tile& tile,
                                                int column, bool new_group, Filled<C>& stage) {
    const ResidueMaps& residues = params.residues[tile.group];
    if (new_group) {
#pragma unroll 1
        for (const TensorMap& map : residues.c) ptx::tensor_map_acquire(&map);
    }
    const Ring& ring = params.ring;
    const int step = C::rows / tile.c_stages;
    uint32_t i = stage.skip;
    column += i * step;
#pragma unroll 1
    for (; i < tile.c_stages; i += stage.step) {
        const uint32_t full = ptx::shared_address(&shared.full[stage.index]);
        wait_empty(shared, stage);
        ptx::barrier_expect(full, RESIDUES * residue_rows(tile.box) * RESIDUE_ROW_BYTES);
        const uint32_t to = stage_address(shared, ring, stage.index);
#pragma unroll 1
        for (uint32_t residue = 0; residue < RESIDUES; ++residue)
            ptx::tensor_load(to + residue * residue_pitch(tile.box), &residues.c[residue], full,
                             ptx::NO_HINT, column,
                             static_cast<int>(tile.m0 / RESIDUES - residue_lead(residue)));
        column += stage.step * step;
        stage.advance(ring);
    }
    if constexpr (C::loaders > 1) stage.skip = i - tile.c_stages;
}

// One thread of every CTA keeps the ring full, tile after tile; but for a B that is unaligned. Or two, by turns.
template <class C>
__device__ __forceinline__ void load_operands(Shared<C>& shared, const Params& params, const Ring& ring,
                                              const Tile& first, uint32_t loader) {
    if (loader == 0) show_first_tile(shared, first);
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    Filled<C> stage = {0, 0};
    if constexpr (C::loaders > 1) stage = {loader, 0, loader, 1};
    uint32_t last_group = ~0u;
    for (uint32_t n = 0;; ++n) {
        const Tile tile = wait_tile(shared, n);
        if (tile.width == 0) break;
        if constexpr (C::loaders > 1) {
            if (tile.flags & TILE_LOADED_BY_TWO)
                stage.step = 2;
            else if (loader > 0) {
                release_tile(shared, n);
                continue;
            }
        }
        const Maps& maps = maps_of(params, tile.group);
        const bool new_group = tile.group != last_group;
        if (new_group) acquire_operands<C>(params, tile.group);
        last_group = tile.group;
        // In a cluster, boxes of rows that are not there come later than others. So who has no columns loads those of
        // its peer, of which it stores nothing.
        const int b_row = tile.n0 + (tile.flags & TILE_ALONE ? 0 : rank * C::rows);
        const bool c_in_sums = (C::c_first || C::c_between) && adds_up<C>() && tile.flags & TILE_C_IN_SUMS;
        if constexpr (C::c_first) {
            const Cursor begin = stage;
            if (c_in_sums) load_c(shared, params, maps, tile, b_row, new_group, stage);
            show_c(shared, n, begin);
        }
        const uint32_t bytes = (C::b_unaligned ? 0 : C::b_bytes) + tile.box * C::row_bytes;
        const uint64_t once = tile.flags & TILE_ONCE ? ptx::EVICT_FIRST : ptx::NO_HINT;
        const Slices slices = slices_of<C>(tile);
        const bool backward = tile.flags & TILE_BACKWARD;
        const int step = backward ? -K_TILE : K_TILE;
        int column = (backward ? slices.first + slices.count - 1 : slices.first) * K_TILE;
        uint32_t k = stage.skip;
        column += k * step;
        bool between = C::c_between && c_in_sums;
        for (uint32_t end = between ? min(C::slices_before_c, slices.count) : slices.count;; end = slices.count) {
            for (; k < end; k += stage.step) {
                const uint32_t full = ptx::shared_address(&shared.full[stage.index]);
                const uint32_t b = stage_address(shared, ring, stage.index);
                const uint32_t a = b + C::b_bytes;
                ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
                ptx::acquire_for_copies();  // of who read a C there
                ptx::barrier_expect(full, bytes);
                if constexpr (!C::b_unaligned)
                    load_b<C>(b, maps, full, C::d_across ? ptx::NO_HINT : once, column, b_row, tile.flags);
                load_a<C>(a, maps.a, full, C::d_across ? once : ptx::NO_HINT, column, tile, rank);
                column += stage.step * step;
                stage.advance(ring);
            }
            if (!between) break;
            between = false;
            const uint32_t next = k;
            if constexpr (C::loaders > 1) stage.skip = k - end;
            load_c(shared, params, maps, tile, b_row, new_group, stage);
            k = end + stage.skip;
            column += static_cast<int>(k - next) * step;
        }
        if constexpr (C::loaders > 1) stage.skip = k - slices.count;
        if (tile.c_stages > 0 && !c_in_sums && adds_up<C>()) {
            if (tile.flags & TILE_RESIDUES)
                load_c_residues(shared, params, tile, b_row, new_group, stage);
            else
                load_c(shared, params, maps, tile, b_row, new_group, stage);
        }
        release_tile(shared, n);  // behind the loads: its fence takes time, and the others need longer
    }
    // Leave when nobody will signal this CTA any more: all stages have been given back. Where two load no other CTA does.
    for (uint32_t i = 0; C::loaders == 1 && i < ring.stages; ++i) {
        ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
        stage.advance(ring);
    }
}
