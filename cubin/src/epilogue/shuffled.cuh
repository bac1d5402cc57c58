// From a tile's sums in registers to a D by columns at once: rows of A came so shuffled that a thread has whole words.
#pragma once

#include "epilogue/target.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// The word of a run of rows that starts a thread's sums at `v`: of every eight rows of wgmma's it has two neighbours.
template <class Output>
__device__ __forceinline__ uint4 word_of(const float* v) {
    if constexpr (Output::half)
        return {Output::pack(v[0], v[1]), Output::pack(v[4], v[5]), Output::pack(v[8], v[9]),
                Output::pack(v[12], v[13])};
    else
        return {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[4]), __float_as_uint(v[5])};
}

// The same as store_lines (lines.cuh) of a tile whose rows are shuffled. In a run, row 8 j + 2 q + e of wgmma's is row
// 8 q + 2 j + e of A, or of a D of 32 bits, 4 q + 2 j + e: what threads q = 0 to 3 of a line have are its words in
// order, 64 bytes. D has whole runs of rows.
template <class Output, int count>
__device__ __forceinline__ void store_shuffled(float (&sums)[count], uint32_t m0, uint32_t column,
                                               const TargetD& d) {
    constexpr uint32_t width = 2 * count, run = SHUFFLED_BYTES / Output::size;
    const uint32_t thread = ptx::opaque(threadIdx.x % 128);
    const uint32_t line = column + thread / 32 * 16 + thread % 32 / 4;
    const int lines = static_cast<int>(d.n - line), left = static_cast<int>(min(width, d.m - m0));
    const uint64_t to = d.address + (line * d.ld + m0) * Output::size + thread % 4 * 16;
    const uint64_t other = to + 8 * d.ld * Output::size;
    // Of eight lines 256 bytes, as far as the tile goes, then of the other eight (docs/kernel.md).
    constexpr uint32_t most = 256 / SHUFFLED_BYTES * run;
#pragma unroll
    for (uint32_t from = 0; from < width; from += most)
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half)
#pragma unroll
            for (uint32_t begin = from; begin < from + most && begin < width; begin += run)
                ptx::store_128((half ? other : to) + begin * Output::size,
                               word_of<Output>(sums + begin / 2 + 2 * half),
                               left > static_cast<int>(begin) && lines > static_cast<int>(8 * half));
}
