// How a tile ends.
#pragma once

#include <cstdint>

#include "ptx/memory.cuh"
#include "records.cuh"

// What four words of its record say, read at one time; the last, beta, is for others.
struct Ending {
    uint32_t kinds, flags;
    float alpha;
    __device__ __forceinline__ explicit Ending(const Tile& tile) {
        const uint4 words = ptx::load_shared(ptx::shared_address(&tile.kinds));
        kinds = words.x;
        flags = words.y;
        alpha = __uint_as_float(words.z);
    }
    // D is the sums, with alpha and what comes with that, or their relu, and its rows consist of whole 16-byte words.
    __device__ __forceinline__ bool plain() const {
        return !split() && (flags & (TILE_WORDS | TILE_FUSED | TILE_PLUS)) == TILE_WORDS;
    }
    // It is a part of a sum, or adds up such parts: their number is above what the kinds take.
    __device__ __forceinline__ bool split() const { return kinds >> 16 > 0; }
    // C or a bias is added behind the sums.
    __device__ __forceinline__ bool plus() const { return flags & TILE_PLUS; }
    // A bias joins the sums.
    __device__ __forceinline__ bool joined() const { return flags & TILE_JOINED; }
    // D is alpha A B + D.
    __device__ __forceinline__ bool added() const { return flags & TILE_ADDED; }
    // It is alpha A B, and leaves by TMA.
    __device__ __forceinline__ bool boxed() const { return flags & TILE_BOXED; }
    // Rows of 64 columns leave in such words.
    __device__ __forceinline__ bool words() const {
        return (flags & (TILE_WORDS | TILE_GATED)) == TILE_WORDS;
    }
};
