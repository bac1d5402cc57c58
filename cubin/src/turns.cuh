// Whose turn it is to multiply, where there are two warpgroups.
//
// Where each has tiles of its own (pingpong), one multiplies while the other stores. Where they share a tile
// they take turns at its end: one multiplies its rows of B by the last slices of K at the full rate, and stores
// while the other does.
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "shared.cuh"

// Before which slice of K a warpgroup waits for its turn. The second of two that share a tile multiplies beside the
// first until only slices are left that are taken in turn; these stay in the ring until it has had them, too. Of
// narrow tiles, whose lists wait for memory, it is all of K or nothing: what skips the code of a turn takes 1 us
// where that is not in a cache, and such a tile has nothing to hide it.
template <class C>
__device__ __forceinline__ uint32_t turn_begins(const Tile& tile, uint32_t consumer) {
    if constexpr (C::pingpong || C::consumers == 1) return 0;
    return consumer == 0 || tile.width <= NARROW_ROWS ? 0 : tile.k_tiles - tile.in_turn;
}

// Whether both multiply all of a narrow tile at one time: then its turn is passed on at once.
template <class C, int width>
__device__ __forceinline__ bool at_one_time(const Tile& tile) {
    return C::consumers > 1 && !C::pingpong && width <= NARROW_ROWS && tile.in_turn == 0;
}

// Each waits for its turn before it looks at the ring: a barrier tells only odd rounds from even ones, so
// that a warpgroup with tiles of its own that is two rounds early takes the other's stage for its own. (Of a C
// that its sums begin with, show_c says when it may look.) The first turn is the first warpgroup's at once.
template <class C>
__device__ __forceinline__ void wait_turn(Shared<C>& shared, uint32_t n, uint32_t consumer) {
    if constexpr (C::consumers > 1) {
        const uint32_t turn = C::pingpong ? n / 2 : n;  // of this warpgroup
        ptx::barrier_wait(ptx::shared_address(&shared.turn[consumer]), (turn + consumer + 1) % 2);
    }
}

// With tiles of their own, the next turn begins once C, too, is there: who multiplies then is never two
// rounds ahead of a stage that waits for it. Returns the stage behind C.
template <class C>
__device__ __forceinline__ Cursor await_c(Shared<C>& shared, const Ring& ring, Cursor stage,
                                          uint32_t c_stages) {
    if constexpr (C::pingpong)
#pragma unroll 1
        for (; c_stages > 0; --c_stages) {
            ptx::barrier_wait(ptx::shared_address(&shared.full[stage.index]), stage.round);
            stage.advance(ring);
        }
    return stage;
}

// `next`: the first stage that is not this tile's. With it, who has tiles of its own need not look at those of
// the other.
template <class C>
__device__ __forceinline__ void pass_turn(Shared<C>& shared, const Cursor& next, uint32_t consumer) {
    if constexpr (C::consumers > 1) {
        if constexpr (C::pingpong)
            ptx::store_shared(ptx::shared_address(&shared.next[consumer ^ 1]), next.index, next.round,
                              ptx::opaque(threadIdx.x) % 128 == 0);
        __syncwarp();  // all lanes have read where this tile's stages begin
        if (threadIdx.x % 32 == 0)
            ptx::barrier_arrive(ptx::shared_address(&shared.turn[consumer ^ 1]));
    }
}
