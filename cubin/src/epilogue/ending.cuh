// How a tile ends.
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "records.cuh"

// Four words of its record, read at one time.
struct Ending {
    uint32_t splits, flags;
    float alpha, beta;
    __device__ __forceinline__ explicit Ending(const Tile& tile) {
        const uint4 words = ptx::load_shared(ptx::shared_address(&tile.splits));
        splits = words.x;
        flags = words.y;
        alpha = __uint_as_float(words.z);
        beta = __uint_as_float(words.w);
    }
    // D is the sums, with alpha and what comes with that, or their relu, and its rows consist of whole 16-byte words.
    __device__ __forceinline__ bool plain() const {
        return splits == 0 && (flags & (TILE_WORDS | TILE_FUSED | TILE_BIAS)) == TILE_WORDS;
    }
    // More makes D than alpha A B, a bias and relu.
    __device__ __forceinline__ bool fused() const { return flags & TILE_FUSED; }
    __device__ __forceinline__ bool biased() const { return flags & TILE_BIAS; }
    // A bias joins the sums.
    __device__ __forceinline__ bool joined() const { return flags & TILE_JOINED; }
    // D is alpha A B + D.
    __device__ __forceinline__ bool added() const { return flags & TILE_ADDED; }
    // Rows of 64 columns leave in such words.
    __device__ __forceinline__ bool words() const {
        return (flags & (TILE_WORDS | TILE_GATED)) == TILE_WORDS;
    }
};
