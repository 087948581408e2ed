// The steps that instructions lower to, for one output: fused dot-adds, plain or scaled by blocks, and ordinary IEEE arithmetic.
// Rules: docs/numerics.md, "The fused dot-add step". An operand is read through an accessor: code of a, b at a place k, of a scale
// at a block. Everything is integer arithmetic of 64 bits except the ordinary operations of f32 and f64.
#pragma once
#include "engine_numbers.cuh"

template <class S>
struct Term {  // significand * 2**(exponent - fraction bits of the term)
    S significand;
    int exponent;
};
template <bool SMALL>
struct Integer { typedef i64 type; };
template <>
struct Integer<true> { typedef int type; };  // half the registers

struct Specials {  // what infinities and NaN among the terms make of the sum
    bool nan, plus, minus;
    FN void add(Specials &seen, int kind, u32 sign) {
        seen.nan |= kind == NOT_A_NUMBER;
        seen.plus |= kind == INFINITE && !sign;
        seen.minus |= kind == INFINITE && sign;
    }
};

FN int product_kind(int x, int y) {
    if (x == NOT_A_NUMBER || y == NOT_A_NUMBER) return NOT_A_NUMBER;
    if (x == INFINITE || y == INFINITE) return x == ZERO || y == ZERO ? NOT_A_NUMBER : INFINITE;
    return x == ZERO || y == ZERO ? ZERO : FINITE;
}

FN i64 cut(i64 significand, int shift) {  // by 2**shift, towards zero
    const u64 magnitude = significand < 0 ? -(u64)significand : (u64)significand;
    const u64 moved = shift >= 0 ? magnitude << shift : shift > -64 ? magnitude >> -shift : 0;
    return significand < 0 ? -(i64)moved : (i64)moved;
}

// U: FRACTION_BITS, FLOOR, OUTPUT (a format), ROUNDING, DROPPED, ADDEND_SHIFT.
template <class U, class C, int TERMS, int TERM_FRACTION, class S>
FN u64 sum_of(const Term<S> (&terms)[TERMS], Specials seen, u64 c_code) {
    typedef typename U::Output O;
    const Parts c = parts_of<C>(c_code);
    Specials::add(seen, c.kind, c.sign);
    if (seen.nan || (seen.plus && seen.minus)) return O::CANONICAL_NAN;
    if (seen.plus || seen.minus) return (u64)seen.minus << O::SIGN_SHIFT | ((1ull << O::EXPONENT_BITS) - 1) << O::FRACTION_BITS;
    int largest = U::FLOOR;
#pragma unroll
    for (int i = 0; i < TERMS; i++) largest = terms[i].exponent > largest ? terms[i].exponent : largest;
    const int own = c.kind == ZERO ? NO_EXPONENT : c.exponent - U::ADDEND_SHIFT;
    largest = own > largest ? own : largest;
    i64 total = cut(c.sign ? -(i64)c.significand : (i64)c.significand, U::FRACTION_BITS - C::FRACTION_BITS - (largest - own));
#pragma unroll
    for (int i = 0; i < TERMS; i++) total += cut(terms[i].significand, U::FRACTION_BITS - TERM_FRACTION - (largest - terms[i].exponent));
    const u64 magnitude = total < 0 ? -(u64)total : (u64)total;
    const u64 code = rounded<O, U::ROUNDING>(total < 0, magnitude, largest - U::FRACTION_BITS, U::DROPPED);
    return code << (64 - O::SIGN_SHIFT) ? code : 0;  // a zero is +0
}

// A: Read<...> of a, B: of b, K: which places.
template <class A, class B, class C, class U, class K, class In>
FN u64 dot_add(const In &in, u64 c) {
    typedef typename Integer<A::As::FRACTION_BITS + B::As::FRACTION_BITS + 2 < 32>::type Significand;
    Term<Significand> terms[K::COUNT];
    Specials seen = {false, false, false};
#pragma unroll
    for (int i = 0; i < K::COUNT; i++) {
        const Parts x = A::parts(in.a(K::at(i))), y = B::parts(in.b(K::at(i)));
        const int kind = product_kind(x.kind, y.kind);
        const Significand product = (Significand)(x.significand * y.significand);
        Specials::add(seen, kind, x.sign ^ y.sign);
        terms[i].significand = kind != FINITE ? 0 : x.sign ^ y.sign ? -product : product;
        terms[i].exponent = kind == FINITE ? x.exponent + y.exponent : NO_EXPONENT;
    }
    return sum_of<U, C, K::COUNT, A::As::FRACTION_BITS + B::As::FRACTION_BITS>(terms, seen, c);
}

