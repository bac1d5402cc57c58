// Persistent, warp-specialised grouped GEMM for sm_90a: D = alpha A B + beta C for every group.
//
// The operands are swapped: `64 * consumers` rows of B (as it is stored: one row per column of D) lie
// on wgmma's M and up to `max_width` rows of A on its N, so that a group chooses its tile's width in
// steps of 16 without another kernel. docs/kernel.md explains the choices.
//
// Roles: warp 0 loads A and B, warp 1 hands out tiles, the other warpgroups multiply and store.
#pragma once

#include "epilogue.cuh"
#include "ptx.cuh"
#include "tile.cuh"
#include "wgmma.cuh"

template <class Operand_, class Output_, int consumers_, int max_width_, int stages_, int cluster_,
          int ctas_per_sm_, int shared_bytes_>
struct Config {
    using Operand = Operand_;
    using Output = Output_;
    static constexpr int consumers = consumers_;  // warpgroups that multiply, 64 rows of B each
    static constexpr int max_width = max_width_;
    static constexpr int stages = stages_;
    static constexpr int cluster = cluster_;
    static constexpr int ctas_per_sm = ctas_per_sm_;
    static constexpr int shared_bytes = shared_bytes_;

    static constexpr int rows = 64 * consumers;
    static constexpr int threads = 128 * (1 + consumers);
    static constexpr int row_bytes = K_TILE * 2;
    static constexpr int b_bytes = rows * row_bytes;
    static constexpr int stage_bytes = b_bytes + max_width * row_bytes;
    static constexpr int tile_slots = 4;  // the most tiles that are handed out ahead

    static_assert(max_width % 16 == 0 && max_width <= 256, "wgmma's N goes up to 256");
    static_assert(cluster == 1 || cluster == 2, "larger clusters leave SMs idle on an H200");
};

template <class C>
struct Shared {
    alignas(1024) uint8_t ring[C::stages][C::stage_bytes];
    alignas(1024) uint8_t staging[C::consumers][2][STAGING_BYTES];
    Tile tiles[C::tile_slots];
    uint64_t full[C::stages];
    uint64_t empty[C::stages];
    uint64_t tile_full[C::tile_slots];
    uint64_t tile_empty[C::tile_slots];  // of the cluster's first CTA: it hands out for all
};

struct Params {
    const Tile* tiles;   // tile_count records and one of width 0
    uint32_t tile_count;
    uint32_t ahead;      // tiles handed out before the consumers ask: 1 to tile_slots
    uint32_t* counter;   // 0 before and after every launch
    const Maps* maps;
    Groups groups;
};

// A place in a ring: an index, and the parity of the round.
struct Cursor {
    uint32_t index = 0;
    uint32_t round = 0;
    __device__ __forceinline__ void advance(uint32_t size) {
        if (++index == size) {
            index = 0;
            round ^= 1;
        }
    }
};

// Waits for the next tile, copies it out and gives its slot back.
template <class C>
__device__ __forceinline__ Tile next_tile(Shared<C>& shared, Cursor& slot, uint32_t ahead,
                                          bool release) {
    ptx::barrier_wait(ptx::shared_address(&shared.tile_full[slot.index]), slot.round);
    const Tile tile = shared.tiles[slot.index];
    if (release) {
        const uint32_t barrier = ptx::shared_address(&shared.tile_empty[slot.index]);
        if constexpr (C::cluster == 1)
            ptx::barrier_arrive(barrier);
        else
            ptx::barrier_arrive_remote(ptx::map_to_rank(barrier, 0));
    }
    slot.advance(ahead);
    return tile;
}

// One thread of the cluster: the first tile is the cluster's own number, every further one comes from
// the counter. A launch of T tiles on G clusters draws T - G of them and each cluster one number past
// the end: T draws, after which atomicInc has wrapped to 0 for the next launch.
template <class C>
__device__ __forceinline__ void hand_out_tiles(Shared<C>& shared, const Params& params) {
    Cursor slot;
    uint32_t index = ptx::cluster_id();
    while (true) {
        const uint32_t full = ptx::shared_address(&shared.tile_full[slot.index]);
        const uint32_t to = ptx::shared_address(&shared.tiles[slot.index]);
        const void* record = params.tiles + index;
        ptx::barrier_wait(ptx::shared_address(&shared.tile_empty[slot.index]), slot.round ^ 1);
        if constexpr (C::cluster == 1) {
            ptx::barrier_expect(full, sizeof(Tile));
            ptx::bulk_load(to, record, sizeof(Tile), full);
        } else {
            for (uint32_t rank = 0; rank < C::cluster; ++rank)
                ptx::barrier_expect_remote(ptx::map_to_rank(full, rank), sizeof(Tile));
            ptx::bulk_load_multicast(to, record, sizeof(Tile), full, (1 << C::cluster) - 1);
        }
        if (index == params.tile_count) return;
        slot.advance(params.ahead);
        // Ask only when the slot is free: a tile taken too early is a tile nobody else can take.
        ptx::barrier_wait(ptx::shared_address(&shared.tile_empty[slot.index]), slot.round ^ 1);
        const uint32_t drawn = atomicInc(params.counter, params.tile_count - 1);
        index = min(ptx::cluster_count() + drawn, params.tile_count);
    }
}

