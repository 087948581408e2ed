// The PTX of the Blackwell kernels: Tensor Memory, tcgen05's fences and commits, loads that a pair of blocks shares.
// One wrapper, one instruction; GROUP is 1, or 2 for a pair of blocks. tcgen05.mma itself is in multiply.cuh.
#pragma once
#include "ptx.cuh"

constexpr u32 ROW_OF_LANES = 32u << 16;  // Tensor Memory address of lane 32: bits 31-16 are the lane, 15-0 the column

// ---- who owns Tensor Memory: one warp of each block allocates, and the same warp frees

template <int GROUP>  // all lanes of the warp; the address is written to shared memory
__device__ __forceinline__ void tmem_allocate(u32 place, u32 columns) {
    if constexpr (GROUP == 2) {
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(place), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
    } else {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(place), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    }
}

template <int GROUP>
__device__ __forceinline__ void tmem_free(u32 address, u32 columns) {
    if constexpr (GROUP == 2) {
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
    } else {
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
    }
}

// ---- order: what a thread did with Tensor Memory before it met others, and what it does after

__device__ __forceinline__ void tcgen05_before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tcgen05_after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// The barrier is arrived at once when all multiplications and copies that this thread issued before are done.
__device__ __forceinline__ void tcgen05_commit(u32 barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
}

// The same for a pair: at this place in every block whose bit is set in `blocks`.
__device__ __forceinline__ void tcgen05_commit_pair(u32 barrier, u16 blocks) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier),
        "h"(blocks)
        : "memory");
}

// ---- addresses in a cluster

__device__ __forceinline__ u32 address_in(u32 shared, u32 rank) {  // the same place in a block of the cluster
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
    return remote;
}

// Loads into this block's shared memory whose bytes are counted by a barrier of either block of the pair (`barrier`: a
// shared::cluster address).
__device__ __forceinline__ void tma_load_pair(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// Arrival at a barrier of another block, which sees what this thread did before.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void mbarrier_wait_cluster(u32 barrier, u32 parity) {  // for arrivals from other blocks
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- Tensor Memory to registers: lane i of the warp reads lane i of the address, 32 columns. All lanes of the warp.
// A warp reads its own quarter only: lanes 32 (warp % 4) to 32 (warp % 4) + 31.

__device__ __forceinline__ void tmem_load(u32 (&d)[32], u32 address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]), "=r"(d[4]), "=r"(d[5]), "=r"(d[6]), "=r"(d[7]), "=r"(d[8]),
          "=r"(d[9]), "=r"(d[10]), "=r"(d[11]), "=r"(d[12]), "=r"(d[13]), "=r"(d[14]), "=r"(d[15]), "=r"(d[16]), "=r"(d[17]),
          "=r"(d[18]), "=r"(d[19]), "=r"(d[20]), "=r"(d[21]), "=r"(d[22]), "=r"(d[23]), "=r"(d[24]), "=r"(d[25]),
          "=r"(d[26]), "=r"(d[27]), "=r"(d[28]), "=r"(d[29]), "=r"(d[30]), "=r"(d[31])
        : "r"(address)
        : "memory");
}

// Until the loads of this thread are done; the registers pass through, so that no use of them moves before.
__device__ __forceinline__ void tmem_load_wait(u32 (&d)[32]) {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