// Each product is a term, scaled by the two factors S of its block of LENGTH places.
template <class A, class B, class C, class S, class U, class K, int LENGTH, class In>
FN u64 scaled_dot_add(const In &in, u64 c) {
    typedef typename Integer<A::As::FRACTION_BITS + B::As::FRACTION_BITS + 2 * S::FRACTION_BITS + 4 < 32>::type Significand;
    Term<Significand> terms[K::COUNT];
    Specials seen = {false, false, false};
#pragma unroll
    for (int i = 0; i < K::COUNT; i++) {
        const Parts x = A::parts(in.a(K::at(i))), y = B::parts(in.b(K::at(i)));
        const Parts s = parts_of<S>(in.scale_a(K::at(i) / LENGTH)), t = parts_of<S>(in.scale_b(K::at(i) / LENGTH));
        const int kind = product_kind(product_kind(x.kind, s.kind), product_kind(y.kind, t.kind));
        const u32 sign = x.sign ^ y.sign ^ s.sign ^ t.sign;
        const Significand product = (Significand)(x.significand * y.significand * s.significand * t.significand);
        Specials::add(seen, kind, sign);
        terms[i].significand = kind != FINITE ? 0 : sign ? -product : product;
        terms[i].exponent = kind == FINITE ? x.exponent + y.exponent + s.exponent + t.exponent : NO_EXPONENT;
    }
    return sum_of<U, C, K::COUNT, A::As::FRACTION_BITS + B::As::FRACTION_BITS + 2 * S::FRACTION_BITS>(terms, seen, c);
}

// GROUP products are summed exactly, then scaled: one term, whose exponent is that of the two factors.
template <class A, class B, class C, class S, class U, class K, int LENGTH, int GROUP, class In>
FN u64 grouped_dot_add(const In &in, u64 c) {
    enum { BELOW = A::As::FRACTION_BITS + B::As::FRACTION_BITS - A::As::MINIMUM_EXPONENT - B::As::MINIMUM_EXPONENT };
    Term<i64> terms[K::COUNT / GROUP];
    Specials seen = {false, false, false};
#pragma unroll
    for (int g = 0; g < K::COUNT / GROUP; g++) {
        const int block = K::at(g * GROUP) / LENGTH;
        const Parts s = parts_of<S>(in.scale_a(block)), t = parts_of<S>(in.scale_b(block));
        i64 sum = 0;  // in units of the smallest product
        bool some = false;
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            const Parts x = A::parts(in.a(K::at(g * GROUP + i))), y = B::parts(in.b(K::at(g * GROUP + i)));
            const i64 product = (i64)(x.significand * y.significand)
                                << (x.exponent - A::As::MINIMUM_EXPONENT + y.exponent - B::As::MINIMUM_EXPONENT);
            sum += x.sign ^ y.sign ? -product : product;
            some |= product != 0;
        }
        const int kind = product_kind(s.kind, t.kind);
        Specials::add(seen, kind == NOT_A_NUMBER ? kind : ZERO, 0);
        terms[g].significand = kind != FINITE ? 0 : sum * (i64)(s.significand * t.significand);
        terms[g].exponent = kind == FINITE && some ? s.exponent + t.exponent : NO_EXPONENT;
    }
    return sum_of<U, C, K::COUNT / GROUP, BELOW + 2 * S::FRACTION_BITS>(terms, seen, c);
}

