// A whole product, chained along K, on GPUs with a full-rate f64 unit: engine_fast.cuh says how one step is computed.
//
// `engine_decode_a` and `engine_decode_b` write the operands in chunks: of a tile of rows (or columns) and a stage of K, first the
// magnitudes, then the masks that complement, then the exponents, K outermost. A stage is some short steps, or a span of a long one; the largest
// exponent of a step must be known before its first product, so with AHEAD its exponents lie with the spans of the step before. `engine_gemm`
// copies chunks into shared memory and computes a tile of BLOCK_M x BLOCK_N outputs; each thread has THREAD_M rows and THREAD_N columns, in quads.
#include "engine_exact.cuh"
#include "engine_fast.cuh"
#include "constants.cuh"

enum {
    PART = LENGTH / PARTS,          // products whose sum fits 32 bits
    SPANS = LENGTH / SPAN,          // of a step
    STAGE = SPAN * SPANS_OF_STAGE,  // places along K
    MASKS = (SPAN + 1) * SPANS_OF_STAGE,
    WORDS = (LENGTH + 31) / 32,
    CHUNK_A = BLOCK_M * (12 * STAGE + 4 * MASKS),
    CHUNK_B = BLOCK_N * (10 * STAGE + 4 * MASKS),
    CHUNK = CHUNK_A + CHUNK_B,
    WARPS_N = BLOCK_N / (8 * THREAD_N),
    THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N),
    QUADS = THREAD_N / 4,
    OUTPUTS = THREAD_M * THREAD_N,
};
typedef Step<TheUnit, CFormat, IS_WIDE> TheStep;
enum { RAISED = IS_WIDE && !APART && !TheStep::HALF };  // subnormal addends raise the exponent that a step's search begins with

struct Workspace {
    u8 *a, *b;               // chunks: [tile][stage]
    Flags *flags_a, *flags_b;  // [row of all tiles][step][word]
    int steps, stages;
};

// The row of B, within the instruction, at a place of a step of a sparse A.
FN int dense_place(const int *places, int place) { return places[place / 4 * 2] / 2 * 4 + place % 4; }

// The element at a place of a step, of one row of A or column of B; false if there is none. A sparse A keeps two
// elements of four (or one of two), so eight rows of B meet four kept elements.
FN bool element_a(const Problem &p, i64 row, int step, int place, Factor *found) {
    if (row >= p.m) return false;
    const int block = p.order ? p.order[step / STEPS] : step / STEPS;
    const int *places = STEP_PLACES[step % STEPS];
    int kept = place % KEPT_LENGTH;
    if (SPARSE) {
        const int *columns = p.columns + row * p.columns_m + (i64)block * KEPT;
        const int last = place / 8 * 4 + 4;
        kept = last - 4;
        while (kept < last && columns[places[kept]] != dense_place(places, place)) kept++;
        if (kept == last) return false;
    }
    const i64 k = (i64)block * KEPT + places[kept];
    if (k >= p.width) return false;
    const u64 code = ((const CodeA *)p.a)[row * p.a_m + k * p.a_k];
    if (SCALES) {
        const i64 factor = (i64)block * SCALES + places[kept] * SCALES / KEPT;
        *found = scaled_factor_of<ReadA, ScaleFormat>(code, ((const CodeS *)p.scale_a)[row * p.scale_a_m + factor * p.scale_a_k]);
    } else {
        *found = factor_of<ReadA>(code);
    }
    return true;
}
FN bool element_b(const Problem &p, i64 column, int step, int place, Factor *found) {
    const int block = p.order ? p.order[step / STEPS] : step / STEPS;
    const int within = SPARSE ? dense_place(STEP_PLACES[step % STEPS], place) : STEP_PLACES[step % STEPS][place % KEPT_LENGTH];
    const i64 k = (i64)block * DEPTH + within;
    if (column >= p.n || k >= p.depth) return false;
    const u64 code = ((const CodeB *)p.b)[k * p.b_k + column * p.b_n];
    if (SCALES) {
        const i64 factor = (i64)block * SCALES + within * SCALES / DEPTH;
        *found = scaled_factor_of<ReadB, ScaleFormat>(code, ((const CodeS *)p.scale_b)[factor * p.scale_b_k + column * p.scale_b_n]);
    } else {
        *found = factor_of<ReadB>(code);
    }
    return true;
}

