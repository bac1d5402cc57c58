// Registers: how many a thread has, what the compiler knows of them, and in which order it uses them.
#pragma once

#include <cstdint>

namespace ptx {

template <int registers>
__device__ __forceinline__ void registers_release() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void registers_claim() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// The same value, of which the compiler knows nothing.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

// What stands before it is issued before what stands behind it: ptxas moves no instruction past an event of
// the performance monitor, and triggering one that nobody counts takes a single instruction.
__device__ __forceinline__ void keep_order() { asm volatile("pmevent 0;"); }

}  // namespace ptx
