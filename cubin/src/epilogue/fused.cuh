// What comes between a tile's sums and D, in registers: alpha, C, bias, activation and gate.
#pragma once

#include <cstdint>

#include "epilogue/activation.cuh"
#include "epilogue/bias.cuh"
#include "epilogue/columns.cuh"
#include "epilogue/following.cuh"
#include "epilogue/source.cuh"
#include "epilogue/target.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/proxies.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "residues.cuh"
#include "ring.cuh"
#include "shared.cuh"
#include "split.cuh"

// Multiplies sums by alpha in place; those by 1 pass by.
template <int blocks, int count>
__device__ __forceinline__ void scale(float (&sums)[blocks][count], float alpha) {
    if (alpha == 1.0f) return;
#pragma unroll
    for (auto& block : sums)
#pragma unroll
        for (float& sum : block) sum *= alpha;
}

// The relu of a tile that goes through the store of plain ones, if it has one.
template <int blocks, int count>
__device__ __forceinline__ void rectify(float (&sums)[blocks][count], uint32_t flags) {
    if (!(flags & TILE_RELU)) return;
#pragma unroll
    for (auto& block : sums) activate(block, ACTIVATION_RELU, false);
}

// Adds beta C, which the loader put into the ring behind the tile's operands: a stage for every 64 columns,
// or 32 of a C of 32 bits, by `add`, which is told where it lies and which of the warpgroup's it is.
// Warpgroups that share a tile pass by the stages of each other.
template <class C, int count, class Add>
__device__ __forceinline__ void add_stages(float (&sums)[C::blocks][count], Shared<C>& shared,
                                           const Ring& ring, const Tile& tile, uint32_t type,
                                           Cursor& stage, uint32_t consumer, const Add& add) {
    const uint32_t each = type == TYPE_F32 ? 2 : 1;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll 1
        for (uint32_t i = 0; i < tile.c_stages / C::blocks; ++i) {
            const uint32_t at = stage_address(shared, ring, stage.index);
            ptx::barrier_wait(ptx::shared_address(&shared.full[stage.index]), stage.round);
            if (C::pingpong || i / each == consumer) {
                add(sums[block], at, i);
                __syncwarp();
            }
            ptx::release_to_copies();
            release_stage<C>(shared, stage.index);
            stage.advance(ring);
        }
}

// The same of a C as TMA moves it or by residues: the loop stands there for each, so that the one does not
// pay for the other.
template <class C, int count>
__device__ __forceinline__ void add_c(float (&sums)[C::blocks][count], Shared<C>& shared,
                                      const Ring& ring, const Tile& tile, const SourceC& c,
                                      uint32_t type, Cursor& stage, uint32_t consumer) {
    const uint32_t thread = threadIdx.x % 128;
    const auto add_moved = [&](float (&block)[count], uint32_t at, uint32_t i) {
        if (type == TYPE_BF16)
            add_pairs<PairBf16>(block, at, thread, tile.beta);
        else if (type == TYPE_F16)
            add_pairs<PairF16>(block, at, thread, tile.beta);
        else if (i % 2 == thread / 64)
            add_words(block, at, thread, tile.beta);
    };
    const auto add_by_residues = [&](float (&block)[count], uint32_t at, uint32_t i) {
        add_residues(block, at, i, c, type, residue_pitch(tile.box), thread, tile.beta);
    };
    if (tile.flags & TILE_RESIDUES)
        add_stages(sums, shared, ring, tile, type, stage, consumer, add_by_residues);
    else
        add_stages(sums, shared, ring, tile, type, stage, consumer, add_moved);
}

// Takes the next stage's C, of D's type, by `take`, which is told where it lies.
template <class C, class Take>
__device__ __forceinline__ void take_stage(Shared<C>& shared, const Ring& ring, Cursor& stage, const Take& take) {
    ptx::barrier_wait(ptx::shared_address(&shared.full[stage.index]), stage.round);
    take(stage_address(shared, ring, stage.index));
    __syncwarp();
    ptx::release_to_copies();
    release_stage<C>(shared, stage.index);
    stage.advance(ring);
}

