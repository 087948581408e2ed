// Inputs of a campaign: each code is a function of seed, sample, operand and element, so that any part can be made again, anywhere.
// conformance/campaign/stimulus.py is the same in NumPy. Random words: Philox4x32-10 (Salmon and others, SC 2011).
#pragma once
#include "engine_numbers.cuh"

struct Words {
    u32 x[4];
};
FN Words philox(u32 a, u32 b, u32 c, u32 d, u64 seed) {
    u32 key0 = (u32)seed, key1 = (u32)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const u64 p = (u64)0xD2511F53u * a, q = (u64)0xCD9E8D57u * c;
        const u32 next_a = (u32)(q >> 32) ^ b ^ key0, next_c = (u32)(p >> 32) ^ d ^ key1;
        b = (u32)q, d = (u32)p, a = next_a, c = next_c;
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    const Words found = {{a, b, c, d}};
    return found;
}

enum Class { BITS, WIDE, NEAR, ALIGNED, CANCELLING, FLOORED, EXTREME, TIED, CLASSES };
enum Operand { OPERAND_A, OPERAND_B, OPERAND_C, OPERAND_SCALE_A, OPERAND_SCALE_B, OPERAND_GROUPS, OPERAND_SAMPLE };

template <class F>
FN u32 composed(u32 sign, int field, u32 fraction) {
    const int top = (1 << F::EXPONENT_BITS) - 1;
    field = field < 0 ? 0 : field > top ? top : field;
    const u32 code = (fraction & ((1u << F::FRACTION_BITS) - 1)) | (u32)field << F::FRACTION_BITS | (F::SIGNED ? (sign & 1) << F::SIGN_SHIFT : 0);
    return code << F::IGNORED_LOW_BITS;
}

// The code of an element. `pair`: the first element of its pair along K; `k` of `depth`: its place along the K of products. FRACTION and
// FLOOR are those of the unit, PRECISION the significant bits of the result.
template <class F, int OPERAND, int FRACTION, int FLOOR, int PRECISION>
FN u32 code_of(u64 seed, u64 sample, u32 element, u32 pair, u32 k, u32 depth) {
    const Words s = philox(0, OPERAND_SAMPLE, (u32)sample, (u32)(sample >> 32), seed);
    const int kind = s.x[0] % CLASSES;
    const bool paired = kind == CANCELLING && OPERAND != OPERAND_C;
    const Words r = philox(paired ? pair : element, OPERAND, (u32)sample, (u32)(sample >> 32), seed);
    const int top = (1 << F::EXPONENT_BITS) - 1, last = F::NAN_CODES == IEEE_NAN ? top - 1 : top, steps = last + 1;
    const u32 bits = r.x[0], chosen = s.x[1] % depth;
    const int small = r.x[1] & 3, base = s.x[2] % steps;
    u32 sign = bits >> 31, fraction = r.x[2] & 0x300 ? bits : 0;
    int field = base;
    if (kind == BITS) return F::IGNORED_LOW_BITS ? bits : bits & (((F::SIGNED ? 2u : 1u) << F::SIGN_SHIFT) - 1u);
    if (kind == WIDE) field = r.x[1] % steps;
    if (kind == NEAR) field = base + small > last ? last : base + small;
    if (kind == ALIGNED) {  // one large product; the others F - 1 to F + 2 below it
        const int high = last - (int)(s.x[3] & 3), below = FRACTION - 1 + small;
        field = OPERAND == OPERAND_C ? (r.x[3] & 1 ? high - (int)(r.x[3] >> 8) % (2 * FRACTION) : 0)
                : k == chosen        ? high
                                     : high - (OPERAND == OPERAND_A ? below / 2 : (FRACTION + 1) / 2);
    }
    if (kind == CANCELLING) {  // pairs of opposite products, some of which differ in the last bit
        field = OPERAND == OPERAND_C ? (r.x[3] & 3 ? 0 : r.x[1] % steps) : base + small > last ? last : base + small;
        if (paired && (k & 1)) sign ^= OPERAND == OPERAND_A, fraction ^= OPERAND == OPERAND_A && (r.x[3] & 7) == 0;
    }
    if (kind == FLOORED) {  // products whose exponents are about the floor
        const int target = FLOOR + (int)(s.x[3] % 12) - 4;
        field = OPERAND == OPERAND_C ? (int)(r.x[1] % 6) : (target - (target & 1)) / 2 + F::BIAS + small - 1;
    }
    if (kind == EXTREME) {
        const int ends[4] = {0, 1, last, top};
        const u32 fractions[4] = {0, ~0u, 1, bits};
        field = ends[small], fraction = fractions[r.x[1] >> 2 & 3];
    }
    if (kind == TIED) {  // a number, half a unit of the result's last place, and what is smaller
        const int high = last - (int)(s.x[3] & 3), place = (int)((k + depth - chosen) % depth);
        const int below = place == 0 ? 0 : place == 1 ? PRECISION : PRECISION + 1 + (int)(r.x[3] & 15);
        if (OPERAND == OPERAND_C) field = r.x[3] & 3 ? 0 : high - (int)(r.x[3] >> 8) % 32;
        else field = high - (OPERAND == OPERAND_A ? below / 2 : below - below / 2);
        if (OPERAND != OPERAND_C && place) fraction = 0;
    }
    if ((r.x[2] & 0xF0) == 0 && kind != TIED) field = 0, fraction = 0;
    return composed<F>(sign, field, fraction);
}

FN u64 summand(u64 place, u32 code) {  // of a digest: the sum over all outputs
    u64 x = place * 0x9E3779B97F4A7C15ull + code;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}
