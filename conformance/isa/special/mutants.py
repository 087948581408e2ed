"""Mutants of the special functions: of the interpolator, of what becomes of an input, of special values, of the sequence around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from conformance.isa.cvt.mutants import words
from conformance.testbench import Array, Inputs, Mutant
from tcsim.arithmetic import mufu
from tcsim.arithmetic.mufu import Argument, Codes, Function, Integers, Special, Unit, square
from tcsim.isa.special.rows import REVOLUTIONS
from tcsim.isa.special.semantics import SpecialFunction
from tcsim.isa.special.steps import Choose, CorrectlyRounded, Mufu, Ordinary, RefineRoot, Step, Steps
from tcsim.numbers.rounding import Rounding

Applies = Callable[[SpecialFunction], bool]
_X = np.arange(1 << mufu.X_BITS)
_GRAIN = {"rcp": 2, "rsqrt": 1, "sqrt": 1, "ex2": 4, "lg2": 4, "sin": 8, "cos": 8, "tanh": 2}
"""The least that S can change by, in units of 2**-40."""


# --- which instructions


def _function(instruction: SpecialFunction) -> str:
    """What the unit is asked for; empty of a correctly rounded row."""
    unit = instruction.row.unit
    return unit.function if unit else ""


def asks(*functions: str) -> Applies:
    """Rows that ask the unit for one of the functions, or for any."""
    return lambda item: _function(item) in (functions or tuple(mufu.FUNCTIONS))


def both(*conditions: Applies) -> Applies:
    """All hold."""
    return lambda item: all(holds(item) for holds in conditions)


def of_type(*types: str) -> Applies:
    """Rows of a type."""
    return lambda item: item.row.type in types


def wide(item: SpecialFunction) -> bool:
    """f32: all bits that the unit computes are seen."""
    return item.row.type == "f32"


def bare(item: SpecialFunction) -> bool:
    """Nothing stands around the unit: what it makes of special values is seen."""
    return item.row.unit is not None and len(item.row.steps) == 1


def has(kind: type[Step]) -> Applies:
    """Rows with a step of a class."""
    return lambda item: any(isinstance(step, kind) for step in item.row.steps)


def refined(item: SpecialFunction) -> bool:
    """rsqrt.approx.f64, which hides small errors of the unit."""
    return has(RefineRoot)(item)


def seen(item: SpecialFunction) -> bool:
    """The unit's bits are the result's."""
    return item.row.unit is not None and not refined(item)


# --- ways to change the model


def _answer(instruction: SpecialFunction, given: Inputs) -> Array:
    return words(instruction.execute(**given))


def unit_of(change: Callable[[Unit, str], Unit]) -> Callable[[SpecialFunction, Inputs], Array]:
    """Another unit, for the function that is asked for."""
    return lambda item, given: _answer(replace(item, unit=change(item.unit, _function(item))), given)


def function_with(**changes: Any) -> Callable[[SpecialFunction, Inputs], Array]:
    """The function with other constants."""
    return unit_of(lambda unit, name: _with_function(unit, name, replace(unit.functions[name], **changes)))


def _with_function(unit: Unit, name: str, own: Function) -> Unit:
    return replace(unit, functions=MappingProxyType({**unit.functions, name: own}))


def bias(sign: int) -> Callable[[SpecialFunction, Inputs], Array]:
    """The least change of the bias."""

    def change(unit: Unit, name: str) -> Unit:
        own = unit.functions[name]
        return _with_function(unit, name, replace(own, bias=own.bias + sign * _GRAIN[name]))

    return unit_of(change)


def table_with(change: Callable[[Integers], Integers]) -> Callable[[SpecialFunction, Inputs], Array]:
    """Other coefficients, (rows, 3)."""

    def changed(unit: Unit, name: str) -> Unit:
        table = unit.functions[name].table
        tables: Mapping[str, Integers] = MappingProxyType({**unit.tables, table: change(unit.tables[table].copy())})
        return replace(unit, tables=tables)

    return unit_of(changed)


def narrower(column: int) -> Callable[[SpecialFunction, Inputs], Array]:
    """A coefficient without its lowest bit."""

    def change(table: Integers) -> Integers:
        table[:, column] &= ~1
        return table

    return table_with(change)


def squares_with(squares: Integers) -> Callable[[SpecialFunction, Inputs], Array]:
    """Another square of X."""
    return unit_of(lambda unit, name: replace(unit, squares=squares))


def like(kind: type[Unit]) -> Callable[[SpecialFunction, Inputs], Array]:
    """A unit of another class."""
    return unit_of(lambda unit, name: kind(unit.functions, unit.tables, unit.squares))


def steps_with(change: Callable[[Steps], Steps]) -> Callable[[SpecialFunction, Inputs], Array]:
    """Other steps."""

    def run(item: SpecialFunction, given: Inputs) -> Array:
        return _answer(replace(item, lowering=replace(item.lowering, steps=change(item.lowering.steps))), given)

    return run


def each(kind: type[Step], change: Callable[[Any], Step]) -> Callable[[SpecialFunction, Inputs], Array]:
    """Every step of a class changed."""
    return steps_with(lambda steps: tuple(change(step) if isinstance(step, kind) else step for step in steps))


# --- units with another datapath


class _Floor(Unit):
    """Negative powers are rounded down where they are cut."""

    def _power(self, codes: Codes) -> Integers:
        with np.errstate(invalid="ignore"):
            value = np.nan_to_num(codes.view(np.float32).astype(np.float64))
        return np.floor(np.clip(value, -300, 300) * 2.0**23).astype(np.int64)


class _Negated(Unit):
    """Two's complement of negative powers and logarithms, where it is one's."""

    def _power(self, codes: Codes) -> Integers:
        right = super()._power(codes)
        return np.where((right < 0) & (right & 0x7FFFFF != 0), right + 1, right)

    def _normalised(self, value: Integers, unit: int) -> Codes:
        return super()._normalised(value + 1 if unit == -36 else value, unit)


class _Mirrored(Unit):
    """Two's complement of the fraction in odd quadrants."""

    def argument(self, function: str, codes: Codes) -> Argument:
        quadrant, z = self._turn(function, codes)
        z = np.where(quadrant & 1 == 1, -z & 0x7FFFFF, z)
        return Argument(z >> mufu.X_BITS, z & 0x1FFFF)


