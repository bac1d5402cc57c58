// The consuming warpgroups: tile after tile, its sums and then D.
#pragma once

#include <type_traits>

#include "epilogue/blocks.cuh"
#include "epilogue/boxed.cuh"
#include "epilogue/ending.cuh"
#include "epilogue/fused.cuh"
#include "epilogue/joined.cuh"
#include "epilogue/lines.cuh"
#include "epilogue/shuffled.cuh"
#include "epilogue/store.cuh"
#include "epilogue/target.cuh"
#include "gather.cuh"
#include "held.cuh"
#include "maps.cuh"
#include "multiply.cuh"
#include "ptx/bulk.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "shared.cuh"
#include "split.cuh"
#include "turns.cuh"

// Widths with code for more behind alpha A B than a bias and relu: fewer, since it stands there once for each.
template <class C>
__host__ __device__ constexpr bool fusible(int width) {
    const bool finer = width % WIDTH_STEP == 0 && width > FUSED_STEP && width < FUSED_FINER_TO;
    return !C::d_across && (width % FUSED_STEP == 0 || width == FUSED_NARROW || (C::fuses_finer && finer));
}

// Those with code for less: a bias and relu, rows of D that are no whole words, and a C that is in the sums (where one
// warpgroup has all of a tile that is apart). In pingpong kernels all but the finest, elsewhere those above: where
// warpgroups share tiles it is fetched for longer than fewer rows save, and where K lies across A it would take the
// compiler a tenth longer.
template <class C>
__host__ __device__ constexpr bool light(int width) {
    return fusible<C>(width) || (C::pingpong && !C::a_across);
}

// Widths with code: multiples of WIDTH_STEP, and finer ones for tiles of D = alpha A B alone.
__host__ __device__ constexpr bool fine(int width) {
    return width % WIDTH_STEP != 0;
}
template <class C>
__host__ __device__ constexpr bool has_code(int width) {
    const bool finer = width % FINE_STEP == 0 && width > FINE_FROM && width < FINE_TO && !C::a_across &&
                       !C::b_unaligned;
    return width <= C::max_width && (!fine(width) || finer);
}

// How C may be in the sums of such a width when they are done.
template <class C>
__host__ __device__ constexpr Joining joining(int width) {
    if (!light<C>(width) || fine(width)) return Joining::none;
    return C::c_first ? Joining::first : C::c_staged ? Joining::staged : Joining::none;
}

// Those whose rows may come shuffled: each CTA of a cluster loads whole runs.
template <class C>
__host__ __device__ constexpr bool shuffles(int width) {
    return C::shuffles && width % (C::run * C::cluster) == 0;
}

// One lane of each warp gives back tile number `n`, once all have read its record.
template <class C>
__device__ __forceinline__ void give_back(Shared<C>& shared, uint32_t n) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) release_tile(shared, ptx::opaque(n));
}

