// Matrices between registers and shared memory.
#pragma once

#include <cstdint>

namespace ptx {

// Store four 8x8 matrices of 16-bit elements; lane 8i+j gives the address of row j of matrix i.
__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t m0, uint32_t m1, uint32_t m2,
                                               uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// The same transposed: lane 8i+j gives the address of what becomes row j of matrix i.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, uint32_t m0, uint32_t m1,
                                                          uint32_t m2, uint32_t m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// Two of them: lanes 0 to 15 give addresses.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, uint32_t m0, uint32_t m1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to),
                 "r"(m0), "r"(m1)
                 : "memory");
}

// Load four, likewise.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&m)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(from)
                 : "memory");
}

}  // namespace ptx
