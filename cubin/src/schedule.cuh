// Tiles: handed out by one thread of every cluster, awaited and given back by all who work on them.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "records.cuh"
#include "shared.cuh"

// Tile number `n` of this CTA, once it is there.
template <class C>
__device__ __forceinline__ const Tile& wait_tile(Shared<C>& shared, uint32_t n) {
    ptx::barrier_wait_relaxed(ptx::shared_address(&shared.tile_full[n % 2]), n / 2 % 2);
    ptx::acquire_shared();
    return shared.tiles[n % 2];
}

// Tell the thread that hands out tiles that this one, and those it has met, are done with tile number
// `n`.
//
// They have read the record through the generic proxy, and a copy, in a cluster one that another CTA
// issues, will overwrite it through the async proxy. Causality orders accesses through different
// proxies only along a path with a proxy fence (PTX ISA 9.0, "Proxies" and "Causality Order"). Here it
// goes from the readers' release through this arrival and wait_released to the acquire there, as in
// the ISA's example of clusterlaunchcontrol.try_cancel. One fence for a warp is enough: __syncwarp puts
// the reads of its other lanes before it. The first record, which copy_first_tile stores through the
// generic proxy, is overwritten behind the same path.
template <class C>
__device__ __forceinline__ void release_tile(Shared<C>& shared, uint32_t n) {
    const uint32_t barrier = ptx::shared_address(&shared.tile_empty[n % 2]);
    ptx::release_to_copies();
    if constexpr (C::cluster == 1)
        ptx::barrier_arrive(barrier);
    else
        ptx::barrier_arrive_remote_relaxed(ptx::map_to_rank(barrier, 0));
}

// Wait until all are done with the record that lies where that of tile number `n` is to go.
template <class C>
__device__ __forceinline__ void wait_released(Shared<C>& shared, uint32_t n) {
    ptx::barrier_wait_relaxed(ptx::shared_address(&shared.tile_empty[n % 2]), (n / 2 + 1) % 2);
    ptx::acquire_for_copies();
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
// past the end: T draws, after which atomicInc has wrapped to 0 for the next launch. That holds for every
// G from 1 to T: how many clusters there are is the host's choice.
//
// A tile is drawn when everybody is done with the last but one: one that is taken too early is one that
// nobody else can take. A third record made 249 tiles on 132 SMs a quarter slower.
template <class C>
__device__ __forceinline__ void hand_out_tiles(Shared<C>& shared, const Params& params) {
    uint32_t index, n = 0;
    do {
        wait_released(shared, ++n);
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
    wait_released(shared, ++n);
}
