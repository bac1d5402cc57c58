// Persistent, warp-specialised grouped GEMM for sm_90a: D = alpha A B + beta C for every group.
//
// The operands are swapped: `rows` rows of B (as it is stored: one row per column of D) lie on wgmma's M
// and up to `max_width` rows of A on its N, so that a group chooses its tile's width in steps of 16
// without another kernel. docs/kernel.md explains the choices.
//
// Roles: warp 0 loads A and B, warp 1 hands out tiles, the other warpgroups multiply and store.
#pragma once

#include "epilogue.cuh"
#include "ptx.cuh"
#include "tile.cuh"
#include "wgmma.cuh"

template <class Operand_, class Output_, int consumers_, bool pingpong_, int max_width_, int stages_,
          int cluster_, int ctas_per_sm_, int shared_bytes_>
struct Config {
    using Operand = Operand_;
    using Output = Output_;
    static constexpr int consumers = consumers_;  // warpgroups that multiply
    // Whether they take turns, each with a tile of its own, so that one multiplies while the other
    // stores (pingpong), or share every tile (cooperative).
    static constexpr bool pingpong = pingpong_;
    static constexpr int max_width = max_width_;
    static constexpr int stages = stages_;
    static constexpr int cluster = cluster_;
    static constexpr int ctas_per_sm = ctas_per_sm_;
    static constexpr int shared_bytes = shared_bytes_;

    static constexpr int rows = 64 * consumers;  // of B in a tile
    static constexpr int blocks = pingpong ? consumers : 1;  // of 64 rows of B, for each warpgroup
    // Two staging buffers, or a larger one: what a fifth stage leaves.
    static constexpr int buffers = pingpong ? 1 : 2, staging_bytes = pingpong ? 12288 : 8192;
    static constexpr int warps = pingpong ? 4 : 4 * consumers;  // that share a tile
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
    alignas(1024) Staging<C::buffers, C::staging_bytes> staging[C::consumers];
    Tile tiles[2];  // the one at work and the one that comes next, in turn
    uint64_t full[C::stages];
    uint64_t empty[C::stages];
    uint64_t tile_full[2];
    uint64_t tile_empty[2];        // of the cluster's first CTA: it hands out for all
    TargetD target[C::consumers];  // of the tile at work; only where warpgroups take turns
    uint64_t turn[C::consumers];   // to multiply; likewise
};

struct Params {
    const Tile* tiles;      // tile_count records and one of width 0
    uint32_t tile_count;
    uint32_t* counter;      // 0 before and after every launch
    uint32_t* flags;        // of split tiles; 0 before and after every launch
    const uint8_t* tables;  // where all that the host and build_maps prepared begins
    uint32_t tables_bytes;
    float4* workspace;      // slots of partial sums
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
    __device__ __forceinline__ void skip(uint32_t count, uint32_t size) {
        index += count;
        round ^= index / size & 1;
        index %= size;
    }
};

// Tile number `n` of this CTA, once it is there.
template <class C>
__device__ __forceinline__ const Tile& wait_tile(Shared<C>& shared, uint32_t n) {
    ptx::barrier_wait(ptx::shared_address(&shared.tile_full[n % 2]), n / 2 % 2);
    return shared.tiles[n % 2];
}

// Tell the thread that hands out tiles that this one is done with tile number `n`.
template <class C>
__device__ __forceinline__ void release_tile(Shared<C>& shared, uint32_t n) {
    const uint32_t barrier = ptx::shared_address(&shared.tile_empty[n % 2]);
    if constexpr (C::cluster == 1)
        ptx::barrier_arrive(barrier);
    else
        ptx::barrier_arrive_remote(ptx::map_to_rank(barrier, 0));
}

// A cluster's first tile is its own number. A warp asks for it while another readies the barriers.
template <class C>
__device__ __forceinline__ void copy_first_tile(Shared<C>& shared, const Params& params) {
    constexpr uint32_t words = sizeof(Tile) / sizeof(uint32_t);
    const auto* record = reinterpret_cast<const uint32_t*>(&params.tiles[ptx::cluster_id()]);
    if (threadIdx.x % 32 < words)
        reinterpret_cast<uint32_t*>(&shared.tiles[0])[threadIdx.x % 32] = record[threadIdx.x % 32];
}

