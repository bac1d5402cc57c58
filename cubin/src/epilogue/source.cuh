// C, read from global memory in the layout that wgmma leaves the sums in (staging.cuh).
#pragma once

#include <cuda_fp16.h>
#include <cstdint>

#include "ptx/memory.cuh"
#include "records.cuh"

// Where a thread finds its elements of C, from its first row and column of D on.
struct SourceC {
    uint64_t address;
    uint64_t row_bytes;
    int rows, columns;  // left in the group
    uint32_t type;      // differs between groups of one launch

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group, uint32_t row,
                                         uint32_t column) {
        type = groups.type_c[group];
        row_bytes = groups.ld_c[group] * bytes();
        address = groups.ptr_c[group] + row * row_bytes + uint64_t{column} * bytes();
        rows = groups.m[group] - row;
        columns = groups.n[group] - column;
    }
    __device__ __forceinline__ uint32_t bytes() const { return type == TYPE_F32 ? 4 : 2; }
};

// Adds beta C to the thread's sums of 16 rows, `row` rows down. Nothing outside of the group is read.
// `load` gives the element at an address, or anything if it is not wanted.
template <class Load>
__device__ __forceinline__ void add_c(float (&sums)[8], float beta, const SourceC& c, int row,
                                      Load load) {
    const uint64_t address = c.address + row * c.row_bytes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int r = 8 * (i / 4) + i % 2, column = 8 * (i / 2 % 2);
        const bool wanted = (row + r < c.rows) & (column < c.columns);
        sums[i] =
            fmaf(beta, load(address + r * c.row_bytes + column * c.bytes(), wanted), sums[i]);
    }
}

__device__ __forceinline__ void add_c(float (&sums)[8], float beta, const SourceC& c, int row) {
    if (c.type == TYPE_F32)
        add_c(sums, beta, c, row,
              [](uint64_t at, bool wanted) { return __uint_as_float(ptx::load_32(at, wanted)); });
    else
        add_c(sums, beta, c, row, [&c](uint64_t at, bool wanted) {
            const uint32_t bits = ptx::load_16(at, wanted);
            return c.type == TYPE_BF16 ? __uint_as_float(bits << 16)
                                       : __half2float(__ushort_as_half(bits));
        });
}
