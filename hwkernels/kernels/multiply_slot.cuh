// The multiplications of a slot whose operands lie in shared memory, 128 bytes of K: K_STEPS instructions.
#pragma once
#include "tcgen05_ring.cuh"

// By one thread. `first`: the accumulator is not read, whatever it holds.
__device__ __forceinline__ void multiply_slot(u32 accumulator, u32 slot, bool first) {
    const u64 at = address_field(slot);
#pragma unroll
    for (u32 j = 0; j < K_STEPS; ++j) {
        tcgen05_mma(accumulator, DESCRIPTOR_A + at + ADVANCE_A[j], DESCRIPTOR_B + at + ADVANCE_B[j], INSTRUCTION_DESCRIPTOR[j],
                    !first || j > 0);
    }
}
