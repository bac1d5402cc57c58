// The variant that is compiled: what cubin/build.py defines, and what follows from it.
#pragma once

#include "epilogue/output.cuh"
#include "ptx/wgmma.cuh"
#include "residues.cuh"
#include "unaligned.cuh"

struct Config {
    using Output = OUTPUT;
    static constexpr int consumers = CONSUMERS;  // warpgroups that multiply
    // Whether each has tiles of its own, so that one multiplies while the other stores (pingpong), or they
    // share every tile (cooperative).
    static constexpr bool pingpong = PINGPONG;
    // Whether an operand lies MN-major: K is not the contiguous dimension of A, or of B.
    static constexpr bool a_across = A_ACROSS;
    static constexpr bool b_across = B_ACROSS;
    // Whether D lies by columns: its contiguous dimension is wgmma's N. There alpha A B is all that D can be,
    // in whole 16-byte words.
    static constexpr bool d_across = D_ACROSS;
    // Whether rows of a K-major B begin anywhere: two warps copy them, and they pass through registers into the
    // multiplications, which A is woven for (unaligned.cuh).
    static constexpr bool b_unaligned = B_UNALIGNED;
    // Whether rows of A may come shuffled, so that sums are D as they are (epilogue/shuffled.cuh), and how many then
    // are a run. Where warpgroups take turns and D has 16 bits it gains nothing.
    static constexpr bool shuffles = d_across && !a_across && !(PINGPONG && Output::half);
    static constexpr int run = SHUFFLED_BYTES / Output::size;
    static constexpr int max_width = MAX_WIDTH;
    static constexpr int ring_bytes = RING_BYTES;    // for stages of A and B
    static constexpr int most_stages = MOST_STAGES;  // of the narrowest tiles
    static constexpr int cluster = CLUSTER;  // CTAs side by side along N, which share A
    // CTAs that share a tile's K: each multiplies a part of it, and the first adds up what the others send (gather.cuh).
    static constexpr int k_parts = K_PARTS;
    static constexpr int ctas = cluster * k_parts;  // that tiles are handed out to together
    static constexpr int ctas_per_sm = CTAS_PER_SM;
    static constexpr int shared_bytes = SHARED_BYTES;
    static constexpr int control_bytes = CONTROL_BYTES;  // of these, for records and barriers
    static constexpr int buffers = STAGING_BUFFERS;      // for each consuming warpgroup
    static constexpr int staging_bytes = STAGING_BYTES;  // of one buffer
    // Registers of a thread that loads and of one that multiplies; 0: all as they were compiled.
    static constexpr int loader_registers = LOADER_REGISTERS;
    static constexpr int consumer_registers = CONSUMER_REGISTERS;

    static constexpr int rows = ROWS;       // of B in a tile
    static constexpr int parts = rows / 64;  // of a tile: what one warpgroup multiplies at one time
    static constexpr int blocks = pingpong ? parts : 1;  // of these, for each warpgroup
    static constexpr int warps = pingpong ? 4 : 4 * consumers;  // that share a tile
    static constexpr int threads = 128 * (1 + consumers);
    // Threads that load. Only one does unless tiles say TILE_LOADED_BY_TWO; where four CTAs share K two gain nothing.
    static constexpr int loaders = consumers == 1 && ctas_per_sm == 1 && k_parts <= 2 ? 2 : 1;
    static constexpr int copying = b_unaligned ? 64 : 0;  // threads that copy B
    // How beta C may be in the sums. They begin with it where warpgroups take turns: then it comes before the operands.
    static constexpr bool c_first = pingpong && Output::half && !d_across;
    // Where a warpgroup has a tile alone it comes between two slices of K, behind so many.
    static constexpr bool c_between = consumers == 1 && Output::half && !d_across;
    static constexpr uint32_t slices_before_c = 4;
    // Where they share tiles it comes by the staging buffers (staged.cuh).
    static constexpr bool c_staged = !pingpong && consumers > 1 && Output::half && !d_across && !b_unaligned;
    // Whether a bias may join the sums. Where warpgroups share tiles the main loop would take an
    // instruction more for it.
    static constexpr bool joins = pingpong && !d_across;
    // Whether one along n may be added as alpha is multiplied: a thread holds two of its numbers meanwhile.
    static constexpr bool scales_bias = !pingpong && !d_across;
    // Whether what is not plain, but has whole words and no gate, leaves by the store of plain tiles, which then jump
    // over what it has in front of that: where warpgroups share tiles that costs short K 3 to 9%.
    static constexpr bool one_store = consumers == 1;
    static constexpr bool gelu_in_pieces = !pingpong && ctas_per_sm == 1;  // activation.cuh
    // Whether there is code for what is fused at some widths between multiples of FUSED_STEP, too (consume.cuh).
    static constexpr bool fuses_finer = consumers > 1 && !pingpong && !a_across && !b_unaligned;
    // Whether the L2 may add alpha A B to D, and whether TMA may store it.
    static constexpr bool adds = !Output::half && !d_across;
    static constexpr bool boxes = adds && pingpong;
    static constexpr int row_bytes = K_TILE * 2;
    static constexpr int b_bytes = rows * (b_unaligned ? UNALIGNED_ROW_BYTES : row_bytes);
    static constexpr int stage_bytes = b_bytes + max_width * row_bytes;  // of the widest tiles
    static constexpr int stages = ring_bytes / stage_bytes;              // likewise

    // Where K lies across, a stage has boxes of BOX_ROWS rows by K_TILE, one k a line.
    static constexpr int box_bytes = BOX_ROWS * 2 * K_TILE;

    static_assert(!b_unaligned || (!pingpong && !a_across && !b_across && !d_across),
                  "there is one block of sums, and A is K-major");
    static_assert(b_bytes % 1024 == 0, "A begins where the swizzle does");
    static_assert(row_bytes == 128, "a stage's rows are as long as the span of the swizzle");
    static_assert(BOX_ROWS * 2 == 128, "and so are the lines of operands that K lies across");
    static_assert(K_TILE / cluster % 8 == 0, "a CTA's share of K begins where the swizzle does");
    static_assert(max_width % WIDTH_STEP == 0 && max_width <= WIDTHS * WIDTH_STEP,
                  "the kernel has a main loop for these widths");
    static_assert(most_stages * (b_bytes + WIDTH_STEP * row_bytes) <= ring_bytes, "all fit");
    static_assert(!pingpong || stages > 2 * (rows / 64),
                  "all of a C of 32 bits fits beside the stage that is multiplied last");
    static_assert(RESIDUES * residue_pitch(max_width) <= stage_bytes, "C by residues is longer");
    static_assert(pingpong || consumers == parts, "each has a part of the tile");
    static_assert(!c_staged || buffers * staging_bytes == STAGED_ROWS * row_bytes, "they have a piece of C");
    static_assert(parts * cluster <= FLAGS_PER_TILE, "each part has a flag of its own");
    static_assert(cluster == 1 || cluster == 2, "larger clusters leave SMs idle on an H200");
    static_assert(k_parts == 1 || (cluster == 1 && consumers == 1), "one warpgroup has all sums of a CTA");
};
