// D in global memory.
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "records.cuh"

// Where a group's D lies.
struct TargetD {
    uint64_t address, ld;
    uint32_t m, n;

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group) {
        address = groups.ptr_d[group];
        ld = groups.ld_d[group];
        m = groups.m[group];
        n = groups.n[group];
    }
    // The same in shared memory, by one thread that waits for it later.
    __device__ __forceinline__ void find_later(const Groups& groups, uint32_t group) {
        ptx::copy_later(address, groups.ptr_d[group]);
        ptx::copy_later(ld, groups.ld_d[group]);
        ptx::copy_later(m, groups.m[group]);
        ptx::copy_later(n, groups.n[group]);
    }
};

// The 16-byte words of D that a thread stores: one in every `step`th row, from `row` on.
template <class Output, uint32_t step>
struct WordsOfD {
    uint64_t address, step_bytes;
    int left;  // rows that D has from there on; none if it has no such column

    __device__ __forceinline__ WordsOfD(const TargetD& d, uint32_t row, uint32_t column)
        : address(d.address + (row * d.ld + column) * Output::size),
          step_bytes(step * d.ld * Output::size),
          left(column < d.n ? static_cast<int>(d.m - row) : 0) {}

    // There are at most so many rows.
    __device__ __forceinline__ void end(int rows) { left = min(left, rows); }

    // The word of the row `down`, a multiple of the step, below the first; if D has it.
    __device__ __forceinline__ void store(uint32_t down, uint4 word) const {
        ptx::store_128(address + down / step * step_bytes, word, left > static_cast<int>(down));
    }
};
