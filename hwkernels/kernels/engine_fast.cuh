// Fused dot-adds of large products, on GPUs with a full-rate f64 unit.
//
// Of one step, with E the largest exponent, u = 2**(E - F) is the unit that terms are cut to. An accumulator is an f64 whose high word says
// 2**52 u and whose low word counts units. Then fma(|a|, |b|, accumulator), rounded towards zero, aligns the product, cuts it and adds it.
// A negative product is subtracted by complementing the low word before and after: ~(~y + x) = y - x. Between two products of a chain
// the two complements join: the low word is complemented where the signs of neighbours differ. What overflows the low word goes into
// fraction bits of the high word that nothing reads. So a product costs one DFMA and one LOP3, and half a VIADDMNMX for E.
//
// Exponents: those of a carry the bias of the accumulator's exponent field. Sums of codes tell what a product is: with SPECIAL in it,
// bit 11 is set; with NOTHING or ZERO in it, it is below every floor.
#pragma once
#include "engine_steps.cuh"

enum { ZERO_EXPONENT = -300, SPECIAL_EXPONENT = 1400, NOTHING_EXPONENT = -2000 };

struct Factor {  // one element, decoded
    double magnitude;  // 0 if it is not finite
    int exponent;      // unbiased, or one of the three above
    u32 sign;          // 0 or ~0
    int kind;          // Kind
};

template <class A>
FN Factor factor_of(u64 code) {
    const Parts x = A::parts(code);
    Factor f;
    f.kind = x.kind;
    f.sign = x.sign ? ~0u : 0u;
    f.exponent = x.kind == ZERO ? ZERO_EXPONENT : x.kind == FINITE ? x.exponent : SPECIAL_EXPONENT;
    f.magnitude = x.kind == FINITE ? as_double((u64)(x.exponent - A::As::FRACTION_BITS + 1023 + 52) << 52) *
                                         (as_double(1075ull << 52 | x.significand) - as_double(1075ull << 52)) *
                                         as_double((u64)(1023 - 52) << 52)
                                   : 0.0;
    return f;
}

template <class A, class S>
FN Factor scaled_factor_of(u64 code, u64 scale) {
    Factor f = factor_of<A>(code);
    const Parts s = parts_of<S>(scale);
    f.kind = product_kind(f.kind, s.kind);
    if (f.kind == FINITE) {
        f.exponent += s.exponent;
        f.magnitude *= value_of<S>(scale);
        f.magnitude = f.magnitude < 0 ? -f.magnitude : f.magnitude;
    } else {
        f.magnitude = 0;
        f.exponent = f.kind == ZERO ? ZERO_EXPONENT : SPECIAL_EXPONENT;
    }
    f.sign ^= s.sign ? ~0u : 0u;
    return f;
}

struct Flags {  // of the elements of a step, one bit each: infinite and zero both set is NaN; `there`: the element exists
    u32 infinite, zero, sign, there;
};
FN void note(Flags &flags, const Factor &f, int place) {
    const u32 bit = 1u << place;
    flags.infinite |= f.kind >= INFINITE ? bit : 0;
    flags.zero |= f.kind == ZERO || f.kind == NOT_A_NUMBER ? bit : 0;
    flags.sign |= f.sign & bit;
    flags.there |= bit;
}

