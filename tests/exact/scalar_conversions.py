"""cvt between numbers of floating point and integers."""

from __future__ import annotations

from fractions import Fraction

from tests.exact.numbers import Mode, decode, encode, round_to_integer
from tests.exact.scalar_floats import conversion_between_floats, finished, flushed, is_nan
from tests.exact.scalar_words import FLOATS, INTEGRAL, NAN, QUIET_F64, Spelling, bits_of, clamped, whole


def to_integer(code: int, out: str, source: str, mode: Mode, ftz: bool) -> int:
    """A number rounded to an integer, clamped."""
    code = flushed(code, source) if ftz else code
    number = decode(code, source)
    bits = bits_of(out)
    if number.kind == "nan":
        return 1 << bits - 1 if bits == 64 or source == "f64" else 0
    if number.kind == "infinity":
        return clamped(-(1 << 70) if number.sign else 1 << 70, out)
    return clamped(round_to_integer(number.value, mode), out)


def conversion(spelling: Spelling, code: int) -> int:
    """cvt."""
    out, source = spelling.words[-2:]
    ftz = spelling.has("ftz")
    integral = next((INTEGRAL[word] for word in spelling.words if word in INTEGRAL), None)
    if out not in FLOATS and source not in FLOATS:
        value = whole(code, source)
        return clamped(value, out) if spelling.has("sat") else value % (1 << bits_of(out))
    if out not in FLOATS:
        assert integral is not None
        return to_integer(code, out, source, integral, ftz)
    if source not in FLOATS:
        found = encode(Fraction(whole(code, source)), 0, out, spelling.mode)
    elif integral is not None:
        code = flushed(code, source) if ftz else code
        number = decode(code, source)
        if number.kind == "nan":
            found = NAN[out] if out != "f64" else code | QUIET_F64
        elif number.kind == "infinity":
            found = code
        else:
            found = encode(Fraction(round_to_integer(number.value, integral)), number.sign, out, "rne")
    else:
        moves = out == source and bits_of(out) > 16 and not ftz and not spelling.has("sat")
        moves = moves or ((out, source) == ("f32", "bf16") and not ftz and is_nan(code, source))
        if (out, source) == ("f32", "bf16") and moves:
            found = code << 16
        else:
            found = conversion_between_floats(code, out, source, spelling.mode, ftz, moves)
    return finished(found, out, spelling)
