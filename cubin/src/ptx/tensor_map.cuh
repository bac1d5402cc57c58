// Tensor maps: 128 bytes, aligned to 128. Replaced are words of those that the device writes.
#pragma once

#include <cstdint>

namespace ptx {

__device__ __forceinline__ void tensor_map_release() {
    asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

__device__ __forceinline__ void tensor_map_acquire(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tensor_map_prefetch(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
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

// Bytes from one row to the next, and in dimensions behind.
template <int dimension>
__device__ __forceinline__ void tensor_map_stride(uint32_t map, uint64_t bytes) {
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], %1, %2;" ::"r"(
                     map),
                 "n"(dimension), "l"(bytes)
                 : "memory");
}

}  // namespace ptx
