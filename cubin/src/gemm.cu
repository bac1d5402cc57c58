// Persistent, warp-specialised grouped GEMM for sm_90a: D = alpha A B + beta C for every group, and what may
// follow it: bias, activation, gate.
//
// The operands are swapped: `rows` rows of B (as it is stored: one row per column of D) lie on wgmma's M
// and up to `max_width` rows of A on its N, so that a group chooses its tile's width in small steps
// without another kernel. docs/kernel.md explains the choices.
//
// Roles: warp 0 loads A, B and C, warp 1 hands out tiles, the other warpgroups multiply and store. Warps 2 and
// 3 copy a B that is unaligned, or fetch a D that is added to; or warp 2 loads, too, stage by stage in turn with
// warp 0. Of CTAs that share the K of tiles the first one stores.
#include <cstddef>

#include "config.cuh"
#include "consume.cuh"
#include "copy.cuh"
#include "epilogue/joined.cuh"
#include "fetch.cuh"
#include "load.cuh"
#include "maps.cuh"
#include "ptx/barriers.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "ptx/warp.cuh"
#include "records.cuh"
#include "schedule.cuh"
#include "shared.cuh"

// Two threads of different warps ready the barriers, before anybody uses them: one after the other takes 20 cycles
// each. Those of the ring.
template <class C>
__device__ __forceinline__ void ready_stages(Shared<C>& shared) {
    for (int i = 0; i < C::most_stages; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1 + C::copying);
        ptx::barrier_init(ptx::shared_address(&shared.empty[i]), C::warps * C::cluster);
    }
    ptx::fence_barrier_init();
}

// Those of tiles and turns. Who gives a tile back: the warps that multiply it, who loads, and warps that copy.
template <class C>
__device__ __forceinline__ void ready_tiles(Shared<C>& shared) {
    for (int i = 0; i < RECORDS; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.tile_full[i]), 1);
        if (C::c_first) ptx::barrier_init(ptx::shared_address(&shared.c_there[i]), 1);
        ptx::barrier_init(ptx::shared_address(&shared.tile_empty[i]),
                          (C::warps + C::loaders + C::copying / 32) * C::ctas);
    }
    for (int i = 0; i < C::consumers; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.turn[i]), 4);
        if constexpr (C::c_staged) ptx::barrier_init(ptx::shared_address(&shared.c_full[i]), 1);
    }
    if constexpr (C::k_parts > 1) {
        ptx::barrier_init(ptx::shared_address(&shared.gathered->full), 1);
        ptx::barrier_init(ptx::shared_address(&shared.gathered->free), C::warps);
    }
    ptx::fence_barrier_init();
}

extern "C" __global__ void __launch_bounds__(Config::threads, Config::ctas_per_sm)
    gemm(const __grid_constant__ Params params) {
    using C = Config;
    extern __shared__ __align__(1024) uint8_t memory[];
    static_assert(sizeof(Shared<C>) <= C::shared_bytes, "the tile's shared memory does not fit");
    static_assert(sizeof(Shared<C>) - offsetof(Shared<C>, tiles) <= C::control_bytes,
                  "the build leaves too little room beside the ring and the staging buffers");
    Shared<C>& shared = *reinterpret_cast<Shared<C>*>(memory);

    // For who loads, and who asks for maps, whichever lanes these are: they wait for it behind the barrier.
    const Tile first = first_tile<C>(params, threadIdx.x < 64);
    if (threadIdx.x == 0) {
        if (ptx::shared_address(memory) % 1024 != 0) __trap();  // the swizzle counts from there
        ready_stages(shared);
    } else if (threadIdx.x == 32) {
        ready_tiles(shared);
    } else if (threadIdx.x / 64 == 1) {
        fetch_tables(params);
    } else if (threadIdx.x / 32 == 4) {
        if constexpr (C::joins) ready_ones(*shared.ones);
    }
    if constexpr (C::ctas == 1)
        __syncthreads();
    else
        ptx::cluster_meet();

    // With one CTA per SM the compiler may give each thread 168 registers, too few for 128 sums;
    // the loading warpgroup passes its own on. Two CTAs per SM have small tiles and stay as they are.
    constexpr bool uneven = C::loader_registers > 0;
    const uint32_t warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 0) {
        if constexpr (uneven) ptx::registers_release<C::loader_registers>();
        const uint32_t warp = threadIdx.x / 32;
        if (warp == 0 || (C::loaders > 1 && warp == 2)) {
            Ring ring = params.ring;
            // In registers, which only shuffles make sure of: else its numbers come anew for every slice, and where
            // ptxas has a load wait for them, sums of long K take 3 to 9% longer. Not where warpgroups share the tiles
            // of single CTAs: there short K takes 3% longer so.
            if constexpr (C::consumers == 1 || C::cluster > 1)
                ring = {__shfl_sync(~0u, ring.stages, 0), __shfl_sync(~0u, ring.stage_bytes, 0)};
            if (ptx::elected()) load_operands<C>(shared, params, ring, first, C::loaders > 1 ? warp / 2 : 0);
        }
        if (warp == 1 && ptx::elected()) {
            prefetch_maps<C>(params, first.group);
            if (C::ctas == 1 || ptx::cluster_rank() == 0) hand_out_tiles<C>(shared, params);
        }
        if (warp > C::loaders) {
            if constexpr (C::b_unaligned)
                copy_b<C>(shared, params);
            else if constexpr (C::adds)
                fetch_added<C>(params);
        }
    } else {
        if constexpr (uneven) ptx::registers_claim<C::consumer_registers>();
        consume_tiles<C>(shared, params, warpgroup - 1);
    }
}
