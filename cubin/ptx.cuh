// The PTX instructions the kernels use, one thin function each. Nothing here decides anything.
// Section names refer to the PTX ISA, version 9.0.
#pragma once

#include <cstdint>

namespace ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// The same value, of which the compiler knows nothing.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

// ---- thread-block clusters ----

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t cluster_id() {
    uint32_t id;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
    return id;
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

// ---- mbarriers ----
// The default semantics and scope are used throughout. With .cluster scope spelled out, a wait or
// an arrival turns into a fence of the whole GPU (1.5 times the run time of a large problem).

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra.uni DONE;\n"
        "bra.uni WAIT;\n"
        "DONE:\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// `barrier` is an address from map_to_rank.
__device__ __forceinline__ void barrier_arrive_remote(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
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

// ---- bulk copies (TMA) ----

// 16-byte multiples from global memory to shared memory, here or in every CTA of `mask`.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to), "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void bulk_load_multicast(uint32_t to, const void* from, uint32_t bytes,
                                                    uint32_t barrier, uint16_t mask) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "h"(mask)
        : "memory");
}

__device__ __forceinline__ void tensor_load(uint32_t to, const void* map, uint32_t barrier, int x,
                                            int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

__device__ __forceinline__ void tensor_load_multicast(uint32_t to, const void* map,
                                                      uint32_t barrier, int x, int y,
                                                      uint16_t mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(mask)
        : "memory");
}

// ---- tensor maps that the device has written (128 bytes, aligned to 128) ----

__device__ __forceinline__ void tensor_map_release() {
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

__device__ __forceinline__ void tensor_map_acquire(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tensor_map_address(uint32_t map, uint64_t address) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map),
                 "l"(address)
                 : "memory");
}

template <int dimension>
__device__ __forceinline__ void tensor_map_extent(uint32_t map, uint32_t extent) {
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], %1, %2;" ::"r"(map),
                 "n"(dimension), "r"(extent)
                 : "memory");
}

// Bytes from one row to the next.
__device__ __forceinline__ void tensor_map_stride(uint32_t map, uint64_t bytes) {
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(
                     map),
                 "l"(bytes)
                 : "memory");
}

// ---- registers and matrices ----

template <int registers>
__device__ __forceinline__ void registers_release() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void registers_claim() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// Store four 8x8 matrices of 16-bit elements transposed; lane 8i+j gives the address of what
// becomes row j of matrix i.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, uint32_t m0, uint32_t m1,
                                                          uint32_t m2, uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// What other CTAs wrote before they released `address` can be read afterwards.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* address) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
    uint4 word;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "r"(address)
                 : "memory");
    return word;
}

// To global memory: a plain pointer made from a number is a generic one, and slower.
__device__ __forceinline__ void store_128(uint64_t address, uint4 word) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(word.x),
                 "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
}

__device__ __forceinline__ void store_32(uint64_t address, uint32_t bits) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
}

__device__ __forceinline__ void store_16(uint64_t address, uint16_t bits) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(bits) : "memory");
}

// Bring the line at an address into the L2.
__device__ __forceinline__ void prefetch(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Global memory at `address` if `wanted`, else 0.
__device__ __forceinline__ uint32_t load_32(uint64_t address, bool wanted) {
    uint32_t bits;
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\nmov.b32 %0, 0;\n"
        "@wanted ld.global.nc.b32 %0, [%1];\n}"
        : "=r"(bits)
        : "l"(address), "r"(uint32_t{wanted}));
    return bits;
}

__device__ __forceinline__ uint32_t load_16(uint64_t address, bool wanted) {
    uint32_t bits;
    asm volatile(
        "{\n.reg .pred wanted;\n.reg .b16 half;\nsetp.ne.b32 wanted, %2, 0;\nmov.b16 half, 0;\n"
        "@wanted ld.global.nc.b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
        : "=r"(bits)
        : "l"(address), "r"(uint32_t{wanted}));
    return bits;
}

__device__ __forceinline__ void store_shared(uint32_t to, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

}  // namespace ptx
