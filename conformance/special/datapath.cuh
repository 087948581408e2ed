// The special function unit in integers, one input at a time, and the ordinary arithmetic that stands around it. The tables and the
// constants come before this text (conformance/special/source.py). It is CUDA C++ and plain C++: tests compile it for the CPU too.

FN u32 magnitude(u32 a) { return a & 0x7FFFFFFFu; }
FN int is_nan(u32 a) { return magnitude(a) > 0x7F800000u; }

// The folded square of 17 bits without its columns below 2^19, in units of 2^19.
FN i64 folded_square(u32 x) {
    u64 total = 0;
#pragma unroll
    for (int i = 0; i < 17; i++) {
        const u64 bit = x >> i & 1;
        if (2 * i >= 19) total += bit << 2 * i;
        const int low = i + 1 > 18 - i ? i + 1 : 18 - i;
        if (low < 17) total += bit * ((u64)(x >> low) << (low + low + i + 1 - low));
    }
    return (i64)(total >> 19);
}

FN i64 interpolated(const int *row, u32 x, int a0, int a1, int a2, i64 bias) {
    return ((i64)row[0] << a0) + (i64)row[1] * x * (1 << a1) + row[2] * folded_square(x) * (1 << a2) + bias;
}

// A positive integer in units of 2^unit, cut to 24 significant bits.
FN u32 normalised(i64 value, int unit) {
    if (value <= 0) return 0;
    const int length = length_of((u64)value) - 1;
    const int shift = length - 23, exponent = length + unit + 127;
    const u64 mantissa = shift >= 0 ? (u64)value >> shift : (u64)value << -shift;
    return exponent <= 0 ? 0 : (u32)((u64)exponent << 23) + (u32)(mantissa & 0x7FFFFF);
}

// significand * 2^(exponent - 23), a significand of 2^23 to 2^24.
FN u32 packed(i64 significand, int exponent) {
    const int biased = exponent + 127 + (int)(significand >> 24);
    if (biased <= 0) return 0;
    if (biased >= 255) return 0x7F800000u;
    return (u32)biased << 23 | (significand >> 24 ? 0 : (u32)significand & 0x7FFFFF);
}

FN i64 rcp_sum(u32 m) { return interpolated(RCP_TABLE[m >> 16], (m & 0xFFFF) << 1, RCP_A0, RCP_A1, RCP_A2, RCP_BIAS); }
FN i64 rsqrt_sum(int odd, u32 m) {
    return interpolated(RSQ_TABLE[64 * odd + (m >> 17)], m & 0x1FFFF, RSQRT_A0, RSQRT_A1, RSQRT_A2, RSQRT_BIAS);
}

FN u32 mufu_rcp(u32 a) {
    const u32 sign = a & 0x80000000u, m = a & 0x7FFFFF;
    const int e = a >> 23 & 255;
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (e == 255) return sign;
    if (e == 0) return sign | 0x7F800000u;
    return sign | packed(rcp_sum(m) >> RCP_CUT, 126 - e);
}

FN u32 mufu_rsqrt(u32 a) {
    const u32 m = a & 0x7FFFFF;
    const int e = (int)(a >> 23 & 255) - 127, half = e >> 1;
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (e == -127) return (a & 0x80000000u) | 0x7F800000u;
    if (a >> 31) return 0x7FFFFFFFu;
    if (e == 128) return 0;
    if (!(e & 1) && m == 0) return (u32)(127 - half) << 23;
    return packed(rsqrt_sum(e & 1, m) >> RSQRT_CUT, -half - 1);
}

FN u32 mufu_sqrt(u32 a) {
    const u32 m = a & 0x7FFFFF;
    const int e = (int)(a >> 23 & 255) - 127, odd = e & 1;
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (e == -127) return a & 0x80000000u;
    if (a >> 31) return 0x7FFFFFFFu;
    if (e == 128) return 0x7F800000u;
    const i64 sum = interpolated(SQRT_TABLE[64 * odd + (m >> 17)], m & 0x1FFFF, SQRT_A0, odd, SQRT_A2, SQRT_BIAS);
    return packed(sum >> SQRT_CUT, e >> 1);
}

