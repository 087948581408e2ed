"""Mutants of conversions: mistakes about rounding, overflow, signs, zeros, NaN, packing, scale factors and random bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.cvt import conditions as on
from conformance.testbench import Mutant
from tcsim.isa.cvt.semantics import Convert, ConvertEach
from tcsim.numbers.conversion import Codes, Conversion, conversion_format, convert
from tcsim.numbers.formats import FORMATS, NAN, SUBNORMAL, ZERO, Format

Registers = dict[str, npt.NDArray[Any]]
Random = tuple[tuple[int, ...], ...]  # bits of rbits for each source
Run = Callable[[Convert, Registers], npt.NDArray[Any]]


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


def _with_random(change: Callable[[Random], Random]) -> Run:
    """Other bits of rbits for each source."""

    def run(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
        row = replace(instruction.row, random=change(instruction.row.random))
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
    return np.concatenate([instruction.registers[s].unpack(operands[s]) for s in instruction.row.sources])


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


def _sign_flipped(instruction: Convert, operands: Registers) -> npt.NDArray[Any]:
    source = instruction.lowering.conversion.source
    other = conversion_format(("u" if source.signed else "s") + source.name[1:])
    return _with(source=other)(instruction, operands)


def _random_in_order(random: Random) -> Random:
    return tuple(tuple(sorted(bits, reverse=True)) for bits in random)


def _random_of_the_next(random: Random) -> Random:
    return random[::-1]


MUTANTS = (
    Mutant("ties away", "ties go away from zero", on.all_of(on.rounds("rne"), on.has_ties), _with(rounding="rna")),
    Mutant("ties to even", "ties go to the even code", on.rounds("rna"), _with(rounding="rne")),
    Mutant("truncated", "rounding toward zero", on.truncation_shows, _with(rounding="rz")),
    Mutant("nearest", "rounding to nearest", on.nearest_matters, _with(rounding="rne")),
    Mutant("downward", "rounding toward minus infinity", on.all_of(on.rounds("rp", "rz"), on.negative, on.signed_float, on.field(relu=False)), _with(rounding="rm")),
    Mutant("upward", "rounding toward plus infinity", on.all_of(on.rounds("rm", "rz")), _with(rounding="rp")),
    Mutant("largest one code low", "saturation stops one code short", on.clamps, _with_results(_one_code_low)),
    Mutant("satfinite ignored", "too large is infinity or NaN", on.all_of(on.field(saturate=True), on.reaches_infinity, on.beyond),
           _with(saturate=False, nan_decrement=0)),
    Mutant("satfinite assumed", "too large is the largest number",
           on.all_of(on.field(saturate=False), on.reaches_infinity, on.beyond), _with(saturate=True)),
    Mutant("relu ignored", "negative results stay", on.field(relu=True), _with(relu=False)),
    Mutant("relu assumed", "negative results are zero", on.all_of(on.field(relu=False), on.negative, on.signed_float),
           _with(relu=True)),
    Mutant("relu keeps -0", "a result of -0 stays", on.all_of(on.field(relu=True, positive_zero=False, scale="", random_bits=0),
                                                        on.signed_float, on.from_float), _with_results(_negative_zero_kept)),
    Mutant("fields swapped", "the first source goes into the lowest field", on.packs, _with_results(_reversed)),
    Mutant("NaN is zero", "NaN becomes +0", on.all_of(on.source_nan, on.unless(on.field(nan=0))), _with_results(_nan_to_zero)),
    Mutant("NaN is minus one", "NaN becomes all ones", on.all_of(on.source_nan, on.narrow_integer), _with(nan=0xFF)),
    Mutant("NaN sign kept", "a negative NaN stays negative", on.all_of(on.canonical, on.signed_float, on.negative,
                                                                  lambda i: on.conversion_of(i).target.nan != "none"),
           _with_results(_nan_sign_kept)),
    Mutant("NaN payload kept", "sign and leading payload bits of a NaN stay", on.payload_fits, _with(nan=None)),
    Mutant("NaN canonical", "every NaN is the same", on.kept_payload, _with(nan=0x7FFFFFFF)),
    Mutant("NaN quieted", "a signalling NaN becomes quiet", on.all_of(on.kept_payload, on.field(quiet=False)), _with(quiet=True)),
    Mutant("NaN signalling", "a signalling NaN stays signalling", on.all_of(on.kept_payload, on.field(quiet=True)),
           _with(quiet=False)),
    Mutant("subnormal results flushed", "subnormal results are zeros", on.subnormal_result,
           _with_results(_subnormals_flushed)),
    Mutant("subnormal sources flushed", "subnormal sources are zeros", on.subnormal_source_matters,
           _with(flush_source=True)),
    Mutant("-0 lost", "a result of -0 becomes +0",
           on.all_of(on.field(relu=False, positive_zero=False), on.signed_float, on.from_float, on.negative),
           _with(positive_zero=True)),
    Mutant("pzo ignored", "a result of -0 stays", on.field(positive_zero=True, relu=False), _with(positive_zero=False)),
    Mutant("rounded twice", "f64 goes through f32", on.source_is("f64"), _with_results(_rounded_twice)),
    Mutant("wraps", "an integer out of range wraps", on.narrow_integer, _with_results(_wrapped)),
    Mutant("signedness of the source", "a signed integer is read as unsigned, or the reverse",
           on.all_of(on.from_integer, on.unless(on.source_is("s2f6"))), _sign_flipped),
    Mutant("zero-extended", "the upper half of the result register is zero", on.sign_extends, _zero_extended),
    Mutant("upper bits read", "all 16 bits of the source register count", on.eight_of_sixteen, _upper_bits_read),
    Mutant("low bits kept", "the low 13 bits of tf32 are those of the source", on.target_is("tf32"),
           _with_results(_low_bits_kept)),
    Mutant("negative is zero", "a format without sign takes negative numbers for zero",
           on.all_of(on.target_is("ue8m0", "ue5m3"), on.unless(on.has("scale"))), _with_results(_negative_to_zero)),
    Mutant("c ignored", "the bits above the fields are zero", on.has("c"), _c_ignored),
    Mutant("c in place", "c's upper bits stay where they are", on.has("c"), _c_in_place),
    Mutant("unscaled", "the scale factors are 1", on.has("scale"), _unscaled),
    Mutant("multiplied", "the scale factor multiplies", on.field(scale="divide"), _with(scale="multiply")),
    Mutant("divided", "the scale factor divides", on.field(scale="multiply"), _with(scale="divide")),
    Mutant("scale NaN ignored", "scale factor 0xff is a power of two", on.has("scale"), _scale_nan_ignored),
    Mutant("scales swapped", "each field has the other's scale factor",
           lambda i: "scale" in i.registers and i.registers["scale"].elements == 2, _scale_fields_swapped),
    Mutant("subnormals kept", "subnormal sources count", on.field(flush_source=True), _with(flush_source=False)),
    Mutant("random bits in order", "no source reads its random bits reversed", on.random_shared,
           _with_random(_random_in_order)),
    Mutant("random bits of another", "the first source reads the last one's random bits", on.random,
           _with_random(_random_of_the_next)),
)  # fmt: skip