// One step of one row: `at` is the row in its tile, `place_of` its place among the magnitudes.
template <bool IS_A, int TILE>
FN void decode(const Problem &p, const Workspace &w, i64 row, int step) {
    const int at = row % TILE;
    const int place_of = IS_A ? at : (at >> 1 & 1) * (TILE / 2) + (at >> 2) * 2 + (at & 1);  // of a quad the halves lie apart
    u8 *chunks = (IS_A ? w.a : w.b) + row / TILE * w.stages * (i64)(IS_A ? CHUNK_A : CHUNK_B);
    Flags flags[WORDS] = {};
    u32 before = 0;
    for (int k = 0; k < LENGTH; k++) {
        Factor f = {0.0, NOTHING_EXPONENT, 0, ZERO};
        if (IS_A ? element_a(p, row, step, k, &f) : element_b(p, row, step, k, &f)) note(flags[k / 32], f, k % 32);
        const int own = (step + AHEAD) * SPANS + k / SPAN, ahead = own - AHEAD * SPANS;  // spans
        u8 *chunk = chunks + own / SPANS_OF_STAGE * (i64)(IS_A ? CHUNK_A : CHUNK_B);
        ((double *)chunk)[(own % SPANS_OF_STAGE * SPAN + k % SPAN) * TILE + place_of] = f.magnitude;
        u32 *masks = (u32 *)(chunk + 8 * STAGE * TILE) + (own % SPANS_OF_STAGE * (SPAN + 1) + k % SPAN) * TILE + at;
        masks[0] = f.sign ^ (k % PART ? before : 0);
        before = f.sign;
        if (k % PART == PART - 1) masks[TILE] = before ^ (IS_A ? 0x80000000u : 0);  // and 2**31 added to the count
        u8 *exponents = chunks + ahead / SPANS_OF_STAGE * (i64)(IS_A ? CHUNK_A : CHUNK_B) + (8 * STAGE + 4 * MASKS) * TILE;
        const u32 exponent = (u32)(f.exponent + (IS_A ? (int)TheStep::BIAS : 0)) & 0xFFFF;
        const int place = (ahead % SPANS_OF_STAGE * SPAN + k % SPAN) * TILE + at;
        if (IS_A) ((u32 *)exponents)[place] = exponent * 0x10001u;
        else ((u16 *)exponents)[place] = (u16)exponent;
    }
    for (int i = 0; i < WORDS; i++) (IS_A ? w.flags_a : w.flags_b)[(row * w.steps + step) * WORDS + i] = flags[i];
}

#ifdef __CUDACC__
extern "C" __global__ void engine_decode_a(const Problem p, const Workspace w) {
    decode<true, BLOCK_M>(p, w, (i64)blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y);
}
extern "C" __global__ void engine_decode_b(const Problem p, const Workspace w) {
    decode<false, BLOCK_N>(p, w, (i64)blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y);
}

