// C: from the ring, where the loader brought it as TMA moves it, or straight from global memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "epilogue/output.cuh"
#include "epilogue/staging.cuh"
#include "ptx/matrices.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"
#include "residues.cuh"

// Where a group's C lies, if it has one.
struct SourceC {
    uint64_t address, ld;

    __device__ __forceinline__ void find_later(const Groups& groups, uint32_t group) {
        ptx::copy_later(address, groups.ptr_c[group]);
        ptx::copy_later(ld, groups.ld_c[group]);
    }
};

// A number of 32 bits, where others have pairs.
struct Word {
    static __device__ __forceinline__ float low(uint32_t word) { return __uint_as_float(word); }
};

// An element that was loaded alone, told apart by its group's type at run time.
__device__ __forceinline__ float decode(uint32_t bits, uint32_t type) {
    return type == TYPE_F16    ? __half2float(__ushort_as_half(bits))
           : type == TYPE_BF16 ? __uint_as_float(bits << 16)
                               : __uint_as_float(bits);
}

// Tells `use` each number of a C of 16 bits, and which of a warpgroup's sums it belongs to: 64 columns of a
// stage, in rows of 128 bytes.
template <class Pair, int count, class Use>
__device__ __forceinline__ void each_of_pairs(uint32_t stage, uint32_t thread, const Use& use) {
    const uint32_t from = matrix_row(stage, thread);
#pragma unroll
    for (int i = 0; i < count; i += 8) {
        uint32_t pairs[4];
        ptx::load_matrices_transposed(pairs, from + i / 8 * 16 * 128);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            use(i + 2 * j, Pair::low(pairs[j]));
            use(i + 2 * j + 1, Pair::high(pairs[j]));
        }
    }
}

// Adds beta C of 16 bits to a warpgroup's sums.
template <class Pair, int count>
__device__ __forceinline__ void add_pairs(float (&sums)[count], uint32_t stage, uint32_t thread,
                                          float beta) {
    each_of_pairs<Pair, count>(stage, thread,
                               [&](int i, float c) { sums[i] = fmaf(beta, c, sums[i]); });
}

// The same where the sums begin with it.
template <class Pair, int count>
__device__ __forceinline__ void take_pairs(float (&sums)[count], uint32_t stage, uint32_t thread) {
    each_of_pairs<Pair, count>(stage, thread, [&](int i, float c) { sums[i] = c; });
}

// The same as add_pairs of a C of 32 bits: 32 columns of a stage, for the warps whose columns they are.
template <int count>
__device__ __forceinline__ void add_words(float (&sums)[count], uint32_t stage, uint32_t thread,
                                          float beta) {
    const Corners from(stage, thread % 64, 0);
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const uint32_t at = from.to[i / 2 % 2][i % 2] + (i / 8 * 16 + i / 4 % 2 * 8) * 128;
        sums[i] = fmaf(beta, __uint_as_float(ptx::load_shared_32(at)), sums[i]);
    }
}

// The same of a C that came by residues, of one type: element by element, since rows begin anywhere.
template <class Pair, uint32_t bytes, int count>
__device__ __forceinline__ void add_shifted(float (&sums)[count], uint32_t stage, const SourceC& c,
                                            uint32_t pitch, uint32_t thread, float beta) {
    const uint32_t column = thread / 32 * 16 % (128 / bytes) + thread % 32 / 4;
    uint32_t from[2];
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t residue = thread % 4 * 2 + e;
        const uint32_t shift = static_cast<uint32_t>(c.address + residue * c.ld * bytes) % 16;
        from[e] = stage + residue * pitch + residue_lead(residue) * RESIDUE_ROW_BYTES + shift +
                  column * bytes;
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
        const uint32_t at =
            from[i % 2] + (i / 8 * 2 + i / 4 % 2) * RESIDUE_ROW_BYTES + i / 2 % 2 * 8 * bytes;
        const uint32_t bits = bytes == 4 ? ptx::load_shared_32(at) : ptx::load_shared_16(at);
        sums[i] = fmaf(beta, Pair::low(bits), sums[i]);
    }
}

// The same of any type, in stage number `i` of 64 columns.
template <int count>
__device__ __forceinline__ void add_residues(float (&sums)[count], uint32_t stage, uint32_t i,
                                             const SourceC& c, uint32_t type, uint32_t pitch,
                                             uint32_t thread, float beta) {
    if (type == TYPE_BF16)
        add_shifted<PairBf16, 2>(sums, stage, c, pitch, thread, beta);
    else if (type == TYPE_F16)
        add_shifted<PairF16, 2>(sums, stage, c, pitch, thread, beta);
    else if (i % 2 == thread / 64)
        add_shifted<Word, 4>(sums, stage, c, pitch, thread, beta);
}

// The same of a C that TMA cannot move, element by element: of two columns, as far as they exist, from row
// `first` on, this thread's first, of which `rows` are left. At most `most` are on their way at one time.
template <int most, int count>
__device__ __forceinline__ void add_elements(float (&sums)[count], const SourceC& c,
                                             uint32_t type, uint32_t first, const uint32_t (&columns)[2],
                                             const bool (&exist)[2], int rows, float beta) {
    const uint64_t row_bytes = c.ld * (type == TYPE_F32 ? 4 : 2), first_row = c.address + first * row_bytes;
    constexpr int batch = count < most ? count : most;
#pragma unroll
    for (int i = 0; i < count; i += batch) {
        uint32_t bits[batch];
        const auto load = [&](auto f32) {
#pragma unroll
            for (int j = 0; j < batch; ++j) {
                const int row = (i + j) / 8 * 16 + j / 4 % 2 * 8 + j % 2;
                const uint64_t at =
                    first_row + row * row_bytes + columns[j / 2 % 2] * uint64_t{f32.value ? 4 : 2};
                const bool wanted = exist[j / 2 % 2] && row < rows;
                bits[j] = f32.value ? ptx::load_32(at, wanted) : ptx::load_16(at, wanted);
            }
        };
        if (type == TYPE_F32)
            load(std::true_type());
        else
            load(std::false_type());
#pragma unroll
        for (int j = 0; j < batch; ++j) {
            sums[i + j] = fmaf(beta, decode(bits[j], type), sums[i + j]);
            asm volatile("" : "+f"(sums[i + j]));  // here: else the compiler keeps all of C until the last
        }
    }
}
