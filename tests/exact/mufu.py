"""The special function unit for one input at a time, in Python integers, written from its rules and not from `tcsim.arithmetic.mufu`."""

from __future__ import annotations

from importlib import resources

import numpy as np

NAN, INFINITY = 0x7FFFFFFF, 0x7F800000


def _tables() -> dict[str, list[tuple[int, ...]]]:
    with resources.files("tcsim.arithmetic").joinpath("mufu_sm90.npz").open("rb") as file, np.load(file) as data:
        return {name: [tuple(int(value) for value in row) for row in data[name]] for name in data.files}


TABLES = _tables()


def square(x: int) -> int:
    """The folded partial products x_i x_j of a 17-bit square, those below 2**19 dropped."""
    bits = [x >> i & 1 for i in range(17)]
    total = sum(bits[i] << 2 * i for i in range(17) if 2 * i >= 19)
    total += sum(bits[i] * bits[j] << i + j + 1 for i in range(17) for j in range(i + 1, 17) if i + j + 1 >= 19)
    return total >> 19


def interpolated(row: tuple[int, ...], x: int, shifts: tuple[int, int, int], bias: int) -> int:
    """S, in units of 2**-40."""
    c0, c1, c2 = row
    return (c0 << shifts[0]) + (c1 * x << shifts[1]) + (c2 * square(x) << shifts[2]) + bias


def pack(sign: int, numerator: int, unit: int) -> int:
    """numerator * 2**unit, cut to 24 significant bits; below 2**-126 a zero."""
    if numerator == 0:
        return sign << 31
    top = numerator.bit_length() - 1
    mantissa = numerator >> (top - 23) if top >= 23 else numerator << (23 - top)
    exponent = top + unit
    if exponent < -126:
        return sign << 31
    if exponent > 127:
        return sign << 31 | INFINITY
    return sign << 31 | (exponent + 127) << 23 | (mantissa & 0x7FFFFF)


def mufu(function: str, code: int) -> int:
    """The result of a function for one f32 code."""
    sign, biased, mantissa = code >> 31, code >> 23 & 0xFF, code & 0x7FFFFF
    e = biased - 127
    if biased == 255 and mantissa:
        return NAN
    infinite, zero = biased == 255, biased == 0
    if function == "rcp":
        if zero or infinite:
            return sign << 31 | (INFINITY if zero else 0)
        s = interpolated(TABLES["rcp"][mantissa >> 16], (mantissa & 0xFFFF) << 1, (14, 0, 1), 4046)
        return pack(sign, s >> 16, -24 - e)
    if function in ("rsqrt", "sqrt"):
        if zero:
            return sign << 31 | (INFINITY if function == "rsqrt" else 0)
        if sign:
            return NAN
        if infinite:
            return 0 if function == "rsqrt" else INFINITY
        odd, half = e & 1, (e - (e & 1)) // 2
        row, x = 64 * odd + (mantissa >> 17), mantissa & 0x1FFFF
        if function == "rsqrt":
            if not odd and not mantissa:
                return pack(0, 1, -half)
            return pack(0, interpolated(TABLES["rsq"][row], x, (14, 0, 2), -1) >> 16, -24 - half)
        return pack(0, interpolated(TABLES["sqrt"][row], x, (15, odd, 1), -1) >> 17, -23 + half)
    magnitude = (mantissa | 1 << 23) if not zero else 0  # times 2**(e - 23)
    if function == "ex2":
        if infinite or e >= 8:
            return INFINITY if not sign else 0
        shift = e
        cut = magnitude << shift if shift >= 0 else magnitude >> -shift
        fixed = cut if not sign else (-cut if cut & 0x7FFFFF == 0 else -cut - 1)
        value = magnitude * 2.0 ** (e - 23) * (-1 if sign else 1) if magnitude else 0.0
        if value >= 128:
            return INFINITY
        if value < -126:
            return 0
        i, f = fixed >> 23, fixed & 0x7FFFFF
        if f == 0:
            return pack(0, 1, i)
        return pack(0, interpolated(TABLES["ex2"][f >> 17], f & 0x1FFFF, (15, 2, 2), 24456) >> 17, i - 23)
    if function == "lg2":
        if zero:
            return 1 << 31 | INFINITY
        if sign:
            return NAN
        if infinite:
            return INFINITY
        if code == 0x3F800000:
            return 0
        total = (e << 36) + (interpolated(TABLES["lg2"][mantissa >> 17], mantissa & 0x1FFFF, (14, 2, 3), 3348) >> 4)
        return pack(1, ~total, -36) if total < 0 else pack(0, total, -36)
    if function in ("sin", "cos"):
        if infinite:
            return NAN
        shift = e + 2
        cut = 0 if e >= 23 or zero else (magnitude << shift if shift >= 0 else magnitude >> -shift)
        cut %= 1 << 25
        quadrant, z = cut >> 23, cut & 0x7FFFFF
        if function == "cos":
            quadrant, sign = quadrant + 1, 0
        if quadrant & 2:
            sign ^= 1
        if quadrant & 1:
            if z == 0:
                return sign << 31 | 0x3F800000
            z ^= 0x7FFFFF
        return pack(sign, interpolated(TABLES["sin"][z >> 17], z & 0x1FFFF, (15, 3, 3), 0), -40)
    if function == "tanh":
        if e < -8:
            return code
        if e >= 3:
            return sign << 31 | 0x3F800000
        _, wide, first = next(row for row in TABLES["tanh_seg"] if row[0] == e)
        z = mantissa >> (6 - wide)
        return pack(sign, interpolated(TABLES["tanh"][first + (z >> 17)], z & 0x1FFFF, (14, 1, 2), 0), -40)
    raise ValueError(f"no function {function}")
