// One variant of the kernel for one pair of element types, both chosen by cubin/build.py.
#include "gemm.cuh"

using Chosen = Config<OPERAND, OUTPUT, CONSUMERS, PINGPONG, MAX_WIDTH, STAGES, CLUSTER, CTAS_PER_SM,
                      SHARED_BYTES>;

extern "C" __global__ void __launch_bounds__(Chosen::threads, Chosen::ctas_per_sm)
    gemm(const __grid_constant__ Params params) {
    run_roles<Chosen>(params);
}
