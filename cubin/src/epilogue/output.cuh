// Types of D.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

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
