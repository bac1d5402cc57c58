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

    static_assert(max_width % 16 == 0 && max_width <= 256, "wgmma's N goes up to 256");
    static_assert(cluster == 1 || cluster == 2, "larger clusters leave SMs idle on an H200");
};

template <class C>
struct Shared {
    alignas(1024) uint8_t ring[C::stages][C::stage_bytes];
    alignas(1024) uint8_t staging[C::consumers][2][STAGING_BYTES];
    Tile tile;  // that comes next
    uint64_t full[C::stages];
    uint64_t empty[C::stages];
    uint64_t tile_full;
    uint64_t tile_empty;  // of the cluster's first CTA: it hands out for all
};

struct Params {
    const Tile* tiles;    // tile_count records and one of width 0
    uint32_t tile_count;
    uint32_t* counter;    // 0 before and after every launch
    uint32_t* flags;      // of split tiles; 0 before and after every launch
    float4* workspace;    // slots of partial sums
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

// Waits for the next tile, copies it out and lets the one after it come. `round` is the parity of the
// tiles seen so far.
template <class C>
__device__ __forceinline__ Tile next_tile(Shared<C>& shared, uint32_t& round, bool release) {
    ptx::barrier_wait(ptx::shared_address(&shared.tile_full), round);
    const Tile tile = shared.tile;
    round ^= 1;
    if (release) {
        const uint32_t barrier = ptx::shared_address(&shared.tile_empty);
        if constexpr (C::cluster == 1)
            ptx::barrier_arrive(barrier);
        else
            ptx::barrier_arrive_remote(ptx::map_to_rank(barrier, 0));
    }
    return tile;
}

// One thread of every cluster: the first tile is the cluster's own number, every further one is drawn
// from the counter; the record is copied to all CTAs of the cluster. A launch of T tiles on G clusters draws T - G of them and each cluster one number past
// the end: T draws, after which atomicInc has wrapped to 0 for the next launch.
template <class C>
__device__ __forceinline__ void hand_out_tiles(Shared<C>& shared, const Params& params) {
    const uint32_t full = ptx::shared_address(&shared.tile_full);
    const uint32_t to = ptx::shared_address(&shared.tile);
    uint32_t index = ptx::cluster_id(), round = 0;
    while (true) {
        const void* record = params.tiles + index;
        if constexpr (C::cluster == 1) {
            ptx::barrier_expect(full, sizeof(Tile));
            ptx::bulk_load(to, record, sizeof(Tile), full);
        } else {
            for (uint32_t rank = 0; rank < C::cluster; ++rank)
                ptx::barrier_expect_remote(ptx::map_to_rank(full, rank), sizeof(Tile));
            ptx::bulk_load_multicast(to, record, sizeof(Tile), full, (1 << C::cluster) - 1);
        }
        if (index == params.tile_count) return;
        // Ask only when everybody has begun with this tile: one that is taken too early is one that
        // nobody else can take. Two ahead made 249 tiles on 132 SMs a quarter slower.
        ptx::barrier_wait(ptx::shared_address(&shared.tile_empty), round);
        round ^= 1;
        const uint32_t drawn = atomicInc(params.counter, params.tile_count - 1);
        index = min(ptx::cluster_count() + drawn, params.tile_count);
    }
}

// One thread of every CTA: keeps the ring full, tile after tile.
template <class C>
__device__ __forceinline__ void load_operands(Shared<C>& shared, const Params& params) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    Cursor stage;
    uint32_t round = 0, last_group = ~0u;
    while (true) {
        const Tile tile = next_tile<C>(shared, round, true);
        if (tile.width == 0) return;
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
        for (uint32_t k = tile.k0; k < tile.k0 + tile.k_tiles; ++k) {
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

// The warpgroup's part of a workspace slot: 16-byte words in the order of the threads' registers.
template <class C>
__device__ __forceinline__ float4* slot_of(const Params& params, uint32_t slot, uint32_t rank,
                                           uint32_t consumer) {
    constexpr uint32_t words = C::max_width / 8 * 128;
    return params.workspace + ((slot * C::cluster + rank) * C::consumers + consumer) * words +
           threadIdx.x % 128;
}

// The flag of the warpgroup's share of a split tile. It counts the parts and then those who have seen
// them all, and is 0 again after the last.
template <class C>
__device__ __forceinline__ uint32_t* flag_of(const Params& params, const Tile& tile, uint32_t rank,
                                             uint32_t consumer) {
    return params.flags + (tile.flag * C::cluster + rank) * C::consumers + consumer;
}

// Puts a part of a sum into its slot and counts it.
template <class C, int width>
__device__ __forceinline__ void store_part(const float (&sums)[width / 2], const Params& params,
                                           const Tile& tile, uint32_t rank, uint32_t consumer) {
    float4* to = slot_of<C>(params, tile.slot, rank, consumer);
#pragma unroll
    for (int i = 0; i < width / 8; ++i)
        __stcg(to + i * 128,
               make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
    __threadfence();
    ptx::warpgroup_sync(consumer);
    if (threadIdx.x % 128 == 0)
        atomicInc(flag_of<C>(params, tile, rank, consumer), tile.splits + tile.readers - 1);
}

// Adds up the parts of some rows, always in the same order: the result does not depend on which part
// came first.
template <class C, int width>
__device__ __forceinline__ void add_parts(float (&sums)[width / 2], const Params& params,
                                          const Tile& tile, uint32_t rank, uint32_t consumer) {
    if (threadIdx.x % 128 == 0) {
        uint32_t* flag = flag_of<C>(params, tile, rank, consumer);
        while (ptx::load_acquire(flag) < tile.splits) __nanosleep(20);
        atomicInc(flag, tile.splits + tile.readers - 1);
    }
    ptx::warpgroup_sync(consumer);
    const float4* from = slot_of<C>(params, tile.slot, rank, consumer) + tile.row / 8 * 128;
    constexpr uint32_t stride = C::max_width / 8 * 128 * C::consumers * C::cluster;
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 8
    for (uint32_t split = 0; split < tile.splits; ++split) {
#pragma unroll
        for (int i = 0; i < width / 8; ++i) {
            const float4 part = __ldcg(from + split * stride + i * 128);
            sums[4 * i] += part.x;
            sums[4 * i + 1] += part.y;
            sums[4 * i + 2] += part.z;
            sums[4 * i + 3] += part.w;
        }
    }
}

// One warpgroup's role. Every width has its own copy of the main loop and of the epilogue: sums that
// several widths share end up in local memory.
template <class C>
__device__ __forceinline__ void consume_tiles(Shared<C>& shared, const Params& params,
                                              uint32_t consumer) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    Cursor stage;
    uint32_t round = 0, turn = 0;
    while (true) {
        const Tile tile = next_tile<C>(shared, round, threadIdx.x % 32 == 0);
        if (tile.width == 0) break;
        const TargetD d(params.groups, tile.group);
        const uint32_t column = tile.n0 + rank * C::rows + consumer * 64;
        const auto store = [&](auto& sums) {
            epilogue<typename C::Output>(sums, tile, column, d, params.groups,
                                         shared.staging[consumer], turn, consumer);
        };
        if (tile.k_tiles == 0) {
            if (tile.splits == 0) {
                float zeros[C::max_width / 2] = {};
                store(zeros);
            } else {
                float sums[REDUCED_ROWS / 2];
                add_parts<C, REDUCED_ROWS>(sums, params, tile, rank, consumer);
                store(sums);
            }
            continue;
        }
        switch (tile.width) {
#define WIDTH(w)                                                                             \
    case w:                                                                                  \
        if constexpr (w <= C::max_width) {                                                   \
            float sums[w / 2];                                                               \
            multiply_tile<C, w>(sums, shared, stage, tile.k_tiles, consumer);                \
            if (tile.splits > 0)                                                             \
                store_part<C, w>(sums, params, tile, rank, consumer);                        \
            else                                                                             \
                store(sums);                                                                 \
        }                                                                                    \
        break;
            WIDTH(16) WIDTH(32) WIDTH(48) WIDTH(64) WIDTH(80) WIDTH(96) WIDTH(112) WIDTH(128)
            WIDTH(144) WIDTH(160) WIDTH(176) WIDTH(192) WIDTH(208) WIDTH(224) WIDTH(240)
            WIDTH(256)
#undef WIDTH
        }
    }
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
        ptx::barrier_init(ptx::shared_address(&shared.tile_full), 1);
        ptx::barrier_init(ptx::shared_address(&shared.tile_empty), (warps + 1) * C::cluster);
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
