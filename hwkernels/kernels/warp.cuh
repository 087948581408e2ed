// What a warp does with shared memory before sm_90: ldmatrix, cp.async. One wrapper, one instruction.
#pragma once
#include "ptx.cuh"

// Four 8 x 8 matrices of 16 bits (rows of 16 bytes); lane 8i + r gives the address of row r of matrix i.
__device__ __forceinline__ void ldmatrix(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ void ldmatrix_transposed(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

// 16 bytes to shared memory, of which `valid` come from global memory and the rest are zeros. Both addresses are aligned.
__device__ __forceinline__ void async_copy(u32 to, const u8* from, u32 valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
}

__device__ __forceinline__ void async_copy(u32 to, const u8* from) {  // all 16
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void async_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void async_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ u32 valid_bytes(s64 bytes) {  // of a chunk of 16
    return bytes >= 16 ? 16 : bytes > 0 ? static_cast<u32>(bytes) : 0;
}
