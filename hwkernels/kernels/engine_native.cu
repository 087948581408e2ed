// A whole product, chained along K, of instructions that lower to ordinary arithmetic of f32 or f64: the GPU's own operations, in the same order.
//
// A block computes BLOCK_M x BLOCK_N outputs; SPAN places along K of both operands lie in shared memory as values. INSTRUCTION(first) (constants.cuh,
// generated from the lowering) does every step for all outputs of a thread: EACH(name, value) is a step, OPERANDS(k) fetches its x[] of A and y[] of B.
// Which NaN an f64 result is, the operands say and not the GPU's unit: `engine_mend` writes it afterwards.
#include "engine_exact.cuh"
#include "constants.cuh"

#ifdef __CUDACC__
FN float halved(float x) {  // rounded to f16
    unsigned short code;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(code));
    return x;
}
#else
FN float halved(float x) { return (float)value_of<f16>(nearest<f16>((double)x)); }
#endif

template <class F>
struct As {  // a code as a value, and back
    FN float value(u64 code) { return (float)value_of<F>(code); }
    FN u64 code(float x) { return nearest<F>((double)x); }
};
template <>
struct As<f32> {
    FN float value(u64 code) { return as_float((u32)code); }
    FN u64 code(float x) { return canonical32(x); }
};
template <>
struct As<f64> {
    FN double value(u64 code) { return as_double(code); }
    FN u64 code(double x) { return bits_of(x); }
};

// The NaN of an f64 output (fma_f64 in engine_steps.cuh): the last of the column of B; else the addend, if it is one; else the first that came up in the chain.
struct NanSpace {
    u64 *last;   // of each column of B, made quiet, or 0
    int *there;  // whether a row of A has one
};
FN bool is_nan(u64 code) { return (code & ~0ull >> 1) > 0x7FFull << 52; }
FN u64 quieted(u64 code) { return code | 1ull << 51; }
FN i64 place_of(const Problem &p, i64 k) { return (p.order ? p.order[k / DEPTH] : k / DEPTH) * DEPTH + k % DEPTH; }

FN u64 last_of(const Problem &p, i64 n) {
    enum { TOGETHER = 8 };
    for (i64 k = (i64)p.blocks * DEPTH; k > 0; k -= TOGETHER) {
        u64 found = 0;
#pragma unroll
        for (int i = TOGETHER; i > 0; i--) {
            const i64 from = k - i < 0 ? -1 : place_of(p, k - i);
            const u64 code = from < 0 || from >= p.depth ? 0 : (u64)((const CodeB *)p.b)[from * p.b_k + n * p.b_n];
            if (is_nan(code)) found = quieted(code);
        }
        if (found) return found;
    }
    return 0;
}

FN void mend(const Problem &p, const NanSpace &w, i64 index) {
    u64 &d = ((u64 *)p.d)[index];
    if (!is_nan(d)) return;
    const i64 m = index / p.n, n = index % p.n;
    const u64 c = ((const CodeC *)p.c)[m * p.c_m + n * p.c_n];
    u64 found = w.last[n] ? w.last[n] : is_nan(c) ? quieted(c) : (u64)f64::CANONICAL_NAN;
    if (!w.last[n] && !is_nan(c) && w.there[m]) {
        double sum = as_double(c);
        for (i64 k = 0; sum == sum; k++) {
            const i64 from = place_of(p, k);
            const u64 a = from < p.width ? (u64)((const CodeA *)p.a)[m * p.a_m + from * p.a_k] : 0;
            sum = fused<FUSED_ROUNDING>(as_double(a), from < p.depth ? as_double(((const CodeB *)p.b)[from * p.b_k + n * p.b_n]) : 0.0, sum);
            if (is_nan(a)) found = quieted(a);
        }
    }
    d = found;
}

#define EACH(name, value)             \
    _Pragma("unroll") for (int i = 0; i < EACH_M; i++) \
    _Pragma("unroll") for (int j = 0; j < EACH_N; j++) name[i][j] = value;

#ifdef __CUDACC__
enum { SIDE = 16, THREADS = SIDE * SIDE, BLOCK_M = SIDE * EACH_M, BLOCK_N = SIDE * EACH_N, SPAN = 16, LANE = 16 / sizeof(Value) };
struct alignas(16) Vector {
    Value v[LANE];
};
FN int row_of(int i, int side) { return (i / LANE * SIDE + side) * LANE + i % LANE; }  // which of its block's rows a thread's i-th is
template <int COUNT>
FN void fetch(Value (&to)[COUNT], const Value *from, int side) {
#pragma unroll
    for (int i = 0; i < COUNT; i += LANE) {
        const Vector v = *(const Vector *)(from + row_of(i, side));
#pragma unroll
        for (int j = 0; j < LANE; j++) to[i + j] = v.v[j];
    }
}
// SPAN places of `count` rows of A, or columns of B, from `first` on; the neighbours in memory go to neighbouring threads.
template <int COUNT, class F, class Code>
FN void stage(const Problem &p, Value (*to)[COUNT + LANE], const Code *codes, i64 stride, i64 stride_k, i64 first, i64 rows, i64 k, i64 end) {
#pragma unroll 4
    for (int i = threadIdx.x; i < COUNT * SPAN; i += THREADS) {
        const int own = stride_k == 1 ? i / SPAN : i % COUNT, place = stride_k == 1 ? i % SPAN : i / COUNT;
        const i64 from = k + place < (i64)p.blocks * DEPTH ? place_of(p, k + place) : end;
        to[place][own] = As<F>::value(first + own < rows && from < end ? (u64)codes[(first + own) * stride + from * stride_k] : 0);
    }
}
#define OPERANDS(k) fetch(x, tile_a[k], threadIdx.x / SIDE), fetch(y, tile_b[k], threadIdx.x % SIDE);

