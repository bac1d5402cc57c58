// A place in the ring.
#pragma once

#include <cstdint>

#include "records.cuh"

// A stage's index, and the parity of the round.
struct alignas(8) Cursor {
    uint32_t index, round;

    __device__ __forceinline__ void advance(const Ring& ring) {
        if (++index == ring.stages) {
            index = 0;
            round ^= 1;
        }
    }

    // On by no more stages than there are.
    __device__ __forceinline__ void advance(const Ring& ring, uint32_t by) {
        index += by;
        if (index >= ring.stages) {
            index -= ring.stages;
            round ^= 1;
        }
    }
};