template <int BYTES>
FN void copy_chunk(u8 *to, const u8 *from) {
    const u32 shared = (u32)__cvta_generic_to_shared(to) + 16 * threadIdx.x;
    from += 16 * threadIdx.x;
#pragma unroll
    for (int i = 0; i < BYTES; i += 16 * THREADS)
        if (i + 16 * THREADS <= BYTES || i + 16 * (int)threadIdx.x < BYTES)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared + i), "l"(from + i) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) engine_gemm(const Problem p, const Workspace w) {
    extern __shared__ __align__(128) u8 shared[];
    // Of each output: with APART what c is added to after the steps of an instruction; else c, before anything is copied, and the result, when
    // everything is read: in loops that are not unrolled their conversions need few registers.
    double *totals = (double *)(shared + (APART ? RING * CHUNK : 0)) + threadIdx.x;
    static_assert(APART || 8 * OUTPUTS * THREADS <= RING * CHUNK, "the outputs fit where the chunks lie");
    u32 *parts = (u32 *)(shared + RING * CHUNK + (APART ? 8 : 0) * OUTPUTS * THREADS) + threadIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = (warp / WARPS_N * 4 + lane / 8) * THREAD_M, quad = warp % WARPS_N * 8 * QUADS + lane % 8;
    const i64 first_row = (i64)blockIdx.y * BLOCK_M + row, first_column = (i64)blockIdx.x * BLOCK_N;
    double addends[OUTPUTS];
    States states = {0, 0};
    u32 nan = 0;  // totals that are NaN
#pragma unroll 4
    for (int i = 0; i < OUTPUTS; i++) {
        const i64 m = first_row + i / THREAD_N, n = first_column + (quad + i % THREAD_N / 4 * 8) * 4 + i % 4;
        const double c = m < p.m && n < p.n ? TheStep::addend(((const CodeC *)p.c)[m * p.c_m + n * p.c_n]) : 0.0;
        if (APART) nan |= is_nan(c) ? 1u << i : 0;
        else if (!is_finite(c)) states.start(1u << i, c);
        totals[i * THREADS] = APART || is_finite(c) ? c : 0.0;
    }
    if (!APART) {
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) addends[i] = totals[i * THREADS];
        __syncthreads();
    }
    const u8 *from_a = w.a + blockIdx.y * (i64)w.stages * CHUNK_A, *from_b = w.b + blockIdx.x * (i64)w.stages * CHUNK_B;
    for (int stage = 0; stage < RING - 1; stage++) {
        if (stage < w.stages) {
            copy_chunk<CHUNK_A>(shared + stage * CHUNK, from_a + (i64)stage * CHUNK_A);
            copy_chunk<CHUNK_B>(shared + stage * CHUNK + CHUNK_A, from_b + (i64)stage * CHUNK_B);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    u32 largest[THREAD_M][THREAD_N / 2];  // exponents of products
    double others[WITHIN ? 1 : OUTPUTS];
    double *const sums = WITHIN ? addends : others;  // an addend that is counted with the products lives on in their sum
    const u32 lowest = (u32)TheStep::LOWEST * 0x10001u;
    bool rare = true;  // addends may be subnormal
    const auto nothing = [&] {
#pragma unroll
        for (int i = 0; i < THREAD_M; i++)
#pragma unroll
            for (int j = 0; j < THREAD_N / 2; j++) largest[i][j] = lowest;
    };
    const auto raise = [&] {
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++)
            if (RAISED && (int)TheStep::LEAST_FIELD > (int)TheStep::LOWEST && TheStep::is_subnormal(addends[i])) {
                const u32 least = (u32)TheStep::LEAST_FIELD << i % 2 * 16, other = (u32)TheStep::LOWEST << (1 - i % 2) * 16;
                largest[i / THREAD_N][i % THREAD_N / 2] = pair_max(least | other, 0, largest[i / THREAD_N][i % THREAD_N / 2]);
            }
    };
    const auto look = [&](const u8 *here, int inner) {
        const u32 *exponents_a = (const u32 *)(here + (8 * STAGE + 4 * MASKS) * BLOCK_M) + inner * SPAN * BLOCK_M + row;
        const u16 *exponents_b = (const u16 *)(here + CHUNK_A + (8 * STAGE + 4 * MASKS) * BLOCK_N) + inner * SPAN * BLOCK_N + quad * 4;
#pragma unroll
        for (int k = 0; k < SPAN; k++) {
            u32 x[THREAD_M];
            uint2 y[QUADS];
#pragma unroll
            for (int i = 0; i < THREAD_M; i += 4) *(uint4 *)(x + i) = *(const uint4 *)(exponents_a + k * BLOCK_M + i);
#pragma unroll
            for (int j = 0; j < QUADS; j++) y[j] = *(const uint2 *)(exponents_b + k * BLOCK_N + 32 * j);
#pragma unroll
            for (int i = 0; i < THREAD_M; i++)
#pragma unroll
                for (int j = 0; j < QUADS; j++) {
                    const bool first = !AHEAD && !k;  // of a step
                    largest[i][2 * j] = pair_max(x[i], y[j].x, first ? lowest : largest[i][2 * j]);
                    largest[i][2 * j + 1] = pair_max(x[i], y[j].y, first ? lowest : largest[i][2 * j + 1]);
                }
        }
    };
    const auto begin = [&](int step) {
        u32 some = 0;
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; i++) some |= largest[i / (THREAD_N / 2)][i % (THREAD_N / 2)];
        if (TheStep::special(some << 20 | some << 4)) {
            u32 special = 0;
#pragma unroll
            for (int i = OUTPUTS - 1; i >= 0; i--) special = shifted_in(special, largest[i / THREAD_N][i % THREAD_N / 2] << (i % 2 ? 4 : 20));
            special &= ~(states.nan() | nan);
            while (special) {
                const int i = __ffs(special) - 1, m = i / THREAD_N, n = i % THREAD_N / 4 * 32 + i % 4;
                const i64 at_a = (first_row + m) * w.steps + step, at_b = (first_column + quad * 4 + n) * w.steps + step;
                states.multiply(1u << i, w.flags_a + at_a * WORDS, w.flags_b + at_b * WORDS, WORDS);
                special &= special - 1;
            }
        }
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) {
            if (APART && step % STEPS == 0) addends[i] = 0.0;
            const u32 unit = TheStep::unit<RAISED>(largest[i / THREAD_N][i % THREAD_N / 2] << (i % 2 ? 4 : 20), addends[i]);
            sums[i] = WITHIN ? TheStep::of_addend(unit, addends[i]) : TheStep::empty(unit);
        }
    };
    const auto add_products = [&](const u8 *here, int inner) {
        const double *values_a = (const double *)here + inner * SPAN * BLOCK_M + row;
        const double *values_b = (const double *)(here + CHUNK_A) + inner * SPAN * BLOCK_N + quad * 2;
        const u32 *masks_a = (const u32 *)(here + 8 * STAGE * BLOCK_M) + inner * (SPAN + 1) * BLOCK_M + row;
        const u32 *masks_b = (const u32 *)(here + CHUNK_A + 8 * STAGE * BLOCK_N) + inner * (SPAN + 1) * BLOCK_N + quad * 4;
#pragma unroll
        for (int k = 0; k < SPAN; k++) {
            double a[THREAD_M], b[THREAD_N];
            u32 x[THREAD_M], y[THREAD_N];
#pragma unroll
            for (int i = 0; i < THREAD_M; i += 2) *(double2 *)(a + i) = *(const double2 *)(values_a + k * BLOCK_M + i);
#pragma unroll
            for (int i = 0; i < THREAD_M; i += 4) *(uint4 *)(x + i) = *(const uint4 *)(masks_a + k * BLOCK_M + i);
#pragma unroll
            for (int j = 0; j < QUADS; j++) {
                *(double2 *)(b + 4 * j) = *(const double2 *)(values_b + k * BLOCK_N + 16 * j);
                *(double2 *)(b + 4 * j + 2) = *(const double2 *)(values_b + k * BLOCK_N + BLOCK_N / 2 + 16 * j);
                *(uint4 *)(y + 4 * j) = *(const uint4 *)(masks_b + k * BLOCK_N + 32 * j);
            }
#pragma unroll
            for (int i = 0; i < THREAD_M; i++)
#pragma unroll
                for (int j = 0; j < THREAD_N; j++) {
                    double &sum = sums[i * THREAD_N + j];
                    sum = fused_rz(a[i], b[j], complemented(sum, x[i], y[j]));
                }
        }
    };
    // The sum of a part: kept if another follows, or the result of the step.
    const auto end = [&](const u8 *here, int inner, int part) {
        const u32 *masks_a = (const u32 *)(here + 8 * STAGE * BLOCK_M) + (inner * (SPAN + 1) + SPAN) * BLOCK_M + row;
        const u32 *masks_b = (const u32 *)(here + CHUNK_A + 8 * STAGE * BLOCK_N) + (inner * (SPAN + 1) + SPAN) * BLOCK_N + quad * 4;
        u32 x[THREAD_M], y[THREAD_N];
#pragma unroll
        for (int i = 0; i < THREAD_M; i += 4) *(uint4 *)(x + i) = *(const uint4 *)(masks_a + i);
#pragma unroll
        for (int j = 0; j < QUADS; j++) *(uint4 *)(y + 4 * j) = *(const uint4 *)(masks_b + 32 * j);
        if (part < PARTS - 1) {
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) {
                const double whole = complemented(sums[i], x[i / THREAD_N], y[i % THREAD_N]);
                parts[(OUTPUTS * part + i) * THREADS] = low_of(whole);
                sums[i] = TheStep::empty(high_of(whole));
            }
            return;
        }
        u32 most = 0;
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) {
            const double whole = complemented(sums[i], x[i / THREAD_N], y[i % THREAD_N]);
            const u32 upper = high_of(whole);
            double sum = TheStep::value(upper, low_of(whole));
            if (!WITHIN) sum += TheStep::cut_addend(upper, addends[i]);
#pragma unroll
            for (int earlier = 0; earlier < PARTS - 1; earlier++) sum += TheStep::value(upper, parts[(OUTPUTS * earlier + i) * THREADS]);
            addends[i] = TheStep::usually(TheStep::begun(sum, most));
        }
        rare = TheStep::rare(most) && states.any() != ~0u >> (32 - OUTPUTS);
        if (rare) {  // where no output is finite nobody reads the sums, and f64 has room for them
            u32 some = TheStep::HALF ? ~0u : 0;  // there rare is beyond
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) {
                if (!TheStep::HALF) some |= TheStep::beyond(addends[i]);
                addends[i] = TheStep::rarely(addends[i]);
            }
            if ((int)some < 0) {
                u32 infinite = 0, negative = 0;
#pragma unroll
                for (int i = OUTPUTS - 1; i >= 0; i--) {
                    const u32 beyond = TheStep::beyond(addends[i]);
                    infinite = shifted_in(infinite, beyond);
                    negative = shifted_in(negative, high_of(addends[i]));
                    if ((int)beyond < 0) addends[i] = 0.0;
                }
                states.put(infinite, negative);
            }
        }
    };
    const auto add_apart = [&] {
        const u32 any = states.any();
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) {
            const double total = TheStep::added(totals[i * THREADS], any ? states.value(1u << i, addends[i]) : addends[i]);
            totals[i * THREADS] = total;
            if (any) nan |= is_nan(total) ? 1u << i : 0;
        }
        states = {0, 0};
    };
    const u8 *here = shared;
    if (AHEAD) nothing();