extern "C" __global__ void __launch_bounds__(THREADS, 1) engine_native(const Problem p) {
    __shared__ __align__(16) Value tile_a[SPAN][BLOCK_M + LANE], tile_b[SPAN][BLOCK_N + LANE];
    const i64 first_m = (i64)blockIdx.y * BLOCK_M, first_n = (i64)blockIdx.x * BLOCK_N;
    Value c[EACH_M][EACH_N];
#pragma unroll
    for (int i = 0; i < EACH_M; i++)
#pragma unroll
        for (int j = 0; j < EACH_N; j++) {
            const i64 m = first_m + row_of(i, threadIdx.x / SIDE), n = first_n + row_of(j, threadIdx.x % SIDE);
            c[i][j] = As<CFormat>::value(m < p.m && n < p.n ? (u64)((const CodeC *)p.c)[m * p.c_m + n * p.c_n] : 0);
        }
    for (i64 k = 0; k < (i64)p.blocks * DEPTH; k += SPAN) {
        __syncthreads();
        stage<BLOCK_M, AFormat>(p, tile_a, (const CodeA *)p.a, p.a_m, p.a_k, first_m, p.m, k, p.width);
        stage<BLOCK_N, BFormat>(p, tile_b, (const CodeB *)p.b, p.b_n, p.b_k, first_n, p.n, k, p.depth);
        __syncthreads();
#pragma unroll
        for (int at = 0; at < SPAN; at += DEPTH)
            if (k + at < (i64)p.blocks * DEPTH) {
                Value x[EACH_M], y[EACH_N];
                INSTRUCTION(at)
            }
    }
#pragma unroll
    for (int i = 0; i < EACH_M; i++)
#pragma unroll
        for (int j = 0; j < EACH_N; j++) {
            const i64 m = first_m + row_of(i, threadIdx.x / SIDE), n = first_n + row_of(j, threadIdx.x % SIDE);
            if (m < p.m && n < p.n) ((CodeD *)p.d)[m * p.n + n] = (CodeD)As<CFormat>::code(c[i][j]);
        }
}
extern "C" __global__ void engine_last_nan(const Problem p, const NanSpace w) {
    const i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (n < p.n) w.last[n] = last_of(p, n);
}
extern "C" __global__ void engine_any_nan(const Problem p, const NanSpace w) {  // a block for a row
    bool found = false;
    for (i64 k = threadIdx.x; k < p.width; k += blockDim.x) found |= is_nan(((const CodeA *)p.a)[blockIdx.x * p.a_m + k * p.a_k]);
    found = __syncthreads_or(found);
    if (!threadIdx.x) w.there[blockIdx.x] = found;
}
extern "C" __global__ void engine_mend(const Problem p, const NanSpace w) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (i64)p.m * p.n; i += step) mend(p, w, i);
}
#else
// The same for tests on a CPU, an output after the other.
#define OPERANDS(k) \
    x[0] = As<AFormat>::value((k) < p->width ? (u64)row[(k) * p->a_k] : 0), y[0] = As<BFormat>::value((k) < p->depth ? (u64)column[(k) * p->b_k] : 0);

extern "C" void engine_native(const Problem *p, const NanSpace *w) {
    for (i64 m = 0; m < p->m; m++)
        for (i64 n = 0; n < p->n; n++) {
            const CodeA *row = (const CodeA *)p->a + m * p->a_m;
            const CodeB *column = (const CodeB *)p->b + n * p->b_n;
            Value c[1][1] = {{As<CFormat>::value(((const CodeC *)p->c)[m * p->c_m + n * p->c_n])}}, x[1], y[1];
            for (i64 k = 0; k < (i64)p->blocks * DEPTH; k += DEPTH) { INSTRUCTION(place_of(*p, k)) }
            ((CodeD *)p->d)[m * p->n + n] = (CodeD)As<CFormat>::code(c[0][0]);
        }
    if (sizeof(CodeD) < 8) return;
    for (i64 n = 0; n < p->n; n++) w->last[n] = last_of(*p, n);
    for (i64 m = 0; m < p->m; m++)
        for (i64 k = 0; k < p->width; k++) w->there[m] |= is_nan(((const CodeA *)p->a)[m * p->a_m + k * p->a_k]);
    for (i64 i = 0; i < (i64)p->m * p->n; i++) mend(*p, *w, i);
}
#endif