#ifdef __CUDACC__
FN double as_double(u64 x) { return __longlong_as_double((i64)x); }
FN u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
template <int ROUNDING>
FN double fused(double x, double y, double z) {
    return ROUNDING == RNE ? __fma_rn(x, y, z) : ROUNDING == RZ ? __fma_rz(x, y, z) : ROUNDING == RM ? __fma_rd(x, y, z) : __fma_ru(x, y, z);
}
FN float fused32(float x, float y, float z) { return __fmaf_rn(x, y, z); }
FN float sum32(float x, float y) { return __fadd_rn(x, y); }
FN float product32(float x, float y) { return __fmul_rn(x, y); }
FN float as_float(u32 x) { return __uint_as_float(x); }
FN u32 bits32(float x) { return __float_as_uint(x); }
#else
FN double as_double(u64 x) { double y; std::memcpy(&y, &x, 8); return y; }
FN u64 bits_of(double x) { u64 y; std::memcpy(&y, &x, 8); return y; }
template <int ROUNDING>
FN double fused(double x, double y, double z) {
    const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(modes[ROUNDING]);
    volatile double p = x, q = y, r = z;
    const volatile double d = std::fma(p, q, r);
    std::fesetround(FE_TONEAREST);
    return d;
}
FN float fused32(float x, float y, float z) { return std::fma(x, y, z); }
FN float sum32(float x, float y) { return x + y; }
FN float product32(float x, float y) { return x * y; }
FN float as_float(u32 x) { float y; std::memcpy(&y, &x, 4); return y; }
FN u32 bits32(float x) { u32 y; std::memcpy(&y, &x, 4); return y; }
#endif

// Ordinary arithmetic. X, Y, Z: the operands' formats; a NaN result is the canonical one.
template <class X>
FN double value_of(u64 code) {
    const Parts x = parts_of<X>(code);
    const u64 sign = (u64)x.sign << 63;
    if (x.kind == ZERO) return as_double(sign);
    if (x.kind >= INFINITE) return as_double(sign | 0x7FFull << 52 | (u64)(x.kind == NOT_A_NUMBER) << 51);
    const int leading = length_of(x.significand) - 1;
    const int exponent = x.exponent - X::FRACTION_BITS + leading;
    return as_double(sign | (u64)(exponent + 1023) << 52 | ((x.significand << (52 - leading)) & ((1ull << 52) - 1)));
}
template <class O>
FN u64 nearest(double x) {  // an exact value in f64, rounded to nearest even
    const u64 bits = bits_of(x), sign = bits >> 63, field = bits >> 52 & 0x7FF, fraction = bits & ((1ull << 52) - 1);
    const u64 infinity = ((1ull << O::EXPONENT_BITS) - 1) << O::FRACTION_BITS;
    if (field == 0x7FF) return fraction ? (u64)O::CANONICAL_NAN : sign << O::SIGN_SHIFT | infinity;
    if (!field) return sign << O::SIGN_SHIFT;  // a value of f16 or f32 is never subnormal in f64
    return rounded<O, RNE>((u32)sign, fraction | 1ull << 52, (int)field - 1075, 0);
}
FN u64 canonical32(float x) { return x != x ? 0x7FFFFFFFu : bits32(x); }
template <class X, class O>
FN u64 converted(u64 x) { return nearest<O>(value_of<X>(x)); }
// f16: a sum of two is exact in f64. f32: the operation itself.
template <class X, class Y>
FN u64 add_f16(u64 x, u64 y) { return nearest<f16>(value_of<X>(x) + value_of<Y>(y)); }
template <class X, class Y>
FN u64 add_f32(u64 x, u64 y) { return canonical32(sum32((float)value_of<X>(x), (float)value_of<Y>(y))); }
template <class X, class Y>
FN u64 mul_f32(u64 x, u64 y) { return canonical32(product32((float)value_of<X>(x), (float)value_of<Y>(y))); }
template <class X, class Y, class Z>
FN u64 fma_f32(u64 x, u64 y, u64 z) { return canonical32(fused32((float)value_of<X>(x), (float)value_of<Y>(y), (float)value_of<Z>(z))); }
// f64: a NaN operand passes on, made quiet, that of y first, then z, then x
template <int ROUNDING>
FN u64 fma_f64(u64 x, u64 y, u64 z) {
    const u64 limit = 0x7FFull << 52, quiet = 1ull << 51, magnitude = ~0ull >> 1;
    if ((y & magnitude) > limit) return y | quiet;
    if ((z & magnitude) > limit) return z | quiet;
    if ((x & magnitude) > limit) return x | quiet;
    const double d = fused<ROUNDING>(as_double(x), as_double(y), as_double(z));
    return d != d ? (u64)f64::CANONICAL_NAN : bits_of(d);
}
