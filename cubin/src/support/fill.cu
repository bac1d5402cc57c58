// Operand data from a seed (gemmctl's `data` states the formulas and computes the same bits).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

// One operand to generate (FILL in gemmctl).
struct Fill {
    uint64_t ptr;
    uint64_t row_step;  // elements from one row to the next
    uint64_t col_step;  // and from one element of a row to the next; one of the two is 1
    uint32_t rows;
    uint32_t cols;
    uint32_t key;
    uint32_t type;
    uint32_t recipe;
    uint32_t limit;  // of integer data
};
static_assert(sizeof(Fill) == 48, "the layout of gemmctl's FILL");

// Every number that normal data consist of, in the order of the types' codes.
struct Quantiles {
    uint16_t bf16[QUANTILES];
    uint16_t f16[QUANTILES];
    uint32_t f32[QUANTILES];
};
static_assert(TYPE_BF16 == 0 && TYPE_F16 == 1 && TYPE_F32 == 2, "the order in Quantiles");

// The finaliser of MurmurHash3: a bijection of 32 bits in which every input bit moves every output.
__device__ __forceinline__ uint32_t mix(uint32_t h) {
    h = (h ^ (h >> 16)) * MIX_FIRST;
    h = (h ^ (h >> 13)) * MIX_SECOND;
    return h ^ (h >> 16);
}

// Bits of special values of one type.
struct Specials {
    uint32_t sign, infinity, mantissa;

    __device__ __forceinline__ explicit Specials(uint32_t type)
        : sign(type == TYPE_F32 ? 1u << 31 : 1u << 15),
          infinity(type == TYPE_F32 ? 0x7F800000u : type == TYPE_F16 ? 0x7C00u : 0x7F80u),
          mantissa(type == TYPE_F32 ? 0x7FFFFFu : type == TYPE_F16 ? 0x3FFu : 0x7Fu) {}

    __device__ __forceinline__ uint32_t largest() const { return infinity - 1; }
    __device__ __forceinline__ uint32_t nan() const { return infinity | (mantissa + 1) / 2; }
    // A sign and a subnormal number from an element's hash.
    __device__ __forceinline__ uint32_t sign_of(uint32_t h) const { return h >> 15 & 1 ? sign : 0; }
    __device__ __forceinline__ uint32_t subnormal(uint32_t h) const { return h >> 5 & mantissa | 1; }
};

// What a row of an operand has of special values: its class, and where it has one.
struct Row {
    uint32_t key, kind, place, next, one;

    __device__ __forceinline__ Row(const Fill& fill, uint32_t row) : key(mix(fill.key ^ row)) {
        kind = mix(key ^ MIX_CLASS) & 31;
        const uint32_t at = mix(key ^ MIX_SPOT);
        place = __umulhi(at, fill.cols);
        next = place + 1 == fill.cols ? 0 : place + 1;
        one = at & 1 ? Specials(fill.type).sign : 0;
    }
};

// An element of a row of A or B that has special values; `normal` is what it else would be.
__device__ __forceinline__ uint32_t in_special_row(const Fill& fill, const Row& row,
                                                   uint32_t column, uint32_t h, uint32_t normal) {
    const Specials special(fill.type);
    const uint32_t sign = special.sign_of(h);
    const bool here = column == row.place;
    switch (row.kind) {
        case CLASS_ZEROS: return sign;
        case CLASS_ONE_NAN: return here ? row.one | special.nan() : normal;
        case CLASS_ONE_INFINITY: return here ? row.one | special.infinity : normal;
        case CLASS_ONE_LARGEST: return here ? row.one | special.largest() : normal;
        case CLASS_LONE_SUBNORMAL: return here ? row.one | 1 : sign;
        case CLASS_LONE_LARGEST: return here ? row.one | special.largest() : sign;
        case CLASS_SUBNORMALS: return sign | special.subnormal(h);
        case CLASS_TWO_INFINITIES:  // in a row of one element the second takes the first's place
            if (column == row.next) return (row.one ^ special.sign) | special.infinity;
            return here ? row.one | special.infinity : normal;
        default: return normal;
    }
}

// The same of C.
__device__ __forceinline__ uint32_t in_special_spot(const Fill& fill, uint32_t h, uint32_t normal) {
    const Specials special(fill.type);
    const uint32_t sign = special.sign_of(h);
    switch (h & 31) {
        case SPOT_ZERO: return sign;
        case SPOT_NAN: return sign | special.nan();
        case SPOT_INFINITY: return sign | special.infinity;
        case SPOT_LARGEST: return sign | special.largest();
        case SPOT_SUBNORMAL: return sign | special.subnormal(h);
        default: return normal;
    }
}