// Begins the sums of tile number `n` with beta C, of D's type, which the loader put into the ring before the
// tile's operands, and has shown where.
template <class C, int count>
__device__ __forceinline__ void begin_with_c(float (&sums)[C::blocks][count], Shared<C>& shared,
                                             const Ring& ring, float beta, uint32_t n) {
    ptx::barrier_wait(ptx::shared_address(&shared.c_there[n % RECORDS]), n / RECORDS % 2);
    Cursor stage = shared.c_begin[n % RECORDS];
#pragma unroll
    for (auto& block : sums)
        take_stage(shared, ring, stage, [&](uint32_t from) {
            take_pairs<typename C::Output::Pair>(block, from, threadIdx.x % 128);
        });
    scale(sums, beta);
}

// Adds beta C, of D's type, which the loader put into the ring between two slices of K.
template <class C, int count>
__device__ __forceinline__ void add_between(float (&sums)[count], Shared<C>& shared, const Ring& ring, float beta,
                                            Cursor& stage) {
    take_stage(shared, ring, stage, [&](uint32_t from) {
        add_pairs<typename C::Output::Pair>(sums, from, threadIdx.x % 128, beta);
    });
}

// Where a tile's bias lies in shared memory: where there are several blocks, in a place of its own, since the
// first one's rows cross the staging buffer before it is added to the next.
template <class C>
__device__ __forceinline__ uint32_t bias_line(Shared<C>& shared, uint32_t& turn, uint32_t consumer) {
    if constexpr (C::pingpong)
        return ptx::shared_address(shared.aside[consumer].bias);
    else
        return ptx::shared_address(shared.staging[consumer][turn++ % C::buffers]);
}

// Puts the numbers of a bias into shared memory, from `line` on: of a tile's rows, or of its columns, 64 for
// each of a warpgroup's blocks from `first_block` on, in the order of its warps' lanes (staging.cuh).
template <class C>
__device__ __forceinline__ void stage_bias(uint32_t line, const Tile& tile, const TargetD& d,
                                           uint64_t bias, const Kinds& kinds, int first_block,
                                           int blocks, uint32_t consumer) {
    const uint32_t thread = threadIdx.x % 128;
    if constexpr (C::buffers == 1) ptx::warpgroup_sync(consumer);  // all have read what was there
    const uint32_t numbers = kinds.bias_along == BIAS_M ? tile.width : 64 * blocks;
#pragma unroll 1
    for (uint32_t i = thread; i < numbers; i += 128) {
        uint32_t index = tile.m0 + i;
        bool exists = index < d.m;
        if (kinds.bias_along == BIAS_N) {
            const Columns columns(tile, part_of<C>(consumer, first_block + i / 64), kinds.gate, d.n,
                                  i / 16 % 4 * 32 + i % 8 * 4);
            const uint32_t second = i / 8 % 2;
            index = second ? columns.of_x[1] : columns.of_x[0];
            exists = second ? columns.exist[1] : columns.exist[0];
        }
        ptx::store_shared(line + i * 4, load_bias(bias, kinds.bias_type, index, exists));
    }
    ptx::warpgroup_sync(consumer);
}

// Adds C element by element to one of a warpgroup's blocks, if it has to come so.
template <class C, int count>
__device__ __forceinline__ void add_single(float (&sums)[count], const Tile& tile, const TargetD& d,
                                           const SourceC& c, const Kinds& kinds, uint32_t part) {
    if constexpr (count <= ELEMENTS_WIDTH / 2) {
        const bool joined = C::c_staged && tile.flags & TILE_C_IN_SUMS;
        if (tile.beta != 0.0f && tile.c_stages == 0 && !joined) {
            const uint32_t thread = ptx::opaque(threadIdx.x % 128), row = tile.m0 + thread % 4 * 2;
            const Columns columns(tile, part, kinds.gate, d.n, thread);
            add_elements<C::ctas_per_sm == 1 ? 32 : 8>(sums, c, kinds.c_type, row, columns.of_x, columns.exist,
                                                       static_cast<int>(d.m - row), tile.beta);
        }
    }
}
