"""What a special function is made of: an operation of the MUFU and the ordinary instructions that ptxas puts around it, as data.

The steps of a row read and write named values: the operands (`a`, `b`), what the unit is given (`x`), and `d` at the end. Values
are arrays of codes. Source of the sequences: the SASS that ptxas 12.9 to 13.5 emits for sm_75 to sm_121, which is one and the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic import floating
from tcsim.arithmetic.mufu import Unit
from tcsim.lowering.traced import asarray, contiguous
from tcsim.numbers.rounding import Rounding

Codes = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Values = dict[str, Codes]

_MAGNITUDE, _INFINITY = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
_SMALLEST, _LARGEST = np.uint32(0x00800000), np.uint32(0x7E800000)  # 2**-126, 2**126


def _subnormal(codes: Codes) -> Flags:
    return codes & _MAGNITUDE < _SMALLEST


def _large(codes: Codes) -> Flags:
    size = codes & _MAGNITUDE
    return (size > _LARGEST) & (size <= _INFINITY)


def _low(codes: Codes) -> Flags:
    with np.errstate(invalid="ignore"):
        return asarray(codes.view(np.float32) < np.float32(-126))


@dataclass(frozen=True)
class When:
    """A condition on an operand (FSETP)."""

    text: str
    operand: str
    holds: Callable[[Codes], Flags]


SUBNORMAL = When("|{}| < 2**-126", "a", _subnormal)
LARGE = When("|{}| > 2**126", "a", _large)
LOW = When("{} < -126", "a", _low)


def of(when: When, operand: str) -> When:
    """The condition on another operand."""
    return When(when.text, operand, when.holds)


def said(when: When) -> str:
    """The condition in words of arithmetic.

    >>> said(of(LARGE, "b"))
    '|b| > 2**126'
    """
    return when.text.format(when.operand)


def code_of(value: float) -> np.uint32:
    """The code of an f32.

    >>> hex(code_of(1.0))
    '0x3f800000'
    """
    code: np.uint32 = np.float32(value).view(np.uint32)
    return code


class Step:
    """One machine instruction, or what a subroutine comes to. It is shown as its text."""

    opcode: str = ""
    """The machine instruction; empty if it is none by itself."""

    @property
    def text(self) -> str:
        """What it does, for readers."""
        raise NotImplementedError

    def run(self, values: Values, unit: Unit) -> None:
        """Write its result."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text


_NAMES = {"rne": "", "rz": ".RZ"}
_SIGNS = {"multiply": "*", "add": "+"}


@dataclass(frozen=True, repr=False)
class Ordinary(Step):
    """d = a * b or a + b on f32; with `when`, where that holds: else d stays as it is, or is a."""

    d: str
    operation: Literal["multiply", "add"]
    a: str
    b: str | float
    when: When | None = None
    rounding: Rounding = "rne"
    ftz: bool = False

    @property
    def opcode(self) -> str:  # type: ignore[override]
        """FMUL or FADD with its modifiers."""
        return ("FMUL" if self.operation == "multiply" else "FADD") + _NAMES[self.rounding] + ".FTZ" * self.ftz

    @property
    def text(self) -> str:
        """As an assignment."""
        other = self.b if isinstance(self.b, str) else f"{self.b!r}"
        where = f" where {said(self.when)}" if self.when else ""
        how = ", toward zero" * (self.rounding == "rz") + ", subnormals are zeros" * self.ftz
        return f"{self.d} = {self.a} {_SIGNS[self.operation]} {other}{where}{how}"

    def run(self, values: Values, unit: Unit) -> None:
        """Compute it where the condition holds anywhere."""
        before = values[self.a]
        if self.when is not None:
            where = self.when.holds(values[self.when.operand])
            if not where.any():
                values[self.d] = before
                return
        other = values[self.b] if isinstance(self.b, str) else code_of(self.b)
        x, y = np.broadcast_arrays(before, other)
        compute = floating.multiply if self.operation == "multiply" else floating.add
        found = compute(x, y, "f32", self.rounding, self.ftz)
        values[self.d] = found if self.when is None else np.where(where, found, before)


@dataclass(frozen=True, repr=False)
class Choose(Step):
    """d = the constant of the first condition that holds, else 1 (FSEL)."""

    d: str
    cases: tuple[tuple[When, float], ...]

    @property
    def text(self) -> str:
        """As an assignment."""
        cases = ", ".join(f"{value!r} where {said(when)}" for when, value in self.cases)
        return f"{self.d} = {cases}, else 1.0"

    def run(self, values: Values, unit: Unit) -> None:
        """The later conditions first."""
        found: Any = code_of(1.0)
        for when, value in reversed(self.cases):
            found = np.where(when.holds(values[when.operand]), code_of(value), found)
        values[self.d] = found


_UNITS = MappingProxyType({
    "rcp": "RCP", "rsqrt": "RSQ", "sqrt": "SQRT", "ex2": "EX2", "lg2": "LG2", "sin": "SIN", "cos": "COS", "tanh": "TANH",
})  # fmt: skip
"""What the machine calls each function."""


