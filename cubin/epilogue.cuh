// From a tile's sums in registers to D in global memory: alpha, beta C, conversion, staging, stores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx.cuh"
#include "tile.cuh"

// How a type of D is staged, 64 columns wide.
struct OutBf16 {
    static constexpr bool half = true;
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
};
struct OutF16 {
    static constexpr bool half = true;
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
};
struct OutF32 {
    static constexpr bool half = false;
};

// A warpgroup's staging buffers. Their rows have 128 bytes (of f32, half a row of D, all first halves
// before all second ones) and permute their 16-byte words by their last three bits, so that neither
// writing columns nor reading rows meets a bank twice.
template <int buffers, int bytes>
using Staging = uint8_t[buffers][bytes];

// wgmma leaves D transposed: lane l of warp w holds, in sums[8i + 4b + 2h + e], the element of column
// 16 w + 8 h + l / 4 of the warpgroup's 64 and of row 16 i + 8 b + 2 (l % 4) + e of the tile.

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

// Writes 16 rows of sums to a staging buffer, `row` rows down; `thread` is one of the warpgroup's 128.
template <class Output, int buffer_rows>
__device__ __forceinline__ void stage_rows(uint32_t buffer, uint32_t row, uint32_t thread,
                                           const float (&v)[8]) {
    const uint32_t lane = thread % 32, warp = thread / 32;
    if constexpr (Output::half) {
        // Lane 8i + j addresses row j of matrix i: rows 8 (i / 2), 16-byte chunk 2 warp + i % 2.
        const uint32_t chunk = (2 * warp + lane / 8 % 2) ^ (lane % 8);
        const uint32_t to = buffer + (row + lane / 16 * 8 + lane % 8) * 128 + chunk * 16;
        ptx::store_matrices_transposed(to, Output::pack(v[0], v[1]), Output::pack(v[2], v[3]),
                                       Output::pack(v[4], v[5]), Output::pack(v[6], v[7]));
    } else {
        // 32 columns of all rows, then the other 32. The row's last three bits are 2 (lane % 4) + e in
        // every block of eight rows.
        const uint32_t box = buffer + (warp / 2 * buffer_rows + row) * 128;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const uint32_t r = 2 * (lane % 4) + e;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t c = warp % 2 * 16 + 8 * h + lane / 4;
                const uint32_t to = box + r * 128 + ((c / 4) ^ r) * 16 + c % 4 * 4;
                ptx::store_shared(to, v[2 * h + e]);
                ptx::store_shared(to + 8 * 128, v[4 + 2 * h + e]);
            }
        }
    }
}

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
};

// Copies one 16-byte word of a staging buffer to D, or of its elements those that lie in D.
template <class Output, bool plain>
__device__ __forceinline__ void store_word(const TargetD& d, uint32_t row, uint32_t column,
                                           uint4 word) {
    constexpr uint32_t size = Output::half ? 2 : 4, elements = 16 / size;
    if (row >= d.m || column >= d.n) return;
    const uint64_t to = d.address + (row * d.ld + column) * size;
    if (plain || (column + elements <= d.n && to % 16 == 0)) {
        ptx::store_128(to, word);
        return;
    }
    const uint32_t words[] = {word.x, word.y, word.z, word.w};
#pragma unroll
    for (int i = 0; i < elements; ++i) {
        if (column + i >= d.n) return;
        if constexpr (Output::half)
            ptx::store_16(to + 2 * i, words[i / 2] >> i % 2 * 16);
        else
            ptx::store_32(to + 4 * i, words[i]);
    }
}

// One warpgroup's share of a tile: `2 * count` rows of D by 64 columns from `column` on. The sums cross
// the staging buffers, so that rows leave in whole lines; the stores are ordinary ones. TMA stores would
// queue up behind the loads of the next tile, which wait for memory. `turn` counts the buffers.
//
// What is not plain (alpha, beta, columns that end within a word) has a copy of its own, so that the
// plain case stays short: with C's loads in its midst every tile took 6 to 14% longer at K = 2048
// and 768, for want of instruction cache.
template <class Output, bool plain, int count, int buffers, int bytes>
__device__ __forceinline__ void store_tile(float (&sums)[count], const Tile& tile, uint32_t column,
                                           const TargetD& d, const Groups& groups,
                                           Staging<buffers, bytes>& staging, uint32_t& turn,
                                           uint32_t consumer) {
    constexpr uint32_t row_words = Output::half ? 8 : 16;  // of 16 bytes
    constexpr uint32_t width = 2 * count, rows = bytes / 16 / row_words;
    SourceC c = {};
    if constexpr (!plain) {
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        if (tile.beta != 0.0f)
            c.find(groups, tile.group, tile.m0 + 2 * (lane % 4), column + 16 * warp + lane / 4);
    }
#pragma unroll
    for (uint32_t begin = 0; begin < width; begin += rows) {
        // Opaque, so that addresses are computed here and not, for all buffers and widths, in advance:
        // the compiler would keep them in local memory.
        const uint32_t thread = ptx::opaque(threadIdx.x % 128);
        const uint32_t buffer = ptx::opaque(ptx::shared_address(staging[turn++ % buffers]));
        const uint32_t end = begin + rows < width ? begin + rows : width;
        if constexpr (buffers == 1) ptx::warpgroup_sync(consumer);  // all have read what was in it
#pragma unroll
        for (uint32_t row = begin; row < end; row += 16) {
            float values[8];
#pragma unroll
            for (int i = 0; i < 8; ++i)
                values[i] = plain ? sums[row / 2 + i] : tile.alpha * sums[row / 2 + i];
            if constexpr (!plain)
                if (tile.beta != 0.0f) add_c(values, tile.beta, c, row);
            stage_rows<Output, rows>(buffer, row - begin, thread, values);
        }
        // With two buffers this is enough: who writes this one again has passed the other's barrier,
        // and so have all who read this one before.
        ptx::warpgroup_sync(consumer);
        const TargetD to = d;  // which may lie in shared memory: read once for many stores
#pragma unroll
        for (uint32_t first = 0; first < end - begin; first += 128 / row_words) {
            const uint32_t row = first + thread / row_words, word = thread % row_words;
            const uint32_t from = buffer + (word / 8 * rows + row) * 128 + ((word ^ row) % 8) * 16;
            store_word<Output, plain>(to, tile.m0 + begin + row, column + word * (64 / row_words),
                                      ptx::load_shared(from));
        }
    }
}

template <class Output, int count, int buffers, int bytes>
__device__ __forceinline__ void epilogue(float (&sums)[count], const Tile& tile, uint32_t column,
                                         const TargetD& d, const Groups& groups,
                                         Staging<buffers, bytes>& staging, uint32_t& turn,
                                         uint32_t consumer) {
    if (tile.plain)
        store_tile<Output, true>(sums, tile, column, d, groups, staging, turn, consumer);
    else
        store_tile<Output, false>(sums, tile, column, d, groups, staging, turn, consumer);
}