// The bits of one element.
__device__ __forceinline__ uint32_t element(const Fill& fill, const Row& row, uint32_t column,
                                            const Quantiles& quantiles) {
    const uint32_t h = mix(row.key ^ (column * MIX_COLUMN));
    if (fill.recipe == RECIPE_INT) {
        const uint32_t limit = fill.type == TYPE_BF16   ? min(fill.limit, 256u)
                               : fill.type == TYPE_F16 ? min(fill.limit, 2048u)
                                                       : fill.limit;
        const float x = static_cast<float>(static_cast<int>((h >> 16) * (2 * limit + 1) >> 16) -
                                           static_cast<int>(limit));
        if (fill.type == TYPE_F32) return __float_as_uint(x);
        return fill.type == TYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                                      : __half_as_ushort(__float2half_rn(x));
    }
    const uint32_t chosen = h >> 16;
    const uint32_t normal = fill.type == TYPE_BF16  ? quantiles.bf16[chosen]
                            : fill.type == TYPE_F16 ? quantiles.f16[chosen]
                                                    : quantiles.f32[chosen];
    if (fill.recipe == RECIPE_NORMAL || row.kind >= SPECIAL_CLASSES) return normal;
    if (fill.recipe == RECIPE_SPECIAL_ROWS) return in_special_row(fill, row, column, h, normal);
    if (fill.recipe == RECIPE_SPECIAL_SPOTS) return in_special_spot(fill, h, normal);
    return normal;
}

// Fills an operand whose rows lie across memory: CTA x takes columns x, x + gridDim.x, ...
template <class Word>
__device__ __forceinline__ void fill_across(const Fill& fill, const Quantiles& quantiles) {
    for (uint32_t c = blockIdx.x; c < fill.cols; c += gridDim.x) {
        Word* to = reinterpret_cast<Word*>(fill.ptr) + c * fill.col_step;
        for (uint32_t i = threadIdx.x; i < fill.rows; i += blockDim.x)
            to[i] = element(fill, Row(fill, i), c, quantiles);
    }
}

// Fills operands: CTA (x, y) takes rows x, x + gridDim.x, ... of operands y, y + gridDim.y, ...
extern "C" __global__ void __launch_bounds__(FILL_THREADS)
    fill(const Fill* fills, uint32_t count, const Quantiles* quantiles) {
    for (uint32_t f = blockIdx.y; f < count; f += gridDim.y) {
        const Fill fill = fills[f];
        if (fill.col_step > 1) {
            if (fill.type == TYPE_F32)
                fill_across<uint32_t>(fill, *quantiles);
            else
                fill_across<uint16_t>(fill, *quantiles);
            continue;
        }
        for (uint32_t i = blockIdx.x; i < fill.rows; i += gridDim.x) {
            const Row row(fill, i);
            if (fill.type == TYPE_F32) {
                uint32_t* to = reinterpret_cast<uint32_t*>(fill.ptr) + i * fill.row_step;
                for (uint32_t c = threadIdx.x; c < fill.cols; c += blockDim.x)
                    to[c] = element(fill, row, c, *quantiles);
                continue;
            }
            uint16_t* to = reinterpret_cast<uint16_t*>(fill.ptr) + i * fill.row_step;
            // In whole 16-byte words, the last few elements one by one.
            if (fill.row_step % 8 == 0 && fill.ptr % 16 == 0) {
                for (uint32_t c = threadIdx.x * 8; c < fill.cols; c += blockDim.x * 8) {
                    alignas(16) uint16_t eight[8];
#pragma unroll
                    for (int j = 0; j < 8; ++j) eight[j] = element(fill, row, c + j, *quantiles);
                    if (c + 8 <= fill.cols) {
                        *reinterpret_cast<uint4*>(to + c) = *reinterpret_cast<uint4*>(eight);
                    } else {
#pragma unroll
                        for (int j = 0; j < 8; ++j)
                            if (c + j < fill.cols) to[c + j] = eight[j];
                    }
                }
            } else {
                for (uint32_t c = threadIdx.x; c < fill.cols; c += blockDim.x)
                    to[c] = element(fill, row, c, *quantiles);
            }
        }
    }
}
