// Thread-block clusters.
#pragma once

#include <cstdint>

namespace ptx {

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t cluster_count() {
    uint32_t count;
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
    return count;
}

// All threads of the cluster have come here. It orders no memory accesses, of which there are none to
// order at the start of a kernel: fence_barrier_init publishes the barriers. With release semantics it
// would turn into a fence of the whole GPU.
__device__ __forceinline__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The address in CTA `rank` of the cluster of what lies at `address` here.
__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank) {
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

// Stores four words at `to` in another CTA, and counts their bytes at its barrier `full`; both are addresses from
// map_to_rank.
__device__ __forceinline__ void store_remote(uint32_t to, uint32_t full, float x, float y, float z, float w) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(to),
        "r"(full), "f"(x), "f"(y), "f"(z), "f"(w)
        : "memory");
}

}  // namespace ptx
