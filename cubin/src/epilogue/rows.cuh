// The row side: from sums to D for every tile that is not plain. Sums cross the staging buffers as they
// are; alpha, beta C, conversion and the stores come behind, where a thread has neighbours of one row.
#pragma once

#include <cstdint>

#include "epilogue/fused.cuh"
#include "epilogue/gate.cuh"
#include "epilogue/output.cuh"
#include "epilogue/source.cuh"
#include "epilogue/staging.cuh"
#include "epilogue/target.cuh"
#include "ptx/barriers.cuh"
#include "ptx/memory.cuh"
#include "ptx/registers.cuh"
#include "records.cuh"

// Rows at or below a thread's place: of its first column, and of the one 32 staged columns further on.
struct Left {
    int first, second;
    __device__ __forceinline__ Left(int rows, const StagedColumns& columns, uint32_t own)
        : first(columns.left(own) > 0 ? rows : 0), second(columns.left(own + 32) > 0 ? rows : 0) {}
    __device__ __forceinline__ void advance(int rows) {
        first -= rows;
        second -= rows;
    }
};

// How a warpgroup's threads share out 64 columns of staged rows where rows of C and D consist of whole
// words of four elements: each takes one such word of every eighth row.
template <class Output, class Source>
struct Quads {
    static constexpr uint32_t step = 8, elements = 4;
    static constexpr uint32_t registers = Source::registers;  // for C's part of one row

    static __device__ __forceinline__ uint32_t row(uint32_t thread) { return thread / 16; }
    static __device__ __forceinline__ uint32_t column(uint32_t thread) { return thread % 16 * 4; }

    static __device__ __forceinline__ void load(uint32_t* bits, uint64_t at, uint64_t,
                                                const Left& left, int row, bool) {
        Source::load(bits, at, row < left.first);
    }

    template <uint32_t buffer_rows>
    static __device__ __forceinline__ void read(float (&sums)[elements], uint32_t buffer,
                                                uint32_t thread, uint32_t row) {
        ptx::load_shared(sums, place<buffer_rows>(buffer, thread, row));
    }
    template <uint32_t buffer_rows>
    static __device__ __forceinline__ void write(const float (&x)[elements], uint32_t buffer,
                                                 uint32_t thread, uint32_t row) {
        ptx::store_shared(place<buffer_rows>(buffer, thread, row), x);
    }
    template <uint32_t buffer_rows>
    static __device__ __forceinline__ uint32_t place(uint32_t buffer, uint32_t thread,
                                                     uint32_t row) {
        const uint32_t own = thread / 16, word = thread % 16;
        return buffer + (word / 8 * buffer_rows + own) * 128 + ((word ^ own) % 8) * 16 + row * 128;
    }

    static __device__ __forceinline__ float value(const uint32_t* bits, int i,
                                                  const Decoder& decoder) {
        return Source::value(bits, i, decoder);
    }

    static __device__ __forceinline__ void store(uint64_t to, const Left& left, int row,
                                                 const float (&x)[elements]) {
        store_four<Output>(to, x, row < left.first);
    }
};

// Where they do not: a warp takes every fourth row, element by element, so that it still reads and writes
// runs of 32.
template <class Output>
struct Elements {
    static constexpr uint32_t step = 4, elements = 2;
    static constexpr uint32_t registers = 2;

    static __device__ __forceinline__ uint32_t row(uint32_t thread) { return thread / 32; }
    static __device__ __forceinline__ uint32_t column(uint32_t thread) { return thread % 32; }

    static __device__ __forceinline__ void load(uint32_t* bits, uint64_t at, uint64_t far,
                                                const Left& left, int row, bool f32) {
        if (f32) {
            bits[0] = ptx::load_32(at, row < left.first);
            bits[1] = ptx::load_32(at + far, row < left.second);
        } else {
            bits[0] = ptx::load_16(at, row < left.first);
            bits[1] = ptx::load_16(at + far, row < left.second);
        }
    }

    template <uint32_t buffer_rows>
    static __device__ __forceinline__ void read(float (&sums)[elements], uint32_t buffer,
                                                uint32_t thread, uint32_t row) {
        const uint32_t from = place(buffer, thread, row);
        sums[0] = __uint_as_float(ptx::load_shared_32(from));
        sums[1] = __uint_as_float(ptx::load_shared_32(from + buffer_rows * 128));
    }
    template <uint32_t buffer_rows>
    static __device__ __forceinline__ void write(const float (&x)[elements], uint32_t buffer,
                                                 uint32_t thread, uint32_t row) {
        const uint32_t to = place(buffer, thread, row);
        ptx::store_shared(to, x[0]);
        ptx::store_shared(to + buffer_rows * 128, x[1]);
    }
    static __device__ __forceinline__ uint32_t place(uint32_t buffer, uint32_t thread,
                                                     uint32_t row) {
        const uint32_t own = thread / 32, lane = thread % 32;
        const uint32_t swizzled = ((lane / 4) ^ own) * 16 ^ row % 8 * 16;
        return buffer + own * 128 + swizzled + lane % 4 * 4 + row * 128;
    }