// Which outputs are not finite any more, one bit each: both are NaN. Their sums go on as numbers that nothing reads.
struct States {
    u32 plus, minus;
    FN_MEMBER u32 any() const { return plus | minus; }
    FN_MEMBER u32 nan() const { return plus & minus; }
    FN_MEMBER void start(u32 bit, double c) {  // an addend that is not finite
        const u64 bits = bits_of(c), infinity = 0x7FFull << 52;
        if (bits != infinity) minus |= bit;
        if (bits != (infinity | 1ull << 63)) plus |= bit;
    }
    FN_MEMBER void put(u32 infinite, u32 negative) {  // sums beyond the range of the result
        infinite &= ~any();
        plus |= infinite & ~negative;
        minus |= infinite & negative;
    }
    FN_MEMBER double value(u32 bit, double c) const {
        const u64 infinity = 0x7FFull << 52;
        return !(any() & bit) ? c : as_double(nan() & bit ? infinity | 1ull << 51 : (u64)((minus & bit) != 0) << 63 | infinity);
    }
    // The products of a step.
    FN_MEMBER void multiply(u32 bit, const Flags *a, const Flags *b, int words) {
        for (int i = 0; i < words; i++) {
            const Flags x = a[i], y = b[i];
            const u32 there = x.there & y.there, nans = (x.infinite & x.zero) | (y.infinite & y.zero);
            const u32 infinite = there & (x.infinite | y.infinite), sign = x.sign ^ y.sign;
            const bool nan = (there & (nans | (x.infinite & y.zero) | (x.zero & y.infinite))) != 0;
            if (nan || infinite & ~sign) plus |= bit;
            if (nan || infinite & sign) minus |= bit;
        }
    }
};
FN bool is_nan(double x) { return x != x; }
FN double magnitude_of(double x) { return fabs(x); }
FN bool is_finite(double x) { return (bits_of(x) >> 52 & 0x7FF) != 0x7FF; }

#ifdef __CUDACC__
FN double join(u32 high, u32 low) { return __hiloint2double((int)high, (int)low); }
FN u32 high_of(double x) { return (u32)__double2hiint(x); }
FN u32 low_of(double x) { return (u32)__double2loint(x); }
FN double fused_rz(double x, double y, double z) { return __fma_rz(x, y, z); }
FN double sum_rz(double x, double y) { return __dadd_rz(x, y); }
FN u32 f32_rz(double x) { return __float_as_uint(__double2float_rz(x)); }
FN u32 pair_max(u32 x, u32 y, u32 z) { return __viaddmax_s16x2(x, y, z); }  // max(x + y, z) of both halves
FN u32 sum_max(u32 x, u32 y, u32 z) { return __viaddmax_u32(x, y, z); }
FN u32 shifted_in(u32 x, u32 y) { return __funnelshift_l(y, x, 1); }  // the sign bit of y, below the bits of x
#else
FN double join(u32 high, u32 low) { return as_double((u64)high << 32 | low); }
FN u32 high_of(double x) { return (u32)(bits_of(x) >> 32); }
FN u32 low_of(double x) { return (u32)bits_of(x); }
FN double fused_rz(double x, double y, double z) { return fused<RZ>(x, y, z); }
FN double sum_rz(double x, double y) { return fused<RZ>(x, 1.0, y); }
FN u32 f32_rz(double x) {
    std::fesetround(FE_TOWARDZERO);
    volatile double y = x;
    const volatile float d = (float)y;
    std::fesetround(FE_TONEAREST);
    return bits32(d);
}
FN u32 pair_max(u32 x, u32 y, u32 z) {
    u32 found = 0;
    for (int half = 0; half < 32; half += 16) {
        const short sum = (short)((x >> half) + (y >> half)), other = (short)(z >> half);
        found |= (u32)(u16)(sum > other ? sum : other) << half;
    }
    return found;
}
FN u32 sum_max(u32 x, u32 y, u32 z) { return x + y > z ? x + y : z; }
#endif

// An accumulator whose low word is complemented where one of two masks, not both, is ~0.
FN double complemented(double sum, u32 x, u32 y) { return as_double(bits_of(sum) ^ (u64)x ^ (u64)y); }

// How a step begins and ends. U as in engine_steps.cuh. An addend is held as an f64 that has no more bits than its format C.
template <class U, class C, bool WIDE>
struct Step {
    typedef typename U::Output Output;
    enum { BIAS = 1075 - U::FRACTION_BITS, LOWEST = BIAS + U::FLOOR };  // of the exponent field
    static constexpr bool HALF = Output::EXPONENT_BITS == 5;
    static constexpr u32 LEAST = (u32)(C::MINIMUM_EXPONENT + 1023) << 20;

