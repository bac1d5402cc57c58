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

// How a type of D is staged, 64 columns wide. Of 16 bits it is bf16 in all that the compiler sees, and only in the text
// of asm, where cubin/build.py puts f16 in: so nothing else may depend on it.
struct OutHalf {
    struct Pair {  // a C of D's type
        static __device__ __forceinline__ float low(uint32_t pair) {
            float number;
            asm("{\n.reg .b32 pair, number;\n.reg .b16 low, high;\nmov.b32 pair, %1;\n"
                "shl.b32 number, pair, 16;\nmov.b32 %0, number;\n}"
                : "=f"(number)
                : "r"(pair));
            return number;
        }
        static __device__ __forceinline__ float high(uint32_t pair) {
            float number;
            asm("{\n.reg .b32 pair, number;\n.reg .b16 low, high;\nmov.b32 pair, %1;\n"
                "and.b32 number, pair, 0xFFFF0000;\nmov.b32 %0, number;\n}"
                : "=f"(number)
                : "r"(pair));
            return number;
        }
    };
    static constexpr bool half = true;
    static constexpr uint32_t size = 2;
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
};
struct OutF32 {
    static constexpr bool half = false;
    static constexpr uint32_t size = 4;
};