    static __device__ __forceinline__ float value(const uint32_t* bits, int i,
                                                  const Decoder& decoder) {
        return decoder.element(bits[i]);
    }

    static __device__ __forceinline__ void store(uint64_t to, const Left& left, int row,
                                                 const float (&x)[elements]) {
        if constexpr (Output::half) {
            const uint32_t pair = Output::pack(x[0], x[1]);
            ptx::store_16(to, pair, row < left.first);
            ptx::store_16(to + 64, pair >> 16, row < left.second);
        } else {
            ptx::store_32(to, __float_as_uint(x[0]), row < left.first);
            ptx::store_32(to + 128, __float_as_uint(x[1]), row < left.second);
        }
    }
};

// How many of `units` rows of a thread have C on its way at one time: a part of them that `registers` hold.
__host__ __device__ constexpr int batch_of(int units, int step, int each, int registers) {
    int batch = units;
    while (units % batch != 0 || batch * step % 8 != 0 || batch * each > registers) --batch;
    return batch;
}

// How C and D are met: element by element, or in words of four with a C of two or of four bytes each.
enum class Mode { elements, words16, words32 };

// D of a warpgroup's share of a tile that is not plain: `blocks` times 64 columns from `column()` on, of which
// `sums` has 2 * count rows. Sums are staged chunk by chunk, and C of a chunk is asked for before that.
// Registers can only be told apart at compile time, so that all chunks stand in the loop over them, each
// taking its turn; what comes behind the barrier stands there once. Each thread reads C before it writes D
// at the same places, which may be the same memory. `registers` hold C on its way.
//
// What a group has fused behind that comes last, in a loop of its own over the staged chunk, into which C has
// then been added in place. Numbers of a bias are put beside every chunk.
template <int registers, class Output, int blocks, int count, class Column, int buffers, int bytes>
__device__ __forceinline__ void store_rows(const float (&sums)[blocks][count], const Tile& tile,
                                           const Column& column, const TargetD& target,
                                           const SourceC& source, const Fused& fused,
                                           Staging<buffers, bytes>& staging,
                                           BiasLines<buffers>& lines, uint32_t& turn,
                                           uint32_t consumer) {
    constexpr uint32_t width = 2 * count, rows = bytes / 256;
    constexpr uint32_t chunks = (width + rows - 1) / rows;
    using Narrow = Elements<Output>;
    using Wide16 = Quads<Output, Words16>;
    using Wide32 = Quads<Output, Words32>;
    const auto height_of = [&] { return static_cast<int>(min(tile.width, target.m - tile.m0)); };
#pragma unroll 1
    for (uint32_t block = 0; block < blocks; ++block) {
#pragma unroll 1
        for (uint32_t begin = 0; static_cast<int>(begin) < height_of(); begin += rows) {
            // All this anew for every chunk, and some again behind its barrier: beside the sums of two
            // blocks there is no room to keep it.
            const auto adds = [&] { return tile.beta != 0.0f; };
            const int height = height_of();
            const uint32_t d_count = fused.gate == GATE_NONE ? target.n : target.n / 2;
            const bool wide =
                (target.ld | d_count) % 4 == 0 && target.address % (4 * Output::size) == 0 &&
                (!adds() || ((source.row_bytes | source.address) % (4 * source.bytes())) == 0);
            const Mode mode = !wide                               ? Mode::elements
                              : adds() && source.type == TYPE_F32 ? Mode::words32
                                                                  : Mode::words16;
            const uint32_t thread = ptx::opaque(threadIdx.x % 128);
            const StagedColumns columns(fused.gate, column() + block * 64, target.n);
            uint32_t bits[registers] = {};
            uint64_t from = 0;
            const auto row_of = [&](uint32_t thread) {
                return mode == Mode::elements ? Narrow::row(thread) : Wide16::row(thread);
            };
            const auto column_of = [&](uint32_t thread) {
                return mode == Mode::elements ? Narrow::column(thread) : Wide16::column(thread);
            };
            const auto fetch = [&](auto lanes, const Left& left) {
                using Lanes = decltype(lanes);
                constexpr int units = rows / Lanes::step,
                              batch = batch_of(units, Lanes::step, Lanes::registers, registers);
                const uint64_t from_step = Lanes::step * source.row_bytes;
                const uint64_t far = StagedColumns(fused.gate, 0, target.n).far() *
                                     uint64_t{source.bytes()};
                const auto load = [&](bool f32) {
#pragma unroll
                    for (int u = 0; u < batch; ++u) {
                        Lanes::load(&bits[u * Lanes::registers], from, far, left, u * Lanes::step,
                                    f32);
                        from += from_step;
                    }
                };
                if constexpr (Lanes::elements == 2) {
                    if (source.type == TYPE_F32) {
                        load(true);
                        return;
                    }
                }
                load(false);
            };
            const auto finish = [&](auto lanes, uint32_t buffer, uint32_t thread, Left left,
                                    uint64_t to) {
                using Lanes = decltype(lanes);
                constexpr int units = rows / Lanes::step,
                              batch = batch_of(units, Lanes::step, Lanes::registers, registers);
                const float alpha = tile.alpha, beta = tile.beta;
                const bool sums_up = adds(), fuses = fused.any();
                const Decoder decoder(source.type);
                const uint64_t to_step = Lanes::step * target.ld * Output::size;
#pragma unroll 1
                for (uint32_t done = 0;;) {
#pragma unroll
                    for (int u = 0; u < batch; ++u) {
                        float x[Lanes::elements];
                        const uint32_t at = buffer + done * Lanes::step * 128;
                        Lanes::template read<rows>(x, at, thread, u * Lanes::step);
#pragma unroll
                        for (int i = 0; i < Lanes::elements; ++i) {
                            x[i] *= alpha;
                            const float sum = fmaf(
                                beta, Lanes::value(&bits[u * Lanes::registers], i, decoder), x[i]);
                            x[i] = sums_up ? sum : x[i];
                        }
                        if (fuses)
                            Lanes::template write<rows>(x, at, thread, u * Lanes::step);
                        else
                            Lanes::store(to, left, u * Lanes::step, x);
                        to += to_step;
                    }
                    left.advance(batch * Lanes::step);
                    if (batch == units || (done += batch) == units) break;
                    if (sums_up) fetch(lanes, left);
                }
            };
            if (adds()) {
                const Left left(height - begin - row_of(thread), columns, column_of(thread));
                from = source.address + (tile.m0 + begin + row_of(thread)) * source.row_bytes +
                       columns.of_x(column_of(thread)) * uint64_t{source.bytes()};
                switch (mode) {
                    case Mode::elements: fetch(Narrow(), left); break;
                    case Mode::words16: fetch(Wide16(), left); break;
                    case Mode::words32: fetch(Wide32(), left); break;
                }
            }
            uint32_t bias_bits = 0;
            if (fused.bias.along != BIAS_NONE && thread < 64) {
                const bool along_n = fused.bias.along == BIAS_N;
                bias_bits = fused.bias.load(
                    along_n ? columns.of_x(thread) : tile.m0 + begin + thread,
                    along_n ? columns.left(thread) > 0
                            : thread < rows && static_cast<int>(begin + thread) < height);
            }
            const uint32_t slot = turn++ % buffers;
            const uint32_t buffer = ptx::opaque(ptx::shared_address(staging[slot]));
            if constexpr (buffers == 1)
                ptx::warpgroup_sync(consumer);  // all have read what was in it
            const Corners corners(buffer, thread, rows);
#pragma unroll
            for (uint32_t chunk = 0; chunk < blocks * chunks; ++chunk) {
                if (block != chunk / chunks || begin != chunk % chunks * rows) continue;
#pragma unroll
                for (uint32_t r = 0; r < rows && chunk % chunks * rows + r < width; r += 16) {
                    float values[8];
#pragma unroll
                    for (int i = 0; i < 8; ++i)
                        values[i] = sums[chunk / chunks][(chunk % chunks * rows + r) / 2 + i];
                    stage_sums(corners, r, values);
                }
            }
            const uint32_t line = ptx::shared_address(lines[slot]);
            if (fused.bias.along != BIAS_NONE && thread < 64)
                ptx::store_shared(line + thread * 4, fused.bias.value(bias_bits));
            ptx::warpgroup_sync(consumer);
            if (adds() || !fused.any()) {
                const uint32_t thread = ptx::opaque(threadIdx.x % 128);
                const StagedColumns columns(fused.gate, column() + block * 64, target.n);
                const Left left(height_of() - begin - row_of(thread), columns, column_of(thread));
                const uint64_t row = tile.m0 + begin + row_of(thread);
                const uint64_t to = target.address + (row * target.ld +
                                                      columns.of_x(column_of(thread))) *
                                                         Output::size;
                switch (mode) {
                    case Mode::elements: finish(Narrow(), buffer, thread, left, to); break;
                    case Mode::words16: finish(Wide16(), buffer, thread, left, to); break;
                    case Mode::words32: finish(Wide32(), buffer, thread, left, to); break;
                }
            }
            if (fused.any()) {
                __syncwarp();
                store_fused<Output, rows>(buffer, line, ptx::opaque(threadIdx.x % 128), fused, target,
                                          column() + block * 64, tile.m0 + begin,
                                          min(height_of() - int(begin), int(rows)),
                                          adds() ? 1.0f : tile.alpha, mode != Mode::elements);
            }
        }
    }
}