class _Before(Unit):
    """The segment before the right one."""

    def argument(self, function: str, codes: Codes) -> Argument:
        right = super().argument(function, codes)
        return replace(right, row=np.maximum(right.row - 1, 0))


class _OtherParity(Unit):
    """The rows of odd exponents for even ones."""

    def argument(self, function: str, codes: Codes) -> Argument:
        right = super().argument(function, codes)
        return replace(right, row=right.row ^ 64)


class _ShortX(Unit):
    """X of 16 bits; of rcp, whose X has 16 already, of 15."""

    def argument(self, function: str, codes: Codes) -> Argument:
        right = super().argument(function, codes)
        return replace(right, x=right.x & (~3 if function == "rcp" else ~1))


class _Through(Unit):
    """No input bypasses the interpolator: powers of four, 1."""

    def rsqrt(self, codes: Codes) -> Codes:
        _, exponent, _ = mufu._split(codes)
        result = mufu._packed(self._cut("rsqrt", self.argument("rsqrt", codes)), -(exponent - 127 >> 1) - 1)
        return self._bypassed("rsqrt", codes, result)

    def lg2(self, codes: Codes) -> Codes:
        right, one = super().lg2(codes), codes == mufu.ONE
        found = self._normalised(self._cut("lg2", self.argument("lg2", codes)), -36)
        return np.where(one, found, right).astype(np.uint32)


class _NanKept(Unit):
    """A NaN passes through, made quiet."""

    def _bypassed(self, function: str, codes: Codes, result: Codes) -> Codes:
        right = super()._bypassed(function, codes, result)
        return np.where(codes & ~mufu.SIGN > mufu.INFINITY, codes | np.uint32(1 << 22), right).astype(np.uint32)


class _NegativeNumber(Unit):
    """A negative number is taken for its magnitude."""

    def _bypassed(self, function: str, codes: Codes, result: Codes) -> Codes:
        changed = _with_function(self, function, replace(self.functions[function], negative=None))
        return Unit._bypassed(changed, function, codes, result)


class _TanhLinearBelow(Unit):
    """tanh x is x below 2**-7."""

    def tanh(self, codes: Codes) -> Codes:
        return np.where(codes & ~mufu.SIGN < np.uint32(0x3C000000), codes, super().tanh(codes)).astype(np.uint32)