FN u32 mufu_ex2(u32 a) {
    const int e = (int)(a >> 23 & 255) - 127, negative = a >> 31;
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (e >= 7 && !negative) return 0x7F800000u;  // 128 and more
    if (negative && magnitude(a) > 0x42FC0000u) return 0;  // below -126
    i64 fixed = 0;
    if (e > -127) {
        const i64 significand = (a & 0x7FFFFF) | 0x800000;
        fixed = e >= 0 ? significand << e : e < -23 ? 0 : significand >> -e;
    }
    if (negative) fixed = fixed & 0x7FFFFF ? ~fixed : -fixed;
    const u32 f = (u32)fixed & 0x7FFFFF;
    return packed(interpolated(EX2_TABLE[f >> 17], f & 0x1FFFF, EX2_A0, EX2_A1, EX2_A2, EX2_BIAS) >> EX2_CUT, (int)(fixed >> 23));
}

FN u32 mufu_lg2(u32 a) {
    const u32 m = a & 0x7FFFFF;
    const int e = (int)(a >> 23 & 255) - 127;
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (e == -127) return 0xFF800000u;
    if (a >> 31) return 0x7FFFFFFFu;
    if (e == 128) return 0x7F800000u;
    if (a == 0x3F800000u) return 0;
    const i64 low = interpolated(LG2_TABLE[m >> 17], m & 0x1FFFF, LG2_A0, LG2_A1, LG2_A2, LG2_BIAS) >> LG2_CUT;
    const i64 total = (i64)e * (1ll << 36) + low;
    return total < 0 ? normalised(~total, -36) | 0x80000000u : normalised(total, -36);
}

FN u32 wave(u32 a, u32 ahead) {
    const int e = (int)(a >> 23 & 255) - 127;
    if (e == 128) return 0x7FFFFFFFu;
    u64 fixed = 0;
    if (e > -127 && e < 23) {
        const u64 significand = (a & 0x7FFFFF) | 0x800000;
        fixed = e >= -2 ? significand << (e + 2) : e < -26 ? 0 : significand >> -(e + 2);
    }
    const u32 turn = (u32)fixed & 0x1FFFFFF, quadrant = (turn >> 23) + ahead;
    const u32 z = quadrant & 1 ? ~turn & 0x7FFFFF : turn & 0x7FFFFF;
    const u32 sign = (ahead ? 0 : a & 0x80000000u) ^ (quadrant & 2 ? 0x80000000u : 0);
    return sign | normalised(interpolated(SIN_TABLE[z >> 17], z & 0x1FFFF, SIN_A0, SIN_A1, SIN_A2, SIN_BIAS), -40);
}
FN u32 mufu_sin(u32 a) { return wave(a, 0); }
FN u32 mufu_cos(u32 a) { return wave(a, 1); }

FN u32 mufu_tanh(u32 a) {
    const u32 sign = a & 0x80000000u, m = a & 0x7FFFFF;
    const int e = (int)(a >> 23 & 255) - 127;
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (e < TANH_SEG_TABLE[0][0]) return a;
    if (e >= 3) return sign | 0x3F800000u;
    const int *binade = TANH_SEG_TABLE[e - TANH_SEG_TABLE[0][0]];
    const u32 z = m >> (6 - binade[1]);
    return sign | normalised(interpolated(TANH_TABLE[binade[2] + (z >> 17)], z & 0x1FFFF, TANH_A0, TANH_A1, TANH_A2, TANH_BIAS), -40);
}

// --- 16 bits and 64 bits

FN u32 widened(u32 h) {
    const u32 sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3FF;
    if (e == 31) return sign | 0x7F800000u | m << 13;
    if (e) return sign | (e + 112) << 23 | m << 13;
    if (!m) return sign;
    int shift = 0;
    while (!(m << shift & 0x400)) shift++;
    return sign | (u32)(113 - shift) << 23 | (m << shift & 0x3FF) << 13;
}
FN u32 cut_to_f16(u32 a) {
    const u32 sign = a >> 16 & 0x8000, m = a & 0x7FFFFF;
    const int e = a >> 23 & 255;
    if (is_nan(a)) return 0x7FFF;
    if (e >= 143) return sign | 0x7C00;
    if (e >= 113) return sign | (u32)(e - 112) << 10 | m >> 13;
    const int shift = 126 - e;
    return sign | (e == 0 || shift > 30 ? 0 : (m | 0x800000) >> shift);
}
#define NARROW(name)                                                                                                         \
    FN u32 name##_bf16(u32 h) { return (h & 0x7FFF) > 0x7F80 ? 0x7FFF : mufu_##name(h << 16) >> 16; }                          \
    FN u32 name##_f16(u32 h) { return (h & 0x7FFF) > 0x7C00 ? 0x7FFF : cut_to_f16(mufu_##name(widened(h))); }
NARROW(ex2)
NARROW(tanh)

