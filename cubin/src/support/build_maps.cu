// Tensor maps for every group.
#include "ptx/memory.cuh"
#include "ptx/tensor_map.cuh"
#include "records.cuh"

// Host-encoded maps that are right but for address, extents and row stride. There is one for every
// number of rows in A's box: the encoder derives more from it than tensormap.replace puts in.
struct Templates {
    TensorMap a[WIDTHS];  // by the tile's width, in steps of WIDTH_STEP
    TensorMap b[2];           // whose box has all rows of a CTA's tile, or HALF_ROWS
};

// Builds the maps of A and B of every group. Launched with MAP_THREADS threads per CTA. The maps are
// put together in shared memory, where tensormap.replace costs tens of cycles, and leave in whole
// lines.
extern "C" __global__ void __launch_bounds__(MAP_THREADS)
    build_maps(const __grid_constant__ Templates templates, const __grid_constant__ Groups groups,
               uint32_t group_count, Maps* maps, uint32_t operand_bytes, uint32_t a_across,
               uint32_t b_across) {
    __shared__ TensorMap built[MAP_THREADS];
    const uint32_t first = blockIdx.x * MAP_THREADS, mine = first + threadIdx.x;
    const uint32_t group = mine / MAPS, is_b = mine % MAPS;
    if (group < group_count) {
        built[threadIdx.x] = is_b ? templates.b[groups.gate[group] == GATE_HALVES]
                                  : templates.a[groups.width[group] / WIDTH_STEP - 1];
        const uint32_t map = ptx::shared_address(&built[threadIdx.x]);
        const uint32_t k = groups.k[group];
        // An extent of 0 would wrap to 2^32 (the map holds extents less one); such maps stay unused.
        if (k > 0) {
            ptx::tensor_map_address(map, is_b ? groups.ptr_b[group] : groups.ptr_a[group]);
            const uint32_t rows = is_b ? groups.n[group] : groups.m[group];
            const bool across = is_b ? b_across : a_across;
            ptx::tensor_map_extent<0>(map, across ? rows : k);
            ptx::tensor_map_extent<1>(map, across ? k : rows);
            ptx::tensor_map_stride(
                map, (is_b ? groups.ld_b[group] : groups.ld_a[group]) * operand_bytes);
        }
    }
    __syncthreads();
    const uint32_t count = min(uint32_t{MAP_THREADS}, group_count * MAPS - first);
    uint4* to = reinterpret_cast<uint4*>(reinterpret_cast<TensorMap*>(maps) + first);
    const uint4* from = reinterpret_cast<const uint4*>(built);
    for (uint32_t i = threadIdx.x; i < count * 8; i += MAP_THREADS) to[i] = from[i];
    ptx::tensor_map_release();
}