class _TanhOneFrom(Unit):
    """tanh x is 1 from 4 on."""

    def tanh(self, codes: Codes) -> Codes:
        right = super().tanh(codes)
        large = (codes & ~mufu.SIGN >= np.uint32(0x40800000)) & (codes & ~mufu.SIGN <= mufu.INFINITY)
        return np.where(large, codes & mufu.SIGN | mufu.ONE, right).astype(np.uint32)


class _Gradual(Unit):
    """Results below 2**-126 are subnormal numbers, computed from twice the power, or half the number."""

    def rcp(self, codes: Codes) -> Codes:
        large = (codes & ~mufu.SIGN > np.uint32(0x7E800000)) & (codes & ~mufu.SIGN < mufu.INFINITY)
        scaled = (np.where(large, codes - np.uint32(2 << 23), codes)).astype(np.uint32)
        found = super().rcp(scaled)
        small = (found.view(np.float32) * np.float32(0.25)).view(np.uint32)
        return np.where(large, small, found)

    def ex2(self, codes: Codes) -> Codes:
        with np.errstate(invalid="ignore", over="ignore"):
            low = codes.view(np.float32) < np.float32(-126)
            half = np.where(low, codes.view(np.float32) * np.float32(0.5), codes.view(np.float32)).astype(np.float32)
            found = super().ex2(half.view(np.uint32))
            value = found.view(np.float32)
            return np.where(low, (value * value).view(np.uint32), found)


def _other_sign(own: Special | None) -> Special | None:
    return replace(own, signed=not own.signed) if own else None


def _resigned(name: str) -> Callable[[SpecialFunction, Inputs], Array]:
    def change(unit: Unit, function: str) -> Unit:
        own = unit.functions[function]
        changes: dict[str, Any] = {name: _other_sign(getattr(own, name))}
        return _with_function(unit, function, replace(own, **changes))

    return unit_of(change)


def _special(name: str) -> Applies:
    return lambda item: bool(_function(item)) and getattr(item.unit.functions[_function(item)], name) is not None


# --- steps


def _first_condition_ignored(steps: Steps) -> Steps:
    """The input is not scaled, the result is."""
    place = next(i for i, step in enumerate(steps) if isinstance(step, Ordinary) and step.when is not None)
    step: Any = steps[place]
    return (*steps[:place], replace(step, b=1.0), *steps[place + 1 :])


def _last_condition_ignored(steps: Steps) -> Steps:
    """The input is scaled, the result is not."""
    return tuple(
        step
        for i, step in enumerate(steps)
        if not (isinstance(step, Ordinary) and step.when is not None and i == len(steps) - 1)
    )


def conditional(item: SpecialFunction) -> bool:
    """Some step is done only where a condition holds."""
    return any(isinstance(step, Ordinary) and step.when is not None for step in item.row.steps)


def scaled_back(item: SpecialFunction) -> bool:
    """The last step is done only where a condition holds."""
    last = item.row.steps[-1]
    return isinstance(last, Ordinary) and last.when is not None


def _mode(rounding: Rounding) -> Callable[[CorrectlyRounded], CorrectlyRounded]:
    return lambda step: replace(step, rounding=rounding)


def _exactly(item: SpecialFunction, given: Inputs) -> Array:
    """The nearest number instead of the unit's."""
    row = item.row
    step = CorrectlyRounded(row.family, row.type, "rne", "ftz" in row.mnemonic)  # type: ignore[arg-type]
    return _answer(replace(item, lowering=replace(item.lowering, steps=(step,))), given)


def _swapped(item: SpecialFunction, given: Inputs) -> Array:
    right = item.execute(**given)
    return right >> np.uint32(16) | right << np.uint32(16)


def _first_half_twice(item: SpecialFunction, given: Inputs) -> Array:
    right = item.execute(**given)
    return right & np.uint32(0xFFFF) | right << np.uint32(16)


class _RoundedNarrow(Unit):
    """The f32 result rounded to the 16-bit format, where it is cut."""

    def narrow(self, function: str, codes: mufu.Halves, format: str) -> mufu.Halves:
        right = super().narrow(function, codes, format)
        if format == "bf16":
            found = self.compute(function, codes.astype(np.uint32) << np.uint32(16))
            near = (found + np.uint32(0x7FFF) + (found >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)).astype(
                np.uint16
            )
            return np.where(codes & 0x7FFF > 0x7F80, right, near)
        found = self.compute(function, codes.view(np.float16).astype(np.float32).view(np.uint32))
        with np.errstate(over="ignore", invalid="ignore"):
            near = found.view(np.float32).astype(np.float16).view(np.uint16)
        return np.where(codes & 0x7FFF > 0x7C00, right, near)


