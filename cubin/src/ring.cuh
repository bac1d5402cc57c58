// The ring of stages in which A, B and C pass from the loader to those who multiply.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "shared.cuh"

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
