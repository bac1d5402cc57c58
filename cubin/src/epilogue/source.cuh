// C in global memory.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "ptx/memory.cuh"
#include "records.cuh"

// Where a group's C lies, if it has one.
struct SourceC {
    uint64_t address, row_bytes;
    uint32_t type;  // differs between groups of one launch

    __device__ __forceinline__ void find(const Groups& groups, uint32_t group) {
        type = groups.type_c[group];
        row_bytes = groups.ld_c[group] * bytes();
        address = groups.ptr_c[group];
    }
    __device__ __forceinline__ uint32_t bytes() const { return type == TYPE_F32 ? 4 : 2; }
};

// Elements of C as they were loaded, to be told apart by the group's type: 16 bits that are a half, or the
// upper part of a float after a shift.
struct Decoder {
    bool half;
    uint32_t shift;
    __device__ __forceinline__ explicit Decoder(uint32_t type)
        : half(type == TYPE_F16), shift(type == TYPE_BF16 ? 16 : 0) {}
    __device__ __forceinline__ float element(uint32_t bits) const {
        return half ? __half2float(__ushort_as_half(bits)) : __uint_as_float(bits << shift);
    }
    // One of two neighbours of 16 bits.
    __device__ __forceinline__ float of_pair(uint32_t pair, bool second) const {
        if (half) return __half2float(__ushort_as_half(second ? pair >> 16 : pair));
        return __uint_as_float(second ? pair & 0xFFFF0000 : pair << 16);
    }
};

// Four neighbours in a row of C, of two bytes or of four.
struct Words16 {
    static constexpr int registers = 2;
    static __device__ __forceinline__ void load(uint32_t* bits, uint64_t at, bool wanted) {
        ptx::load_64(bits, at, wanted);
    }
    static __device__ __forceinline__ float value(const uint32_t* bits, int i,
                                                  const Decoder& decoder) {
        return decoder.of_pair(bits[i / 2], i % 2);
    }
};
struct Words32 {
    static constexpr int registers = 4;
    static __device__ __forceinline__ void load(uint32_t* bits, uint64_t at, bool wanted) {
        ptx::load_128(bits, at, wanted);
    }
    static __device__ __forceinline__ float value(const uint32_t* bits, int i, const Decoder&) {
        return __uint_as_float(bits[i]);
    }
};
