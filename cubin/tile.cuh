// What the host hands to the kernels: the tile list and the arrays of the groups.
#pragma once

#include <cstdint>

// One entry of the tile list (gemmctl/plan.py: TILE): a piece of work for one CTA or cluster. It covers
// rows [m0, m0 + width) of D, and as many columns from n0 on as the kernel's tile has.
//
// splits = 0: the whole sum over K, and D. An entry of width 0 ends the list.
// splits > 0, k_tiles > 0: part of the sum, from K tile k0 on; it goes to slot `slot` of the workspace,
// and `flag` counts it.
// splits > 0, k_tiles = 0: once the flag has counted all splits, their sum in the order of the slots
// from `slot` on, and D; for rows [row, row + width) of what the parts cover.
struct alignas(16) Tile {
    uint32_t group;
    uint32_t m0;
    uint32_t n0;
    uint32_t width;
    uint32_t k0;
    uint32_t k_tiles;
    float alpha;
    float beta;
    uint32_t splits;
    uint32_t slot;
    uint32_t flag;
    uint32_t readers;  // entries that sum up the parts
    uint32_t row;
    uint32_t plain;    // alpha is 1, beta is 0, and D's rows consist of whole 16-byte words
    uint32_t backward;  // K tiles are taken from the last to the first
    uint32_t unused;
};
static_assert(sizeof(Tile) == 64, "two 32-byte sectors, and what a bulk copy can move");

// Rows of D in an entry that sums up parts.
constexpr uint32_t REDUCED_ROWS = 16;

struct alignas(128) TensorMap {
    uint4 words[8];
};
static_assert(sizeof(TensorMap) == 128, "the hardware's tensor map has 128 bytes");

// The tensor maps of one group.
struct Maps {
    TensorMap a, b;
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
    const uint32_t* width;  // rows of A per tile
    const uint32_t* type_c;
};

// Element types as the tables name them (gemmctl/dtypes.py: DType.code).
enum : uint32_t { TYPE_BF16 = 0, TYPE_F16 = 1, TYPE_F32 = 2 };

// Elements of K in one pipeline stage: 128 bytes, the span of the swizzle.
constexpr int K_TILE = 64;
