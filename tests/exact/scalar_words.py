"""How a scalar mnemonic is read, and what its types' codes are as integers."""

from __future__ import annotations

from typing import NamedTuple

from tests.exact.numbers import FLOAT_FORMATS, Mode

NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
INVALID_F64, QUIET_F64 = 0xFFF8 << 48, 1 << 51
MODES: dict[str, Mode] = {"rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}
INTEGRAL: dict[str, Mode] = {"rni": "rne", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
FLOATS = ("f16", "bf16", "f32", "f64")
WAYS = ("and", "or", "xor")


class Spelling(NamedTuple):
    """A mnemonic in parts."""

    stem: str
    words: tuple[str, ...]

    @property
    def type(self) -> str:
        """The last word."""
        return self.words[-1]

    @property
    def mode(self) -> Mode:
        """The rounding of a result: to nearest unless it is named."""
        return next((MODES[word] for word in self.words if word in MODES), "rne")

    def has(self, *words: str) -> bool:
        """Whether one of some modifiers is there."""
        return any(word in self.words for word in words)


def bits_of(type: str) -> int:
    """Width of a type's codes."""
    if type == "pred":
        return 1
    if type in FLOATS:
        return FLOAT_FORMATS[type].bits
    if "x" in type:
        element, times = type.split("x")
        return bits_of(element) * int(times)
    return int(type[1:])


def signed(code: int, bits: int) -> int:
    """Two's complement."""
    return code - (1 << bits) if code >> (bits - 1) else code


def whole(code: int, type: str) -> int:
    """The integer of a code."""
    return signed(code, bits_of(type)) if type[0] == "s" else code


def clamped(value: int, type: str) -> int:
    """An integer held to what a type can be, as a code."""
    bits = bits_of(type)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high) % (1 << bits)
