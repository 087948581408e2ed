// From Tensor Memory to the output: a thread holds 32 neighbouring columns of one row.
#pragma once
#include "tcgen05.cuh"
#include "epilogue.cuh"

__device__ __forceinline__ scale_t accumulated(u32 word) {
#ifdef OUT_S32
    return static_cast<s32>(word);
#else
    return __uint_as_float(word);
#endif
}

// 32 columns of a row from `column` on; what lies outside of the output is dropped.
__device__ __forceinline__ void store_row(const Problem& problem, s32 row, s32 column, const u32 (&words)[32]) {
    if (row >= problem.m || column >= problem.n) return;
    output_t* place = static_cast<output_t*>(problem.d) + row * problem.ldd + column;
    constexpr int PER_STORE = 16 / sizeof(output_t);
    if (column + 32 <= problem.n && (reinterpret_cast<u64>(place) & 15) == 0) {
#pragma unroll
        for (int i = 0; i < 32; i += PER_STORE) {
            u32 out[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#if defined(OUT_F16) || defined(OUT_BF16)
                const int at = i + 2 * j;
                out[j] = packed(scaled(accumulated(words[at]), problem, row, column + at),
                                scaled(accumulated(words[at + 1]), problem, row, column + at + 1));
#else
                const scale_t value = scaled(accumulated(words[i + j]), problem, row, column + i + j);
                out[j] = reinterpret_cast<const u32&>(value);
#endif
            }
            *reinterpret_cast<uint4*>(place + i) = make_uint4(out[0], out[1], out[2], out[3]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            store_pair(problem, row, column + i, accumulated(words[i]), accumulated(words[i + 1]));
        }
    }
}

// The accumulator of this block, 128 rows of BLOCK_N columns: row r is lane r, column c column c. Four warps, all lanes.
__device__ __forceinline__ void store_tmem_rows(const Problem& problem, u32 accumulator, s32 row, s32 column) {
    const u32 warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    __syncwarp();  // threads leave the wait before one by one, and the loads are for whole warps
#pragma unroll 1
    for (u32 part = 0; part < BLOCK_N; part += 32) {
        u32 words[32];
        tmem_load(words, accumulator + warp * ROW_OF_LANES + part);
        tmem_load_wait(words);
        store_row(problem, row + 32 * warp + lane, column + part, words);
    }
}
