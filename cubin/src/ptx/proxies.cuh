// Fences between the generic proxy (loads and stores) and the async proxy (bulk copies), and the fence
// that goes with them, all for shared memory (PTX ISA 9.0, "membar / fence").
//
// They are strong at the scope of a cluster and cost less than what is: a release is MEMBAR.ALL.CTA and
// FENCE.VIEW.ASYNC.S, an acquire no instruction at all. .release.cluster on a barrier's arrival, which
// is not restricted to shared memory, waits for all stores on their way to the GPU's memory
// (MEMBAR.ALL.GPU), and .acquire.cluster on a wait empties the L1 (CCTL.IVALL).
#pragma once

namespace ptx {

// What this thread has read and written in its CTA's shared memory comes before copies that are issued
// behind the acquire below, and so does what others did before they met this thread.
__device__ __forceinline__ void release_to_copies() {
    asm volatile("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;" ::
                     : "memory");
}

// The same for copies from shared memory, which a thread of this CTA issues once it has met all.
__device__ __forceinline__ void release_to_own_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// In the thread that issues the copies, once it has seen the arrivals of all who released.
__device__ __forceinline__ void acquire_for_copies() {
    asm volatile("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;" ::
                     : "memory");
}

// What a copy has written to shared memory, or another thread before it arrived, can be read.
__device__ __forceinline__ void acquire_shared() {
    asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

}  // namespace ptx