    // The high word of 2**52 u, whose fraction nobody reads: `products` is the field of the products' largest exponent, at least LOWEST, shifted to its place.
    // NORMAL: c is no subnormal number, or `products` is at least LEAST_FIELD.
    template <bool NORMAL>
    FN u32 unit(u32 products, double c) {
        u32 field = high_of(c) & 0x7FF00000u;
        if (!NORMAL && (WIDE || HALF || U::DROPPED) && is_subnormal(c)) field = LEAST;
        return sum_max(field, (u32)(BIAS - 1023) << 20, products);
    }
    // Subnormals share the smallest exponent of their format; where that is not looked at, they lie far below any product.
    FN bool is_subnormal(double c) { return (high_of(c) & 0x7FF00000u) - 1 < LEAST - 1; }
    enum { LEAST_FIELD = C::MINIMUM_EXPONENT + BIAS };
    // Whether one of the products is infinite or NaN.
    FN bool special(u32 products) { return (int)products < 0; }
    // An accumulator that holds nothing, or c where that is counted among the products.
    FN double empty(u32 unit) { return join(unit, 0); }
    FN double of_addend(u32 unit, double c) {
        const u32 mask = (u32)((int)high_of(c) >> 31);
        return complemented(sum_rz(join(unit, mask), magnitude_of(c)), mask, 0);
    }
    // c cut to a multiple of u.
    FN double cut_addend(u32 unit, double c) {
        const double base = join((unit & 0xFFF00000u) | (high_of(c) & 0x80000000u), 0);
        return sum_rz(c, base) - base;
    }
    // The value of an accumulator whose low word is its count plus 2**31.
    FN double value(u32 unit, u32 biased) { return join(unit, biased) - join(unit, 0x80000000u); }
    // The sum rounded as the unit does is `usually` of `begun`; where the largest of some sums is `rare` it is `rarely` of that, and it may be `beyond` the range.
    FN double begun(double sum, u32 &most) {
        if (HALF) {  // to nearest even: a number whose last place is that of the result comes and goes
            const u32 field = high_of(sum) & 0x7FF00000u, least = 1009u << 20;
            const double shift = join((field > least ? field : least) + (42u << 20) + 0x80000u, 0);
            sum = (sum + shift) - shift;
            most = sum_max(high_of(sum) + high_of(sum), 0, most);
        } else if (WIDE) {
            most = sum_max(high_of(sum) + high_of(sum), 0u - (897u << 21), most);
        }
        return sum;
    }
    FN bool rare(u32 most) { return (HALF || WIDE) && most >= (HALF ? 1039u : 1151u - 897u) << 21; }
    FN double usually(double sum) {
        if (HALF) return sum;
        if (U::DROPPED) return join(high_of(sum) & ~((1u << (U::DROPPED - 3)) - 1), 0);
        return as_double(bits_of(sum) & ~0x1FFFFFFFull);
    }
    // Whether the result is infinite, in the sign bit.
    FN u32 beyond(double sum) { return ((HALF ? 1039u : 1151u) << 20) - 1 - (high_of(sum) & 0x7FFFFFFFu); }
    FN double rarely(double sum) {  // below the range of normal numbers it has fewer bits: a number with its last place comes and goes
        if (!WIDE || HALF) return sum;
        enum { PLACES = 29 + U::DROPPED };
        const u32 field = sum_max(high_of(sum) & 0x7FF00000u, (u32)PLACES << 20, (u32)(897 + PLACES) << 20);
        const double place = join(field | (high_of(sum) & 0x80000000u), 0);
        return sum_rz(sum, place) - place;
    }
    // An ordinary addition in the result's format. A sum of two f16 is exact in f64.
    FN double added(double x, double y) {
        if (!HALF) return (double)sum32((float)x, (float)y);
        u32 most = 0;
        const double sum = begun(x + y, most);
        return rare(most) && is_finite(sum) ? join((high_of(sum) & 0x80000000u) | 0x7FF00000u, 0) : sum;
    }
    FN double addend(u64 code) { return value_of<C>(code); }
    FN u32 code(double c) {
        if (is_nan(c)) return (u32)Output::CANONICAL_NAN;
        return HALF ? (u32)nearest<f16>(c) : f32_rz(c);
    }
};
