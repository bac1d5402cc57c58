// What comes behind alpha A B + beta C, where a group has any of it: bias, activation, gate.
#pragma once

#include <cstdint>

#include "epilogue/activation.cuh"
#include "epilogue/bias.cuh"
#include "epilogue/gate.cuh"
#include "epilogue/target.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// What a group has of it.
struct Fused {
    Bias bias;
    uint32_t activation, gate;

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group) {
        bias.find(groups, group);
        activation = groups.activation[group];
        gate = groups.gate[group];
    }
    __device__ __forceinline__ bool any() const { return (bias.along | activation | gate) != 0; }
};

// Adds a bias to a thread's numbers `a` and `b`, whose places in `line` are theirs among the columns, or among
// the rows: with four columns of one row, or four rows of one column, `step` apart.
template <int step>
__device__ __forceinline__ void add_bias(float (&a)[4], float (&b)[4], uint32_t from_a,
                                         uint32_t from_b) {
    const auto add = [](float (&x)[4], uint32_t from) {
        float bias[4];
        if constexpr (step == 1) {
            ptx::load_shared(bias, from);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                bias[i] = step == 0 && i > 0
                              ? bias[0]
                              : __uint_as_float(ptx::load_shared_32(from + i * step * 4));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] += bias[i];
    };
    add(a, from_a);
    add(b, from_b);
}

// D of a staged chunk of `rows` rows, of which `height` exist, by 64 columns: from row m0 and `column` of x on.
//
// A thread takes eight numbers of every 16 rows, as two fours that a gate multiplies with each other: of words
// of four columns, two in a row, or without a gate one in rows 8 apart; or element by element, four rows of
// two columns. Each warp reads only rows that it may itself have added C to, a moment before.
template <class Output, uint32_t rows>
__device__ __forceinline__ void store_fused(uint32_t buffer, uint32_t line, uint32_t thread,
                                            const Fused& fused, const TargetD& target,
                                            uint32_t column, uint32_t m0, int height, float alpha,
                                            bool wide) {
    const StagedColumns columns(fused.gate, column, target.n);
    const uint32_t lane = thread % 32, warp = thread / 32;
    const bool gated = columns.gated, pairs = gated && !columns.halves;
    const uint32_t place = wide && gated ? lane % 8 : wide ? lane % 16 : lane;
    const uint32_t size = wide ? 4 : 1, high = wide && !gated ? 8 : 0;
    const uint32_t row = !wide ? warp : warp * 2 + (gated ? lane / 8 % 2 + lane / 16 * 8 : lane / 16);
    const uint32_t col_a = (pairs ? 2 * place : place) * size;
    const uint32_t col_b = pairs ? col_a + size : gated || !wide ? col_a + 32 : col_a;
    const auto staged = [&](uint32_t c) {
        return buffer + (c / 32 * rows + row) * 128 + (c / 4 ^ row) % 8 * 16 + c % 4 * 4;
    };
    const uint32_t d_column = columns.first + place * size;
    uint32_t from_a = staged(col_a), from_b = staged(col_b) + high * 128;
    uint64_t to = target.address + ((m0 + row) * target.ld + d_column) * Output::size;
    int left = d_column < columns.d_count ? height - static_cast<int>(row) : 0;
    const bool second = d_column + 32 < columns.d_count;
#pragma unroll 1
    for (uint32_t begin = 0; static_cast<int>(begin) < height; begin += 16) {
        float a[4], b[4];
        if (wide) {
            ptx::load_shared(a, from_a);
            ptx::load_shared(b, from_b);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // the permutation of row + 4 differs in its last bit but two
                a[i] = __uint_as_float(ptx::load_shared_32((from_a ^ i % 2 * 64) + i * 512));
                b[i] = __uint_as_float(ptx::load_shared_32((from_b ^ i % 2 * 64) + i * 512));
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] *= alpha;
            b[i] *= alpha;
        }
        const uint32_t line_row = line + (begin + row) * 4;
        if (fused.bias.along == BIAS_N) {
            if (wide)
                add_bias<1>(a, b, line + col_a * 4, line + col_b * 4);
            else
                add_bias<0>(a, b, line + col_a * 4, line + col_b * 4);
        } else if (fused.bias.along == BIAS_M) {
            if (wide)
                add_bias<0>(a, b, line_row, line_row + high * 4);
            else
                add_bias<4>(a, b, line_row, line_row);
        }
        if (wide && pairs) {
            const float second_gate = a[2], first_other = a[1];
            a[1] = second_gate;
            a[2] = b[0];
            b[0] = first_other;
            const float third_other = b[1];
            b[1] = a[3];
            a[3] = b[2];
            b[2] = third_other;
        }
        activate(a, fused.activation);
        if (gated) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] *= b[i];
        } else {
            activate(b, fused.activation);
        }
        if (wide) {
            store_four<Output>(to, a, left > 0);
            if (!gated) store_four<Output>(to + 8 * target.ld * Output::size, b, left > 8);
        } else {
            const uint64_t step = 4 * target.ld * Output::size;
            uint64_t at = to;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                store_one<Output>(at, a[i], left > 4 * i);
                if (!gated) store_one<Output>(at + 32 * Output::size, b[i], second && left > 4 * i);
                at += step;
            }
        }
        from_a += 16 * 128;
        from_b += 16 * 128;
        to += 16 * target.ld * Output::size;
        left -= 16;
    }
}
