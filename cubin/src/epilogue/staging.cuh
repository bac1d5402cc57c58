// Sums on their way through shared memory, from the layout that wgmma leaves to rows of D.
#pragma once

#include <cstdint>

#include "ptx/matrices.cuh"
#include "ptx/memory.cuh"

// A warpgroup's staging buffers. Their rows have 128 bytes (of f32, half a row of D, all first halves
// before all second ones) and permute their 16-byte words by their last three bits, so that neither
// writing columns nor reading rows meets a bank twice.
template <int buffers, int bytes>
using Staging = uint8_t[buffers][bytes];

// wgmma leaves D transposed: lane l of warp w holds, in sums[8i + 4b + 2h + e], the element of column
// 16 w + 8 h + l / 4 of the warpgroup's 64 and of row 16 i + 8 b + 2 (l % 4) + e of the tile.

// Where a thread's sums of 16 rows go as they are, 32 columns of all `rows` of a buffer before the other
// 32: for every pair (h, e), of which b only adds to the address. The row's last three bits are 2 (lane %
// 4) + e in every block of eight rows.
struct Corners {
    uint32_t to[2][2];
    __device__ __forceinline__ Corners(uint32_t buffer, uint32_t thread, uint32_t rows) {
        const uint32_t lane = thread % 32, warp = thread / 32;
        const uint32_t box = buffer + warp / 2 * rows * 128;
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const uint32_t r = 2 * (lane % 4) + e, c = warp % 2 * 16 + 8 * h + lane / 4;
                to[h][e] = box + r * 128 + ((c / 4) ^ r) * 16 + c % 4 * 4;
            }
    }
};

// A box of D that leaves by TMA: BOXED_ROWS rows by 64 columns of f32, 256 bytes each, of which every 128 are swizzled.
// So TMA has 256 bytes of a row at one time, which the L2 adds to D in less time than twice 128.
constexpr uint32_t D_BOX_BYTES = BOXED_ROWS * 256;
static_assert(BOXED_ROWS == 16, "what wgmma leaves side by side");

// Writes 16 rows of sums to such a box, which begins with the swizzle: in D's order or, `by_pairs`, the even rows before
// the odd ones. Then the four rows that a warp writes at one time share no bank, else two and two of them do.
template <bool by_pairs>
__device__ __forceinline__ void stage_box(uint32_t box, uint32_t thread, const float (&v)[8]) {
    const uint32_t lane = thread % 32, warp = thread / 32;
    const uint32_t line = lane % 4 * (by_pairs ? 2 : 4) + warp / 2;  // of the thread's first row, an even one
    const uint32_t chunk = (warp % 2 * 4 + lane / 16) ^ line % 8;
    const uint32_t to = box + line * 128 + chunk * 16 + lane / 4 % 4 * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int odd = i % 2, rows = by_pairs ? odd * 8 + i / 4 * 4 : odd + i / 4 * 8;
        const bool other = i / 2 % 2 != (by_pairs ? 0 : odd);  // of two chunks that lie side by side but for the swizzle
        ptx::store_shared((other ? to ^ 32 : to) + rows * 256, v[i]);
    }
}

// The 16 bytes of a row of 128 that a lane addresses where matrices of 16 rows by a warp's 16 columns of 16
// bits are moved: lane 8i + j that of row j of matrix i, rows 8 (i / 2), columns 8 (i % 2).
__device__ __forceinline__ uint32_t matrix_row(uint32_t buffer, uint32_t thread) {
    const uint32_t lane = thread % 32, warp = thread / 32;
    const uint32_t chunk = (2 * warp + lane / 8 % 2) ^ (lane % 8);
    return buffer + (lane / 16 * 8 + lane % 8) * 128 + chunk * 16;
}

// Writes 16 rows of sums in D's type, `row` rows down.
template <class Output, int buffer_rows>
__device__ __forceinline__ void stage_rows(uint32_t buffer, uint32_t row, uint32_t thread,
                                           const float (&v)[8]) {
    if constexpr (Output::half) {
        ptx::store_matrices_transposed(matrix_row(buffer, thread) + row * 128,
                                       Output::pack(v[0], v[1]), Output::pack(v[2], v[3]),
                                       Output::pack(v[4], v[5]), Output::pack(v[6], v[7]));
    } else {
        const Corners corners(buffer + row * 128, thread, buffer_rows);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            ptx::store_shared(corners.to[i / 2 % 2][i % 2] + i / 4 * 8 * 128, v[i]);
    }
}

// The same of what a gate has multiplied: 32 columns, of every four numbers the first two.
template <class Output>
__device__ __forceinline__ void stage_gated(uint32_t buffer, uint32_t row, uint32_t thread,
                                            const float (&v)[8]) {
    const uint32_t lane = thread % 32, warp = thread / 32;
    if constexpr (Output::half) {
        const uint32_t to = buffer + (row + lane % 16) * 128 + ((warp ^ lane) % 8) * 16;
        ptx::store_matrices_transposed(to, Output::pack(v[0], v[1]), Output::pack(v[4], v[5]));
    } else {
        const uint32_t c = 8 * warp + lane / 4;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const uint32_t r = 2 * (lane % 4) + e;
            const uint32_t to = buffer + (row + r) * 128 + ((c / 4) ^ r) * 16 + c % 4 * 4;
            ptx::store_shared(to, v[e]);
            ptx::store_shared(to + 8 * 128, v[4 + e]);
        }
    }
}
