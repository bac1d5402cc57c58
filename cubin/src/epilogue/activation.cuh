// Activations, in f32. NaN stays NaN.
//
// But for relu, each is x times a share of it, 1 / (1 + 2^(x Q(x^2))): of silu and gelu_tanh that is the
// definition (1 + tanh u is 2 / (1 + exp(-2u))), and of gelu the polynomial Q makes it so: -log2(p / (1 -
// p)) / x for the normal distribution's p(x), which is even. Its coefficients were fitted to what
// gemmctl/judging/expected.py allows; tools/fit_gelu.py has how, and how far off the results are.
#pragma once

#include <cstdint>

#include "ptx/math.cuh"

// What they have in common. A share of 0 of -infinity would be NaN.
__device__ __forceinline__ float share_of(float x, float exponent) {
    return ptx::max_or_nan(x, -3.402823466e38f) * ptx::reciprocal(1.0f + ptx::exp2(exponent));
}

// Where x^2 is held, so that no x overflows there: the share has vanished, or is 1, long before.
__device__ __forceinline__ float bounded_square(float x, float most) { return fminf(x * x, most); }

__device__ __forceinline__ float gelu(float x) {
    const float t = bounded_square(x, 28.0f);
    float q = -5.421232352e-9f;
    q = fmaf(q, t, 3.941178477e-7f);
    q = fmaf(q, t, -1.159221847e-5f);
    q = fmaf(q, t, 1.603539567e-4f);
    q = fmaf(q, t, 9.256064368e-5f);
    q = fmaf(q, t, -1.048346832e-1f);
    q = fmaf(q, t, -2.302208662e+0f);
    return share_of(x, x * q);
}

// gelu_tanh and silu, of which only the first has a cubic term.
__device__ __forceinline__ float sigmoidal(float x, float linear, float cubic) {
    return share_of(x, x * fmaf(cubic, bounded_square(x, 100.0f), linear));
}

// Puts the sums of one of a thread's two columns through a function.
template <int column, int count, class Function>
__device__ __forceinline__ void transform(float (&sums)[count], const Function& function) {
#pragma unroll
    for (int i = 2 * column; i < count; i += 4) {
        sums[i] = function(sums[i]);
        sums[i + 1] = function(sums[i + 1]);
    }
}

// Puts a warpgroup's sums through an activation, by its code; with a gate only those of the first column,
// which it then multiplies by those of the other.
template <int count>
__device__ __forceinline__ void activate(float (&sums)[count], uint32_t activation, bool gated) {
    const auto relu = [](float x) { return ptx::max_or_nan(x, 0.0f); };
    if (activation == ACTIVATION_SILU || activation == ACTIVATION_GELU_TANH) {
        const bool silu = activation == ACTIVATION_SILU;
        const float linear = silu ? -1.4426950409f : -2.3022081985f;
        const float cubic = silu ? 0.0f : -0.1029432397f;
        const auto function = [&](float x) { return sigmoidal(x, linear, cubic); };
        transform<0>(sums, function);
        if (!gated) transform<1>(sums, function);
    } else if (activation == ACTIVATION_GELU) {
        transform<0>(sums, gelu);
        if (!gated) transform<1>(sums, gelu);
    } else if (activation == ACTIVATION_RELU) {
        transform<0>(sums, relu);
        if (!gated) transform<1>(sums, relu);
    }
    if (gated) {
#pragma unroll
        for (int i = 0; i < count; i += 4) {
            sums[i] *= sums[i + 2];
            sums[i + 1] *= sums[i + 3];
        }
    }
}
