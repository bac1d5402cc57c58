// The ring of stages in which A, B and C pass from the loader to those who multiply.
#pragma once

#include "cursor.cuh"
#include "ptx/barriers.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"
#include "shared.cuh"

// Where a stage begins in shared memory.
template <class C>
__device__ __forceinline__ uint32_t stage_address(Shared<C>& shared, const Ring& ring, uint32_t index) {
    return ptx::shared_address(shared.ring) + index * ring.stage_bytes;
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
