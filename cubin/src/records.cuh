// What the host hands to the kernels: the tile list, the arrays of the groups, and where they are.
// Names in capitals that nothing here defines are those of gemmctl/kernels/constants.py.
#pragma once

#include <cstddef>
#include <cstdint>

// One entry of the tile list (TILE in gemmctl): a piece of work for one CTA or cluster. It covers
// rows [m0, m0 + width) of x, which bias, activation and gate make D of, and as many columns as the
// kernel's tile has: from n0 on, or with a gate, half as many of D from n0 / 2 on, each of which takes two.
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
    uint32_t box;     // rows of A, and of C, that are loaded: more than its width where they end early or
                      // widths have finer steps than boxes, fewer where the group has not as many
    uint32_t slot;
    uint32_t flag;
    uint32_t readers;  // entries that sum up the parts
    uint32_t row;
    uint16_t c_stages;  // that C takes in the ring, before A and B, among them or behind; 0: it comes otherwise, or not
    uint16_t in_turn;   // of the last slices of K: those that warpgroups which share the tile multiply by turns;
                        // of narrow tiles all or none, of others one at least
    uint16_t kinds;   // of what is behind alpha A B (following.cuh)
    uint16_t splits;
    uint32_t flags;  // TILE_WORDS and so on
    float alpha;
    float beta;

    // Where a bias that joins the sums, or comes with alpha, has column n0, or along m row m0, so many columns or rows
    // are from there on, and its type: what is not split has it in the place of what tells its parts apart.
    __device__ __forceinline__ uint64_t bias() const { return uint64_t{readers} << 32 | flag; }
    __device__ __forceinline__ uint32_t bias_left() const { return slot; }
    __device__ __forceinline__ uint32_t bias_type() const { return row; }
};
static_assert(offsetof(Tile, kinds) == 48, "the last four words are read as one");
static_assert(sizeof(Tile) == 64, "two 32-byte sectors, and what a bulk copy can move");

struct alignas(MAP_BYTES) TensorMap {
    uint4 words[8];
};
static_assert(sizeof(TensorMap) == MAP_BYTES, "the hardware's tensor map has 128 bytes");

// The tensor maps of one group.
struct Maps {
    TensorMap a, b, c;
};
static_assert(sizeof(Maps) == MAPS * MAP_BYTES, "the host leaves that much room for them");

// Those of C of one group that comes by residues.
struct ResidueMaps {
    TensorMap c[RESIDUES];
};

// The groups of one launch: arrays with one entry each (Tables in gemmctl).
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
    const uint32_t* box;  // of A: which of the Templates of build_maps it has
    const uint32_t* type_c;
    const uint64_t* ptr_bias;
    const uint32_t* gate;
    const uint32_t* c_box;  // of C; WIDTHS: of a D that TMA adds to, and 1 more: stores
};

// How a launch cuts the ring into stages: they are as long as the widest of its tiles needs, so that narrow
// tiles have more of them.
struct Ring {
    uint32_t stages;
    uint32_t stage_bytes;  // a multiple of 1024, which the swizzle counts from
};

// Where maps are in constant memory (maps.cuh): of so many of the first groups, `each` of MAPS.
struct ConstantMaps {
    uint32_t first;
    uint32_t groups;
    uint32_t each;  // MAPS, or without C's where no tile needs it
};

// The parameters of the GEMM kernel.
struct Params {
    const Tile* tiles;      // tile_count records and one of width 0
    uint32_t tile_count;
    uint32_t ahead;         // tiles that a cluster may take before it is done with one: 1 to RECORDS - 1
    Ring ring;
    uint32_t* counter;      // 0 before and after every launch
    uint32_t* flags;        // of split tiles; 0 before and after every launch
    const uint8_t* tables;  // where all that the host and build_maps prepared begins
    uint64_t tables_bytes;
    float4* workspace;      // slots of partial sums
    const Maps* maps;
    const ResidueMaps* residues;  // only where tiles say so
    ConstantMaps constants;
    Groups groups;
};
