// A campaign's kernels: operands as codes for the engine, the same as registers and images for the instruction, and the comparison.
// The constants and formats are generated (conformance/campaign/subject.py).
#include "stimulus.cuh"
#include "subject.cuh"

// The code of an element of an operand; of GROUPS: the 4-bit metadata of a group.
FN u32 generated(int operand, u32 element, u64 seed, u64 sample) {
    if (operand == OPERAND_A) {
        const u32 k = element % KEPT, row = element / KEPT;
        return code_of<FormatA, OPERAND_A, FRACTION, FLOOR, PRECISION>(seed, sample, element, row * KEPT + (k & ~1u), k, KEPT);
    }
    if (operand == OPERAND_B) {
        const u32 k = element / N, column = element % N;
        return code_of<FormatB, OPERAND_B, FRACTION, FLOOR, PRECISION>(seed, sample, element, (k & ~1u) * N + column, k * KEPT / K, KEPT);
    }
    if (operand == OPERAND_C) return code_of<FormatC, OPERAND_C, FRACTION, FLOOR, PRECISION>(seed, sample, element, element, 0, KEPT);
    return GROUP_CODES[philox(element, OPERAND_GROUPS, (u32)sample, (u32)(sample >> 32), seed).x[0] % LEGAL];
}

#ifdef __CUDACC__
#define FOR_EACH(index, count) \
    for (u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x; index < (count); index += step)

template <class Code>
FN void write_codes(Code *out, int operand, u32 elements, u64 first, u64 samples, u64 seed) {
    FOR_EACH(i, samples * elements) out[i] = (Code)generated(operand, i % elements, seed, first + i / elements);
}
extern "C" __global__ void campaign_a(CodeA *out, u64 first, u64 samples, u64 seed) { write_codes(out, OPERAND_A, M * KEPT, first, samples, seed); }
extern "C" __global__ void campaign_b(CodeB *out, u64 first, u64 samples, u64 seed) { write_codes(out, OPERAND_B, K * N, first, samples, seed); }
extern "C" __global__ void campaign_c(CodeC *out, u64 first, u64 samples, u64 seed) { write_codes(out, OPERAND_C, M * N, first, samples, seed); }

// The row of B that each kept element of a sparse A meets.
extern "C" __global__ void campaign_columns(int *out, u64 first, u64 samples, u64 seed) {
    FOR_EACH(i, samples * (M * KEPT)) {
        const u32 element = i % (M * KEPT), k = element % KEPT, group = element / KEPT * (KEPT / GROUP_KEPT) + k / GROUP_KEPT;
        const u32 code = generated(OPERAND_GROUPS, group, seed, first + i / (M * KEPT));
        out[i] = k / GROUP_KEPT * GROUP_WIDTH + GROUP_PLACES[code * GROUP_KEPT + k % GROUP_KEPT];
    }
}

// An input of the probe: words of units of some bits. A unit is the element of an operand (operand << 24 | element), or, where the table
// has -1, what `constant` has there.
extern "C" __global__ void campaign_words(u32 *out, const int *table, const u32 *constant, u64 words, u64 bits, u64 first, u64 samples, u64 seed) {
    const u32 units = 32 / bits;
    FOR_EACH(i, samples * words) {
        const u32 word = i % words;
        u32 value = constant[word];
        for (u32 unit = 0; unit < units; unit++) {
            const int place = table[word * units + unit];
            if (place < 0) continue;
            const u32 mask = (u32)((1ull << bits) - 1) << unit * bits;
            value = (value & ~mask) | generated(place >> 24, place & 0xFFFFFF, seed, first + i / words) << unit * bits;
        }
        out[i] = value;
    }
}

// found: outputs, mismatches, the digest of the hardware's, then the places of the first mismatches.
extern "C" __global__ void campaign_compare(u64 *found, const CodeD *hardware, const CodeD *engine, const int *table, u64 stride, u64 first, u64 samples) {
    u64 sum = 0, wrong = 0, outputs = 0;
    FOR_EACH(i, samples * (M * N)) {
        const u64 sample = i / (M * N), element = i % (M * N);
        const CodeD got = hardware[sample * stride + table[element]], want = engine[i];
        sum += summand((first + sample) * (M * N) + element, got);
        outputs++;
        if (got != want) {
            wrong++;
            const u64 place = atomicAdd(found + 3, 1ull);
            if (place < SHOWN) found[4 + place] = first * (M * N) + i;
        }
    }
    for (int lane = 16; lane; lane /= 2) {
        sum += __shfl_xor_sync(~0u, sum, lane);
        wrong += __shfl_xor_sync(~0u, wrong, lane);
        outputs += __shfl_xor_sync(~0u, outputs, lane);
    }
    if (threadIdx.x % 32 == 0) atomicAdd(found, outputs), atomicAdd(found + 1, wrong), atomicAdd(found + 2, sum);
}
#else
extern "C" void campaign_codes(u32 *out, int operand, u64 elements, u64 first, u64 samples, u64 seed) {
    for (u64 i = 0; i < samples * elements; i++) out[i] = generated(operand, i % elements, seed, first + i / elements);
}
#endif
