// Activations, in f32. NaN stays NaN.
//
// But for relu, each is x times a share of it, 1 / (1 + 2^(x Q(x^2))): of silu and gelu_tanh that is the
// definition (1 + tanh u is 2 / (1 + exp(-2u))), and of gelu the polynomial Q makes it so: -log2(p / (1 -
// p)) / x for the normal distribution's p(x), which is even. Its coefficients were fitted to what
// gemmctl/judging/expected.py allows; tools/fit_gelu.py has how, and how far off the results are.
#pragma once

#include <cstdint>

#include "ptx/math.cuh"

// Shares of two at a time, of which one reciprocal makes both: 1 / (a b) is 1 / a times 1 / b. So that a b is
// finite, powers end at 2^60, and where they do a share is none at all. What is held is a number even where
// x is NaN, so that the other one stays right.
constexpr float MOST_EXPONENT = 60.0f, NO_SHARE = 8.6737e-19f;  // a little more than 2^-60

// Where x^2 is held, so that no x overflows there: the share has vanished, or is 1, long before.
__device__ __forceinline__ float bounded_square(float x, float most) { return fminf(x * x, most); }

struct Gelu {
    static __device__ __forceinline__ void begin(float x, float& t, float& q) {
        t = bounded_square(x, 28.0f);
        q = fmaf(-5.421232352e-9f, t, 3.941178477e-7f);
        q = fmaf(q, t, -1.159221847e-5f);
        q = fmaf(q, t, 1.603539567e-4f);
    }
    static __device__ __forceinline__ float end(float x, float t, float q) {
        q = fmaf(q, t, 9.256064368e-5f);
        q = fmaf(q, t, -1.048346832e-1f);
        return x * fmaf(q, t, -2.302208662e+0f);
    }
};
struct GeluTanh {
    static __device__ __forceinline__ void begin(float x, float& t, float& q) {
        t = bounded_square(x, 100.0f);
    }
    static __device__ __forceinline__ float end(float x, float t, float q) {
        return x * fmaf(-0.1029432397f, t, -2.3022081985f);
    }
};
struct Silu {
    static __device__ __forceinline__ void begin(float x, float& t, float& q) {}
    static __device__ __forceinline__ float end(float x, float t, float q) { return x * -1.4426950409f; }
};

// Puts the sums of one of a thread's two columns through a function.
template <int column, int count, class Function>
__device__ __forceinline__ void transform(float (&sums)[count], const Function& function) {
#pragma unroll
    for (int i = 2 * column; i < count; i += 4) {
        sums[i] = function(sums[i]);
        sums[i + 1] = function(sums[i + 1]);
    }
}

// The same through x times its share, `exponent` of x being the power of 2 in that. Four numbers at a time go
// from stage to stage, so that all stages have something for the warp to issue: nobody else hides a stage's
// latency. Left to itself the compiler takes one number after another, and most of their chains waiting.
template <class Exponent, int column, int count>
__device__ __forceinline__ void take_shares(float (&sums)[count]) {
    constexpr int batch = 2, batches = count / 2 / batch;
    float squares[batch], inner[batch], exponents[batch], powers[2][batch], divisors[3][batch], inverses[3][batch / 2];
    const auto sum = [&](int k, int j) -> float& {
        return sums[2 * column + 4 * ((k * batch + j) / 2) + j % 2];
    };
#pragma unroll
    for (int k = 0; k < batches + 6; ++k) {
        ptx::keep_order();
        if (k >= 6) {
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                float& x = sum(k - 6, j);
                x = ptx::max_or_nan(x, -3.402823466e38f) *
                    __saturatef(fmaf(inverses[(k+1) % 3][j / 2], divisors[(k+1) % 3][j ^ 1], -NO_SHARE));
            }
        }
        if (4 <= k && k < batches + 4) {
#pragma unroll
            for (int j = 0; j < batch; ++j) divisors[k % 3][j] = 1.0f + powers[k % 2][j];
#pragma unroll
            for (int j = 0; j < batch / 2; ++j)
                inverses[k % 3][j] = ptx::reciprocal(divisors[k % 3][2 * j] * divisors[k % 3][2 * j + 1]);
        }
        if (2 <= k && k < batches + 2) {
#pragma unroll
            for (int j = 0; j < batch; ++j) powers[k % 2][j] = ptx::exp2(exponents[j]);
        }
        if (1 <= k && k < batches + 1) {
#pragma unroll
            for (int j = 0; j < batch; ++j)
                exponents[j] = fminf(Exponent::end(sum(k - 1, j), squares[j], inner[j]), MOST_EXPONENT);
        }
        if (k < batches) {
#pragma unroll
            for (int j = 0; j < batch; ++j) Exponent::begin(sum(k, j), squares[j], inner[j]);
        }
    }
}

// Puts a warpgroup's sums through an activation, by its code; with a gate only those of the first column,
// which it then multiplies by those of the other.
template <int count>
__device__ __forceinline__ void activate(float (&sums)[count], uint32_t activation, bool gated) {
    const auto relu = [](float x) { return ptx::max_or_nan(x, 0.0f); };
    if (activation == ACTIVATION_SILU) {
        take_shares<Silu, 0>(sums);
        if (!gated) take_shares<Silu, 1>(sums);
    } else if (activation == ACTIVATION_GELU_TANH) {
        take_shares<GeluTanh, 0>(sums);
        if (!gated) take_shares<GeluTanh, 1>(sums);
    } else if (activation == ACTIVATION_GELU) {
        take_shares<Gelu, 0>(sums);
        if (!gated) take_shares<Gelu, 1>(sums);
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
