// The bias: a number for every column of x, or for every row.
#pragma once

#include <cstdint>

#include "epilogue/source.cuh"
#include "ptx/memory.cuh"
#include "records.cuh"

// For each staging buffer, the numbers that its columns or its rows take, which its threads put there beside
// the sums.
template <int buffers>
using BiasLines = float[buffers][64];

// Where a group's bias lies, if it has one.
struct Bias {
    uint64_t address;
    uint32_t along, type;

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group) {
        address = groups.ptr_bias[group];
        along = groups.bias_along[group];
        type = groups.type_bias[group];
    }

    // The bits of one of its numbers if `wanted`, else of 0; and the number.
    __device__ __forceinline__ uint32_t load(uint64_t index, bool wanted) const {
        return type == TYPE_F32 ? ptx::load_32(address + index * 4, wanted)
                                : ptx::load_16(address + index * 2, wanted);
    }
    __device__ __forceinline__ float value(uint32_t bits) const {
        return Decoder(type).element(bits);
    }
};