@dataclass(frozen=True, repr=False)
class Mufu(Step):
    """d = a function of the special function unit: of f32, of one 16-bit number, or of the high word of an f64."""

    function: str
    d: str = "d"
    a: str = "a"
    format: str = "f32"

    @property
    def opcode(self) -> str:  # type: ignore[override]
        """MUFU with what it computes."""
        if self.format == "f64":
            return f"MUFU.{_UNITS[self.function]}64H"
        return f"MUFU.{_UNITS[self.function]}" + (f".{self.format.upper()}" if self.format != "f32" else "")

    @property
    def text(self) -> str:
        """As an assignment."""
        how = {"f32": "", "f64": ", high words; the low word of d is 0"}.get(self.format, f", cut to {self.format}")
        return f"{self.d} = {self.opcode}({self.a}){how}"

    def run(self, values: Values, unit: Unit) -> None:
        """Ask the unit."""
        given = values[self.a]
        if self.format == "f32":
            values[self.d] = unit.compute(self.function, given)
        elif self.format == "f64":
            high = unit.high_word(self.function, (given >> np.uint64(32)).astype(np.uint32))
            values[self.d] = high.astype(np.uint64) << np.uint64(32)
        else:
            values[self.d] = unit.narrow(self.function, contiguous(given), self.format)


@dataclass(frozen=True, repr=False)
class RefineRoot(Step):
    """d = y + (3/8 e + 1/2) (y e), e = 1 - x y**2: two orders of Newton's iteration from y, in f64 (rsqrt.approx.f64)."""

    @property
    def text(self) -> str:
        """As assignments."""
        return "e = fma(a, -(y * y), 1); d = fma(fma(e, 0.375, 0.5), y * e, y); a subnormal a times 2**54 first, d times 2**27"

    def run(self, values: Values, unit: Unit) -> None:
        """The plain path, and the exceptions of the subroutine."""
        given = values["a"]
        high = (given >> np.uint64(32)).astype(np.uint32)
        plain = high - np.uint32(0x100000) < np.uint32(0x7FE00000)
        magnitude = given & np.uint64((1 << 63) - 1)
        tiny = (given >> np.uint64(52) == 0) & (magnitude != 0)
        x = np.where(tiny, floating.multiply(given, np.full_like(given, _double(2.0**54)), "f64"), given)
        x = np.where(plain | tiny, x, _double(1.0))
        start = values["y"] if not tiny.any() else self._start(x, unit)
        found = _refined(x, np.where(plain | tiny, start, _double(1.0)))
        found = np.where(tiny, floating.multiply(found, np.full_like(found, _double(2.0**27)), "f64"), found)
        found = np.where(given >> np.uint64(63) != 0, np.uint64(0xFFF8000000000000), found)
        infinite = np.uint64(0x7FF0000000000000)
        found = np.where(given == infinite, np.uint64(0), found)
        found = np.where(magnitude == 0, given | infinite, found)
        values["d"] = np.where(magnitude > infinite, given | np.uint64(1 << 51), found)

    def _start(self, x: Codes, unit: Unit) -> Codes:
        values = {"x": x}
        Mufu("rsqrt", "y", "x", "f64").run(values, unit)
        return values["y"]


def _double(value: float) -> np.uint64:
    code: np.uint64 = np.float64(value).view(np.uint64)
    return code


def _refined(x: Codes, y: Codes) -> Codes:
    def number(value: float) -> Codes:
        return np.full_like(y, _double(value))

    square = floating.multiply(y, y, "f64")
    e = floating.fma(x, floating.negated(square), number(1.0), "f64")
    factor = floating.fma(e, number(0.375), number(0.5), "f64")
    return floating.fma(factor, floating.multiply(y, e, "f64"), y, "f64")


@dataclass(frozen=True, repr=False)
class CorrectlyRounded(Step):
    """d = a / b, 1 / a or the square root of a, rounded once: what ptxas's subroutine around MUFU.RCP or MUFU.RSQ comes to."""

    operation: Literal["div", "rcp", "sqrt"]
    format: str
    rounding: Rounding
    ftz: bool = False

    @property
    def text(self) -> str:
        """As an assignment."""
        what = {"div": "a / b", "rcp": "1 / a", "sqrt": "sqrt(a)"}[self.operation]
        return f"d = {what} in {self.format}, rounded once ({self.rounding})" + ", subnormals are zeros" * self.ftz

    def run(self, values: Values, unit: Unit) -> None:
        """As IEEE 754 defines it."""
        if self.operation == "sqrt":
            values["d"] = floating.root(values["a"], self.format, self.rounding, self.ftz)
            return
        a = values["a"]
        top, bottom = (a, values["b"]) if self.operation == "div" else (_ones(a), a)
        x, y = np.broadcast_arrays(top, bottom)
        values["d"] = floating.divide(x, y, self.format, self.rounding, self.ftz)


def _ones(like: Codes) -> Codes:
    return np.full_like(like, code_of(1.0) if like.dtype == np.uint32 else _double(1.0))


Steps = tuple[Step, ...]


def run(steps: Steps, operands: Mapping[str, Codes], unit: Unit) -> Codes:
    """d of the operands: codes of f32, f64 or one 16-bit number, arrays that broadcast."""
    values = {name: asarray(codes) for name, codes in operands.items()}
    for step in steps:
        step.run(values, unit)
    return values["d"]
