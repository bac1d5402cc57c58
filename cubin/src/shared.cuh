// What a CTA keeps in shared memory.
#pragma once

#include <cstdint>

#include "epilogue/following.cuh"
#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "records.cuh"

template <class C>
struct Shared {
    alignas(1024) uint8_t ring[C::stages][C::stage_bytes];
    alignas(1024) Staging<C::buffers, C::staging_bytes> staging[C::consumers];
    Tile tiles[2];  // the one at work and the one that comes next, in turn
    uint64_t full[C::stages];
    uint64_t empty[C::stages];
    uint64_t tile_full[2];
    uint64_t tile_empty[2];        // of the cluster's first CTA: it hands out for all
    TargetD target[C::consumers];  // of the tile at work; only where warpgroups take turns
    Tile kept[C::consumers];       // this tile, once it is given back; likewise
    Fused fused[C::consumers][C::pingpong ? 1 : 2];
    uint64_t turn[C::consumers];   // to multiply; likewise
};
