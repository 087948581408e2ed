// Numbers of any format as integers: what a code says, and a sum rounded to a code. The constants of the formats come from the registry.
// The same text is compiled by NVRTC for a GPU and by a C++ compiler for tests.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#ifdef __CUDACC__
#define FN static __device__ __forceinline__
#define FN_MEMBER __device__ __forceinline__
#define CONSTANT static __device__ const
FN int length_of(u64 x) { return 64 - __clzll((i64)x); }
#else
#include <cfenv>
#include <cmath>
#include <cstring>
#define FN static inline
#define FN_MEMBER inline
#define CONSTANT static const
FN int length_of(u64 x) { return x ? 64 - __builtin_clzll(x) : 0; }
#endif

#include "formats.cuh"

enum Kind { ZERO, FINITE, INFINITE, NOT_A_NUMBER };
enum NanCodes { NO_NAN, IEEE_NAN, ALL_ONES_NAN };
enum { NO_EXPONENT = -16000 };  // of a zero: the sum of several lies below every other

// value = (-1)**sign * significand * 2**(exponent - FRACTION_BITS); a subnormal keeps the smallest exponent of its format
struct Parts {
    u32 sign;
    int exponent;
    u64 significand;
    int kind;
};

template <class F>
FN Parts parts_of(u64 code) {
    const u64 raw = code >> F::IGNORED_LOW_BITS;
    const u64 fraction = raw & ((1ull << F::FRACTION_BITS) - 1), field = (raw >> F::FRACTION_BITS) & ((1ull << F::EXPONENT_BITS) - 1);
    const u64 top = (1ull << F::EXPONENT_BITS) - 1, ones = (1ull << F::FRACTION_BITS) - 1;
    const bool hidden = !F::HAS_ZERO || field != 0;
    Parts x;
    x.sign = F::SIGNED ? (u32)(raw >> F::SIGN_SHIFT) & 1 : 0;
    x.significand = fraction | (hidden ? 1ull << F::FRACTION_BITS : 0);
    x.exponent = hidden ? (int)field - F::BIAS : F::MINIMUM_EXPONENT;
    x.kind = x.significand ? FINITE : ZERO;
    if (F::NAN_CODES == IEEE_NAN && field == top && fraction) x.kind = NOT_A_NUMBER;
    if (F::NAN_CODES == ALL_ONES_NAN && field == top && fraction == ones) x.kind = NOT_A_NUMBER;
    if (F::HAS_INFINITY && field == top && !fraction) x.kind = INFINITE;
    return x;
}

// The same number as a wider format holds it: a subnormal may become normal there.
template <class F, class W>
FN Parts widened(Parts x) {
    x.significand <<= W::FRACTION_BITS - F::FRACTION_BITS;
    if (x.kind == FINITE) {
        int shift = W::FRACTION_BITS + 1 - length_of(x.significand);
        const int most = x.exponent - W::MINIMUM_EXPONENT;
        if (shift > most) shift = most;
        x.significand <<= shift;
        x.exponent -= shift;
    }
    return x;
}

// A code of F read as the wider W, or as F itself.
template <class F, class W>
struct Read {
    typedef W As;
    FN Parts parts(u64 code) { return widened<F, W>(parts_of<F>(code)); }
};
template <class F>
struct Read<F, F> {
    typedef F As;
    FN Parts parts(u64 code) { return parts_of<F>(code); }
};

enum Rounding { RNE, RZ, RM, RP };

// magnitude * 2**exponent rounded to F, whose lowest `dropped` fraction bits are cut; beyond the largest number it is infinite.
template <class F, int ROUNDING>
FN u64 rounded(u32 sign, u64 magnitude, int exponent, int dropped) {
    const u64 top = (u64)sign << F::SIGN_SHIFT;
    if (!magnitude) return top;
    const int lowest = F::MINIMUM_EXPONENT - F::FRACTION_BITS, leading = length_of(magnitude) - 1 + exponent;
    int unit = leading - F::FRACTION_BITS;
    if (unit < lowest) unit = lowest;
    const int shift = unit - exponent;
    u64 kept = shift > 63 ? 0 : shift > 0 ? magnitude >> shift : magnitude << -shift;
    if (ROUNDING == RNE && shift > 0) {
        const u64 rest = shift > 63 ? magnitude : magnitude & ((1ull << shift) - 1), half = shift > 64 ? ~0ull : 1ull << (shift - 1);
        kept += rest > half || (rest == half && (kept & 1));
    }
    const u64 infinity = ((1ull << F::EXPONENT_BITS) - 1) << F::FRACTION_BITS;
    u64 code = ((u64)(unit - lowest) << F::FRACTION_BITS) + kept;
    if (code >= infinity) code = infinity;
    return top | (code >> dropped << dropped);
}
