// Operand data from a seed.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

// One operand to generate (FILL in gemmctl).
struct Fill {
    uint64_t ptr;
    uint64_t ld;
    uint32_t rows;
    uint32_t cols;
    uint32_t key;
    uint32_t type;
};
static_assert(sizeof(Fill) == 32, "the layout of gemmctl's FILL");

// The finaliser of MurmurHash3: a bijection of 32 bits in which every input bit moves every output.
__device__ __forceinline__ uint32_t mix(uint32_t h) {
    h = (h ^ (h >> 16)) * MIX_FIRST;
    h = (h ^ (h >> 13)) * MIX_SECOND;
    return h ^ (h >> 16);
}

// The value of one element (gemmctl's `data` states the formula and computes the same bits).
__device__ __forceinline__ float value(uint32_t row_key, uint32_t column, bool integers) {
    const uint32_t h = mix(row_key ^ (column * MIX_COLUMN));
    if (integers)
        return static_cast<float>(static_cast<int>((h >> 16) * INTEGERS >> 16) - INTEGERS / 2);
    const int sum = static_cast<int>(__dp4a(h, 0x01010101u, 0u)) - NORMAL_MEAN;
    return static_cast<float>(sum) * (1.0f / NORMAL_UNIT);
}

__device__ __forceinline__ uint16_t round_16(float x, uint32_t type) {
    return type == TYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                             : __half_as_ushort(__float2half_rn(x));
}

// Fills operands: CTA (x, y) takes rows x, x + gridDim.x, ... of operands y, y + gridDim.y, ...
extern "C" __global__ void __launch_bounds__(FILL_THREADS)
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
