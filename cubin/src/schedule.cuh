// Tiles: handed out by one thread of every cluster, awaited and given back by all who work on them.
#pragma once

#include "maps.cuh"
#include "ptx/barriers.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "shared.cuh"

// Tile number `n` of this CTA, once it is there.
template <class C>
__device__ __forceinline__ const Tile& wait_tile(Shared<C>& shared, uint32_t n) {
    ptx::barrier_wait_relaxed(ptx::shared_address(&shared.tile_full[n % RECORDS]), n / RECORDS % 2);
    ptx::acquire_shared();
    return shared.tiles[n % RECORDS];
}

// Tell the thread that hands out tiles that this one, and those it has met, are done with tile number
// `n`.
//
// They have read the record through the generic proxy, and a copy, in a cluster one that another CTA
// issues, will overwrite it through the async proxy. Causality orders accesses through different
// proxies only along a path with a proxy fence (PTX ISA 9.0, "Proxies" and "Causality Order"). Here it
// goes from the readers' release through this arrival and wait_released to the acquire there, as in
// the ISA's example of clusterlaunchcontrol.try_cancel. One fence for a warp is enough: __syncwarp puts
// the reads of its other lanes before it. The first record, which show_first_tile stores through the
// generic proxy, is overwritten behind the same path.
template <class C>
__device__ __forceinline__ void release_tile(Shared<C>& shared, uint32_t n) {
    const uint32_t barrier = ptx::shared_address(&shared.tile_empty[n % RECORDS]);
    ptx::release_to_copies();
    if constexpr (C::ctas == 1)
        ptx::barrier_arrive(barrier);
    else
        ptx::barrier_arrive_remote_relaxed(ptx::map_to_rank(barrier, 0));
}

// Wait until all are done with tile number `n`.
template <class C>
__device__ __forceinline__ void wait_released(Shared<C>& shared, uint32_t n) {
    ptx::barrier_wait_relaxed(ptx::shared_address(&shared.tile_empty[n % RECORDS]), n / RECORDS % 2);
    ptx::acquire_for_copies();
}

// A cluster's first tile is its own number, so that every CTA asks for its record itself: those of its threads that
// want it, in the first instructions of the kernel. (%clusterid would be a division of floats.)
template <class C>
__device__ __forceinline__ Tile first_tile(const Params& params, bool wanted) {
    const auto at = reinterpret_cast<uint64_t>(&params.tiles[blockIdx.x / C::ctas]);
    Tile tile;
#pragma unroll
    for (uint32_t i = 0; i < sizeof(Tile) / 16; ++i)
        reinterpret_cast<uint4*>(&tile)[i] = ptx::load_128(at + 16 * i, wanted);
    return tile;
}

// Shows it to all who wait for tile number 0, and to the first of two warpgroups by turns where its stages begin.
template <class C>
__device__ __forceinline__ void show_first_tile(Shared<C>& shared, const Tile& tile) {
    shared.tiles[0] = tile;
    shared.next[0] = {0, 0};
    ptx::barrier_arrive(ptx::shared_address(&shared.tile_full[0]));
}

// The place of a cluster's second tile in a list of so many, or one behind its end. Where there are fewer than
// clusters, those of the first numbers have one, which lie in all GPCs by turns. Single CTAs fill one GPC after the
// other, and a GPC draws no more than 0.7 TB/s; so of these, as many in every row of numbers have one.
template <class C>
__device__ __forceinline__ uint32_t second_tile(uint32_t number, uint32_t clusters, uint32_t count) {
    if constexpr (C::ctas > 1) return clusters + number;
    const uint32_t seconds = min(count - clusters, clusters), before = number * seconds / clusters;
    return (number + 1) * seconds / clusters > before ? clusters + before : count;
}

// One thread of every cluster draws the further tiles from a counter and has their records copied to all
// CTAs of the cluster. Of T tiles on G clusters the first G and the next G go by the clusters' numbers: the
// second ones, too, are asked for before anybody knows who will be free first, and so neighbours in the list
// go to neighbours on the chip (placement.py). The others are drawn, and each cluster that has a second
// tile draws one number past the end: T - G draws, after which atomicInc has wrapped to 0 for the next
// launch. That holds for every G from 1 to T: how many clusters there are is the host's choice.
//
// The next tile is drawn while one is at work. Where tiles are short, one further on is as early as the ring
// has room for it: then `ahead` are drawn, but no more than the list still has for every cluster, since what
// is taken too early is taken from those that will be free before (guided self-scheduling, Polychronopoulos
// and Kuck 1987).
template <class C>
__device__ __forceinline__ void hand_out_tiles(Shared<C>& shared, const Params& params) {
    const uint32_t clusters = ptx::cluster_count(), count = params.tile_count;
    uint32_t index = blockIdx.x / C::ctas, n = 0, done = 0;
    const auto copy = [&](uint32_t n, uint32_t index) {
        const void* record = params.tiles + index;
        const uint32_t full = ptx::shared_address(&shared.tile_full[n % RECORDS]);
        const uint32_t to = ptx::shared_address(&shared.tiles[n % RECORDS]);
        if constexpr (C::ctas == 1) {
            ptx::barrier_expect(full, sizeof(Tile));
            ptx::bulk_load(to, record, sizeof(Tile), full);
        } else {
            for (uint32_t rank = 0; rank < C::ctas; ++rank)
                ptx::barrier_expect_remote(ptx::map_to_rank(full, rank), sizeof(Tile));
            ptx::bulk_load_multicast(to, record, sizeof(Tile), full, (1 << C::ctas) - 1);
        }
    };
    do {
        const uint32_t ahead = max(1u, min(params.ahead, (count - index) / clusters));
        ++n;
        for (; done + ahead < n; ++done) wait_released(shared, done);
        const uint32_t next =
            n == 1 ? second_tile<C>(index, clusters, count)
                   : 2 * clusters + atomicInc(params.counter, count - clusters - 1);
        index = min(next, count);
        copy(n, index);
    } while (index < count);
    // The other pingpong warpgroup meets the end one further on. Opaque: of an address that is the same for all
    // lanes ptxas 13.0.88 gives the copy only the lower half.
    if constexpr (C::pingpong) {
        for (; done + RECORDS - 1 < n + 1; ++done) wait_released(shared, done);
        copy(n + 1, ptx::opaque(count));
    }
    // Leave when nobody will signal this CTA any more: all are done with the last tile.
    for (; done < n; ++done) wait_released(shared, done);
}
