// Split sums: their parts on the way through the workspace.
//
// Who adds up parts waits for the CTAs that compute them, while every cluster has a first tile from the
// start. So all clusters of a launch with split sums have to run at one time: the host launches it
// cooperatively, with no more clusters than fit.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// A tile consists of parts of 64 rows of B. This is the number of a warpgroup's part or, where
// warpgroups have tiles of their own, of one of its blocks; on both CTAs of a cluster together.
template <class C>
__device__ __forceinline__ uint32_t part_of(uint32_t consumer, int block) {
    const uint32_t rank = C::cluster == 1 ? 0 : ptx::cluster_rank();
    return rank * C::parts + (C::pingpong ? block : consumer);
}

// The part's place in a workspace slot: 16-byte words in the order of the threads' registers.
template <class C>
__device__ __forceinline__ float4* slot_of(const Params& params, uint32_t slot, uint32_t part) {
    constexpr uint32_t words = C::max_width / 8 * 128;
    constexpr uint32_t parts = C::cluster * C::parts;
    return params.workspace + (uint64_t{slot} * parts + part) * words + threadIdx.x % 128;
}

// The flag of a part of a split tile. It counts the splits and then those who have seen them all, and
// is 0 again after the last.
template <class C>
__device__ __forceinline__ uint32_t* flag_of(const Params& params, const Tile& tile, uint32_t part) {
    return params.flags + uint64_t{tile.flag} * FLAGS_PER_TILE + part;
}

// Puts one split of a part's sum into its slot and counts it. The barrier orders everybody's stores before
// one thread's release, and a release is cumulative: whoever acquires the count may read them all (PTX ISA
// 9.0, "Causality Order"). A fence in every thread would stop every warp until its stores have arrived.
template <class C, int count>
__device__ __forceinline__ void store_split(const float (&sums)[count], const Params& params,
                                            const Tile& tile, uint32_t part, uint32_t consumer) {
    float4* to = slot_of<C>(params, tile.slot, part);
#pragma unroll
    for (int i = 0; i < count / 4; ++i)
        __stcg(to + i * 128,
               make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
    ptx::warpgroup_sync(consumer);
    if (threadIdx.x % 128 == 0)
        ptx::increment_release(flag_of<C>(params, tile, part), tile.splits + tile.readers - 1);
}

// Adds up the splits of some rows of a part, always in the same order: the result does not depend on
// which split came first. The sum of no splits, where K is 0, is 0.
template <class C, int count>
__device__ __forceinline__ void add_splits(float (&sums)[count], const Params& params,
                                           const Tile& tile, uint32_t part, uint32_t consumer) {
    if (tile.splits > 0) {
        if (threadIdx.x % 128 == 0) {
            uint32_t* flag = flag_of<C>(params, tile, part);
            while (ptx::load_relaxed(flag) < tile.splits) __nanosleep(20);
            ptx::acquire_gpu();  // once: it empties the L1
            atomicInc(flag, tile.splits + tile.readers - 1);
        }
        __syncwarp();  // for the compiler: without it the main loop loses its uniform registers
        ptx::warpgroup_sync(consumer);
    }
    const float4* from = slot_of<C>(params, tile.slot, part) + tile.row / 8 * 128;
    constexpr uint64_t stride = C::max_width / 8 * 128 * C::parts * C::cluster;
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