// One thread of every cluster draws the further tiles from a counter and has their records copied to all
// CTAs of the cluster. A launch of T tiles on G clusters draws T - G of them and each cluster one number
// past the end: T draws, after which atomicInc has wrapped to 0 for the next launch.
//
// A tile is drawn when everybody is done with the last but one: one that is taken too early is one that
// nobody else can take. A third record made 249 tiles on 132 SMs a quarter slower.
template <class C>
__device__ __forceinline__ void hand_out_tiles(Shared<C>& shared, const Params& params) {
    uint32_t index, n = 0;
    do {
        ++n;
        ptx::barrier_wait(ptx::shared_address(&shared.tile_empty[n % 2]), (n / 2 + 1) % 2);
        const uint32_t drawn = atomicInc(params.counter, params.tile_count - 1);
        index = min(ptx::cluster_count() + drawn, params.tile_count);
        const void* record = params.tiles + index;
        const uint32_t full = ptx::shared_address(&shared.tile_full[n % 2]);
        const uint32_t to = ptx::shared_address(&shared.tiles[n % 2]);
        if constexpr (C::cluster == 1) {
            ptx::barrier_expect(full, sizeof(Tile));
            ptx::bulk_load(to, record, sizeof(Tile), full);
        } else {
            for (uint32_t rank = 0; rank < C::cluster; ++rank)
                ptx::barrier_expect_remote(ptx::map_to_rank(full, rank), sizeof(Tile));
            ptx::bulk_load_multicast(to, record, sizeof(Tile), full, (1 << C::cluster) - 1);
        }
    } while (index < params.tile_count);
    // Leave when nobody will signal this CTA any more: all are done with the last tile.
    ++n;
    ptx::barrier_wait(ptx::shared_address(&shared.tile_empty[n % 2]), (n / 2 + 1) % 2);
}

// Two warps that have nothing else to do, in all CTAs together: bring the tables into the L2, as far as
// one line for each thread goes. Otherwise every first use of a record, a map or a group would wait for
// memory, one after the other.
__device__ __forceinline__ void fetch_tables(const Params& params) {
    const uint32_t at = (blockIdx.x * 64 + threadIdx.x % 64) * 128;
    if (at < params.tables_bytes) ptx::prefetch(params.tables + at);
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
        release_tile(shared, n);
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
    }
    // Leave when nobody will signal this CTA any more: all stages have been given back.
    for (int i = 0; i < C::stages; ++i) {
        ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.index]), stage.round ^ 1);
        stage.advance(C::stages);
    }
}

// A warpgroup's sums of one tile.
template <class C, int width>
using Sums = float[C::blocks][width / 2];

// One K tile: four multiplies of 16 columns of K. `first` starts the sum instead of adding to it.
template <class C, int width, bool first>
__device__ __forceinline__ void multiply_stage(Sums<C, width>& sums, Shared<C>& shared,
                                               const Cursor& stage, uint32_t consumer) {
    // The shuffle shows the compiler that all lanes have the same index: it then computes descriptors
    // once per warp, with a third of the instructions that lanes for themselves would take.
    const uint32_t index = __shfl_sync(~0u, stage.index, 0);
    const uint32_t ring = ptx::shared_address(shared.ring), at = index * (C::stage_bytes >> 4);
    constexpr uint32_t block = 64 * C::row_bytes >> 4, step = 32 >> 4;  // 64 rows of B, 16 columns
    const uint32_t own = C::pingpong ? 0 : consumer * block;
    const uint32_t b = wgmma::descriptor(ring) + own + at;
    const uint32_t a = wgmma::descriptor(ring + C::b_bytes) + at;
    ptx::barrier_wait(ptx::shared_address(&shared.full[index]), stage.round);
    wgmma::fence();
    using Multiply = wgmma::Multiply<width>;
#pragma unroll
    for (int i = 0; i < C::blocks; ++i) {
        const uint32_t rows = b + i * block;
        Multiply::template issue<typename C::Operand, !first>(sums[i], rows, a);
        Multiply::template issue<typename C::Operand, true>(sums[i], rows + step, a + step);
        Multiply::template issue<typename C::Operand, true>(sums[i], rows + 2 * step, a + 2 * step);
        Multiply::template issue<typename C::Operand, true>(sums[i], rows + 3 * step, a + 3 * step);
    }
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

// Where warpgroups take turns, each waits for its own before it looks at the ring: a barrier tells only
// odd rounds from even ones, so that whoever is two rounds early takes the other's stage for its own.
template <class C>
__device__ __forceinline__ void wait_turn(Shared<C>& shared, uint32_t n, uint32_t consumer) {
    if constexpr (C::pingpong)  // the first turn is the first warpgroup's at once
        ptx::barrier_wait(ptx::shared_address(&shared.turn[consumer]), (n / 2 + consumer + 1) % 2);
}

template <class C>
__device__ __forceinline__ void pass_turn(Shared<C>& shared, uint32_t consumer) {
    if constexpr (C::pingpong)
        if (threadIdx.x % 32 == 0)
            ptx::barrier_arrive(ptx::shared_address(&shared.turn[consumer ^ 1]));
}

// The sum over K of one tile. One multiply stays in flight while the next stage is awaited. The first
// K tile stands before the loop: ptxas serialises wgmma if zeroed registers enter it.
template <class C, int width>
__device__ __forceinline__ void multiply_tile(Sums<C, width>& sums, Shared<C>& shared,
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
    pass_turn<C>(shared, consumer);
    wgmma::wait<0>();
    release_stage<C>(shared, previous);
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) asm volatile("" : "+f"(sum));
}

