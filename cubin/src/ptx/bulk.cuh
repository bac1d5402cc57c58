// Bulk copies and tensor loads (TMA) from global to shared memory, which complete on an mbarrier, and tensor
// sums and stores from shared to global memory, which this thread waits for.
#pragma once

#include <cstdint>

namespace ptx {

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

// 16-byte multiples from global memory into the L2.
__device__ __forceinline__ void bulk_prefetch(uint64_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// How long the L2 keeps what a load brings: as without a hint, or only while nothing else needs the room
// (createpolicy.fractional.L2::evict_first of all of it). No hint is not what createpolicy makes of
// ::evict_normal, 0x16f0000000000000: with that, lists of 20 to 80 us took up to 40% longer on an H200.
constexpr uint64_t NO_HINT = 0x1000000000000000, EVICT_FIRST = 0x12f0000000000000;

__device__ __forceinline__ void tensor_load(uint32_t to, const void* map, uint32_t barrier,
                                            uint64_t policy, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
        "l"(map), "r"(barrier), "l"(policy), "r"(x), "r"(y)
        : "memory");
}

__device__ __forceinline__ void tensor_load(uint32_t to, const void* map, uint32_t barrier,
                                            uint64_t policy, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(to),
        "l"(map), "r"(barrier), "l"(policy), "r"(x), "r"(y), "r"(z)
        : "memory");
}

__device__ __forceinline__ void tensor_load(uint32_t to, const void* map, uint32_t barrier,
                                            uint64_t policy, int x, int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
        "l"(map), "r"(barrier), "l"(policy), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

__device__ __forceinline__ void tensor_load(uint32_t to, const void* map, uint32_t barrier,
                                            uint64_t policy, int x, int y, int z, int w, int v) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;" ::"r"(to),
        "l"(map), "r"(barrier), "l"(policy), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
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

__device__ __forceinline__ void tensor_load_multicast(uint32_t to, const void* map,
                                                      uint32_t barrier, int x, int y, int z, int w,
                                                      int v, uint16_t mask) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "h"(mask)
        : "memory");
}

// Adds a box of f32 to global memory. Sums are rounded to nearest and subnormal numbers kept (measured on an
// H200; what red.global.add.f32 flushes to zero comes out right here). NaN loses its payload.
__device__ __forceinline__ void tensor_add(const void* map, uint32_t from, int x, int y, int z) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
        " [%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(from), "r"(x), "r"(y), "r"(z)
        : "memory");
}

// Writes a box to global memory, as far as the map goes.
__device__ __forceinline__ void tensor_store(const void* map, uint32_t from, int x, int y, int z,
                                             int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
        " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

// Those that this thread has issued since the last of these are a group.
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all groups but the last `but` have read shared memory; until all are done.
template <int but>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(but) : "memory");
}

__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace ptx
