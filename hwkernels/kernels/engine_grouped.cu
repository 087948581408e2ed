// A whole product, chained along K, of fp4 whose products are summed in groups before they are scaled (grouped_dot_add in engine_steps.cuh).
//
// `engine_group_a` and `engine_group_b` write the operands in tiles of TILE rows (or columns): of each instruction and group the elements as
// small integers, 16 bytes, and what scales them. `engine_grouped` computes a tile of TILE x TILE outputs; a group's sum is four DP4A. The
// terms are then cut and added as the kernel for everything does, by the same text.
#include "engine_exact.cuh"
#include "constants.cuh"

enum { TILE = 64, GROUP = 16, GROUPS = KEPT / GROUP, PLACES = DEPTH / GROUPS, WORDS = PLACES / 4, HALVES = SPARSE ? 1 : 2, SIDE = 16, EACH = TILE / SIDE, THREADS = SIDE * SIDE, NAN_EXPONENT = 1 << 14 };

struct alignas(16) Group {  // of a row or a column; of a sparse A with zeros where it keeps nothing
    u32 words[WORDS];         // elements, in units of the smallest product's root
};
struct Scaling {    // of a group
    u32 there;      // its elements that are not zero, one bit each
    short exponent;  // NAN_EXPONENT: the factor is NaN
    u16 significand;
};
struct GroupSpace {
    Group *a, *b;  // [tile][instruction][group][row]
    Scaling *scaling_a, *scaling_b;
};

template <class R>
FN int integer_of(u64 code) {
    const Parts x = R::parts(code);
    const int magnitude = (int)(x.significand << (x.exponent - R::As::MINIMUM_EXPONENT));
    return x.sign ? -magnitude : magnitude;
}

// Group `index` of an operand; `major` counts all rows of its tiles.
template <bool IS_A>
FN void write_group(const Problem &p, const GroupSpace &w, i64 index) {
    const i64 row = index % TILE, group = index / TILE % GROUPS, step = index / (TILE * GROUPS) % p.blocks;
    const i64 major = index / (TILE * GROUPS) / p.blocks * TILE + row, block = p.order ? p.order[step] : step;
    Group found = {};
    Scaling scaling = {};
    if (major < (IS_A ? p.m : p.n)) {
        for (int i = 0; i < (IS_A ? GROUP : PLACES); i++) {
            const i64 k = IS_A ? block * KEPT + group * GROUP + i : block * DEPTH + group * PLACES + i;
            int value = 0, place = i;
            if (IS_A && SPARSE) place = p.columns[major * p.columns_m + k] - (int)group * PLACES;
            if (IS_A && k < p.width) value = integer_of<ReadA>(((const CodeA *)p.a)[major * p.a_m + k * p.a_k]);
            if (!IS_A && k < p.depth) value = integer_of<ReadB>(((const CodeB *)p.b)[k * p.b_k + major * p.b_n]);
            found.words[place / 4] |= (u32)(value & 0xFF) << place % 4 * 8;
            scaling.there |= (u32)(value != 0) << place;
        }
        const i64 factor = block * SCALES + group * GROUP * SCALES / KEPT;
        u64 code = 0;
        if (factor < p.scales)
            code = IS_A ? ((const CodeS *)p.scale_a)[major * p.scale_a_m + factor * p.scale_a_k]
                        : ((const CodeS *)p.scale_b)[factor * p.scale_b_k + major * p.scale_b_n];
        const Parts s = parts_of<ScaleFormat>(code);
        if (s.kind != FINITE) scaling.there = 0;
        scaling.significand = (u16)s.significand;
        scaling.exponent = (short)(s.kind == NOT_A_NUMBER ? NAN_EXPONENT : s.exponent);
    }
    (IS_A ? w.a : w.b)[index] = found;
    (IS_A ? w.scaling_a : w.scaling_b)[index] = scaling;
}

#ifdef __CUDACC__
FN int dot4(u32 a, u32 b, int c) { return __dp4a((int)a, (int)b, c); }
#else
FN int dot4(u32 a, u32 b, int c) {
    for (int i = 0; i < 32; i += 8) c += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
    return c;
}
#endif

// One instruction of one output: `stride` groups lie from one of its groups to the next.
FN u64 grouped(const Group *a, const Group *b, const Scaling *s, const Scaling *t, u64 c) {
    enum { BELOW = ReadA::As::FRACTION_BITS + ReadB::As::FRACTION_BITS - ReadA::As::MINIMUM_EXPONENT - ReadB::As::MINIMUM_EXPONENT };
    Term<i64> terms[GROUPS];
    Specials seen = {false, false, false};
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const Group x = a[g * TILE], y = b[g * TILE];
        const Scaling u = s[g * TILE], v = t[g * TILE];
        int sum = 0;
#pragma unroll
        for (int i = 0; i < WORDS; i++) sum = dot4(x.words[i], y.words[i], sum);
        const bool some = (u.there & v.there) != 0;
        seen.nan |= u.exponent + v.exponent >= NAN_EXPONENT / 2;
        terms[g].significand = some ? (i64)(sum * (int)(u.significand * v.significand)) : 0;
        terms[g].exponent = some ? u.exponent + v.exponent : NO_EXPONENT;
    }
    return sum_of<TheUnit, CFormat, GROUPS, BELOW + 2 * ScaleFormat::FRACTION_BITS>(terms, seen, c);
}

