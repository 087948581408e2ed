// From accumulators to the output: d = alpha * (a b) + beta * c, rounded once to the output's format.
#pragma once
#include "ptx.cuh"

// The kernel's macros: OUT_F32, OUT_F16, OUT_BF16 or OUT_S32; SCALED when alpha or beta differ from 1 and 0.
#if defined(OUT_F16) || defined(OUT_BF16)
using output_t = u16;
#elif defined(OUT_S32)
using output_t = s32;
#else
using output_t = float;
#endif

#ifdef OUT_S32
using scale_t = s32;
#else
using scale_t = float;
#endif

// What every kernel is told; hwkernels/gemm/call.py packs the same fields. Leading dimensions count elements.
struct Problem {
    const void* a;
    const void* b;
    const void* c;
    void* d;
    s64 lda, ldb, ldc, ldd;
    s32 m, n, k;
    s32 group;  // rows of tiles that are worked on together
    scale_t alpha, beta;
};

__device__ __forceinline__ scale_t widened(output_t code) {
#if defined(OUT_F16)
    return from_f16(code);
#elif defined(OUT_BF16)
    return __uint_as_float(static_cast<u32>(code) << 16);
#else
    return code;
#endif
}

// One product, rounded to f32; then one fused multiply-add with c. Integers wrap.
__device__ __forceinline__ scale_t scaled(scale_t value, const Problem& problem, s32 row, s32 column) {
#ifdef SCALED
    value = problem.alpha * value;
    if (problem.c != nullptr && row < problem.m && column < problem.n) {
        const scale_t c = widened(static_cast<const output_t*>(problem.c)[row * problem.ldc + column]);
#ifdef OUT_S32
        value += problem.beta * c;
#else
        value = __fmaf_rn(problem.beta, c, value);
#endif
    }
#endif
    return value;
}

#if defined(OUT_F16) || defined(OUT_BF16)
__device__ __forceinline__ u32 packed(float low, float high) {  // two outputs in a register, to nearest even
#ifdef OUT_F16
    return f16_pair(low, high);
#else
    return bf16_pair(low, high);
#endif
}
#endif

// Two neighbouring outputs, straight to global memory; what lies outside is dropped.
__device__ __forceinline__ void store_pair(const Problem& problem, s32 row, s32 column, scale_t low, scale_t high) {
    if (row >= problem.m || column >= problem.n) return;
    low = scaled(low, problem, row, column);
    high = scaled(high, problem, row, column + 1);
    output_t* place = static_cast<output_t*>(problem.d) + row * problem.ldd + column;
#if defined(OUT_F16) || defined(OUT_BF16)
    const u32 pair = packed(low, high);
    if (column + 1 < problem.n && (reinterpret_cast<u64>(place) & 3) == 0) {
        *reinterpret_cast<u32*>(place) = pair;
    } else {
        place[0] = static_cast<u16>(pair);
        if (column + 1 < problem.n) place[1] = static_cast<u16>(pair >> 16);
    }
#else
    if (column + 1 < problem.n && (reinterpret_cast<u64>(place) & 7) == 0) {
        struct alignas(8) Pair { scale_t low, high; };
        *reinterpret_cast<Pair*>(place) = Pair{low, high};
    } else {
        place[0] = low;
        if (column + 1 < problem.n) place[1] = high;
    }
#endif
}

// The 64 x N accumulator of a warpgroup: register 8g + 4h + 2i + j of a thread is row 16 warp + lane / 4 + 8i, column 16g + 8h + 2 (lane % 4) + j.
template <int N>
__device__ __forceinline__ void store_accumulator(const Problem& problem, s32 row, s32 column, scale_t (&d)[N]) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    row += 16 * warp + lane / 4;
    column += 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        store_pair(problem, row, column + 2 * i, d[i], d[i + 1]);
        store_pair(problem, row + 8, column + 2 * i, d[i + 2], d[i + 3]);
    }
}