// A warpgroup's share of tile number `n`; returns whether it still has to give it back. Every width has its
// own copy of the main loop and of the epilogues: sums that several widths share end up in local memory.
// `buffer` counts staging buffers.
template <class C>
__device__ __forceinline__ bool consume_tile(Shared<C>& shared, const Params& params,
                                             const Ring& ring, const Tile& tile, uint32_t n,
                                             Cursor& stage, uint32_t& buffer, uint32_t& gathered,
                                             uint32_t consumer) {
    // Asked for before it is needed. Beside the sums of two blocks there is no room for it; there, some threads
    // of other warps each have it copied aside, and wait for that behind the sums. Everybody reads it after a
    // barrier of the epilogue; some still do when they ask for the next tile's D, but none when they ask for
    // more than a D, or for the D after that, behind the next tile's barriers.
    TargetD d;
    auto& aside = shared.aside[consumer];
    const auto asks = [&](uint32_t warp) { return threadIdx.x % 128 == (C::pingpong ? 32 * warp : 0); };
    const auto target = [&]() -> const TargetD& {
        if constexpr (C::pingpong)
            return aside.target[ptx::opaque(n) / 2 % 2];
        else
            return d;
    };
    if constexpr (!C::pingpong)
        d.find(params.groups, tile.group);
    else if (asks(0))
        aside.target[ptx::opaque(n) / 2 % 2].find_later(params.groups, tile.group);
    Fused& fused = aside.fused[C::pingpong ? 0 : n % 2];
    if constexpr (C::joins)
        if (tile.flags & TILE_JOINED) find_pairs_later<C>(*aside.pairs, tile, consumer);
    ColumnBias bias;
    constexpr uint32_t behind = TILE_PLUS | (C::scales_bias ? TILE_BIAS_SCALED : 0);
    if (!C::d_across && (C::scales_bias || threadIdx.x % 32 == 0) && tile.flags & behind) {
        if constexpr (C::scales_bias) bias.find(tile, part_of<C>(consumer, 0));
        // Only where somebody waits for it, or nobody reads it (in CTAs that send their sums): of two such copies to
        // one place nobody knows which comes last. (An `if` around both would take the main loop of 64x128 its uniform
        // registers.)
        const bool asked = !C::scales_bias || tile.flags & TILE_PLUS;
        if (asked && asks(1)) fused.c.find_later(params.groups, tile.group);
        if (asked && asks(2)) fused.find_bias_later(params.groups, tile.group);
    }
    // A tile is given back before its stores: behind them, the fence of release_tile would wait until they have
    // left (350 to 950 cycles), and whoever hands out tiles would wait, too. What more than alpha A B takes of
    // the record is kept for that: in registers or, where sums leave no room, aside, by a thread for 16 bytes.
    constexpr uint32_t words = sizeof(Tile) / 16, keeper = 32;  // the first of these threads
    const uint32_t word = threadIdx.x % 128 - keeper;
    if constexpr (C::pingpong)
        if (word < words && !Ending(tile).plain())
            ptx::copy_shared(ptx::shared_address(&aside.kept) + word * 16,
                             ptx::shared_address(&tile) + word * 16);
    using Kept = std::conditional_t<C::pingpong, const Tile&, const Tile>;
    const auto keep = [&]() -> Kept {
        if constexpr (C::pingpong)
            return aside.kept;
        else
            return tile;
    };
    const auto store = [&](auto& sums, uint32_t m0, uint32_t column) {
        if constexpr (C::d_across)
            store_lines<typename C::Output>(sums, m0, column, target(), shared.staging[consumer]);
        else
            store_tile<typename C::Output>(sums, m0, column, target(), shared.staging[consumer],
                                           buffer, consumer);
    };
    // Where the map of a D that leaves by TMA is, for who hands over its boxes: to look it up for each would be
    // code for each.
    if constexpr (C::adds)
        if (threadIdx.x % 128 == 0 && tile.flags & (TILE_ADDED | (C::boxes ? TILE_BOXED : 0)))
            shared.boxed[consumer] = &maps_of(params, tile.group).c;
    // TMA stores a warpgroup's blocks from `first_block` on, or adds them to D.
    const auto box_blocks = [&](auto& sums, const Tile& tile, int first_block, auto adds) {
        if constexpr (C::adds) {
            constexpr int blocks = std::extent_v<std::remove_reference_t<decltype(sums)>>;
            uint32_t turn = 0;
            ptx::warpgroup_sync(consumer);  // all have read what was in the buffers
            if (threadIdx.x % 32 == 0) acquire_c(params, tile.group);
#pragma unroll
            for (int i = 0; i < blocks; ++i)
                box_tile<decltype(adds)::value>(sums[i], tile, part_of<C>(consumer, first_block + i),
                                                shared.boxed[consumer], shared.staging[consumer], turn,
                                                consumer);
            ptx::bulk_wait_read<0>();  // in those that have issued some
            ptx::warpgroup_sync(consumer);
        }
    };
    // What is not plain, and its stores. `fuses`: whether there is code for more than a bias and relu.
    const auto store_unplain = [&](auto& sums, const Tile& tile, const Ending& ending, int first_block,
                                   auto fuses) {
        store_blocks<C, decltype(fuses)::value>(sums, shared, ring, tile, ending, target(), fused,
                                                stage, buffer, first_block, consumer);
    };
    // The same without relu and the store, where these are those of a plain tile.
    const auto finish = [&](auto& sums, const Ending& ending, auto fuses) {
        constexpr bool all = decltype(fuses)::value;
        const Kinds kinds(ending.kinds);
        if (ending.plus()) {
            ptx::await_copies();
            ptx::warpgroup_sync(consumer);  // what some threads have asked for is there
            const uint32_t line = add_for_all<C, all>(sums, shared, ring, tile, kinds, target(), fused, stage,
                                                      buffer, 0, consumer);
            add_for_one<C, all>(sums[0], tile, kinds, target(), fused, part_of<C>(consumer, 0), line);
        }
        activate<C::gelu_in_pieces>(sums[0], kinds.activation, ending.flags & TILE_GATED);
    };
    bool held = true, kept_used = false;  // the record; a copy of it, which others may still read
    const auto give_back_early = [&](bool kept) {
        give_back(shared, n);
        held = false;
        kept_used = kept;
    };
    const uint32_t turn = turn_begins<C>(tile, consumer);
    // Behind it `stage` is that of the tile's first operands, behind so many of C.
    const auto begin_turn = [&](int c_stages) {
        if (turn == 0) wait_turn<C>(shared, n, consumer);
        if constexpr (C::pingpong)  // a shuffle, so that the compiler keeps it once for a warp
            stage = {__shfl_sync(~0u, shared.next[consumer].index, 0),
                     __shfl_sync(~0u, shared.next[consumer].round, 0)};
        for (; c_stages > 0; --c_stages) stage.advance(ring);
    };
    // Asked here and of sums that are long enough: in front of the first multiplication it costs short K 2%.
    bool staged = false;
    if constexpr (C::c_staged)
        if (tile.k_tiles > STAGED_LOW_FROM + 2) staged = tile.flags & TILE_C_IN_SUMS;
    const Slices slices = slices_of<C>(tile);
    // Where a warpgroup has a tile alone, what has C in its sums is apart, and only what then ends like a plain one: else
    // plain tiles would jump over that code.
    constexpr uint32_t with_c = 1;  // which no tile is wide
    const bool between = C::c_between && adds_up<C>() && tile.flags & TILE_C_IN_SUMS;
    switch (slices.count == 0 ? 0 : between ? with_c : tile.width) {
        case 0:
            begin_turn(0);
            pass_turn<C>(shared, stage, consumer);
            if constexpr (C::pingpong) ptx::await_copies();
            if constexpr (C::k_parts > 1)
                if (!adds_up<C>()) {
                    await_room(shared, slices, gathered);
                    break;
                }
#pragma unroll 1
            for (int i = 0; i < C::blocks; ++i) {
                float sums[1][REDUCED_ROWS / 2];
                const uint32_t part = part_of<C>(consumer, i);
                add_splits<C>(sums[0], params, tile, part, consumer);
                const Ending ending(tile);
                scale(sums, ending.alpha);
                if (C::adds && ending.added()) {
                    box_blocks(sums, tile, i, std::true_type());
                    continue;
                }
                if constexpr (!C::pingpong) ptx::await_copies();
                ptx::warpgroup_sync(consumer);  // what some threads have asked for is there
                if constexpr (C::d_across)
                    store(sums[0], tile.m0, tile.n0 + part * 64);
                else
                    store_unplain(sums, tile, ending, i, std::true_type());
            }
            break;
#define WIDTH_OF(w, apart)                                                                    \
    case w:                                                                                   \
        if constexpr (has_code<C>(w)) {                                                       \
            constexpr std::bool_constant<fusible<C>(w)> fuses;                                \
            Sums<C, w> sums;                                                                  \
            constexpr Joining c = apart ? Joining::between : joining<C>(w);                   \
            if (apart || (c == Joining::staged ? staged                                       \
                                               : c == Joining::first &&                       \
                                                     tile.flags & TILE_C_IN_SUMS)) {          \
                if constexpr (c == Joining::first)                                            \
                    begin_with_c<C>(sums, shared, ring, tile.beta, n);                        \
                begin_turn(c == Joining::first ? C::blocks : 0);                              \
                multiply_tile<C, w, c>(sums, shared, ring, stage, tile, n, turn, consumer,    \
                                       params);                                               \
            } else {                                                                          \
                begin_turn(0);                                                                \
                if constexpr (C::b_unaligned)                                                 \
                    multiply_tile_held<C, w>(sums, shared, ring, stage, tile, params.groups,  \
                                             n, turn, consumer);                              \
                else                                                                          \
                    multiply_tile<C, w, Joining::none>(sums, shared, ring, stage, tile, n,    \
                                                       turn, consumer, params);               \
            }                                                                                 \
            if constexpr (C::k_parts > 1) {                                                   \
                if (!apart && !adds_up<C>()) {                                                \
                    await_room(shared, slices, gathered);                                     \
                    send(sums[0], shared);                                                    \
                    __syncwarp();                                                             \
                    break;                                                                    \
                }                                                                             \
                gather<C>(sums[0], shared, slices, gathered);                                 \
            }                                                                                 \
            if constexpr (C::pingpong) ptx::await_copies();                                   \
            const Ending ending(tile);                                                        \
            if constexpr (C::scales_bias)                                                     \
                bias.scale(sums[0], tile, ending.flags, ending.alpha);                        \
            else                                                                              \
                scale(sums, ending.alpha);                                                    \
            if constexpr (C::joins)                                                           \
                if (ending.joined())                                                          \
                    join_bias<C, w>(sums, *shared.ones, *aside.pairs,                         \
                                    shared.staging[consumer], ending.flags, consumer);        \
            if (apart || fine(w) || (C::d_across ? !ending.split() : ending.plain())) {       \
                /* Where D lies is there; by rows, a later barrier shows it. */               \
                if (C::d_across && C::pingpong) ptx::warpgroup_sync(consumer);                \
            } else if (C::d_across || ending.split()) {                                       \
                _Pragma("unroll") for (int i = 0; i < C::blocks; ++i)                         \
                    store_split<C>(sums[i], params, tile, part_of<C>(consumer, i), consumer); \
                __syncwarp();                                                                 \
                break;                                                                        \
            } else if (C::boxes && ending.boxed()) {                                          \
                Kept kept = keep();                                                           \
                give_back_early(true);                                                        \
                box_blocks(sums, kept, 0, std::false_type());                                 \
                break;                                                                        \
            } else if (C::adds && ending.added()) {                                           \
                Kept kept = keep();                                                           \
                give_back_early(C::pingpong);                                                 \
                box_blocks(sums, kept, 0, std::true_type());                                  \
                break;                                                                        \
            } else if constexpr (light<C>(w) && C::one_store) {                               \
                finish(sums, ending, fuses);                                                  \
                __syncwarp(); /* as below */                                                  \
            } else if constexpr (light<C>(w)) {                                               \
                if (C::pingpong || ending.plus()) {                                           \
                    if constexpr (!C::pingpong) ptx::await_copies();                          \
                    ptx::warpgroup_sync(consumer);                                            \
                }                                                                             \
                Kept kept = keep();                                                           \
                give_back_early(C::pingpong);                                                 \
                store_unplain(sums, kept, ending, 0, fuses);                                  \
                /* Lanes meet, so that the compiler sees one path behind: without this the */ \
                /* main loop loses its uniform registers (58 instructions, not 52). */        \
                __syncwarp();                                                                 \
                break;                                                                        \
            }                                                                                 \
            if constexpr (!C::d_across) rectify(sums, ending.flags);                          \
            const uint32_t m0 = tile.m0, n0 = tile.n0;                                        \
            if (C::Output::half || !C::pingpong) give_back_early(false);                      \
            if constexpr (light<C>(w) && C::one_store && !apart)                              \
                if (!ending.words()) {                                                        \
                    store_any<typename C::Output, fuses.value>(                               \
                        sums[0], ending.flags, m0, n0 + part_of<C>(consumer, 0) * 64,         \
                        target(), shared.staging[consumer], buffer, consumer);                \
                    __syncwarp();                                                             \
                    break;                                                                    \
                }                                                                             \
            if (shuffles<C>(w) && ending.flags & TILE_SHUFFLED) {                             \
                if constexpr (shuffles<C>(w))                                                 \
                    _Pragma("unroll") for (int i = 0; i < C::blocks; ++i)                     \
                        store_shuffled<typename C::Output>(                                   \
                            sums[i], m0, n0 + part_of<C>(consumer, i) * 64, target());        \
                break;                                                                        \
            }                                                                                 \
            _Pragma("unroll") for (int i = 0; i < C::blocks; ++i)                             \
                store(sums[i], m0, n0 + part_of<C>(consumer, i) * 64);                        \
        }                                                                                     \
        break;
#define WIDTHS_UP_TO_128(WIDTH)                                                               \
    WIDTH(16) WIDTH(32) WIDTH(48) WIDTH(64) WIDTH(80) WIDTH(96) WIDTH(112) WIDTH(128)
#define WIDTH(w) WIDTH_OF(w, false)
        WIDTHS_UP_TO_128(WIDTH)
        WIDTH(104) WIDTH(120) WIDTH(136) WIDTH(144) WIDTH(152) WIDTH(160) WIDTH(168) WIDTH(176)
        WIDTH(184) WIDTH(192) WIDTH(208) WIDTH(224) WIDTH(240) WIDTH(256)
#undef WIDTH
#define WIDTHS_ABOVE_128(WIDTH)                                                               \
    WIDTH(144) WIDTH(160) WIDTH(176) WIDTH(192) WIDTH(208) WIDTH(224) WIDTH(240) WIDTH(256)
#define WIDTH(w) WIDTH_OF(w, true)
        default:
            if constexpr (C::c_between) switch (tile.width) {
                WIDTHS_UP_TO_128(WIDTH)
                WIDTHS_ABOVE_128(WIDTH)
            }
#undef WIDTH
#undef WIDTHS_UP_TO_128
#undef WIDTHS_ABOVE_128
#undef WIDTH_OF
    }
    if (C::pingpong && kept_used) ptx::warpgroup_sync(consumer);  // all have read what was kept
    return held;
}

// One warpgroup's role: its share of every tile or, pingpong, every other tile.
template <class C>
__device__ __forceinline__ void consume_tiles(Shared<C>& shared, const Params& params,
                                              uint32_t consumer) {
    // In registers: from the kernel's parameters it would come anew for every tile, in front of its first
    // multiplication (1.5% of `short96`).
    const Ring ring = {ptx::opaque(params.ring.stages), ptx::opaque(params.ring.stage_bytes)};
    Cursor stage = {0, 0};
    uint32_t buffer = 0, gathered = 0;
    // Opaque: what follows from the tile's number is computed anew and not kept beside the sums.
    for (uint32_t n = C::pingpong ? consumer : 0;; n = ptx::opaque(n + (C::pingpong ? 2 : 1))) {
        const Tile& tile = wait_tile(shared, n);
        if (tile.width == 0) break;
        if (consume_tile<C>(shared, params, ring, tile, n, stage, buffer, gathered, consumer))
            give_back(shared, n);
    }
    if constexpr (!C::Output::half) ptx::bulk_wait();
    if constexpr (C::k_parts > 1) await_gathered<C>(shared, gathered);
}
