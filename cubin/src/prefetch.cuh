// The tables on their way into the L2, before anybody asks for them.
#pragma once

#include "ptx/memory.cuh"
#include "records.cuh"

// Two warps that have nothing else to do, in all CTAs together: bring the tables into the L2, as far as
// one line for each thread goes. Otherwise every first use of a record, a map or a group would wait for
// memory, one after the other.
__device__ __forceinline__ void fetch_tables(const Params& params) {
    const uint64_t at = (blockIdx.x * uint64_t{64} + threadIdx.x % 64) * 128;
    if (at < params.tables_bytes) ptx::prefetch(params.tables + at);
}
