// Types of D.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

#include "ptx/memory.cuh"

// How a type of D is staged, 64 columns wide.
struct OutBf16 {
    static constexpr bool half = true;
    static constexpr uint32_t size = 2;
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
};
struct OutF16 {
    static constexpr bool half = true;
    static constexpr uint32_t size = 2;
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
};
struct OutF32 {
    static constexpr bool half = false;
    static constexpr uint32_t size = 4;
};

// Four neighbours of a row of D, and one element, if `wanted`.
template <class Output>
__device__ __forceinline__ void store_four(uint64_t to, const float (&x)[4], bool wanted) {
    if constexpr (Output::half)
        ptx::store_64(to, Output::pack(x[0], x[1]), Output::pack(x[2], x[3]), wanted);
    else
        ptx::store_128(to, __float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                       __float_as_uint(x[3]), wanted);
}
template <class Output>
__device__ __forceinline__ void store_one(uint64_t to, float x, bool wanted) {
    if constexpr (Output::half)
        ptx::store_16(to, Output::pack(x, x), wanted);
    else
        ptx::store_32(to, __float_as_uint(x), wanted);
}
