// What a group has behind alpha A B.
#pragma once

#include <cstdint>

#include "epilogue/bias.cuh"
#include "epilogue/source.cuh"
#include "records.cuh"

// In shared memory, found by one thread for its warpgroup, of a tile whose flags say that there is any.
struct Fused {
    SourceC c;
    Bias bias;
    uint32_t activation, gate;

    __device__ __forceinline__ void find_later(const Groups& groups, uint32_t group) {
        c.find_later(groups, group);
        bias.find_later(groups, group);
        ptx::copy_later(activation, groups.activation[group]);
        ptx::copy_later(gate, groups.gate[group]);
    }
};
