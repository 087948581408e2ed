// One output: an instruction's steps over one block of K after the other, each result the accumulator of the next.
// `instruction` (instruction.cuh), the types CodeA to CodeS and the constants in capitals are generated from the lowering and the formats (hwkernels/engine/source.py).
// It computes every lowering there is, slowly: engine_fast.cuh computes the fused dot-adds of large products.
#pragma once
#include "engine_steps.cuh"
#include "instruction.cuh"

struct Problem {  // strides in elements; those of the batch are 0 where an operand is the same for all
    const void *a, *b, *c, *scale_a, *scale_b;
    const int *columns;  // of a sparse A: the row of B that each kept element meets, counted from the block of each; or null
    const int *order;    // the blocks of K in the order they are accumulated; null: ascending
    void *d;             // (batches, m, n) in C order
    i64 batch_a, batch_b, batch_c, batch_scale_a, batch_scale_b, batch_columns;
    i64 a_m, a_k, b_k, b_n, c_m, c_n, scale_a_m, scale_a_k, scale_b_k, scale_b_n, columns_m;
    i64 outputs;  // batches * m * n
    int m, n, width, depth, blocks, scales;  // elements of a row of A, of a column of B, steps, factors of a row
};

#ifndef IN_ORDER
#define IN_ORDER
#endif
// The operands of one output in one block of K. Beyond the end of K everything is the code 0.
struct Place {
    const IN_ORDER CodeA *row;  // volatile: fewer of them wait in registers
    const CodeB *column;
    const CodeS *factors_a, *factors_b;
    const int *columns;
    i64 a_k, b_k, scale_a_k, scale_b_k;
    int width, depth, scales;
    FN_MEMBER u64 a(int k) const { return k < width ? (u64)row[k * a_k] : 0; }
    FN_MEMBER u64 b(int k) const {
        if (SPARSE) return k < width && columns[k] < depth ? (u64)column[columns[k] * b_k] : 0;
        return k < depth ? (u64)column[k * b_k] : 0;
    }
    FN_MEMBER u64 scale_a(int i) const { return i < scales ? (u64)factors_a[i * scale_a_k] : 0; }
    FN_MEMBER u64 scale_b(int i) const { return i < scales ? (u64)factors_b[i * scale_b_k] : 0; }
};

FN u64 output_of(const Problem &p, i64 index) {
    const i64 line = index / p.n, column = index - line * p.n, batch = line / p.m, row = line - batch * p.m;
    const CodeA *a = (const CodeA *)p.a + batch * p.batch_a + row * p.a_m;
    const CodeB *b = (const CodeB *)p.b + batch * p.batch_b + column * p.b_n;
    const CodeS *s = (const CodeS *)p.scale_a + batch * p.batch_scale_a + row * p.scale_a_m;
    const CodeS *t = (const CodeS *)p.scale_b + batch * p.batch_scale_b + column * p.scale_b_n;
    const int *columns = SPARSE ? p.columns + batch * p.batch_columns + row * p.columns_m : nullptr;
    u64 total = ((const CodeC *)p.c)[batch * p.batch_c + row * p.c_m + column * p.c_n];
    for (int step = 0; step < p.blocks; step++) {
        const i64 block = p.order ? p.order[step] : step;
        const i64 first_a = block * KEPT, first_b = block * DEPTH, first_scale = block * SCALES;
        const Place place = {a + first_a * p.a_k, b + first_b * p.b_k, s + first_scale * p.scale_a_k, t + first_scale * p.scale_b_k,
                             SPARSE ? columns + first_a : nullptr, p.a_k, p.b_k, p.scale_a_k, p.scale_b_k,
                             (int)(p.width - first_a), (int)(p.depth - first_b), (int)(p.scales - first_scale)};
        total = instruction(place, total);
    }
    return total;
}
