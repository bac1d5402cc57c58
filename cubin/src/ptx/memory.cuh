// Loads, stores and prefetches.
#pragma once

#include <cstdint>

namespace ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 4 or 8 bytes from global to shared memory, which this thread does not wait for before await_copies.
template <class T>
__device__ __forceinline__ void copy_later(T& to, const T& from) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(&to)), "l"(&from),
                 "n"(sizeof(T))
                 : "memory");
}

// 16 bytes from global to shared memory, both at multiples of 16, of which only the first `bytes` are read; the
// others become zeros. (With a hint for the L2, ptxas 13.0.88 made illegal instructions of some.)
__device__ __forceinline__ void copy_16(uint32_t to, uint64_t from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// 4 bytes, likewise.
__device__ __forceinline__ void copy_4(uint32_t to, uint64_t from, uint32_t bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
    uint4 word;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                 : "r"(address)
                 : "memory");
    return word;
}

__device__ __forceinline__ void copy_shared(uint32_t to, uint32_t from) {
    const uint4 word = load_shared(from);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word.x), "r"(word.y),
                 "r"(word.z), "r"(word.w)
                 : "memory");
}

__device__ __forceinline__ uint32_t load_shared_32(uint32_t address) {
    uint32_t bits;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(address) : "memory");
    return bits;
}

__device__ __forceinline__ uint32_t load_shared_16(uint32_t address) {
    uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
    return bits;
}

__device__ __forceinline__ void load_shared(float (&values)[2], uint32_t address) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(values[0]), "=f"(values[1])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, uint4 word) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word.x), "r"(word.y), "r"(word.z),
                 "r"(word.w)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}

// Two words, if `wanted`: without a branch, behind which the compiler would not see lanes meet.
__device__ __forceinline__ void store_shared(uint32_t to, uint32_t first, uint32_t second,
                                             bool wanted) {
    asm volatile(
        "{\n"
        ".reg .pred wanted;\n"
        "setp.ne.b32 wanted, %3, 0;\n"
        "@wanted st.shared.v2.u32 [%0], {%1, %2};\n"
        "}" ::"r"(to),
        "r"(first), "r"(second), "r"(int{wanted})
        : "memory");
}

// One more, and 0 after `last`; what this thread did before, or others before they met it, comes before.
__device__ __forceinline__ void increment_release(uint32_t* address, uint32_t last) {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(address), "r"(last) : "memory");
}

// What other CTAs are changing; it orders nothing.
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* address) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// What other CTAs did before they released what this thread has loaded comes before what follows.
__device__ __forceinline__ void acquire_gpu() {
    asm volatile("fence.acquire.gpu;" ::: "memory");
}

// Global memory at `address` if `wanted`, else 0.
__device__ __forceinline__ uint32_t load_16(uint64_t address, bool wanted) {
    uint32_t bits;
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\nmov.b32 %0, 0;\n"
        "@wanted ld.global.u16 %0, [%1];\n}"
        : "=r"(bits)
        : "l"(address), "r"(uint32_t{wanted})
        : "memory");
    return bits;
}

__device__ __forceinline__ uint32_t load_32(uint64_t address, bool wanted) {
    uint32_t bits;
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\nmov.b32 %0, 0;\n"
        "@wanted ld.global.b32 %0, [%1];\n}"
        : "=r"(bits)
        : "l"(address), "r"(uint32_t{wanted})
        : "memory");
    return bits;
}

__device__ __forceinline__ uint4 load_128(uint64_t address, bool wanted) {
    uint4 word;
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
        "mov.b32 %2, 0;\nmov.b32 %3, 0;\n@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
        : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
        : "l"(address), "r"(uint32_t{wanted})
        : "memory");
    return word;
}

// To global memory: a plain pointer made from a number is a generic one, and slower.
__device__ __forceinline__ void store_128(uint64_t address, uint4 word) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(word.x),
                 "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
}

// The same, if `wanted`; and one element.
__device__ __forceinline__ void store_128(uint64_t address, uint4 word, bool wanted) {
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %5, 0;\n"
        "@wanted st.global.v4.u32 [%0], {%1, %2, %3, %4};\n}" ::"l"(address),
        "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w), "r"(uint32_t{wanted})
        : "memory");
}

__device__ __forceinline__ void store_32(uint64_t address, uint32_t bits, bool wanted) {
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\n@wanted st.global.b32 [%0], %1;\n}" ::
            "l"(address),
        "r"(bits), "r"(uint32_t{wanted})
        : "memory");
}

__device__ __forceinline__ void store_16(uint64_t address, uint16_t bits, bool wanted) {
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.b32 wanted, %2, 0;\n@wanted st.global.b16 [%0], %1;\n}" ::
            "l"(address),
        "h"(bits), "r"(uint32_t{wanted})
        : "memory");
}

// Bring the line at an address into the L2.
__device__ __forceinline__ void prefetch(const void* address) {
    asm volatile("prefetch.L2 [%0];" ::"l"(address));
}

}  // namespace ptx
