// What a group has behind alpha A B.
#pragma once

#include <cstdint>

#include "epilogue/bias.cuh"
#include "epilogue/source.cuh"
#include "records.cuh"

// Found by one thread for its warpgroup, of a tile whose flags say that there is any.
struct Fused {
    SourceC c;
    Bias bias;
    uint32_t activation, gate;

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group) {
        c.find(groups, group);
        bias.find(groups, group);
        activation = groups.activation[group];
        gate = groups.gate[group];
    }
};
