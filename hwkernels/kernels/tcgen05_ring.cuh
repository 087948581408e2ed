// A ring of slots in shared memory with two barriers for each, and Tensor Memory: what the tcgen05 kernels set up alike.
//     full[slot]:  the slot's bytes have come.           TMA -> the multiplying thread
//     empty[slot]: the slot's multiplications are done.  tcgen05.commit -> the loading thread, of each block
#pragma once
#include "tcgen05.cuh"
#include "multiply.cuh"  // the instructions and their constants, written by the host

struct Ring {
    u32 slots, full, empty;  // shared addresses; the same offsets in every block of a cluster
    u32 behind;              // the first address behind them
};

template <u32 SLOT_BYTES>
__device__ __forceinline__ Ring ring_in(const u8* dynamic) {
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1), full = slots + STAGES * SLOT_BYTES;
    return Ring{slots, full, full + 8 * STAGES, full + 16 * STAGES};
}

// By one thread: each phase of `full` takes one announcement, each of `empty` one commit. Other barriers are initialised before.
__device__ __forceinline__ void ring_init(const Ring& ring, const TensorMap* map_a, const TensorMap* map_b) {
    for (u32 slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(ring.full + 8 * slot, 1);
        mbarrier_init(ring.empty + 8 * slot, 1);
    }
    mbarrier_init_fence();
    tma_prefetch_map(map_a);
    tma_prefetch_map(map_b);
}

// A place in a ring, and the parity of the phase that is waited for there. Who fills slots begins with parity 1, of the phase before the
// first: a new barrier counts as past it.
struct Cursor {
    u32 place, parity;
    template <u32 COUNT>
    __device__ __forceinline__ void advance() {
        if (++place == COUNT) place = 0, parity ^= 1;
    }
};

// ---- all threads of the block, or of the pair of blocks

template <int GROUP>  // what threads did with Tensor Memory before is done for all threads behind this
__device__ __forceinline__ void tcgen05_sync() {
    tcgen05_before_sync();
    if constexpr (GROUP == 2) cluster_sync();
    else __syncthreads();
    tcgen05_after_sync();
}

// The address of columns that one warp, the `owner`, allocates, through shared memory at `place`. Barriers that were initialised before exist behind.
template <int GROUP>
__device__ __forceinline__ u32 open_tensor_memory(u32 place, bool owner) {
    __syncwarp();
    if (owner) tmem_allocate<GROUP>(place, TMEM_COLUMNS);  // of a pair, a warp of each block, together
    tcgen05_sync<GROUP>();
    return load_shared(place);
}

// The same warp frees them when all have read. Of a pair, nobody reads or signals the other block's shared memory any more.
template <int GROUP>
__device__ __forceinline__ void close_tensor_memory(u32 address, bool owner) {
    __syncwarp();
    tcgen05_sync<GROUP>();
    __syncwarp();
    if (owner) tmem_free<GROUP>(address, TMEM_COLUMNS);
}
