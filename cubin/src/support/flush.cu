// An L2 flush.
#include <cstdint>

// Reads `count` 16-byte words, several times the L2, so that nothing else is left there. Reading
// leaves clean lines: a written flush would charge the kernel under test for its write-back.
extern "C" __global__ void __launch_bounds__(FLUSH_THREADS)
    flush(const uint4* words, uint64_t count, uint32_t* never) {
    uint32_t sum = 0;
    for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
         i += uint64_t{gridDim.x} * blockDim.x) {
        const uint4 word = words[i];
        sum += word.x ^ word.y ^ word.z ^ word.w;
    }
    if (sum == 0x9E3779B1u) *never = sum;  // keeps the loads; what it writes is not used
}
