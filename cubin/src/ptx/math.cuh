// Approximate functions of floats, with the errors that the PTX ISA states, and what keeps NaN.
#pragma once

namespace ptx {

// 2^x: within 2^-22 of itself; a subnormal result is 0.
__device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / x: within one unit in the last place; 0 for infinity.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The larger of two; NaN if either is.
__device__ __forceinline__ float max_or_nan(float x, float y) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
    return larger;
}

}  // namespace ptx