#ifdef __CUDACC__
extern "C" __global__ void engine_group_a(const Problem p, const GroupSpace w, i64 count) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) write_group<true>(p, w, index);
}
extern "C" __global__ void engine_group_b(const Problem p, const GroupSpace w, i64 count) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) write_group<false>(p, w, index);
}

// Outputs that are computed at once: of a sparse A all of them fit the registers on sm_90 only.
enum { FEW = SPARSE && __CUDA_ARCH__ != 900, ROWS = FEW ? 1 : EACH, COLUMNS = FEW ? 2 : EACH };

extern "C" __global__ void __launch_bounds__(THREADS) engine_grouped(const Problem p, const GroupSpace w) {
    __shared__ __align__(16) Group a[HALVES][GROUPS * TILE], b[HALVES][GROUPS * TILE];
    __shared__ __align__(16) Scaling s[HALVES][GROUPS * TILE], t[HALVES][GROUPS * TILE];
    const int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    const i64 first_row = (i64)blockIdx.y * TILE + row, first_column = (i64)blockIdx.x * TILE + column;
    u32 sums[EACH][EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const i64 m = first_row + i * SIDE, n = first_column + j * SIDE;
            sums[i][j] = m < p.m && n < p.n ? (u32)((const CodeC *)p.c)[m * p.c_m + n * p.c_n] : 0;
        }
    const i64 from_a = (i64)blockIdx.y * p.blocks * GROUPS * TILE, from_b = (i64)blockIdx.x * p.blocks * GROUPS * TILE;
    for (int step = 0; step < p.blocks; step++) {
        const int here = step % HALVES;
        if (HALVES == 1) __syncthreads();
        for (int i = threadIdx.x; i < GROUPS * TILE; i += THREADS) {
            const i64 place = (i64)step * GROUPS * TILE + i;
            a[here][i] = w.a[from_a + place];
            b[here][i] = w.b[from_b + place];
            *(uint2 *)&s[here][i] = *(const uint2 *)&w.scaling_a[from_a + place];
            *(uint2 *)&t[here][i] = *(const uint2 *)&w.scaling_b[from_b + place];
        }
        __syncthreads();  // one is enough where the next step writes the other half
#pragma unroll(ROWS)
        for (int i = 0; i < EACH; i++) {  // what is computed comes first, and goes to the end
#pragma unroll(COLUMNS)
            for (int j = 0; j < EACH; j++) {
                const int m = row + i * SIDE, n = column + j * SIDE;
                const u32 found = (u32)grouped(a[here] + m, b[here] + n, s[here] + m, t[here] + n, sums[0][0]);
#pragma unroll
                for (int k = 1; k < EACH; k++) sums[0][k - 1] = sums[0][k];
                sums[0][EACH - 1] = found;
            }
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const u32 found = sums[0][j];
#pragma unroll
                for (int k = 1; k < EACH; k++) sums[k - 1][j] = sums[k][j];
                sums[EACH - 1][j] = found;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const i64 m = first_row + i * SIDE, n = first_column + j * SIDE;
            if (m < p.m && n < p.n) ((CodeD *)p.d)[m * p.n + n] = (CodeD)sums[i][j];
        }
}
#else
// The same for tests on a CPU, an output after the other, from the same tiles.
extern "C" void engine_grouped(const Problem *p, const GroupSpace *w, i64 tiles_m, i64 tiles_n) {
    const i64 tile = (i64)p->blocks * GROUPS * TILE;
    for (i64 i = 0; i < tiles_m * tile; i++) write_group<true>(*p, *w, i);
    for (i64 i = 0; i < tiles_n * tile; i++) write_group<false>(*p, *w, i);
    for (i64 m = 0; m < p->m; m++)
        for (i64 n = 0; n < p->n; n++) {
            u64 sum = ((const CodeC *)p->c)[m * p->c_m + n * p->c_n];
            for (int step = 0; step < p->blocks; step++) {
                const i64 at_a = m / TILE * tile + (i64)step * GROUPS * TILE + m % TILE, at_b = n / TILE * tile + (i64)step * GROUPS * TILE + n % TILE;
                sum = grouped(w->a + at_a, w->b + at_b, w->scaling_a + at_a, w->scaling_b + at_b, sum);
            }
            ((CodeD *)p->d)[m * p->n + n] = (CodeD)sum;
        }
}
#endif
