// On which SMs a launch's CTAs come to lie.
#include <cstdint>

// Writes the SM of every CTA. None leaves, and makes room for another, before all are there: that takes a
// cooperative launch. `arrived` is 0 before.
extern "C" __global__ void __launch_bounds__(PLACES_THREADS)
    places(uint32_t* sms, uint32_t* arrived) {
    if (threadIdx.x > 0) return;
    uint32_t sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    sms[blockIdx.x] = sm;
    atomicAdd(arrived, 1);
    while (*static_cast<volatile uint32_t*>(arrived) < gridDim.x) {
    }
}
