// Types of D.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

// Two neighbours of 16 bits, as numbers.
struct PairBf16 {
    static __device__ __forceinline__ float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) {
        return __uint_as_float(pair & 0xFFFF0000);
    }
};
struct PairF16 {
    static __device__ __forceinline__ float low(uint32_t pair) {
        return __half2float(__ushort_as_half(pair));
    }
    static __device__ __forceinline__ float high(uint32_t pair) {
        return __half2float(__ushort_as_half(pair >> 16));
    }
};

// How a type of D is staged, 64 columns wide.
struct OutBf16 {
    using Pair = PairBf16;
    static constexpr bool half = true;
    static constexpr uint32_t size = 2;
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
};
struct OutF16 {
    using Pair = PairF16;
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
