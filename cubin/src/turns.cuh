// Whose turn it is to multiply, where warpgroups take turns (pingpong).
#pragma once

#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ring.cuh"
#include "shared.cuh"

// Where warpgroups take turns, each waits for its own before it looks at the ring: a barrier tells only
// odd rounds from even ones, so that whoever is two rounds early takes the other's stage for its own.
template <class C>
__device__ __forceinline__ void wait_turn(Shared<C>& shared, uint32_t n, uint32_t consumer) {
    if constexpr (C::pingpong)  // the first turn is the first warpgroup's at once
        ptx::barrier_wait(ptx::shared_address(&shared.turn[consumer]), (n / 2 + consumer + 1) % 2);
}

// The next turn begins once C, too, is there: who multiplies then is never two rounds ahead of a stage that
// waits for it.
template <class C>
__device__ __forceinline__ void await_c(Shared<C>& shared, Cursor stage, uint32_t c_stages) {
    if constexpr (C::pingpong)
#pragma unroll 1
        for (; c_stages > 0; --c_stages) {
            ptx::barrier_wait(ptx::shared_address(&shared.full[stage.index]), stage.round);
            stage.advance(C::stages);
        }
}

template <class C>
__device__ __forceinline__ void pass_turn(Shared<C>& shared, uint32_t consumer) {
    if constexpr (C::pingpong)
        if (threadIdx.x % 32 == 0)
            ptx::barrier_arrive(ptx::shared_address(&shared.turn[consumer ^ 1]));
}
