// Sums over parts of K that the CTAs of a cluster multiply: all are sent to the first one's shared memory, which adds
// them up and stores D.
#pragma once

#include <cstdint>

#include "ptx/barriers.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// Where the sums of another CTA come: 16-byte words in the order of the threads' registers.
template <int max_width>
struct Part {
    uint4 words[max_width / 8 * 128];
};

// In the first CTA, that the sums of all others have come; in these, that there is room for the next tile's.
struct Gathered {
    uint64_t full, free;
};

// The slices of K of a tile that this CTA multiplies, the first CTAs no fewer than the last, and how many CTAs but the
// first have some.
struct Slices {
    uint32_t first, count, senders;
};
template <class C>
__device__ __forceinline__ Slices slices_of(const Tile& tile) {
    if constexpr (C::k_parts == 1) return {tile.k0, tile.k_tiles, 0};
    const uint32_t most = (tile.k_tiles + C::k_parts - 1) / C::k_parts;
    const uint32_t begin = min(most * ptx::cluster_rank(), tile.k_tiles);
    return {tile.k0 + begin, min(most, tile.k_tiles - begin), most > 0 ? (tile.k_tiles - 1) / most : 0};
}

// Whether this CTA adds up and stores, and has C.
template <class C>
__device__ __forceinline__ bool adds_up() {
    return C::k_parts == 1 || ptx::cluster_rank() == 0;
}

// Waits, in a CTA that is not the first, until there is room for a tile's sums, whether it has any or not: else it could
// be a tile ahead, and its sums be taken for others. `rounds` counts the tiles that some CTA sent sums of.
template <class S>
__device__ __forceinline__ void await_room(S& shared, const Slices& slices, uint32_t& rounds) {
    if (slices.senders > 0 && rounds++ > 0)
        ptx::barrier_wait(ptx::shared_address(&shared.gathered->free), rounds % 2);
}

// Sends a CTA's sums of a tile to the first one, word by word, each of which is counted as it comes: there is no fence.
template <class S, int count>
__device__ __forceinline__ void send(const float (&sums)[count], S& shared) {
    auto& part = shared.parts[ptx::cluster_rank() - 1];
    const uint32_t to = ptx::map_to_rank(ptx::shared_address(&part.words[threadIdx.x % 128]), 0);
    const uint32_t full = ptx::map_to_rank(ptx::shared_address(&shared.gathered->full), 0);
#pragma unroll
    for (int i = 0; i < count / 4; ++i)
        ptx::store_remote(to + i * 128 * sizeof(uint4), full, sums[4 * i], sums[4 * i + 1], sums[4 * i + 2],
                          sums[4 * i + 3]);
}

// Adds to the first CTA's sums what the others send, in the order of K. What it has read is in its sums when it says
// that there is room, so that this takes no fence, either.
template <class C, class S, int count>
__device__ __forceinline__ void gather(float (&sums)[count], S& shared, const Slices& slices, uint32_t& rounds) {
    if (slices.senders == 0) return;
    const uint32_t thread = threadIdx.x % 128, lane = thread % 32;
    const uint32_t full = ptx::shared_address(&shared.gathered->full);
    if (thread == 0) ptx::barrier_expect(full, slices.senders * sizeof(sums) * 128);
    __syncwarp();
    ptx::barrier_wait_cluster(full, rounds++ % 2);
#pragma unroll 1
    for (uint32_t part = 0; part < slices.senders; ++part) {
        const uint32_t from = ptx::shared_address(&shared.parts[part].words[thread]);
#pragma unroll
        for (int i = 0; i < count / 4; ++i) {
            const uint4 word = ptx::load_shared(from + i * 128 * sizeof(uint4));
            sums[4 * i] += __uint_as_float(word.x);
            sums[4 * i + 1] += __uint_as_float(word.y);
            sums[4 * i + 2] += __uint_as_float(word.z);
            sums[4 * i + 3] += __uint_as_float(word.w);
        }
    }
    __syncwarp();
    if (lane > 0 && lane < C::k_parts)
        ptx::barrier_arrive_remote(ptx::map_to_rank(ptx::shared_address(&shared.gathered->free), lane));
    __syncwarp();
}

// Nobody leaves to whom the first CTA will still say that there is room.
template <class C, class S>
__device__ __forceinline__ void await_gathered(S& shared, uint32_t rounds) {
    if (rounds > 0 && !adds_up<C>())
        ptx::barrier_wait(ptx::shared_address(&shared.gathered->free), (rounds - 1) % 2);
}
