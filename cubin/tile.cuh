// What the host hands to the kernels: the tile list and the arrays of the groups.
#pragma once

#include <cstdint>

// One entry of the tile list (gemmctl/plan.py: TILE). It covers rows [m0, m0 + width) of D and as
// many columns from n0 on as the kernel's tile has. An entry of width 0 ends the list.
struct Tile {
    uint32_t group;
    uint32_t m0;
    uint32_t n0;
    uint32_t width;
    uint32_t k_tiles;
    float alpha;
    float beta;
    uint32_t unused;
};
static_assert(sizeof(Tile) == 32, "a tile record is one 32-byte sector");

struct alignas(128) TensorMap {
    uint4 words[8];
};
static_assert(sizeof(TensorMap) == 128, "the hardware's tensor map has 128 bytes");

// The tensor maps of one group.
struct Maps {
    TensorMap a, b, d;
};

// The groups of one launch: arrays with one entry each (gemmctl/tables.py: Tables).
struct Groups {
    const uint64_t* ptr_a;
    const uint64_t* ptr_b;
    const uint64_t* ptr_c;
    const uint64_t* ptr_d;
    const uint64_t* ld_a;
    const uint64_t* ld_b;
    const uint64_t* ld_c;
    const uint64_t* ld_d;
    const uint32_t* m;
    const uint32_t* n;
    const uint32_t* k;
    const uint32_t* width;
    const uint32_t* type_c;
};

// Element types as the tables name them (gemmctl/dtypes.py: DType.code).
enum : uint32_t { TYPE_BF16 = 0, TYPE_F16 = 1, TYPE_F32 = 2 };

// Elements of K in one pipeline stage: 128 bytes, the span of the swizzle.
constexpr int K_TILE = 64;

// Rows of D in one box of its tensor map: the largest power of two in the width, at most the rows
// of one staging buffer. So the boxes of a tile never reach into the next one.
__host__ __device__ constexpr uint32_t store_rows(uint32_t width, uint32_t buffer_rows) {
    const uint32_t power = width & (~width + 1);
    return power < buffer_rows ? power : buffer_rows;
}
