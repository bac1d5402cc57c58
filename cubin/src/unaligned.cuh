// A B whose rows do not begin on 16-byte boundaries, as it lies in a stage: of every row the nine 16-byte words
// that have its 64 elements of K, from the one on that the first of them lies in. Eight of them fill a line of 128
// bytes, swizzled, as the L2 and shared memory like it; the ninth ones lie behind all lines.
#pragma once

#include <cstdint>

#include "records.cuh"

constexpr uint32_t UNALIGNED_WORDS = K_TILE * 2 / 16 + 1;
constexpr uint32_t UNALIGNED_ROW_BYTES = UNALIGNED_WORDS * 16;

// Where a word of a row lies in a stage of so many rows. If a leading dimension is odd, the rows that a warp reads
// at one time are in banks of their own.
__device__ __forceinline__ uint32_t place_of(uint32_t row, uint32_t word, uint32_t rows) {
    return word < UNALIGNED_WORDS - 1 ? row * 128 + (word ^ row % 8) * 16 : rows * 128 + row * 16;
}

// Where a row begins.
__device__ __forceinline__ uint64_t row_of_b(const Groups& groups, uint32_t group, uint32_t row) {
    return groups.ptr_b[group] + row * groups.ld_b[group] * 2;
}
