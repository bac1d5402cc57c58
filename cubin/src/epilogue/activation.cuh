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

// A share of 0 of -infinity would be NaN.
__device__ __forceinline__ float finite_or_nan(float x) { return ptx::max_or_nan(x, -3.402823466e38f); }

// What they have in common.
__device__ __forceinline__ float share_of(float x, float exponent) {
    return finite_or_nan(x) * ptx::reciprocal(1.0f + ptx::exp2(exponent));
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

// Puts the first sums of a thread through a function, or only those of the first of its two columns.
template <int first, int count, class Function>
__device__ __forceinline__ void transform(float (&sums)[count], bool gated, const Function& function) {
    const auto column = [&](int begin) {
#pragma unroll
        for (int i = begin; i < first; i += 4) {
            sums[i] = function(sums[i]);
            sums[i + 1] = function(sums[i + 1]);
        }
    };
    column(0);
    if (!gated) column(2);
}

// How many of them gelu takes at one time where warpgroups share tiles: its instructions for more do not stay in
// the caches beside the rest of a tile's. Pingpong kernels have no registers for what that takes, and where two
// CTAs share an SM it gains nothing.
constexpr int PIECE = 32;

// The first numbers go behind the others.
template <int count>
__device__ __forceinline__ void rotate(float (&sums)[count]) {
    float first[PIECE];
#pragma unroll
    for (int i = 0; i < PIECE; ++i) first[i] = sums[i];
#pragma unroll
    for (int i = 0; i < count - PIECE; ++i) sums[i] = sums[i + PIECE];
#pragma unroll
    for (int i = 0; i < PIECE; ++i) sums[count - PIECE + i] = first[i];
}

// Puts sums through gelu, one piece after the other by the same code.
template <bool in_pieces, int count>
__device__ __forceinline__ void gelu(float (&sums)[count], bool gated) {
    constexpr int piece = in_pieces && count % PIECE == 0 ? PIECE : count;
#pragma unroll 1
    for (int done = 0; done < count; done += piece) {
        transform<piece>(sums, gated, [](float x) { return gelu(x); });
        if constexpr (piece < count) rotate(sums);
    }
}

// Puts the sums of one of a thread's two columns through silu. Four numbers at a time go through three stages, each a
// step behind those before them, or two where the special function unit has to answer: no other warp hides its
// latency, and ptxas on its own has all numbers wait for it at one time, for which there are no registers.
template <int column, int count>
__device__ __forceinline__ void silu(float (&sums)[count]) {
    constexpr int quads = count / 8;
    const auto place = [](int quad, int i) { return 8 * quad + 4 * (i / 2) + 2 * column + i % 2; };
    float shares[quads][4];  // first the powers
#pragma unroll
    for (int step = 0; step < quads + 3; ++step) {
        ptx::keep_order();
        if (const int quad = step - 3; 0 <= quad) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& x = sums[place(quad, i)];
                x = finite_or_nan(x) * shares[quad][i];
            }
        }
        if (const int quad = step - 2; 0 <= quad && quad < quads) {
#pragma unroll
            for (float& share : shares[quad]) share = ptx::reciprocal(1.0f + share);
        }
        if (const int quad = step; quad < quads) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                shares[quad][i] = ptx::exp2(sums[place(quad, i)] * -1.4426950409f);
        }
    }
}

// Puts a warpgroup's sums through an activation, by its code; with a gate only those of the first column,
// which it then multiplies by those of the other.
template <bool in_pieces = false, int count>
__device__ __forceinline__ void activate(float (&sums)[count], uint32_t activation, bool gated) {
    if (activation == ACTIVATION_NONE && !gated) return;  // past all their code, not by way of each
    const auto relu = [](float x) { return ptx::max_or_nan(x, 0.0f); };
    if (activation == ACTIVATION_SILU) {
        silu<0>(sums);
        if (!gated) silu<1>(sums);
    } else if (activation == ACTIVATION_GELU_TANH) {
        transform<count>(sums, gated, gelu_tanh);
    } else if (activation == ACTIVATION_GELU) {
        gelu<in_pieces>(sums, gated);
    } else if (activation == ACTIVATION_RELU) {
        transform<count>(sums, gated, relu);
    }
    if (gated) {
#pragma unroll
        for (int i = 0; i < count; i += 4) {
            sums[i] *= sums[i + 2];
            sums[i + 1] *= sums[i + 3];
        }
    }
}
