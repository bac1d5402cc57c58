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
    uint64_t woven;  // whether its lines are woven, and filled up with zeros; then words come by eights
};
static_assert(sizeof(Pack) == 56, "the layout of gemmctl's PACK");

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

// A word of elements of 16 bits without those behind the first `wanted` bytes, which may be less than none.
__device__ __forceinline__ uint4 cut_off(const uint4& word, int64_t wanted) {
    const auto keep = [&](uint32_t bits, int at) {
        return wanted >= at + 4 ? bits : wanted >= at + 2 ? bits & 0xFFFF : 0;
    };
    return {keep(word.x, 0), keep(word.y, 4), keep(word.z, 8), keep(word.w, 12)};
}

// Weaves 128 bytes, of which eight lanes have a word each. Each quarter of them is a thread's to multiply
// (held.cuh), and of its eight words of 4 bytes one goes to each word here: so the words of lanes with the same
// last bit change places as rows and columns of a matrix do, by twos and then one by one.
__device__ __forceinline__ uint4 weave(const uint4& word) {
    const uint32_t lanes = 0xFFu << threadIdx.x % 32 / 8 * 8;
    const bool lower = threadIdx.x & 4, odd = threadIdx.x & 2;  // of its row
    const auto change = [&](uint32_t& one, uint32_t& other, bool first, int with) {
        const uint32_t got = __shfl_xor_sync(lanes, first ? one : other, with);
        (first ? one : other) = got;
    };
    uint32_t w[4] = {word.x, word.y, word.z, word.w};
    change(w[0], w[2], lower, 4);
    change(w[1], w[3], lower, 4);
    change(w[0], w[1], odd, 2);
    change(w[2], w[3], odd, 2);
    return {w[0], w[1], w[2], w[3]};
}

// The quotient of numbers that hardly ever need 64 bits.
__device__ __forceinline__ uint64_t divide(uint64_t value, uint64_t by) {
    if ((value | by) >> 32) return value / by;
    return static_cast<uint32_t>(value) / static_cast<uint32_t>(by);
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
    const auto words_per_line = [&]() -> uint64_t {
        const uint32_t step = pack.woven ? 128 : 16;
        return (pack.line_bytes + step - 1) / step * (step / 16);
    };
    uint64_t per_line = words_per_line();
    for (; word < end; word += PACK_THREADS) {
        if (word >= pack.end) {
            while (word >= pack.end) pack = packs[++at];
            per_line = words_per_line();
        }
        const uint64_t within = word - pack.first, line = divide(within, per_line);
        const uint64_t byte = (within - line * per_line) * 16;
        const int64_t left = pack.line_bytes - byte;
        uint4 copy = {};
        if (left > 0) copy = load_shifted(pack.source + line * pack.pitch_bytes + byte, min(left, int64_t{16}));
        uint64_t place = within;
        if (pack.woven) {
            if (left < 16) copy = cut_off(copy, left);
            copy = weave(copy);
            place = within / 8 * 8 + within % 2 * 4 + within % 8 / 2;
        }
        ptx::store_128(pack.to + place * 16, copy);
    }
}
