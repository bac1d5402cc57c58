// Tensor maps of rows of C by residues.
#include "ptx/memory.cuh"
#include "ptx/tensor_map.cuh"
#include "records.cuh"

// As in build_maps.cu, of what residues.cuh says.
struct ResidueTemplates {
    TensorMap c16[WIDTHS], c32[WIDTHS];
};

// Builds the maps of every C, one for each residue, whether it comes so or not. Launched with MAP_THREADS
// threads per CTA.
extern "C" __global__ void __launch_bounds__(MAP_THREADS)
    build_residues(const __grid_constant__ ResidueTemplates templates,
                   const __grid_constant__ Groups groups, uint32_t group_count, TensorMap* maps) {
    __shared__ TensorMap built[MAP_THREADS];
    const uint32_t mine = blockIdx.x * MAP_THREADS + threadIdx.x, group = mine / RESIDUES;
    if (group >= group_count) return;
    const uint32_t m = groups.m[group], n = groups.n[group];
    if (m == 0 || n == 0) return;  // nothing is loaded
    // Where there are no rows of a residue, C's first element is loaded, and zeros. They make nothing of D,
    // but have to be the same every time: silu rounds two rows together. Whole rows would not be, in place.
    const bool exists = mine % RESIDUES < m;
    const uint32_t residue = exists ? mine % RESIDUES : 0;
    const bool wide = groups.type_c[group] == TYPE_F32;
    const uint32_t step = groups.box[group], size = wide ? 4 : 2;
    const uint64_t row_bytes = groups.ld_c[group] * size;
    const uint64_t first = groups.ptr_c[group] + residue * row_bytes;
    const uint32_t map = ptx::shared_address(&built[threadIdx.x]);
    built[threadIdx.x] = wide ? templates.c32[step] : templates.c16[step];
    ptx::tensor_map_address(map, first / 16 * 16);
    ptx::tensor_map_extent<0>(map, exists ? n + first % 16 / size : 1);
    ptx::tensor_map_extent<1>(map, (m - residue + RESIDUES - 1) / RESIDUES);
    ptx::tensor_map_stride<0>(map, RESIDUES * row_bytes);
    maps[mine] = built[threadIdx.x];
    ptx::tensor_map_release();
}
