// One element converted from a number format to another, in integers. A conversion is a struct of constants that
// conformance/conversions/source.py writes from the registry. It is CUDA C++ and plain C++.

enum Kind { NUMBER, INFINITE, NOT_A_NUMBER };
enum Direction { RNE, RNA, RZ, RM, RP };

// (-1)**sign * magnitude * 2**exponent
struct Value {
    u64 magnitude;
    int sign, exponent, kind;
};

template <class F>
FN Value value_of(u64 code) {
    Value x = {0, 0, 0, NUMBER};
    if (!F::FLOAT) {
        const u64 all = (1ull << F::BITS) - 1;
        x.sign = F::SIGNED && (code >> (F::BITS - 1) & 1);
        x.magnitude = x.sign ? (0 - code) & all : code & all;
        return x;
    }
    const u64 raw = code >> F::IGNORED_LOW_BITS, ones = (1ull << F::FRACTION_BITS) - 1, top = (1ull << F::EXPONENT_BITS) - 1;
    const u64 fraction = raw & ones, field = raw >> F::FRACTION_BITS & top;
    x.sign = (int)(raw >> F::SIGN_SHIFT & 1);
    x.magnitude = field ? fraction | 1ull << F::FRACTION_BITS : fraction;
    x.exponent = (field ? (int)field : 1) - F::BIAS - F::FRACTION_BITS;
    if (F::HAS_INFINITY && field == top) x.kind = fraction ? NOT_A_NUMBER : INFINITE;
    if (!F::HAS_INFINITY && F::HAS_NAN && field == top && fraction == ones) x.kind = NOT_A_NUMBER;
    return x;
}

// magnitude / 2**shift as an integer, by one rounding; a negative shift multiplies.
FN u64 shifted(int sign, u64 magnitude, int shift, int direction) {
    if (shift <= 0) return magnitude << -shift;
    const u64 kept = shift > 63 ? 0 : magnitude >> shift, rest = shift > 63 ? magnitude : magnitude & ((1ull << shift) - 1);
    const u64 half = shift > 63 ? 0 : 1ull << (shift - 1);  // beyond, every magnitude is less than half
    const int above = half && rest > half, tie = half && rest == half;
    int up = 0;
    if (direction == RNE) up = above || (tie && (kept & 1));
    if (direction == RNA) up = above || tie;
    if (direction == RM) up = sign && rest;
    if (direction == RP) up = !sign && rest;
    return kept + up;
}

template <class C>
FN u64 as_float(Value x) {
    typedef typename C::Target F;
    const u64 top = (u64)x.sign << F::SIGN_SHIFT;
    const u64 beyond = C::SATURATE || !F::HAS_NAN ? F::LARGEST : F::LARGEST + 1;
    u64 code = beyond;
    if (x.kind == NUMBER) {
        if (!x.magnitude) return top << F::IGNORED_LOW_BITS;
        const int lowest = 1 - F::BIAS - F::FRACTION_BITS;
        int unit = length_of(x.magnitude) - 1 + x.exponent - F::FRACTION_BITS;
        if (unit < lowest) unit = lowest;
        code = ((u64)(unit - lowest) << F::FRACTION_BITS) + shifted(x.sign, x.magnitude, unit - x.exponent, C::DIRECTION);
        const int stays = C::DIRECTION == RZ || (C::DIRECTION == RM && !x.sign) || (C::DIRECTION == RP && x.sign);
        if (code > F::LARGEST) code = stays ? F::LARGEST : beyond;
    }
    return (code | top) << F::IGNORED_LOW_BITS;
}

template <class C>
FN u64 as_integer(Value x) {
    typedef typename C::Target F;
    const u64 most = (1ull << (F::BITS - F::SIGNED)) - 1, least = F::SIGNED ? most + 1 : 0;  // the magnitude of the least
    const int large = x.kind == INFINITE || (x.magnitude && length_of(x.magnitude) + x.exponent > 40);
    const u64 rounded = large ? 1ull << 40 : shifted(x.sign, x.magnitude, -x.exponent, C::DIRECTION);
    const u64 bound = x.sign ? least : most, magnitude = rounded > bound ? bound : rounded;
    return (x.sign ? 0 - magnitude : magnitude) & (most | least);
}

template <class C>
FN u64 nan_of(u64 code) {
    typedef typename C::Source S;
    typedef typename C::Target F;
    if (!C::KEEPS_NAN) return C::NAN_BECOMES;
    const u64 raw = code >> S::IGNORED_LOW_BITS, fraction = raw & ((1ull << S::FRACTION_BITS) - 1);
    const int wider = F::FRACTION_BITS - S::FRACTION_BITS;
    u64 payload = wider >= 0 ? fraction << (wider >= 0 ? wider : 0) : fraction >> (wider < 0 ? -wider : 0);
    if (C::QUIET) payload |= 1ull << (F::FRACTION_BITS - 1);
    const u64 head = (raw >> S::SIGN_SHIFT & 1) << F::SIGN_SHIFT | (F::LARGEST + 1);
    return ((head | payload) - C::NAN_LESS) << F::IGNORED_LOW_BITS;
}

template <class C>
FN u64 converted(u64 code) {
    typedef typename C::Target F;
    const Value x = value_of<typename C::Source>(code);
    if (x.kind == NOT_A_NUMBER) return nan_of<C>(code);
    const u64 result = F::FLOAT ? as_float<C>(x) : as_integer<C>(x);
    const u64 negative = F::SIGNED ? result >> (F::BITS + F::IGNORED_LOW_BITS - 1) & 1 : 0;
    return C::RELU && negative ? 0 : result;
}