// A tile consists of parts of 64 rows of B. This is the number of a warpgroup's part or, where
// warpgroups take turns, of one of its blocks; on both CTAs of a cluster together.
template <class C>
__device__ __forceinline__ uint32_t part_of(uint32_t consumer, int block) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    return rank * C::consumers + (C::pingpong ? block : consumer);
}

// The part's place in a workspace slot: 16-byte words in the order of the threads' registers.
template <class C>
__device__ __forceinline__ float4* slot_of(const Params& params, uint32_t slot, uint32_t part) {
    constexpr uint32_t words = C::max_width / 8 * 128;
    return params.workspace + (slot * C::cluster * C::consumers + part) * words + threadIdx.x % 128;
}

// The flag of a part of a split tile. It counts the splits and then those who have seen them all, and
// is 0 again after the last.
template <class C>
__device__ __forceinline__ uint32_t* flag_of(const Params& params, const Tile& tile, uint32_t part) {
    return params.flags + tile.flag * C::cluster * C::consumers + part;
}

// Puts one split of a part's sum into its slot and counts it.
template <class C, int count>
__device__ __forceinline__ void store_split(const float (&sums)[count], const Params& params,
                                            const Tile& tile, uint32_t part, uint32_t consumer) {
    float4* to = slot_of<C>(params, tile.slot, part);
#pragma unroll
    for (int i = 0; i < count / 4; ++i)
        __stcg(to + i * 128,
               make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
    __threadfence();
    ptx::warpgroup_sync(consumer);
    if (threadIdx.x % 128 == 0)
        atomicInc(flag_of<C>(params, tile, part), tile.splits + tile.readers - 1);
}

// Adds up the splits of some rows of a part, always in the same order: the result does not depend on
// which split came first. The sum of no splits, where K is 0, is 0.
template <class C, int count>
__device__ __forceinline__ void add_splits(float (&sums)[count], const Params& params,
                                           const Tile& tile, uint32_t part, uint32_t consumer) {
    if (tile.splits > 0) {
        if (threadIdx.x % 128 == 0) {
            uint32_t* flag = flag_of<C>(params, tile, part);
            while (ptx::load_acquire(flag) < tile.splits) __nanosleep(20);
            atomicInc(flag, tile.splits + tile.readers - 1);
        }
        ptx::warpgroup_sync(consumer);
    }
    const float4* from = slot_of<C>(params, tile.slot, part) + tile.row / 8 * 128;
    constexpr uint32_t stride = C::max_width / 8 * 128 * C::consumers * C::cluster;
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 8
    for (uint32_t split = 0; split < tile.splits; ++split) {
#pragma unroll
        for (int i = 0; i < count / 4; ++i) {
            const float4 value = __ldcg(from + split * stride + i * 128);
            sums[4 * i] += value.x;
            sums[4 * i + 1] += value.y;
            sums[4 * i + 2] += value.z;
            sums[4 * i + 3] += value.w;
        }
    }
}

// A warpgroup's share of tile number `n`. Every width has its own copy of the main loop and of the
// epilogue: sums that several widths share end up in local memory. `buffer` counts staging buffers.
template <class C>
__device__ __forceinline__ void consume_tile(Shared<C>& shared, const Params& params,
                                             const Tile& tile, uint32_t n, Cursor& stage,
                                             uint32_t& buffer, uint32_t consumer) {
    // Asked for before it is needed. Beside the sums of two blocks there is no room for it; there, one
    // thread puts it aside, and has the time: it is not yet the warpgroup's turn. Everybody reads it
    // after a barrier of the epilogue, and before giving back the tile: so before the next one is put
    // there, which the other warpgroup's tile lies between.
    TargetD d;
    if (!C::pingpong || threadIdx.x % 128 == 0) d.find(params.groups, tile.group);
    if (C::pingpong && threadIdx.x % 128 == 0) shared.target[consumer] = d;
    const auto store = [&](auto& sums, uint32_t part) {
        epilogue<typename C::Output>(sums, tile, tile.n0 + part * 64,
                                     C::pingpong ? shared.target[consumer] : d, params.groups,
                                     shared.staging[consumer], buffer, consumer);
    };
    wait_turn<C>(shared, n, consumer);
    if (tile.k_tiles == 0) {
        pass_turn<C>(shared, consumer);
#pragma unroll 1
        for (int i = 0; i < C::blocks; ++i) {
            float sums[REDUCED_ROWS / 2];
            add_splits<C>(sums, params, tile, part_of<C>(consumer, i), consumer);
            store(sums, part_of<C>(consumer, i));
        }
        return;
    }
    switch (tile.width) {
#define WIDTH(w)                                                                              \
    case w:                                                                                   \
        if constexpr (w <= C::max_width) {                                                    \
            Sums<C, w> sums;                                                                  \
            multiply_tile<C, w>(sums, shared, stage, tile.k_tiles, consumer);                 \
            _Pragma("unroll") for (int i = 0; i < C::blocks; ++i) {                           \
                const uint32_t part = part_of<C>(consumer, i);                                \
                if (tile.splits > 0)                                                          \
                    store_split<C>(sums[i], params, tile, part, consumer);                    \
                else                                                                          \
                    store(sums[i], part);                                                     \
            }                                                                                 \
        }                                                                                     \
        break;
        WIDTH(16) WIDTH(32) WIDTH(48) WIDTH(64) WIDTH(80) WIDTH(96) WIDTH(112) WIDTH(128)
        WIDTH(144) WIDTH(160) WIDTH(176) WIDTH(192) WIDTH(208) WIDTH(224) WIDTH(240) WIDTH(256)
#undef WIDTH
    }
}

// One warpgroup's role: its share of every tile or, where warpgroups take turns, every other tile.
template <class C>
__device__ __forceinline__ void consume_tiles(Shared<C>& shared, const Params& params,
                                              uint32_t consumer) {
    Cursor stage;
    uint32_t buffer = 0;
    // Opaque: what follows from the tile's number is computed anew and not kept beside the sums.
    for (uint32_t n = 0;; n = ptx::opaque(n + 1)) {
        const Tile& tile = wait_tile(shared, n);
        if (tile.width == 0) return;
        if (!C::pingpong || n % 2 == consumer)
            consume_tile<C>(shared, params, tile, n, stage, buffer, consumer);
        else
            stage.skip(tile.k_tiles, C::stages);
        __syncwarp();
        if (threadIdx.x % 32 == 0) release_tile(shared, ptx::opaque(n));
    }
}

template <class C>
__device__ __forceinline__ void run_roles(const Params& params) {
    extern __shared__ __align__(1024) uint8_t memory[];
    static_assert(sizeof(Shared<C>) <= C::shared_bytes, "the tile's shared memory does not fit");
    Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);

    if (threadIdx.x == 0) {
        if (ptx::shared_address(memory) % 1024 != 0) __trap();  // the swizzle counts from there
        for (int i = 0; i < C::stages; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), C::warps * C::cluster);
        }
        for (int i = 0; i < 2; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.tile_full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.tile_empty[i]),
                              (4 * C::consumers + 1) * C::cluster);
        }
        for (int i = 0; i < C::consumers; ++i)
            ptx::barrier_init(ptx::shared_address(&shared.turn[i]), 4);
        ptx::fence_barrier_init();
    } else if (threadIdx.x / 32 == 1) {
        copy_first_tile<C>(shared, params);
    } else if (threadIdx.x / 64 == 1) {
        fetch_tables(params);
    }
    if constexpr (C::cluster == 1)
        __syncthreads();
    else
        ptx::cluster_meet();
    if (threadIdx.x / 32 == 1) {
        __syncwarp();
        if (threadIdx.x == 32) ptx::barrier_arrive(ptx::shared_address(&shared.tile_full[0]));
    }

    // With one CTA per SM the compiler may give each thread 168 registers, too few for 128 sums;
    // the loading warpgroup passes its own on. Two CTAs per SM have small tiles and stay as they are.
    constexpr bool uneven = C::consumers == 2;
    const uint32_t warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        if constexpr (uneven) ptx::registers_release<C::pingpong ? 40 : 56>();
        const uint32_t warp = threadIdx.x / 32;
        if (warp == 0 && threadIdx.x == 0) load_operands<C>(shared, params);
        if (warp == 1 && threadIdx.x == 32 && (C::cluster == 1 || ptx::cluster_rank() == 0))
            hand_out_tiles<C>(shared, params);
    } else {
        if constexpr (uneven) ptx::registers_claim<C::pingpong ? 232 : 224>();
        consume_tiles<C>(shared, params, warpgroup - 1);
    }
}
