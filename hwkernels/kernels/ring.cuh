// Where a thread is in a ring of STAGES slots that others fill or empty.
#pragma once
#include "ptx.cuh"

struct Slot {  // a place in the ring, and the parity of its phase
    u32 index = 0, parity = 0;
    __device__ __forceinline__ void advance() {
        if (++index == STAGES) {
            index = 0;
            parity ^= 1;
        }
    }
};