#pragma unroll 1
    for (int step = -AHEAD, number = 0; step < w.steps; step++) {
        if (AHEAD && step >= 0) {
            if (rare) raise();
            begin(step);
            nothing();
        }
#pragma unroll 1
        for (int span = 0; span < SPANS; span++, number++) {
            const int stage = number / SPANS_OF_STAGE, inner = number % SPANS_OF_STAGE, next = stage + RING - 1;
            if (!inner) {
                asm volatile("cp.async.wait_group %0;" ::"n"(RING - 2) : "memory");
                __syncthreads();
                if (next < w.stages) {
                    copy_chunk<CHUNK_A>(shared + next % RING * CHUNK, from_a + (i64)next * CHUNK_A);
                    copy_chunk<CHUNK_B>(shared + next % RING * CHUNK + CHUNK_A, from_b + (i64)next * CHUNK_B);
                }
                asm volatile("cp.async.commit_group;" ::: "memory");
                here = shared + stage % RING * CHUNK;
            }
            look(here, inner);
            if (!AHEAD) {
                if (rare) raise();
                begin(step);
            } else if (step < 0) {
                continue;
            }
            add_products(here, inner);
            if ((span + 1) * SPAN % PART == 0) end(here, inner, span * SPAN / PART);
        }
        if (APART && step % STEPS == STEPS - 1) add_apart();
    }
    if (!APART) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) totals[i * THREADS] = addends[i];
    }