// One thread of every CTA: keeps the ring full, tile after tile.
template <class C>
__device__ __forceinline__ void load_operands(Shared<C>& shared, const Params& params) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    Cursor slot, stage;
    uint32_t last_group = ~0u;
    while (true) {
        const Tile tile = next_tile<C>(shared, slot, params.ahead, true);
        if (tile.width == 0) return;
        const Maps& maps = params.maps[tile.group];
        if (tile.group != last_group) {
            // D's map too, for the warpgroups that wait for these loads: their own acquire would
            // stand between two tiles (1 to 2% at K = 768).
            ptx::tensor_map_acquire(&maps.a);
            ptx::tensor_map_acquire(&maps.b);
            ptx::tensor_map_acquire(&maps.d);
            last_group = tile.group;
        }
        const uint32_t share = tile.width / C::cluster;  // rows of A that this CTA loads
        const uint32_t bytes = C::b_bytes + tile.width * C::row_bytes;
        const int b_row = tile.n0 + rank * C::rows;
        const int a_row = tile.m0 + rank * share;
        for (uint32_t k = 0; k < tile.k_tiles; ++k) {
            const uint32_t full = ptx::shared_address(&shared.full[stage.index]);
            const uint32_t b = ptx::shared_address(shared.ring[stage.index]);
            const uint32_t a = b + C::b_bytes + rank * share * C::row_bytes;
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
            ptx::barrier_expect(full, bytes);
            ptx::tensor_load(b, &maps.b, full, k * K_TILE, b_row);
            if constexpr (C::cluster == 1)
                ptx::tensor_load(a, &maps.a, full, k * K_TILE, a_row);
            else
                ptx::tensor_load_multicast(a, &maps.a, full, k * K_TILE, a_row,
                                           (1 << C::cluster) - 1);
            stage.advance(C::stages);
        }
    }
}

// One K tile: four multiplies of 16 columns of K. `first` starts the sum instead of adding to it.
template <class C, int width, bool first>
__device__ __forceinline__ void multiply_stage(float (&sums)[width / 2], Shared<C>& shared,
                                               const Cursor& stage, uint32_t consumer) {
    const uint32_t ring = ptx::shared_address(shared.ring[stage.index]);
    const uint64_t b = wgmma::descriptor(ring + consumer * 64 * C::row_bytes);
    const uint64_t a = wgmma::descriptor(ring + C::b_bytes);
    ptx::barrier_wait(ptx::shared_address(&shared.full[stage.index]), stage.round);
    wgmma::fence();
    using Multiply = wgmma::Multiply<width>;
    constexpr int step = 32 >> 4;  // 16 columns of K, in the descriptor's 16-byte units
    Multiply::template issue<typename C::Operand, !first>(sums, b, a);
    Multiply::template issue<typename C::Operand, true>(sums, b + step, a + step);
    Multiply::template issue<typename C::Operand, true>(sums, b + 2 * step, a + 2 * step);
    Multiply::template issue<typename C::Operand, true>(sums, b + 3 * step, a + 3 * step);
    wgmma::commit();
}

// Tell the producers of all CTAs that share the stage that this warp is done with it.
template <class C>
__device__ __forceinline__ void release_stage(Shared<C>& shared, uint32_t index) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t barrier = ptx::shared_address(&shared.empty[index]);
    if constexpr (C::cluster == 1) {
        if (lane == 0) ptx::barrier_arrive(barrier);
    } else {
        if (lane < C::cluster) ptx::barrier_arrive_remote(ptx::map_to_rank(barrier, lane));
    }
}

