// What a CTA keeps in shared memory.
#pragma once

#include <cstdint>

#include "cursor.cuh"
#include "epilogue/following.cuh"
#include "epilogue/joined.cuh"
#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "gather.cuh"
#include "records.cuh"

// What a warpgroup finds of its tiles while it multiplies them; where there are two, by turns.
template <class C, bool pingpong>
struct Aside {
    Fused fused[2];
};
template <class C>
struct Aside<C, true> {
    Fused fused[1];
    Tile kept;  // the tile at work, once it is given back
    TargetD target[2];
    union {
        float bias[C::d_across ? 1 : C::max_width];  // of the tile's rows, or of its columns
        Pairs<C> pairs[C::joins ? 1 : 0];  // of one that joins the sums
    };
};

template <class C>
struct Shared {
    alignas(1024) uint8_t ring[C::ring_bytes];
    alignas(1024) Staging<C::buffers, C::staging_bytes> staging[C::consumers];
    Part<C::max_width> parts[C::k_parts - 1];  // that the other CTAs have multiplied
    // That a bias is multiplied by. compute-sanitizer takes them for as many rows as a tile has, wherever the next
    // one lies by its descriptor, so there is as much behind them.
    Ones ones[C::joins ? 1 : 0];
    Tile tiles[RECORDS];  // those at work and those that come next, in turn
    uint64_t full[C::most_stages];
    uint64_t empty[C::most_stages];
    uint64_t tile_full[RECORDS];
    uint64_t tile_empty[RECORDS];     // of the cluster's first CTA: it hands out for all
    Aside<C, C::pingpong> aside[C::consumers];
    uint64_t turn[C::consumers];      // to multiply; only where there are two
    Cursor next[C::consumers];        // where its stages begin; pingpong only
    // Where the C of a tile is in the ring, if its sums begin with it, and whether it is on its way; pingpong only.
    Cursor c_begin[C::c_first ? RECORDS : 1];
    uint64_t c_there[C::c_first ? RECORDS : 1];
    const TensorMap* boxed[C::adds ? C::consumers : 1];  // that of a D that leaves by TMA
    uint64_t c_full[C::c_staged ? C::consumers : 1];  // that a piece of C is in the staging buffers
    Gathered gathered[C::k_parts > 1 ? 1 : 0];
};
