// A place in a ring of STAGES slots, and the parity of its phase.
#pragma once
#include "ptx.cuh"

struct Slot {
    u32 index = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++index == STAGES) {
            index = 0;
            parity ^= 1;
        }
    }
};