FN u64 rcp_f64(u64 a) {
    const u32 high = (u32)(a >> 32), sign = high & 0x80000000u, m = (high & 0xFFFFF) << 3;
    const int e = high >> 20 & 0x7FF;
    if (e == 0x7FF) return (u64)(m ? 0x7FFFFFFFu : sign) << 32;
    if (e == 0) return (u64)(sign | 0x7FF00000u) << 32;
    const u32 found = (u32)(rcp_sum(m) >> (RCP_CUT + 3));
    const int biased = 2045 - e + (int)(found >> 21);
    return (u64)(sign | (biased <= 0 ? 0 : (u32)biased << 20 | (found >> 21 ? 0 : found & 0xFFFFF))) << 32;
}
FN u64 rsqrt_f64(u64 a) {
    const u32 high = (u32)(a >> 32), m = (high & 0xFFFFF) << 3;
    const int e = (int)(high >> 20 & 0x7FF) - 1023, half = e >> 1;
    if (e == 1024 && m) return 0x7FFFFFFFull << 32;
    if (e == -1023) return (u64)((high & 0x80000000u) | 0x7FF00000u) << 32;
    if (high >> 31) return 0x7FFFFFFFull << 32;
    if (e == 1024) return 0;
    if (!(e & 1) && !m) return (u64)(u32)(1023 - half) << 52;
    const u32 found = (u32)(rsqrt_sum(e & 1, m) >> (RSQRT_CUT + 3));
    return (u64)((u32)(1022 - half + (int)(found >> 21)) << 20 | (found >> 21 ? 0 : found & 0xFFFFF)) << 32;
}
FN u64 refined(u64 a, u64 start) {
    const u64 top = a & 1ull << 63, size = a ^ top, infinite = 0x7FFull << 52;
    if (size > infinite) return a | 1ull << 51;
    if (size == 0) return a | infinite;
    if (top) return 0xFFF8ull << 48;
    if (size == infinite) return 0;
    const int tiny = !(a >> 52);
    const double x = tiny ? as_double(a) * 18014398509481984.0 : as_double(a);
    const double y = as_double(tiny ? rsqrt_f64(as_bits(x)) : start);
    const double square = y * y, e = fused(x, -square, 1.0);
    const double d = fused(fused(e, 0.375, 0.5), y * e, y);
    return as_bits(tiny ? d * 134217728.0 : d);
}

// --- ordinary arithmetic with one rounding: a significand of at most 62 bits, its lowest one sticky, times 2^exponent

enum { RNE, RZ, RM, RP };
FN u64 rounded(int negative, u64 significand, int exponent, int mode, int fraction_bits, int bias, int flush) {
    const int width = fraction_bits + 1, largest = 2 * bias + 1;
    const u64 sign = (u64)negative << (fraction_bits == 23 ? 31 : 63), infinite = (u64)largest << fraction_bits;
    if (!significand) return sign;
    const int length = length_of(significand);
    const int up = mode == RP ? !negative : mode == RM ? negative : 0;
    u64 code = 0;
    for (int pass = flush ? 0 : 1; pass < 2; pass++) {  // the first pass has any exponent: is the result tiny?
        int quantum = exponent + length - width;
        if (pass && quantum < 1 - bias - fraction_bits) quantum = 1 - bias - fraction_bits;
        const int shift = quantum - exponent;
        u64 kept = shift <= 0 ? significand << -shift : shift > 63 ? 0 : significand >> shift;
        if (shift > 0) {
            const u64 rest = shift > 63 ? significand : significand & ((1ull << shift) - 1);
            const u64 half = shift > 63 ? ~0ull : 1ull << (shift - 1);
            kept += mode == RNE ? rest > half || (rest == half && (kept & 1)) : rest && up;
        }
        if (!pass) {
            const int carried = (int)(kept >> width);
            if (quantum + fraction_bits + carried < 1 - bias) return sign;
        } else {
            code = ((u64)(quantum + fraction_bits + bias - 1) << fraction_bits) + kept;
        }
    }
    if (code >= infinite) code = mode == RNE || up ? infinite : infinite - 1;
    return sign | code;
}

FN u32 flushed(u32 a, int ftz) { return ftz && !(a & 0x7F800000u) ? a & 0x80000000u : a; }
FN u64 significand_of(u64 a, int fraction_bits, int field, int *exponent, int bias) {
    *exponent = (field ? field : 1) - bias - fraction_bits;
    return (a & ((1ull << fraction_bits) - 1)) | (u64)(field != 0) << fraction_bits;
}

