// The lanes of a warp.
#pragma once

#include <cstdint>

namespace ptx {

// Whether this is the lane that does what follows for its warp, all lanes of which are here: always the same one, but
// not to be named (PTX ISA 9.0, "elect.sync"). ptxas then knows that there is one: behind a comparison with a lane's
// number it makes a loop over lanes of every instruction that takes uniform registers, as bulk copies do.
__device__ __forceinline__ bool elected() {
    uint32_t found;
    asm volatile(
        "{\n"
        ".reg .pred one;\n"
        "elect.sync _|one, 0xFFFFFFFF;\n"
        "selp.u32 %0, 1, 0, one;\n"
        "}"
        : "=r"(found));
    return found != 0;
}

}  // namespace ptx
