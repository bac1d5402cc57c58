// Barriers in shared memory (mbarriers) and the barriers of a CTA.
//
// What is not called relaxed has the default semantics and scope: release or acquire, within the CTA.
// Where two CTAs share a stage of the ring that scope is too narrow by the letter (PTX ISA 9.0, "Morally
// Strong Operations"). But all it would order there are wgmma's reads, which are over when a warp
// arrives, and copies that are not issued before; and release at .cluster scope turns into a fence of the
// whole GPU (1.5 times the run time of a large problem).
#pragma once

#include <cstdint>

namespace ptx {

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Waits until a phase of that parity is over, with what PTX calls semantics and scope.
#define BARRIER_WAIT(semantics)                                                        \
    asm volatile(                                                                      \
        "{\n"                                                                          \
        ".reg .pred done;\n"                                                           \
        "WAIT:\n"                                                                      \
        "mbarrier.try_wait.parity" semantics ".shared::cta.b64 done, [%0], %1;\n"      \
        "@done bra.uni DONE;\n"                                                        \
        "bra.uni WAIT;\n"                                                              \
        "DONE:\n"                                                                      \
        "}" ::"r"(barrier),                                                            \
        "r"(parity)                                                                    \
        : "memory")

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    BARRIER_WAIT("");
}

// The same at the cluster's scope, and ordering nothing: fences beside it do (proxies.cuh).
__device__ __forceinline__ void barrier_wait_relaxed(uint32_t barrier, uint32_t parity) {
    BARRIER_WAIT(".relaxed.cluster");
}

// The same, and what other CTAs of the cluster have stored by store_remote comes before what follows.
__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
    BARRIER_WAIT(".acquire.cluster");
}

#undef BARRIER_WAIT

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Once all that this thread has copied to shared memory by cp.async is there.
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// `barrier` is an address from map_to_rank.
__device__ __forceinline__ void barrier_arrive_remote(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_arrive_remote_relaxed(uint32_t barrier) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_expect_remote(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes)
                 : "memory");
}

// Barriers 1 to 15 of the CTA; `id` has to be a constant, or all sixteen are reserved.
template <int id, int threads>
__device__ __forceinline__ void named_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

// All threads of consuming warpgroup `consumer`.
__device__ __forceinline__ void warpgroup_sync(uint32_t consumer) {
    if (consumer == 0)
        named_sync<1, 128>();
    else
        named_sync<2, 128>();
}

}  // namespace ptx
