// What a group has behind alpha A B.
#pragma once

#include <cstdint>

#include "epilogue/source.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// Which bias, activation and gate there is: four words that are read at one time.
struct alignas(16) Kinds {
    uint32_t bias_along, bias_type, activation, gate;
};

// In shared memory, found by some threads for their warpgroup, of a tile whose flags say that there is any.
struct alignas(16) Fused {
    SourceC c;
    uint64_t bias;  // its address
    Kinds kinds;

    __device__ __forceinline__ Kinds all_kinds() const {
        const uint4 words = ptx::load_shared(ptx::shared_address(&kinds));
        return {words.x, words.y, words.z, words.w};
    }
    __device__ __forceinline__ void find_bias_later(const Groups& groups, uint32_t group) {
        ptx::copy_later(bias, groups.ptr_bias[group]);
        ptx::copy_later(kinds.bias_along, groups.bias_along[group]);
        ptx::copy_later(kinds.bias_type, groups.type_bias[group]);
    }
    __device__ __forceinline__ void find_kinds_later(const Groups& groups, uint32_t group) {
        ptx::copy_later(kinds.activation, groups.activation[group]);
        ptx::copy_later(kinds.gate, groups.gate[group]);
    }
};
