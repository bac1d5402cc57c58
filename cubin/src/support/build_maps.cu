// Tensor maps for every group.
#include "ptx/memory.cuh"
#include "ptx/tensor_map.cuh"
#include "records.cuh"

// Host-encoded maps that are right but for address, extents and strides. There is one for every box: the
// encoder derives more from it than tensormap.replace puts in.
struct Templates {
    TensorMap a[WIDTHS];      // by the tile's width, in steps of WIDTH_STEP; alike where K lies across
    TensorMap runs[WIDTHS];   // the same of rows that are shuffled
    TensorMap b;              // whose box has all rows of a CTA's tile
    TensorMap pairs;          // of B with a gate: eight rows, and the eight that theirs are multiplied with
    TensorMap eights;         // all such eights of a CTA's tile
    TensorMap c16[WIDTHS];    // like A's, of elements of 16 bits
    TensorMap c32[WIDTHS];    // and of 32
    TensorMap added;          // of a D that TMA adds to, and of one that it stores
    TensorMap stored;
};

// Builds the maps of A, B and C of every group. Launched with MAP_THREADS threads per CTA. The maps are
// put together in shared memory, where tensormap.replace costs tens of cycles, and leave in whole
// lines.
extern "C" __global__ void __launch_bounds__(MAP_THREADS)
    build_maps(const __grid_constant__ Templates templates, const __grid_constant__ Groups groups,
               uint32_t group_count, Maps* maps, uint32_t operand_bytes, uint32_t a_across,
               uint32_t b_across, uint32_t a_woven, uint32_t run) {
    __shared__ TensorMap built[MAP_THREADS];
    const uint32_t first = blockIdx.x * MAP_THREADS, mine = first + threadIdx.x;
    const uint32_t group = mine / MAPS, which = mine % MAPS;
    if (group < group_count) {
        const uint32_t box = groups.box[group], gate = groups.gate[group];
        const uint32_t map = ptx::shared_address(&built[threadIdx.x]);
        const uint32_t m = groups.m[group], n = groups.n[group], k = groups.k[group];
        const auto matrix = [&](const TensorMap& from, uint64_t address, uint32_t columns,
                                uint32_t rows, uint64_t row_bytes) {
            built[threadIdx.x] = from;
            // An extent of 0 would wrap to 2^32 (the map holds extents less one); such maps stay unused.
            if (columns == 0 || rows == 0) return;
            ptx::tensor_map_address(map, address);
            ptx::tensor_map_extent<0>(map, columns);
            ptx::tensor_map_extent<1>(map, rows);
            ptx::tensor_map_stride<0>(map, row_bytes);
        };
        if (which == 0) {
            // The K of a woven one ends with its lines, in zeros; an empty one stays unused.
            const uint32_t columns = a_woven ? (k > 0 ? groups.ld_a[group] : 0) : a_across ? m : k;
            const uint64_t row_bytes = groups.ld_a[group] * operand_bytes;
            if (box < WIDTHS) {
                matrix(templates.a[box], groups.ptr_a[group], columns, a_across ? k : m, row_bytes);
            } else {
                // Rows in pairs, four of these, as many as make a run of `run`, and runs (shuffled.cuh).
                matrix(templates.runs[box - WIDTHS], groups.ptr_a[group], columns, 2, row_bytes);
                ptx::tensor_map_stride<1>(map, run / 4 * row_bytes);
                ptx::tensor_map_stride<2>(map, 2 * row_bytes);
                ptx::tensor_map_extent<4>(map, m / run);
                ptx::tensor_map_stride<3>(map, run * row_bytes);
            }
        } else if (which == 1 && a_woven) {
            built[threadIdx.x] = templates.b;  // not used: its rows may lie as no map can say
        } else if (which == 1) {
            const uint64_t row_bytes = groups.ld_b[group] * operand_bytes;
            if (gate == GATE_NONE) {
                matrix(templates.b, groups.ptr_b[group], b_across ? n : k, b_across ? k : n,
                       row_bytes);
            } else {
                const bool halves = gate == GATE_HALVES;
                const bool eights = n % 16 == 0;
                const uint64_t next = row_bytes * (halves ? 1 : 2);
                matrix(eights ? templates.eights : templates.pairs, groups.ptr_b[group], k,
                       eights ? 8 : n / 2, next);
                if (k > 0) ptx::tensor_map_stride<1>(map, row_bytes * (halves ? n / 2 : 1));
                if (k > 0 && eights) {
                    ptx::tensor_map_extent<3>(map, n / 16);
                    ptx::tensor_map_stride<2>(map, 8 * next);
                }
            }
        } else {
            const bool wide = groups.type_c[group] == TYPE_F32;
            const uint32_t c_box = groups.c_box[group];
            const uint64_t row_bytes = groups.ld_c[group] * (wide ? 4 : 2);
            if (c_box < WIDTHS) {
                matrix((wide ? templates.c32 : templates.c16)[c_box], groups.ptr_c[group], n, m, row_bytes);
            } else {
                // Of 32 columns, of which two lie side by side in a box.
                const bool stored = c_box > WIDTHS;
                matrix(stored ? templates.stored : templates.added, groups.ptr_c[group], 32, n / 32, 128);
                if (stored) {  // rows by pairs, the even ones first
                    ptx::tensor_map_extent<2>(map, m / 2);
                    ptx::tensor_map_stride<1>(map, 2 * row_bytes);
                    ptx::tensor_map_stride<2>(map, row_bytes);
                } else {
                    ptx::tensor_map_extent<2>(map, m);
                    ptx::tensor_map_stride<1>(map, row_bytes);
                }
            }
        }
    }
    __syncthreads();
    const uint32_t count = min(uint32_t{MAP_THREADS}, group_count * MAPS - first);
    uint4* to = reinterpret_cast<uint4*>(reinterpret_cast<TensorMap*>(maps) + first);
    const uint4* from = reinterpret_cast<const uint4*>(built);
    for (uint32_t i = threadIdx.x; i < count * 8; i += MAP_THREADS) to[i] = from[i];
    ptx::tensor_map_release();
}
