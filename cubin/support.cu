// What happens around the GEMM: tensor maps for every group, operand data from a seed, an L2 flush.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx.cuh"
#include "tile.cuh"

// Host-encoded maps that are right but for address, extents and row stride. There is one for every
// number of rows in A's box: the encoder derives more from it than tensormap.replace puts in.
struct Templates {
    TensorMap a[16];  // by the tile's width, in steps of 16
    TensorMap b;
};

constexpr int MAP_THREADS = 96;  // one thread per map, two maps per group

// Builds the maps of A and B of every group. Launched with MAP_THREADS threads per CTA. The maps are
// put together in shared memory, where tensormap.replace costs tens of cycles, and leave in whole
// lines.
extern "C" __global__ void __launch_bounds__(MAP_THREADS)
    build_maps(const __grid_constant__ Templates templates, const __grid_constant__ Groups groups,
               uint32_t group_count, Maps* maps, uint32_t operand_bytes) {
    __shared__ TensorMap built[MAP_THREADS];
    const uint32_t first = blockIdx.x * MAP_THREADS, mine = first + threadIdx.x;
    const uint32_t group = mine / 2, is_b = mine % 2;
    if (group < group_count) {
        built[threadIdx.x] = is_b ? templates.b : templates.a[groups.width[group] / 16 - 1];
        const uint32_t map = ptx::shared_address(&built[threadIdx.x]);
        const uint32_t k = groups.k[group];
        // An extent of 0 would wrap to 2^32 (the map holds extents less one); such maps stay unused.
        if (k > 0) {
            ptx::tensor_map_address(map, is_b ? groups.ptr_b[group] : groups.ptr_a[group]);
            ptx::tensor_map_extent<0>(map, k);
            ptx::tensor_map_extent<1>(map, is_b ? groups.n[group] : groups.m[group]);
            ptx::tensor_map_stride(
                map, (is_b ? groups.ld_b[group] : groups.ld_a[group]) * operand_bytes);
        }
    }
    __syncthreads();
    const uint32_t count = min(uint32_t{MAP_THREADS}, group_count * 2 - first);
    uint4* to = reinterpret_cast<uint4*>(reinterpret_cast<TensorMap*>(maps) + first);
    const uint4* from = reinterpret_cast<const uint4*>(built);
    for (uint32_t i = threadIdx.x; i < count * 8; i += MAP_THREADS) to[i] = from[i];
    ptx::tensor_map_release();
}

// One operand to generate (gemmctl/tables.py: FILL).
struct Fill {
    uint64_t ptr;
    uint64_t ld;
    uint32_t rows;
    uint32_t cols;
    uint32_t key;
    uint32_t type;
};
static_assert(sizeof(Fill) == 32, "the layout of tables.FILL");

// The finaliser of MurmurHash3: a bijection of 32 bits in which every input bit moves every output.
__device__ __forceinline__ uint32_t mix(uint32_t h) {
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = (h ^ (h >> 13)) * 0xC2B2AE35u;
    return h ^ (h >> 16);
}

// The value of one element (gemmctl/data.py states the formula and computes the same bits).
__device__ __forceinline__ float value(uint32_t row_key, uint32_t column, bool integers) {
    const uint32_t h = mix(row_key ^ (column * 0x9E3779B1u));
    if (integers) return static_cast<float>(static_cast<int>((h >> 16) * 5 >> 16) - 2);
    const int sum = static_cast<int>(__dp4a(h, 0x01010101u, 0u)) - 510;
    return static_cast<float>(sum) * 0x1p-8f;
}

__device__ __forceinline__ uint16_t round_16(float x, uint32_t type) {
    return type == TYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                             : __half_as_ushort(__float2half_rn(x));
}

// Fills operands: CTA (x, y) takes rows x, x + gridDim.x, ... of operands y, y + gridDim.y, ...
extern "C" __global__ void __launch_bounds__(256)
    fill(const Fill* fills, uint32_t count, uint32_t integers) {
    for (uint32_t f = blockIdx.y; f < count; f += gridDim.y) {
        const Fill fill = fills[f];
        for (uint32_t row = blockIdx.x; row < fill.rows; row += gridDim.x) {
            const uint32_t row_key = mix(fill.key ^ row);
            if (fill.type == TYPE_F32) {
                float* to = reinterpret_cast<float*>(fill.ptr) + row * fill.ld;
                for (uint32_t c = threadIdx.x; c < fill.cols; c += blockDim.x)
                    to[c] = value(row_key, c, integers);
                continue;
            }
            uint16_t* to = reinterpret_cast<uint16_t*>(fill.ptr) + row * fill.ld;
            if (fill.ld % 8 == 0) {  // whole 16-byte words, the last few elements one by one
                for (uint32_t c = threadIdx.x * 8; c < fill.cols; c += blockDim.x * 8) {
                    alignas(16) uint16_t eight[8];
#pragma unroll
                    for (int i = 0; i < 8; ++i)
                        eight[i] = round_16(value(row_key, c + i, integers), fill.type);
                    if (c + 8 <= fill.cols) {
                        *reinterpret_cast<uint4*>(to + c) = *reinterpret_cast<uint4*>(eight);
                    } else {
#pragma unroll
                        for (int i = 0; i < 8; ++i)
                            if (c + i < fill.cols) to[c + i] = eight[i];
                    }
                }
            } else {
                for (uint32_t c = threadIdx.x; c < fill.cols; c += blockDim.x)
                    to[c] = round_16(value(row_key, c, integers), fill.type);
            }
        }
    }
}

// Reads `count` 16-byte words, several times the L2, so that nothing else is left there. Reading
// leaves clean lines: a written flush would charge the kernel under test for its write-back.
extern "C" __global__ void __launch_bounds__(1024)
    flush(const uint4* words, uint64_t count, uint32_t* never) {
    uint32_t sum = 0;
    for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
         i += uint64_t{gridDim.x} * blockDim.x) {
        const uint4 word = words[i];
        sum += word.x ^ word.y ^ word.z ^ word.w;
    }
    if (sum == 0x9E3779B1u) *never = sum;  // keeps the loads; what it writes is not used
}