#pragma unroll 1
    for (int i = 0; i < OUTPUTS; i++) {
        const i64 m = first_row + i / THREAD_N, n = first_column + (quad + i % THREAD_N / 4 * 8) * 4 + i % 4;
        if (m < p.m && n < p.n) ((CodeD *)p.d)[m * p.n + n] = (CodeD)TheStep::code(states.value(APART ? 0 : 1u << i, totals[i * THREADS]));
    }
}
#else
// The same for tests on a CPU, an output after the other, from the same chunks.
FN u32 output_on_cpu(const Problem &p, const Workspace &w, i64 m, i64 n) {
    const int at_m = m % BLOCK_M, at_n = n % BLOCK_N, place_n = (at_n >> 1 & 1) * (BLOCK_N / 2) + (at_n >> 2) * 2 + (at_n & 1);
    double total = TheStep::addend(((const CodeC *)p.c)[m * p.c_m + n * p.c_n]), c = is_finite(total) ? total : 0.0;
    States states = {0, 0};
    if (!APART && !is_finite(total)) states.start(1, total);
    for (int step = 0; step < w.steps; step++) {
        if (APART && step % STEPS == 0) c = 0;
        const u8 *chunks_a = w.a + m / BLOCK_M * w.stages * (i64)CHUNK_A, *chunks_b = w.b + n / BLOCK_N * w.stages * (i64)CHUNK_B;
        u32 pair = (u32)TheStep::LOWEST * 0x10001u;
        for (int k = 0; k < LENGTH; k++) {
            const int span = step * SPANS + k / SPAN, stage = span / SPANS_OF_STAGE, place = span % SPANS_OF_STAGE * SPAN + k % SPAN;
            const u32 *exponents_a = (const u32 *)(chunks_a + stage * (i64)CHUNK_A + (8 * STAGE + 4 * MASKS) * BLOCK_M);
            const u16 *exponents_b = (const u16 *)(chunks_b + stage * (i64)CHUNK_B + (8 * STAGE + 4 * MASKS) * BLOCK_N);
            pair = pair_max(exponents_a[place * BLOCK_M + at_m], exponents_b[place * BLOCK_N + at_n] * 0x10001u, pair);
        }
        const u32 unit = TheStep::unit<false>(pair << 20, c);
        if (TheStep::special(unit)) states.multiply(1, w.flags_a + (m * w.steps + step) * WORDS, w.flags_b + (n * w.steps + step) * WORDS, WORDS);
        const double first = WITHIN ? TheStep::of_addend(unit, c) : TheStep::empty(unit);
        double sum = WITHIN ? 0.0 : TheStep::cut_addend(unit, c);
        u32 high = high_of(first), low = low_of(first);
        for (int k = 0; k < LENGTH; k++) {
            const int span = (step + AHEAD) * SPANS + k / SPAN, stage = span / SPANS_OF_STAGE, inner = span % SPANS_OF_STAGE;
            const u8 *a = chunks_a + stage * (i64)CHUNK_A, *b = chunks_b + stage * (i64)CHUNK_B;
            const int place = inner * SPAN + k % SPAN, mask = inner * (SPAN + 1) + k % SPAN;
            const u32 *masks_a = (const u32 *)(a + 8 * STAGE * BLOCK_M) + mask * BLOCK_M + at_m;
            const u32 *masks_b = (const u32 *)(b + 8 * STAGE * BLOCK_N) + mask * BLOCK_N + at_n;
            low ^= masks_a[0] ^ masks_b[0];
            const double next = fused_rz(((const double *)a)[place * BLOCK_M + at_m], ((const double *)b)[place * BLOCK_N + place_n], join(high, low));
            high = high_of(next), low = low_of(next);
            if (k % PART != PART - 1) continue;
            sum += TheStep::value(high, low ^ masks_a[BLOCK_M] ^ masks_b[BLOCK_N]);
            low = 0;
        }
        u32 most = 0;
        sum = TheStep::begun(sum, most);
        const bool rare = TheStep::rare(most);
        if (rare) states.put(TheStep::beyond(sum) >> 31, high_of(sum) >> 31);
        c = TheStep::usually(sum);
        if (rare) c = (int)TheStep::beyond(c) < 0 ? 0.0 : TheStep::rarely(c);
        if (APART && step % STEPS == STEPS - 1) {
            total = TheStep::added(total, states.value(1, c));
            states = {0, 0};
        }
    }
    return TheStep::code(APART ? total : states.value(1, c));
}
extern "C" void engine_gemm(const Problem *p, const Workspace *w) {
    for (int step = 0; step < w->steps; step++) {
        for (i64 m = 0; m < (p->m + BLOCK_M - 1) / BLOCK_M * BLOCK_M; m++) decode<true, BLOCK_M>(*p, *w, m, step);
        for (i64 n = 0; n < (p->n + BLOCK_N - 1) / BLOCK_N * BLOCK_N; n++) decode<false, BLOCK_N>(*p, *w, n, step);
    }
    for (i64 i = 0; i < (i64)p->m * p->n; i++) ((CodeD *)p->d)[i] = (CodeD)output_on_cpu(*p, *w, i / p->n, i % p->n);
}
#endif
