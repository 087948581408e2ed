"""Named wrong models of conversions: the right one with one thing changed, which the committed cases contradict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.exercises import WrongModel
from tcsim.conversion import Codes, Conversion, Form, conversion_format, convert, numbers
from tcsim.convert import Convert, ConvertEach
from tcsim.formats import FORMATS, INFINITY, NAN, SUBNORMAL, ZERO, Format
from tcsim.registry import Row
from tcsim.rounding import Rounding

Registers = dict[str, npt.NDArray[Any]]
Run = Callable[[Convert, Registers], npt.NDArray[Any]]
Applies = Callable[[Convert], bool]


def words(registers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """64-bit registers as two words each, low first, as a probe writes them; narrower ones as they are."""
    if registers.dtype.itemsize < 8:
        return registers
    return np.ascontiguousarray(registers).view(np.uint32).reshape(*registers.shape, 2)


# --- ways to change the model


def _with(**changes: Any) -> Run:
    """Another conversion of each element."""

    def run(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
        step = ConvertEach(replace(instruction.lowering.conversion, **changes))
        lowering = replace(instruction.lowering, steps=(step,))
        return words(replace(instruction, lowering=lowering).execute(**operands))

    return run


def _with_form(change: Callable[[Form], Form]) -> Run:
    """Another reading of the operands."""

    def run(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
        row: Row = replace(instruction.row, facts=change(instruction.form))
        return words(replace(instruction, row=row).execute(**operands))

    return run


def _with_results(change: Callable[[Convert, Codes, Codes], Codes]) -> Run:
    """Other codes in d: from the instruction, the sources' codes and the right results, (elements, samples) each."""

    def run(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
        d, right = instruction.registers["d"], instruction.execute(**operands)
        changed = d.pack(change(instruction, _sources(instruction, operands), d.unpack(right)).astype(d.format.dtype))
        above = right.dtype.type(_fields_mask(instruction) ^ ((1 << (8 * right.dtype.itemsize)) - 1))
        return words(changed if d.elements == 1 else changed | (right & above))

    return run


def _sources(instruction: Convert, operands: Registers) -> Codes:
    return np.concatenate([instruction.registers[s].unpack(operands[s]) for s in instruction.form.sources])


def _fields_mask(instruction: Convert) -> int:
    d = instruction.registers["d"]
    return (1 << (d.elements * d.field_bits)) - 1


def _magnitude(format: Format) -> np.uint64:
    return np.uint64(((1 << format.sign_shift) - 1) << format.ignored_low_bits)


# --- the changes


def _one_code_low(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    format = instruction.registers["d"].format
    if format.kind == "integer":
        high = (1 << (format.bits - int(format.signed))) - 1
        return np.where(results == high, high - 1, results)
    wide = results.astype(np.uint64)
    largest = np.uint64(format.largest_code << format.ignored_low_bits)
    return np.where(wide & _magnitude(format) == largest, wide - np.uint64(1 << format.ignored_low_bits), wide)


def _reversed(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    return results[::-1]


def _nan_mask(instruction: Convert, sources: Codes) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = instruction.lowering.conversion.source.fields(sources).kind == NAN
    return mask


def _nan_to_zero(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    return np.where(_nan_mask(instruction, sources), 0, results)


def _nan_sign_kept(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    conversion = instruction.lowering.conversion
    sign = conversion.source.fields(sources).sign.astype(np.uint64)
    bit = sign << np.uint64(conversion.target.sign_shift + conversion.target.ignored_low_bits)
    return np.where(_nan_mask(instruction, sources), results.astype(np.uint64) | bit, results)


def _subnormals_flushed(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    format = instruction.registers["d"].format
    wide = results.astype(np.uint64)
    return np.where(format.fields(results).kind == SUBNORMAL, wide & ~_magnitude(format), wide)


def _negative_zero_kept(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    """.relu that lets -0 pass."""
    plain = convert(sources, replace(instruction.lowering.conversion, relu=False))
    format = instruction.registers["d"].format
    fields = format.fields(plain)
    return np.where((fields.kind == ZERO) & (fields.sign == 1), plain, results)


def _negative_to_zero(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    fields = instruction.lowering.conversion.source.fields(sources)
    return np.where((fields.sign == 1) & (fields.kind < NAN), 0, results)


def _wrapped(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    conversion = instruction.lowering.conversion
    if conversion.source.kind == "integer":
        wide = sources
    else:
        wide = convert(sources, replace(conversion, target=FORMATS["s32"], nan=0))
    return wide & wide.dtype.type(conversion.target.code_mask)


def _low_bits_kept(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    return results | (sources & np.uint32(0x1FFF))


def _rounded_twice(instruction: Convert, sources: Codes, results: Codes) -> Codes:
    conversion = instruction.lowering.conversion
    first = convert(sources, Conversion(FORMATS["f64"], FORMATS["f32"], nan=None))
    return convert(first, replace(conversion, source=FORMATS["f32"]))


def _zero_extended(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    return instruction.execute(**operands) & np.uint16(0xFF)


def _c_ignored(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    return instruction.execute(**operands) & np.uint32(_fields_mask(instruction))


def _c_in_place(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    mask = np.uint32(_fields_mask(instruction))
    return (instruction.execute(**operands) & mask) | (operands["c"] & ~mask)


def _scale_fields_swapped(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    swapped = (operands["scale"] << np.uint16(8)) | (operands["scale"] >> np.uint16(8))
    return instruction.execute(**{**operands, "scale": swapped})


def _scale_nan_ignored(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    """0xff as the largest scale factor."""
    register = instruction.registers["scale"]
    factors = register.unpack(operands["scale"])
    return instruction.execute(**{**operands, "scale": register.pack(np.where(factors == 0xFF, 0xFE, factors))})


def _unscaled(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    one = instruction.registers["scale"].dtype.type(0x7F7F & ((1 << (8 * operands["scale"].dtype.itemsize)) - 1))
    return instruction.execute(**{**operands, "scale": np.full_like(operands["scale"], one)})


def _upper_bits_read(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    """The whole 16-bit register is the number; an 8-bit register has no more bits."""
    if operands["a"].dtype.itemsize == 1:
        return instruction.execute(**operands)
    conversion = instruction.lowering.conversion
    wide = conversion_format("s16" if conversion.source.signed else "u16")
    d = instruction.registers["d"]
    return d.pack(convert(operands["a"][None, :], replace(conversion, source=wide)))


def _random_in_order(form: Form) -> Form:
    return replace(form, random=tuple(tuple(sorted(bits, reverse=True)) for bits in form.random))


def _random_of_the_next(form: Form) -> Form:
    return replace(form, random=form.random[::-1])


# --- where they show


def _conversion(instruction: Convert) -> Conversion:
    return instruction.lowering.conversion


def _to_float(instruction: Convert) -> bool:
    return _conversion(instruction).target.kind == "float"


def _from_float(instruction: Convert) -> bool:
    return _conversion(instruction).source.kind == "float"


@dataclass(frozen=True)
class _Products:
    """What can happen to a source times a scale factor, by trying all of them."""

    inexact: bool
    ties: bool
    too_large: bool
    subnormal: bool


@cache
def _products(conversion: Conversion) -> _Products:
    source, target = conversion.source, conversion.target
    codes = np.arange(1 << source.bits, dtype=source.dtype)
    fields = source.fields(codes) if source.kind == "float" else None
    values = numbers(codes, source)
    values = values[fields.kind < INFINITY] if fields is not None else values
    values = np.maximum(values, 0.0) if conversion.relu else values
    products = np.ldexp(np.abs(values)[:, None], np.arange(-127, 128)[None, :]).reshape(-1)
    products = products[products > 0]
    leading = np.maximum(np.frexp(products)[1] - 1, target.minimum_exponent)
    units = np.ldexp(products, target.fraction_bits - leading)
    return _Products(
        inexact=bool((units != np.trunc(units)).any()),
        ties=bool((units - np.trunc(units) == 0.5).any()),
        too_large=bool((products > target.largest).any()),
        subnormal=bool((products < 2.0**target.minimum_exponent).any()),
    )


def _loses_bits(instruction: Convert) -> bool:
    """Some source lies strictly between two numbers of the target."""
    conversion = _conversion(instruction)
    source, target = conversion.source, conversion.target
    if conversion.scale == "multiply":
        return _products(conversion).inexact
    if source.kind == target.kind == "integer":
        return False
    if source.kind == "integer":
        return source.bits - int(source.signed) > target.fraction_bits + 1
    if target.kind == "integer" or conversion.scale:
        return True
    least = [f.minimum_exponent - f.fraction_bits for f in (source, target)]
    return source.fraction_bits > target.fraction_bits or least[0] < least[1]


def _rounds(*modes: Rounding) -> Applies:
    return lambda i: _loses_bits(i) and not _conversion(i).random_bits and _conversion(i).rounding in modes


def _has_ties(instruction: Convert) -> bool:
    """Some source lies exactly between two numbers of the target."""
    conversion = _conversion(instruction)
    return _products(conversion).ties if conversion.scale == "multiply" else _loses_bits(instruction)


def _reaches_infinity(instruction: Convert) -> bool:
    """Some source is infinite or above the target's largest number."""
    conversion = _conversion(instruction)
    source, target = conversion.source, conversion.target
    if source.kind == "float" and source.infinity:
        return True
    if conversion.scale == "multiply":
        return _products(conversion).too_large
    return bool(conversion.scale) or source.largest > target.largest


def _beyond(instruction: Convert) -> bool:
    """The target has a code for what is too large: infinity or NaN."""
    return _to_float(instruction) and _conversion(instruction).target.nan != "none"


def _negative(instruction: Convert) -> bool:
    return _conversion(instruction).source.signed


def _source_nan(instruction: Convert) -> bool:
    return _from_float(instruction) and _conversion(instruction).source.nan != "none"


def _subnormal_result(instruction: Convert) -> bool:
    conversion = _conversion(instruction)
    source, target = conversion.source, conversion.target
    if not (_to_float(instruction) and _from_float(instruction) and target.zero):
        return False
    if conversion.scale == "multiply":
        return _products(conversion).subnormal
    return bool(conversion.scale) or source.minimum_exponent - source.fraction_bits < target.minimum_exponent


def _subnormal_source_matters(instruction: Convert) -> bool:
    """A subnormal source has a result other than zero."""
    conversion = _conversion(instruction)
    source, target = conversion.source, conversion.target
    if not _from_float(instruction) or not source.zero or conversion.flush_source:
        return False
    if conversion.scale == "multiply":
        return True
    if conversion.scale or target.kind == "integer":
        return conversion.rounding in ("rm", "rp") and target.kind == "integer" and _half_open(conversion)
    away = conversion.rounding in ("rm", "rp")
    return away or (target.zero and source.minimum_exponent > target.minimum_exponent - target.fraction_bits)


def _half_open(conversion: Conversion) -> bool:
    """A tiny number rounds away from zero to something that the target has."""
    return conversion.target.signed or conversion.rounding == "rp"


def _all(*conditions: Applies) -> Applies:
    return lambda instruction: all(condition(instruction) for condition in conditions)


def _not(condition: Applies) -> Applies:
    return lambda instruction: not condition(instruction)


def _field(**wanted: Any) -> Applies:
    """Attributes of the conversion with these values."""
    return lambda i: all(getattr(_conversion(i), name) == value for name, value in wanted.items())


def _packs(instruction: Convert) -> bool:
    return instruction.registers["d"].elements > 1


def _has(name: str) -> Applies:
    return lambda instruction: name in instruction.registers


def _narrow_integer(instruction: Convert) -> bool:
    target = _conversion(instruction).target
    return target.kind == "integer" and target.bits < 32 and not target.fraction_bits


def _sign_extends(instruction: Convert) -> bool:
    return _conversion(instruction).target.name == "s8" and not _packs(instruction)


def _eight_of_sixteen(instruction: Convert) -> bool:
    a = instruction.registers["a"]
    return a.format.kind == "integer" and a.format.bits == 8 and a.dtype.itemsize == 2


def _target_is(*names: str) -> Applies:
    return lambda instruction: _conversion(instruction).target.name in names


def _source_is(*names: str) -> Applies:
    return lambda instruction: _conversion(instruction).source.name in names


def _kept_payload(instruction: Convert) -> bool:
    return _source_nan(instruction) and _conversion(instruction).nan is None


def _canonical(instruction: Convert) -> bool:
    return _source_nan(instruction) and _conversion(instruction).nan is not None


def _payload_fits(instruction: Convert) -> bool:
    conversion = _conversion(instruction)
    return (
        _canonical(instruction) and _to_float(instruction) and conversion.target.nan == "ieee" == conversion.source.nan
    )


def _truncation_shows(instruction: Convert) -> bool:
    """Where nothing is negative, rounding toward minus infinity truncates."""
    conversion = _conversion(instruction)
    return _rounds("rne", "rna", "rp")(instruction) or (_rounds("rm")(instruction) and conversion.target.signed)


def _nearest_matters(instruction: Convert) -> bool:
    return _loses_bits(instruction) and not _field(rounding="rne")(instruction) and not _random(instruction)


def _random(instruction: Convert) -> bool:
    return bool(instruction.form.random)


def _clamps(instruction: Convert) -> bool:
    return _reaches_infinity(instruction) and (_conversion(instruction).saturate or not _to_float(instruction))


def _signed_float(instruction: Convert) -> bool:
    return _to_float(instruction) and _conversion(instruction).target.signed


def _random_shared(instruction: Convert) -> bool:
    return len(instruction.form.random) == 4


WRONG_MODELS = (
    WrongModel("ties away", "ties go away from zero", _all(_rounds("rne"), _has_ties), _with(rounding="rna")),
    WrongModel("ties to even", "ties go to the even code", _rounds("rna"), _with(rounding="rne")),
    WrongModel("truncated", "rounding toward zero", _truncation_shows, _with(rounding="rz")),
    WrongModel("nearest", "rounding to nearest", _nearest_matters, _with(rounding="rne")),
    WrongModel("downward", "rounding toward minus infinity", _all(_rounds("rp", "rz"), _negative, _signed_float, _field(relu=False)), _with(rounding="rm")),
    WrongModel("upward", "rounding toward plus infinity", _all(_rounds("rm", "rz")), _with(rounding="rp")),
    WrongModel("largest one code low", "saturation stops one code short", _clamps, _with_results(_one_code_low)),
    WrongModel("satfinite ignored", "too large is infinity or NaN", _all(_field(saturate=True), _reaches_infinity, _beyond),
               _with(saturate=False, nan_decrement=0)),
    WrongModel("satfinite assumed", "too large is the largest number",
               _all(_field(saturate=False), _reaches_infinity, _beyond), _with(saturate=True)),
    WrongModel("relu ignored", "negative results stay", _field(relu=True), _with(relu=False)),
    WrongModel("relu assumed", "negative results are zero", _all(_field(relu=False), _negative, _signed_float),
               _with(relu=True)),
    WrongModel("relu keeps -0", "a result of -0 stays", _all(_field(relu=True, positive_zero=False, scale="", random_bits=0),
                                                            _signed_float, _from_float), _with_results(_negative_zero_kept)),
    WrongModel("fields swapped", "the first source goes into the lowest field", _packs, _with_results(_reversed)),
    WrongModel("NaN is zero", "NaN becomes +0", _all(_source_nan, _not(_field(nan=0))), _with_results(_nan_to_zero)),
    WrongModel("NaN is minus one", "NaN becomes all ones", _all(_source_nan, _narrow_integer), _with(nan=0xFF)),
    WrongModel("NaN sign kept", "a negative NaN stays negative", _all(_canonical, _signed_float, _negative,
                                                                      lambda i: _conversion(i).target.nan != "none"),
               _with_results(_nan_sign_kept)),
    WrongModel("NaN payload kept", "sign and leading payload bits of a NaN stay", _payload_fits, _with(nan=None)),
    WrongModel("NaN canonical", "every NaN is the same", _kept_payload, _with(nan=0x7FFFFFFF)),
    WrongModel("NaN quieted", "a signalling NaN becomes quiet", _all(_kept_payload, _field(quiet=False)), _with(quiet=True)),
    WrongModel("NaN signalling", "a signalling NaN stays signalling", _all(_kept_payload, _field(quiet=True)),
               _with(quiet=False)),
    WrongModel("subnormal results flushed", "subnormal results are zeros", _subnormal_result,
               _with_results(_subnormals_flushed)),
    WrongModel("subnormal sources flushed", "subnormal sources are zeros", _subnormal_source_matters,
               _with(flush_source=True)),
    WrongModel("-0 lost", "a result of -0 becomes +0",
               _all(_field(relu=False, positive_zero=False), _signed_float, _from_float, _negative),
               _with(positive_zero=True)),
    WrongModel("pzo ignored", "a result of -0 stays", _field(positive_zero=True, relu=False), _with(positive_zero=False)),
    WrongModel("rounded twice", "f64 goes through f32", _source_is("f64"), _with_results(_rounded_twice)),
    WrongModel("wraps", "an integer out of range wraps", _narrow_integer, _with_results(_wrapped)),
    WrongModel("zero-extended", "the upper half of the result register is zero", _sign_extends, _zero_extended),
    WrongModel("upper bits read", "all 16 bits of the source register count", _eight_of_sixteen, _upper_bits_read),
    WrongModel("low bits kept", "the low 13 bits of tf32 are those of the source", _target_is("tf32"),
               _with_results(_low_bits_kept)),
    WrongModel("negative is zero", "a format without sign takes negative numbers for zero",
               _all(_target_is("ue8m0", "ue5m3"), _not(_has("scale"))), _with_results(_negative_to_zero)),
    WrongModel("c ignored", "the bits above the fields are zero", _has("c"), _c_ignored),
    WrongModel("c in place", "c's upper bits stay where they are", _has("c"), _c_in_place),
    WrongModel("unscaled", "the scale factors are 1", _has("scale"), _unscaled),
    WrongModel("multiplied", "the scale factor multiplies", _field(scale="divide"), _with(scale="multiply")),
    WrongModel("divided", "the scale factor divides", _field(scale="multiply"), _with(scale="divide")),
    WrongModel("scale NaN ignored", "scale factor 0xff is a power of two", _has("scale"), _scale_nan_ignored),
    WrongModel("scales swapped", "each field has the other's scale factor",
               lambda i: "scale" in i.registers and i.registers["scale"].elements == 2, _scale_fields_swapped),
    WrongModel("subnormals kept", "subnormal sources count", _field(flush_source=True), _with(flush_source=False)),
    WrongModel("random bits in order", "no source reads its random bits reversed", _random_shared,
               _with_form(_random_in_order)),
    WrongModel("random bits of another", "the first source reads the last one's random bits", _random,
               _with_form(_random_of_the_next)),
)  # fmt: skip