FN u32 mul32(u32 a, u32 b, int mode, int ftz) {
    a = flushed(a, ftz), b = flushed(b, ftz);
    const u32 sign = (a ^ b) & 0x80000000u;
    if (is_nan(a) || is_nan(b)) return 0x7FFFFFFFu;
    if (magnitude(a) == 0x7F800000u || magnitude(b) == 0x7F800000u) {
        return magnitude(a) && magnitude(b) ? sign | 0x7F800000u : 0x7FFFFFFFu;
    }
    int x, y;
    const u64 product = significand_of(a, 23, a >> 23 & 255, &x, 127) * significand_of(b, 23, b >> 23 & 255, &y, 127);
    return (u32)rounded(sign != 0, product, x + y, mode, 23, 127, ftz);
}

// a + b where b is -24 and a is minus infinity, NaN or between -126 and -102: what lg2 needs.
FN u32 add32(u32 a, u32 b) {
    if (is_nan(a)) return 0x7FFFFFFFu;
    if (a == 0xFF800000u) return a;
    int x, y;
    const u64 p = significand_of(a, 23, a >> 23 & 255, &x, 127), q = significand_of(b, 23, b >> 23 & 255, &y, 127);
    return (u32)rounded(1, (p << (x - y)) + q, y, RNE, 23, 127, 0);
}

// Quotients and roots, digit by digit.
FN u64 divided(u64 a, u64 b, int mode, int fraction_bits, int bias, int ftz) {
    const int sign_bit = fraction_bits == 23 ? 31 : 63;
    const u64 sign = (a ^ b) & 1ull << sign_bit, rest_mask = (1ull << sign_bit) - 1;
    const u64 infinite = (u64)(2 * bias + 1) << fraction_bits, invalid = fraction_bits == 23 ? 0x7FFFFFFFull : 0xFFF8ull << 48;
    if (ftz) a = flushed((u32)a, 1), b = flushed((u32)b, 1);
    const u64 x = a & rest_mask, y = b & rest_mask;
    if (x > infinite) return fraction_bits == 23 ? invalid : a | 1ull << 51;
    if (y > infinite) return fraction_bits == 23 ? invalid : b | 1ull << 51;
    if ((x == infinite && y == infinite) || (!x && !y)) return invalid;
    if (x == infinite || !y) return sign | infinite;
    if (y == infinite || !x) return sign;
    int p, q;
    u64 top = significand_of(x, fraction_bits, (int)(x >> fraction_bits), &p, bias);
    u64 bottom = significand_of(y, fraction_bits, (int)(y >> fraction_bits), &q, bias);
    const int up = fraction_bits + 1 - length_of(top), down = fraction_bits + 1 - length_of(bottom);
    top <<= up, p -= up, bottom <<= down, q -= down;
    u64 quotient = 0;
    for (int place = 0; place < fraction_bits + 4; place++) {
        const int digit = top >= bottom;
        quotient = quotient << 1 | (u64)digit;
        top = (digit ? top - bottom : top) << 1;
    }
    return rounded(sign != 0, quotient << 1 | (top != 0), p - q - fraction_bits - 4, mode, fraction_bits, bias, ftz);
}
FN u64 rooted(u64 a, int mode, int fraction_bits, int bias, int ftz) {
    const int sign_bit = fraction_bits == 23 ? 31 : 63;
    const u64 infinite = (u64)(2 * bias + 1) << fraction_bits, invalid = fraction_bits == 23 ? 0x7FFFFFFFull : 0xFFF8ull << 48;
    if (ftz) a = flushed((u32)a, 1);
    const u64 x = a & ((1ull << sign_bit) - 1);
    if (x > infinite) return fraction_bits == 23 ? invalid : a | 1ull << 51;
    if (!x || a == infinite) return a;
    if (a >> sign_bit) return invalid;
    int p;
    u64 given = significand_of(x, fraction_bits, (int)(x >> fraction_bits), &p, bias);
    const int up = fraction_bits + 1 - length_of(given);
    given <<= up, p -= up;
    if (p & 1) given <<= 1, p--;
    const int pairs = (fraction_bits + 3) / 2;  // of the bits of `given`
    u64 rest = 0, root = 0;
    for (int place = 0; place < fraction_bits + 3; place++) {
        const u64 pair = place < pairs ? given >> 2 * (pairs - 1 - place) & 3 : 0;
        rest = rest << 2 | pair;
        const u64 trial = root << 2 | 1;
        const int digit = rest >= trial;
        rest = digit ? rest - trial : rest;
        root = root << 1 | (u64)digit;
    }
    return rounded(0, root << 1 | (rest != 0), p / 2 - (fraction_bits + 3 - pairs) - 1, mode, fraction_bits, bias, ftz);
}