// The sum over K of one tile. One multiply stays in flight while the next stage is awaited. The first
// K tile stands before the loop: ptxas serialises wgmma if zeroed registers enter it.
template <class C, int width>
__device__ __forceinline__ void multiply_tile(float (&sums)[width / 2], Shared<C>& shared,
                                              Cursor& stage, uint32_t k_tiles, uint32_t consumer) {
    multiply_stage<C, width, true>(sums, shared, stage, consumer);
    uint32_t previous = stage.index;
    stage.advance(C::stages);
#pragma unroll 1
    for (uint32_t k = 1; k < k_tiles; ++k) {
        multiply_stage<C, width, false>(sums, shared, stage, consumer);
        wgmma::wait<1>();
        release_stage<C>(shared, previous);
        previous = stage.index;
        stage.advance(C::stages);
    }
    wgmma::wait<0>();
    release_stage<C>(shared, previous);
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum));
}

// One warpgroup's role. Every width has its own copy of the main loop and of the epilogue: sums that
// several widths share end up in local memory.
template <class C>
__device__ __forceinline__ void consume_tiles(Shared<C>& shared, const Params& params,
                                              uint32_t consumer) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    Cursor slot, stage;
    while (true) {
        const Tile tile = next_tile<C>(shared, slot, params.ahead, threadIdx.x % 32 == 0);
        if (tile.width == 0) break;
        const TensorMap* map = &params.maps[tile.group].d;
        const uint32_t column = tile.n0 + rank * C::rows + consumer * 64;
        if (tile.k_tiles == 0) {
            if (threadIdx.x % 128 == 0) ptx::tensor_map_acquire(map);
            float zeros[C::max_width / 2] = {};
            epilogue<typename C::Output>(zeros, tile, column, map, params.groups,
                                         shared.staging[consumer], consumer);
            continue;
        }
        switch (tile.width) {
#define WIDTH(w)                                                                             \
    case w:                                                                                  \
        if constexpr (w <= C::max_width) {                                                   \
            float sums[w / 2];                                                               \
            multiply_tile<C, w>(sums, shared, stage, tile.k_tiles, consumer);                \
            epilogue<typename C::Output>(sums, tile, column, map, params.groups,             \
                                         shared.staging[consumer], consumer);                \
        }                                                                                    \
        break;
            WIDTH(16) WIDTH(32) WIDTH(48) WIDTH(64) WIDTH(80) WIDTH(96) WIDTH(112) WIDTH(128)
            WIDTH(144) WIDTH(160) WIDTH(176) WIDTH(192) WIDTH(208) WIDTH(224) WIDTH(240)
            WIDTH(256)
#undef WIDTH
        }
    }
    if (threadIdx.x % 128 == 0) ptx::store_wait();
}

template <class C>
__device__ __forceinline__ void run_roles(const Params& params) {
    extern __shared__ __align__(1024) uint8_t memory[];
    static_assert(sizeof(Shared<C>) <= C::shared_bytes, "the tile's shared memory does not fit");
    Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);

    if (threadIdx.x == 0) {
        if (ptx::shared_address(memory) % 1024 != 0) __trap();  // the swizzle counts from there
        constexpr int warps = 4 * C::consumers;
        for (int i = 0; i < C::stages; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), warps * C::cluster);
        }
        for (int i = 0; i < C::tile_slots; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.tile_full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.tile_empty[i]), (warps + 1) * C::cluster);
        }
        ptx::fence_barrier_init();
    }
    if constexpr (C::cluster == 1)
        __syncthreads();
    else
        ptx::cluster_sync();

    // With one CTA per SM the compiler may give each thread 168 registers, too few for 128 sums;
    // the loading warpgroup passes its own on. Two CTAs per SM have small tiles and stay as they are.
    constexpr bool uneven = C::consumers == 2;
    const uint32_t warpgroup = threadIdx.x / 128;
    if (warpgroup == 0) {
        if constexpr (uneven) ptx::registers_release<56>();
        const uint32_t warp = threadIdx.x / 32;
        if (warp == 0 && threadIdx.x == 0) load_operands<C>(shared, params);
        if (warp == 1 && threadIdx.x == 32 && (C::cluster == 1 || ptx::cluster_rank() == 0))
            hand_out_tiles<C>(shared, params);
    } else {
        if constexpr (uneven) ptx::registers_claim<224>();
        consume_tiles<C>(shared, params, warpgroup - 1);
    }
    // A CTA that left could still be signalled by its peer.
    if constexpr (C::cluster > 1) {
        __syncwarp();
        ptx::cluster_sync();
    }
}
