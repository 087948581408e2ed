// Operands and scale factors of 32 bits and fewer as numbers.
#pragma once
#include "gpu.h"

enum : u32 { F16, BF16, TF32, S8, E4M3, E5M2, E2M1, UE8M0, UE4M3 };

// A small float: `exponent_bits`, `bits` of fraction. No infinity or NaN comes here.
inline double small_float(u32 code, u32 exponent_bits, u32 bits) {
    const s32 bias = (1 << (exponent_bits - 1)) - 1, exponent = code >> bits & ((1 << exponent_bits) - 1);
    const u32 fraction = code & ((1 << bits) - 1);
    const double value = std::ldexp(fraction + (exponent ? 1 << bits : 0), (exponent ? exponent : 1) - bias - static_cast<s32>(bits));
    return code >> (exponent_bits + bits) & 1 ? -value : value;
}

template <u32 FORMAT>
double element_of(const u8* at, u32 index) {  // `index` says which half of a byte, where two elements share one
    u16 half;
    std::memcpy(&half, at, FORMAT <= BF16 ? 2 : 1);
    float word;
    if (FORMAT == TF32) std::memcpy(&word, at, 4);
    switch (FORMAT) {
        case F16: return from_f16(half);
        case BF16: return __uint_as_float(static_cast<u32>(half) << 16);
        case TF32: return word;
        case S8: return static_cast<signed char>(*at);
        case E4M3: return small_float(*at, 4, 3);
        case E5M2: return small_float(*at, 5, 2);
        case E2M1: return small_float(*at >> 4 * (index % 2) & 15, 2, 1);
        case UE8M0: return std::ldexp(1.0, *at - 127);
        default: return small_float(*at & 127, 4, 3);
    }
}
