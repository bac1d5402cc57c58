// Copies of operands whose lines do not begin on 16-byte boundaries, with lines that do.
#include "ptx/memory.cuh"

// One operand to copy (PACK in gemmctl). A line takes whole 16-byte words of the copy, which have running
// numbers over all operands of a launch: this one's are [first, end).
struct Pack {
    uint64_t source;
    uint64_t pitch_bytes;  // from one line of the source to the next
    uint64_t line_bytes;
    uint64_t to;
    uint64_t first;
    uint64_t end;
};
static_assert(sizeof(Pack) == 48, "the layout of gemmctl's PACK");

// The 16 bytes at `from`, of which `wanted`, at least one, are asked for. It reads the aligned words that
// have any of these, so it never leaves the memory that a line lies in; the rest may be anything.
__device__ __forceinline__ uint4 load_shifted(uint64_t from, uint64_t wanted) {
    const uint32_t off = from % 16;
    const uint4* words = reinterpret_cast<const uint4*>(from - off);
    const uint4 low = __ldg(words);
    const uint4 high = off + wanted > 16 ? __ldg(words + 1) : uint4{};
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    // Indices that are not known to the compiler would put w into local memory.
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = off & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = off & 4 ? w[i + 1] : w[i];
    const uint32_t bits = off % 4 * 8;
    return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
            __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
}

// The first record that ends behind a word.
__device__ __forceinline__ uint32_t record_of(const Pack* packs, uint32_t count, uint64_t word) {
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (word < packs[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// Copies operands, at least one. Every CTA takes an equal share of all words, whichever operands they are
// of: one that is large keeps no CTA longer than others do, and many small ones cost no CTA each.
extern "C" __global__ void __launch_bounds__(PACK_THREADS, PACK_CTAS)
    pack(const Pack* packs, uint32_t count) {
    const uint64_t total = packs[count - 1].end;
    const uint64_t rounds = (total + PACK_THREADS - 1) / PACK_THREADS;
    const uint64_t begin = rounds * blockIdx.x / gridDim.x * PACK_THREADS;
    const uint64_t end = min(total, rounds * (blockIdx.x + 1) / gridDim.x * PACK_THREADS);
    uint64_t word = begin + threadIdx.x;
    if (word >= end) return;
    uint32_t at = record_of(packs, count, word);
    Pack pack = packs[at];
    for (; word < end; word += PACK_THREADS) {
        while (word >= pack.end) pack = packs[++at];
        const uint64_t within = word - pack.first, per_line = (pack.line_bytes + 15) / 16;
        const uint64_t line = within / per_line, byte = (within - line * per_line) * 16;
        const uint64_t from = pack.source + line * pack.pitch_bytes + byte;
        ptx::store_128(pack.to + within * 16, load_shifted(from, min(pack.line_bytes - byte, uint64_t{16})));
    }
}
