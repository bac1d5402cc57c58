// Activations, in f32. NaN stays NaN.
//
// But for relu, each is x times a share of it, 1 / (1 + 2^(x Q(x^2))): of silu and gelu_tanh that is the
// definition (1 + tanh u is 2 / (1 + exp(-2u))), and of gelu the polynomial Q makes it so: -log2(p / (1 -
// p)) / x for the normal distribution's p(x), which is even. Its coefficients were fitted to what
// gemmctl/judging/expected.py allows; tools/fit_gelu.py has how, and how far off the results are.
#pragma once

#include <cstdint>

#include "ptx/math.cuh"
#include "ptx/registers.cuh"

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

__device__ __forceinline__ float gelu_tanh(float x) {
    return share_of(x, x * fmaf(-0.1029432397f, bounded_square(x, 100.0f), -2.3022081985f));
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

// The same through silu, two numbers to a reciprocal: 1 / a is b times 1 / (a b). So that a b is finite no
// power exceeds 2^60, where a share has long vanished, and a little more than 2^-60 is taken off each, so
// that there it is none at all. Of NaN and 60 min is 60: a number, and the other of the two stays right.
//
// Each pair goes through four stages, one step behind the pair before it, or two where the special function
// unit has to answer: no other warp hides its latency. ptxas on its own puts stages of one pair side by
// side, and 48 numbers take a warp 1,190 cycles instead of 634 (by the latencies of what it wrote).
template <int column, int count>
__device__ __forceinline__ void silu(float (&sums)[count]) {
    constexpr float most_exponent = 60.0f, no_share = 8.6737e-19f;
    constexpr int pairs = count / 4;
    // Of each number first the exponent, then the power, then what x is divided by.
    float divisors[pairs][2], inverses[pairs];
#pragma unroll
    for (int step = 0; step < pairs + 5; ++step) {
        ptx::keep_order();
        if (const int i = step - 5; 0 <= i) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float& x = sums[4 * i + 2 * column + j];
                x = ptx::max_or_nan(x, -3.402823466e38f) *
                    __saturatef(fmaf(inverses[i], divisors[i][1 - j], -no_share));
            }
        }
        if (const int i = step - 3; 0 <= i && i < pairs) {
#pragma unroll
            for (float& divisor : divisors[i]) divisor += 1.0f;
            inverses[i] = ptx::reciprocal(divisors[i][0] * divisors[i][1]);
        }
        if (const int i = step - 1; 0 <= i && i < pairs) {
#pragma unroll
            for (float& divisor : divisors[i]) divisor = ptx::exp2(divisor);
        }
        if (const int i = step; i < pairs) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float x = sums[4 * i + 2 * column + j];
                divisors[i][j] = fminf(x * -1.4426950409f, most_exponent);
            }
        }
    }
}

// Puts a warpgroup's sums through an activation, by its code; with a gate only those of the first column,
// which it then multiplies by those of the other.
template <int count>
__device__ __forceinline__ void activate(float (&sums)[count], uint32_t activation, bool gated) {
    const auto relu = [](float x) { return ptx::max_or_nan(x, 0.0f); };
    if (activation == ACTIVATION_SILU) {
        silu<0>(sums);
        if (!gated) silu<1>(sums);
    } else if (activation == ACTIVATION_GELU_TANH) {
        transform<0>(sums, gelu_tanh);
        if (!gated) transform<1>(sums, gelu_tanh);
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
