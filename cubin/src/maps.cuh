// The tensor maps of a launch: where those of a group are, and what has to come before they are used.
//
// Maps that a kernel has written have to be taken into use (PTX ISA 9.0, fence.proxy.tensormap), which makes this SM
// and its neighbours forget them: 0.5 us of a launch, and 300 cycles wherever a group begins (docs/kernel.md). What is
// in constant memory nobody writes while a kernel runs, so maps are used there as they are. The host copies
// those there that find room.
#pragma once

#include "ptx/tensor_map.cuh"
#include "records.cuh"

extern "C" __constant__ TensorMap constant_maps[CONSTANT_MAPS];

// Whether the maps of a group are there.
__device__ __forceinline__ bool constant(const Params& params, uint32_t group) {
    return group < params.constants.groups;
}

__device__ __forceinline__ const Maps& maps_of(const Params& params, uint32_t group) {
    const ConstantMaps& there = params.constants;
    if (!constant(params, group)) return params.maps[group];
    return reinterpret_cast<const Maps&>(constant_maps[there.first + group * there.each]);
}

// Takes those of A and B of a group into use.
template <class C>
__device__ __forceinline__ void acquire_operands(const Params& params, uint32_t group) {
    if (constant(params, group)) return;
    ptx::tensor_map_acquire(&params.maps[group].a);
    if constexpr (!C::b_unaligned) ptx::tensor_map_acquire(&params.maps[group].b);
}

// And that of C, or of a D that leaves by TMA.
__device__ __forceinline__ void acquire_c(const Params& params, uint32_t group) {
    if (!constant(params, group)) ptx::tensor_map_acquire(&params.maps[group].c);
}

// Asks for all that some tile of the launch uses of a group's, if that does not make them forgotten again.
template <class C>
__device__ __forceinline__ void prefetch_maps(const Params& params, uint32_t group) {
    if (!constant(params, group)) return;
    const Maps& maps = maps_of(params, group);
    if constexpr (!C::b_unaligned) ptx::tensor_map_prefetch(&maps.b);
    ptx::tensor_map_prefetch(&maps.a);
    if (params.constants.each == MAPS) ptx::tensor_map_prefetch(&maps.c);
}
