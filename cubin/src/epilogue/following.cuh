// What a group has behind alpha A B.
#pragma once

#include <cstdint>

#include "epilogue/source.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// Which bias, activation, gate and C there is behind a tile's sums, of the bits in its record.
struct Kinds {
    uint32_t bias_along, bias_type, activation, gate, c_type;

    __device__ __forceinline__ explicit Kinds(uint32_t bits)
        : bias_along(bits >> KIND_BIAS & 3),
          bias_type(bits >> KIND_BIAS_TYPE & 3),
          activation(bits >> KIND_ACTIVATION & 7),
          gate(bits >> KIND_GATE & 3),
          c_type(bits >> KIND_C_TYPE & 3) {}
};

// Where C and the bias lie that are added behind sums: in shared memory, found by some threads for their warpgroup.
struct alignas(16) Fused {
    SourceC c;
    uint64_t bias;  // its address

    __device__ __forceinline__ void find_bias_later(const Groups& groups, uint32_t group) {
        ptx::copy_later(bias, groups.ptr_bias[group]);
    }
};