def _narrow_flushed(item: SpecialFunction, given: Inputs) -> Array:
    """Subnormal f16 results are zeros."""
    halves = np.ascontiguousarray(item.execute(**given)).view(np.uint16)
    return np.where(halves & 0x7C00 == 0, halves & 0x8000, halves).astype(np.uint16).view(item.registers["d"].dtype)


def _low_word_set(item: SpecialFunction, given: Inputs) -> Array:
    return words(item.execute(**given) | np.uint64(1))


def _one_refinement(item: SpecialFunction, given: Inputs) -> Array:
    return _answer(replace(item, lowering=replace(item.lowering, steps=(Mufu("rsqrt", format="f64"),))), given)


def _swapped_operands(item: SpecialFunction, given: Inputs) -> Array:
    return _answer(item, {"a": given["b"], "b": given["a"]})


MUTANTS: tuple[Mutant, ...] = (
    Mutant("bias more", "the least more is added before S is cut", both(asks(), wide), bias(1)),
    Mutant("bias less", "the least less is added before S is cut", both(asks(), wide), bias(-1)),
    Mutant("no bias", "nothing is added before S is cut", both(asks("rcp", "ex2", "lg2"), wide), function_with(bias=0)),
    Mutant("S rounded", "S is rounded where it is cut", both(asks(), wide), unit_of(lambda unit, name: replace(unit, rounded=True))),
    Mutant("square column more", "the square keeps the column below", both(asks(), wide), squares_with(square(_X, 18) >> 1)),
    Mutant("square column less", "the square loses a column more", both(asks(), wide), squares_with(square(_X, 20) << 1)),
    Mutant("square whole", "all columns of the square count", both(asks(), wide), squares_with(_X * _X >> 19)),
    Mutant("square rounded", "the whole square is rounded", both(asks(), wide), squares_with(_X * _X + (1 << 18) >> 19)),
    Mutant("C0 narrower", "C0 has a bit less", both(asks(), wide, lambda item: item.row.family != "tanh"), narrower(0)),
    Mutant("C1 narrower", "C1 has a bit less", both(asks(), wide), narrower(1)),
    Mutant("C2 narrower", "C2 has a bit less", both(asks(), wide), narrower(2)),
    Mutant("linear", "C2 is not added", seen, table_with(lambda table: table * np.array([1, 1, 0]))),
    Mutant("X shorter", "X has a bit less", both(asks(), wide), like(_ShortX)),
    Mutant("segment before", "the segment before the right one", asks(), like(_Before)),
    Mutant("parity", "rows of odd exponents for even ones", both(asks("rsqrt", "sqrt"), seen), like(_OtherParity)),
    Mutant("powers floored", "a negative power is rounded down where it is cut", both(asks("ex2"), wide), like(_Floor)),
    Mutant("two's complement", "a negative fixed-point number is negated, not complemented",
           both(asks("ex2", "lg2"), wide), like(_Negated)),
    Mutant("mirrored by two's complement", "the fraction of an odd quadrant is negated, not complemented",
           both(asks("sin", "cos"), wide), like(_Mirrored)),
    Mutant("nothing bypasses", "inputs with an exact result are interpolated",
           both(asks("rsqrt", "lg2"), wide), like(_Through)),
    Mutant("NaN kept", "a NaN keeps sign and payload", both(bare, wide), like(_NanKept)),
    Mutant("negative numbers", "a negative number is taken for its magnitude", both(asks("rsqrt", "sqrt", "lg2"), wide),
           like(_NegativeNumber)),
    Mutant("subnormals kept", "the unit takes subnormal numbers for what they are", both(bare, wide, _special("zero")),
           unit_of(lambda unit, name: replace(unit, keeps_subnormals=True))),
    Mutant("sign of a zero", "the result of a zero has a sign, or has none", both(bare, _special("zero"), asks("rcp", "rsqrt", "sqrt")), _resigned("zero")),
    Mutant("sign of an infinity", "the result of an infinity has a sign, or has none",
           both(bare, _special("infinite"), asks("rcp")), _resigned("infinite")),
    Mutant("gradual underflow", "results below 2**-126 are subnormal numbers", both(asks("rcp", "ex2"), bare, wide), like(_Gradual)),
    Mutant("tanh linear below 2**-7", "tanh x is x in a binade more", both(asks("tanh"), wide), like(_TanhLinearBelow)),
    Mutant("tanh 1 from 4", "tanh x is 1 in a binade more", both(asks("tanh"), wide), like(_TanhOneFrom)),
    Mutant("input not scaled", "an input at an end of the range goes to the unit as it is", conditional,
           steps_with(_first_condition_ignored)),
    Mutant("result not scaled back", "the result of a scaled input stays as it is", scaled_back, steps_with(_last_condition_ignored)),
    Mutant("factor 1", "k of rcp is always 1", has(Choose), each(Choose, lambda step: Choose("k", ()))),
    Mutant("2 pi to nearest", "the product with 1 / (2 pi) is rounded to nearest", both(asks("sin", "cos"), wide, has(Ordinary)),
           each(Ordinary, lambda step: replace(step, rounding="rne"))),
    Mutant("2 pi less", "1 / (2 pi) is one unit in the last place less", both(asks("sin", "cos"), wide, has(Ordinary)),
           each(Ordinary, lambda step: replace(step, b=float(np.uint32(0x3E22F982).view(np.float32))))),
    Mutant("radians", "an operand in revolutions is taken for one in radians", lambda item: "period" in item.row.modifiers,
           steps_with(lambda steps: (Ordinary("x", "multiply", "a", REVOLUTIONS, rounding="rz"), *(replace(step, a="x") for step in steps if isinstance(step, Mufu))))),
    Mutant("products flush", "the products around the unit take subnormal numbers for zeros",
           both(asks(), wide, lambda item: "ftz" not in item.row.mnemonic and len(item.row.steps) > 1,
                lambda item: _function(item) not in ("sin", "cos", "lg2")),
           each(Ordinary, lambda step: replace(step, ftz=True))),
    Mutant("products do not flush", "the products around the unit keep subnormal numbers",
           lambda item: any(isinstance(step, Ordinary) and step.ftz for step in item.row.steps),
           each(Ordinary, lambda step: replace(step, ftz=False))),
    Mutant("operands swapped", "b / a", lambda item: "b" in item.registers, _swapped_operands),
    Mutant("correctly rounded", "the nearest number to the true result",
           both(wide, asks(), lambda item: item.row.family in ("rcp", "sqrt", "div")), _exactly),
    Mutant("to nearest", "rounded to nearest", lambda item: item.row.arithmetic in ("rz", "rm", "rp"), each(CorrectlyRounded, _mode("rne"))),
    Mutant("toward zero", "rounded toward zero", lambda item: item.row.arithmetic in ("rn", "rm", "rp") and (item.row.family, item.row.arithmetic) != ("sqrt", "rm"),
           each(CorrectlyRounded, _mode("rz"))),
    Mutant("upward", "rounded toward plus infinity", lambda item: item.row.arithmetic in ("rn", "rz", "rm"), each(CorrectlyRounded, _mode("rp"))),
    Mutant("downward", "rounded toward minus infinity", lambda item: item.row.arithmetic in ("rn", "rp", "rz") and (item.row.family, item.row.arithmetic) != ("sqrt", "rz"),
           each(CorrectlyRounded, _mode("rm"))),
    Mutant("ftz in and out", "subnormal numbers are zeros, or are not", both(has(CorrectlyRounded), wide),
           each(CorrectlyRounded, lambda step: replace(step, ftz=not step.ftz))),
    Mutant("halves swapped", "the halves of the result are exchanged", of_type("f16x2", "bf16x2"), _swapped),
    Mutant("first half twice", "both halves are the lower one's result", of_type("f16x2", "bf16x2"), _first_half_twice),
    Mutant("16 bits rounded", "the result is rounded to 16 bits", of_type("f16", "bf16", "f16x2", "bf16x2"), like(_RoundedNarrow)),
    Mutant("subnormal f16 flushed", "subnormal f16 results are zeros", of_type("f16", "f16x2"), _narrow_flushed),
    Mutant("low word set", "the low word of the result is not zero", both(of_type("f64"), bare), _low_word_set),
    Mutant("no refinement", "the unit's answer is the result", refined, _one_refinement),
)  # fmt: skip
