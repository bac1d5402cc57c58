// A hash of D, for the host to see any change of it without reading it.
#include <cstdint>

// Rows to hash, for hash number `group`: pointer, pitch and length are even numbers of bytes.
struct Hashed {
    uint64_t ptr;
    uint64_t pitch_bytes;
    uint64_t row_bytes;
    uint32_t rows;
    uint32_t group;
};
static_assert(sizeof(Hashed) == 32, "the layout that the host writes");

// The finaliser of MurmurHash3 for 64 bits: a bijection in which every input bit moves every output.
__device__ __forceinline__ uint64_t mix(uint64_t h) {
    h = (h ^ (h >> 33)) * HASH_FIRST;
    h = (h ^ (h >> 33)) * HASH_SECOND;
    return h ^ (h >> 33);
}

// Adds the hash of every record's rows to out[group]: the sum, modulo 2^64 and so in any order, of
//     mix(word ^ ((row << 32) + i) * HASH_PLACE)
// over all rows and all little-endian 8-byte words i of a row, the last one filled up with zeros. In numpy,
// with the rows, filled up, as an array `words` of uint64:
//     row, i = np.indices(words.shape, np.uint64)
//     mix(words ^ ((row << np.uint64(32)) + i) * np.uint64(HASH_PLACE)).sum()
// As mix is a bijection, a change of one word always shows, of several but for one chance in about 2^64.
//
// Each warp takes a row, CTA (x, y) rows of records y, y + gridDim.y, ...; a few hundred CTAs along x keep
// one long record at the speed of the memory, and what is no multiple of 16 bytes is read by twos.
extern "C" __global__ void __launch_bounds__(HASH_THREADS)
    hash_rows(const Hashed* records, uint32_t count, unsigned long long* out) {
    constexpr uint32_t warps = HASH_THREADS / 32;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t f = blockIdx.y; f < count; f += gridDim.y) {
        const Hashed hashed = records[f];
        const bool aligned = (hashed.ptr | hashed.pitch_bytes) % 16 == 0;
        const uint32_t pairs = aligned ? hashed.row_bytes / 16 : 0;
        const uint32_t words = (hashed.row_bytes + 7) / 8;
        uint64_t sum = 0;
        for (uint32_t row = blockIdx.x * warps + warp; row < hashed.rows; row += gridDim.x * warps) {
            const uint64_t from = hashed.ptr + row * hashed.pitch_bytes, place = uint64_t{row} << 32;
            const auto* whole = reinterpret_cast<const ulonglong2*>(from);
            for (uint32_t first = lane; first < pairs; first += 4 * 32) {
                ulonglong2 pair[4];  // on their way at one time
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (first + j * 32 < pairs) pair[j] = __ldcs(whole + first + j * 32);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const uint64_t key = (place + 2 * (first + j * 32)) * HASH_PLACE;
                    if (first + j * 32 < pairs)
                        sum += mix(pair[j].x ^ key) + mix(pair[j].y ^ (key + HASH_PLACE));
                }
            }
            const auto* half = reinterpret_cast<const uint16_t*>(from);
            for (uint32_t i = 2 * pairs + lane; i < words; i += 32) {
                uint64_t word = 0;
                for (uint64_t at = uint64_t{i} * 4; at < uint64_t{i} * 4 + 4; ++at)
                    if (2 * at < hashed.row_bytes) word |= uint64_t{__ldcs(half + at)} << at % 4 * 16;
                sum += mix(word ^ (place + i) * HASH_PLACE);
            }
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(~0u, sum, lanes);
        if (lane == 0 && sum != 0) atomicAdd(out + hashed.group, sum);
    }
}
