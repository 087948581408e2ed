"""Named classes of operand values, each made to catch particular wrong models.

Inputs are a pure function of (mnemonic, class, seed, count): raw words of a Philox generator, whose stream NumPy
guarantees not to change, and integer arithmetic. No floating-point library function is involved, so every machine
makes the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stream import Stream
from tcsim.codec import encode
from tcsim.dot import Datapath
from tcsim.formats import Format
from tcsim.multiply import MatrixMultiply
from tcsim.steps import DotAdd

Codes = npt.NDArray[Any]
Matrices = dict[str, Codes]


@dataclass(frozen=True)
class Problem:
    """What a class needs to know of an instruction to fill its operands."""

    instruction: MatrixMultiply
    count: int  # matrix products

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.instruction.shape

    def format(self, name: str) -> Format:
        """The format of an operand."""
        return self.instruction.operands[name].format

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns) of an operand."""
        return (self.count, *self.instruction.operands[name].shape)

    @cached_property
    def unit(self) -> Datapath | None:
        """The first dot-add unit of the lowering, if it has one."""
        return next((s.unit for s in self.instruction.lowering.steps if isinstance(s, DotAdd)), None)


def build(format: Format, sign: Codes, exponent: Codes, fraction: Codes) -> Codes:
    """Float codes from parts: a normal number, or zero below the format's range of exponents; no overflow allowed."""
    field = np.clip(exponent - format.minimum_exponent + int(format.zero), 0, (1 << format.exponent_bits) - 1)
    code = (field.astype(np.uint64) << np.uint64(format.fraction_bits)) | (
        fraction.astype(np.uint64) & np.uint64((1 << format.fraction_bits) - 1)
    )
    code = np.where(code > np.uint64(format.largest_code), np.uint64(format.largest_code), code)
    code |= sign.astype(np.uint64) << np.uint64(format.sign_shift)
    return (code << np.uint64(format.ignored_low_bits)).astype(format.dtype)


def _random_bits(format: Format, stream: Stream, shape: tuple[int, ...]) -> Codes:
    return (stream.words(shape) & np.uint64(format.code_mask)).astype(format.dtype)


def _finite_bits(format: Format, stream: Stream, shape: tuple[int, ...]) -> Codes:
    codes = _random_bits(format, stream, shape)
    if format.kind != "float":
        return codes
    magnitude = (codes.astype(np.uint64) >> np.uint64(format.ignored_low_bits)) & np.uint64(
        (1 << format.sign_shift) - 1
    )
    lower = codes ^ format.dtype.type(1 << (format.fraction_bits + format.ignored_low_bits + format.exponent_bits - 1))
    return np.where(magnitude > np.uint64(format.largest_code), lower, codes)


def window(format: Format, stream: Stream, shape: tuple[int, ...], low: int, high: int) -> Codes:
    """Random signs and fractions, exponents uniform in a window clipped to the format's normal numbers."""
    top = (format.largest_code >> format.fraction_bits) + format.minimum_exponent - int(format.zero)
    low, high = max(low, format.minimum_exponent), min(high, top)
    words = stream.words(shape)
    return build(format, words >> np.uint64(63), stream.between(low, high, shape), words)


def _each(problem: Problem, make: Callable[[str, Format, tuple[int, ...]], Codes]) -> Matrices:
    return {name: make(name, problem.format(name), problem.dimensions(name)) for name in "abc"}


def uniform(problem: Problem, stream: Stream) -> Matrices:
    """Every bit random: NaN and infinity included."""
    return _each(problem, lambda name, format, shape: _random_bits(format, stream, shape))


def finite(problem: Problem, stream: Stream) -> Matrices:
    """Every bit random but no NaN and no infinity: exponents over the whole range."""
    return _each(problem, lambda name, format, shape: _finite_bits(format, stream, shape))


def normal(problem: Problem, stream: Stream) -> Matrices:
    """Values near a normal distribution of variance 1: what networks hold."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        parts = stream.words((*shape, 3))
        quarters = parts[..., None] >> (np.uint64(16) * np.arange(4, dtype=np.uint64)) & np.uint64(0xFFFF)
        total = quarters.sum((-1, -2)).astype(np.int64)
        return encode((total - 6 * 0xFFFF) / 65536.0, format, saturate=True)

    return _each(problem, make)


def wide(problem: Problem, stream: Stream) -> Matrices:
    """Products and addend spread over a window about twice the width of the adder."""
    reach = 3 if problem.instruction.operands["d"].format.exponent_bits <= 5 else 10

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        low, high = (-24, 2 * reach + 4) if name == "c" else (-10, reach)
        return window(format, stream, shape, low, high)

    return _each(problem, make)


def cancellation(problem: Problem, stream: Stream) -> Matrices:
    """Products in pairs of opposite sign that cancel exactly or nearly, and a small addend."""
    m, n, k = problem.shape
    count = problem.count
    format_a, format_b, format_c = (problem.format(name) for name in "abc")
    half = k // 2
    a = window(format_a, stream, (count, m, half), -6, 12)
    b = window(format_b, stream, (count, half, n), -6, 12)
    negated = a ^ _sign_bit(format_a)
    last_bit = format_a.dtype.type(1 << format_a.ignored_low_bits)
    negated = np.where(stream.chance(1, 2, negated.shape), negated & ~last_bit, negated)
    order = np.argsort(stream.words((count, k)), axis=1)
    a = np.take_along_axis(np.concatenate([a, negated], 2), order[:, None, :], 2)
    b = np.take_along_axis(np.concatenate([b, b], 1), order[:, :, None], 1)
    c = window(format_c, stream, (count, m, n), -30, 6)
    c = np.where(stream.chance(1, 3, c.shape), format_c.dtype.type(0), c)
    return {"a": a, "b": b, "c": c}


def subnormals(problem: Problem, stream: Stream) -> Matrices:
    """Subnormal multiplicands against large ones, subnormal addends: flushing to zero shows."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        words = stream.words(shape)
        sign = words >> np.uint64(63)
        tiny = build(format, sign, np.full(shape, format.minimum_exponent - 1), words)
        limit = 16 if name == "c" else 4
        top = (format.largest_code >> format.fraction_bits) + format.minimum_exponent - int(format.zero)
        large = build(format, sign, stream.between(top - limit, top - 1, shape), words)
        small = build(format, sign, stream.between(format.minimum_exponent, format.minimum_exponent + 2, shape), words)
        other = small if name == "c" else np.where(stream.chance(1, 2, (shape[0], 1, 1)), large, small)
        return np.where(stream.chance(1, 2, shape), tiny, other)

    return _each(problem, make)


def sparse(problem: Problem, stream: Stream) -> Matrices:
    """Seven of eight values are zeros of either sign."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.kind != "float":
            return np.where(stream.chance(7, 8, shape), format.dtype.type(0), _random_bits(format, stream, shape))
        values = window(format, stream, shape, -6, 6)
        return np.where(stream.chance(7, 8, shape), values & _sign_bit(format), values)

    return _each(problem, make)


def zeros(problem: Problem, stream: Stream) -> Matrices:
    """Zeros of either sign: all of them, or A only, or all but the addend."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.kind != "float":
            return np.zeros(shape, format.dtype)
        values = _finite_bits(format, stream, shape)
        which = np.arange(shape[0]) % 3
        zero = {"a": which >= 0, "b": which != 1, "c": which != 2}[name][:, None, None]
        sign = _sign_bit(format)
        # a third of the products: every sign minus, so that a sum of zeros of one sign occurs
        signs = np.where((which == 0)[:, None, None], stream.words(shape).astype(format.dtype) & sign, values & sign)
        if name in "ac":
            signs = np.where((np.arange(shape[0]) % 6 == 0)[:, None, None], sign, signs)
        if name == "b":
            signs = np.where((np.arange(shape[0]) % 6 == 0)[:, None, None], format.dtype.type(0), signs)
        return np.where(zero, signs, values)

    return _each(problem, make)


def _landmarks(format: Format, specials: bool) -> Codes:
    """Codes at the edges of a float format, both signs."""
    one = format.bias << format.fraction_bits
    least_normal = int(format.zero) << format.fraction_bits
    codes = [0, 1, 2, least_normal - 1, least_normal, least_normal + 1, one - 1, one, one + 1, format.largest_code - 1]
    codes += [format.largest_code, format.largest_code - (1 << format.fraction_bits)]
    if specials:
        top = (1 << format.sign_shift) - 1
        codes = [format.largest_code + 1, format.largest_code + 1, top, top - (1 << (format.fraction_bits - 1))]
        codes += [(format.infinity_code or top) + 1] if format.nan == "ieee" else []
    signed = [code | sign << format.sign_shift for code in codes if code >= 0 for sign in (0, 1)]
    return (np.array(signed, np.uint64) << np.uint64(format.ignored_low_bits)).astype(format.dtype)


def boundaries(problem: Problem, stream: Stream) -> Matrices:
    """Least and largest numbers, neighbours of one, zeros; in half of the products few infinities and NaN of all kinds."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.kind != "float":
            top = 1 << (format.bits - 1)
            table = [0, 1, top - 1, top, top + 1, 2 * top - 1] if format.bits > 1 else [0, 1]
            return stream.choice(np.array(table, np.uint64).astype(format.dtype), shape)
        values = stream.choice(_landmarks(format, specials=False), shape)
        # blank most of them, so that single products and single roundings show
        keep = stream.below(4, (shape[0], 1, 1)) + 1
        values = np.where(stream.below(4, shape) < keep, values, format.dtype.type(0))
        if format.nan != "none":
            seldom = stream.chance(1, 64 if name != "c" else 24, shape) & (np.arange(shape[0]) % 2 == 1)[:, None, None]
            values = np.where(seldom, stream.choice(_landmarks(format, specials=True), shape), values)
        if format.ignored_low_bits:  # what the hardware does not read must not matter: an infinity stays one
            noise = (stream.words(shape) & np.uint64((1 << format.ignored_low_bits) - 1)).astype(format.dtype)
            values = np.where(stream.chance(1, 2, shape), values | noise, values)
        return values

    return _each(problem, make)


def edges(problem: Problem, stream: Stream) -> Matrices:
    """A leading power of two, half a unit in its last place, and bits around the last one that the adder keeps.

    All are powers of two at random k of A, against powers of two in B: ties, truncation and its width show.
    """
    m, n, k = problem.shape
    count = problem.count
    formats = {name: problem.format(name) for name in "abc"}
    result = problem.instruction.operands["d"].format
    unit = problem.unit
    kept = unit.fraction_bits if unit else result.fraction_bits + 2
    precision = 13 if unit and unit.output == "e8m13" else result.fraction_bits
    shape_a, shape_b, shape_c = (problem.dimensions(name) for name in "abc")
    lowest = sum(lowest_exponent(formats[name]) for name in "ab")
    highest = sum((formats[f].largest_code >> formats[f].fraction_bits) + formats[f].minimum_exponent - 1 for f in "ab")
    # where the leading term of a row is: so that its companions exist in the formats, if there is room for them
    bottom = max(lowest + kept + 2, -20)
    top = stream.between(min(bottom, highest - 1), max(highest - 1, bottom), (count, m, 1))
    offsets = -stream.choice([0, 1, precision, precision + 1, precision + 1, kept - 1, kept, kept, kept + 1], shape_a)
    middle = stream.between(-3, 3, (count, k, 1))
    codes_a = _power(formats["a"], top + offsets - middle.transpose(0, 2, 1))
    codes_b = _power(formats["b"], np.broadcast_to(middle, shape_b))
    codes_a = np.where(stream.chance(1, 6, shape_a), codes_a | _sign_bit(formats["a"]), codes_a)
    codes_a = np.where(stream.below(max(k, 6), shape_a) < 4, codes_a, formats["a"].dtype.type(0))
    codes_b = np.where(stream.chance(1, 8, shape_b), formats["b"].dtype.type(0), codes_b)
    codes_c = _power(formats["c"], top - stream.choice([0, 1, precision + 1, kept], shape_c))
    codes_c = np.where(stream.chance(1, 3, shape_c), codes_c | _sign_bit(formats["c"]), codes_c)
    codes_c = np.where(stream.chance(1, 2, shape_c), formats["c"].dtype.type(0), codes_c)
    return {"a": codes_a, "b": codes_b, "c": codes_c}


def floor(problem: Problem, stream: Stream) -> Matrices:
    """Sums one bit short of (or exactly half) the least result, and bits around the cut that the floor causes.

    The products lie below the floor of the largest exponent, so that alone decides which bits count. One product, at a
    k of its own, is one unit short of the least result (when the unit truncates) or half of it (when it rounds); a few
    others are one unit, or half a unit: enough to reach it if and only if the floor is where the model says.
    """
    m, n, k = problem.shape
    unit, result = problem.unit, problem.instruction.operands["d"].format
    if unit is None:
        raise ValueError(f"{problem.instruction!r} has no dot-add unit")
    format_a, format_b = problem.format("a"), problem.format("b")
    shape_a, shape_b = problem.dimensions("a"), problem.dimensions("b")
    cut = unit.floor - unit.fraction_bits  # exponent of the last bit that counts
    least = lowest_exponent(result)
    factor_a, factor_b, place = (1, 1, least - 1) if unit.rounding == "rne" else (*_ones(least - cut, format_b), cut)
    # exponents of B; subnormals keep their format's least exponent, so that the large product needs one of its own
    half, half_base = cut // 2, place // 2
    special = stream.below(k, (problem.count, 1, 1))
    at = np.arange(k)
    tiny = stream.choice([cut, cut, cut - 1, cut - 1, cut + 1], shape_a)
    codes_a = np.where(stream.below(max(k, 4), shape_a) < 3, _power(format_a, tiny - half), format_a.dtype.type(0))
    base = _power(format_a, np.full(shape_a, place - half_base), factor_a)
    codes_a = np.where(at[None, None, :] == special, base, codes_a)
    codes_b = _power(format_b, np.full(shape_b, half))
    codes_b = np.where(at[None, :, None] == special, _power(format_b, np.full(shape_b, half_base), factor_b), codes_b)
    codes_b = np.where(stream.chance(1, 6, shape_b), format_b.dtype.type(0), codes_b)
    negative = stream.chance(1, 4, (problem.count, m, 1))
    codes_a = np.where(negative, codes_a | _sign_bit(format_a), codes_a)
    return {"a": codes_a, "b": codes_b, "c": np.zeros(problem.dimensions("c"), problem.format("c").dtype)}


def underflow(problem: Problem, stream: Stream) -> Matrices:
    """Few products of the least numbers, mostly negative, and addends around zero: results that round to zero."""
    matrices = {}
    for name in "abc":
        format, shape = problem.format(name), problem.dimensions(name)
        least = stream.below(3, shape).astype(format.dtype) + format.dtype.type(1)
        values = least << format.dtype.type(format.ignored_low_bits)
        zeros = format.dtype.type(0)
        if name == "c":
            values = np.where(stream.chance(5, 6, shape), zeros, values)
        else:
            values = np.where(stream.chance(1, 2, (*shape[:2], 1)) & stream.chance(3, 4, shape), values, zeros)
        # A mostly minus, B plus, C mostly minus
        odds = {"a": 7, "b": 1, "c": 6}[name]
        matrices[name] = np.where(stream.chance(odds, 8, shape), values | _sign_bit(format), values)
    return matrices


def floor_matters(problem: Problem) -> bool:
    """True if some product has bits at and below the cut that the unit's floor causes."""
    if problem.unit is None:
        return False
    lowest = lowest_exponent(problem.format("a")) + lowest_exponent(problem.format("b"))
    return lowest < problem.unit.floor - problem.unit.fraction_bits


def lowest_exponent(format: Format) -> int:
    """The exponent of a format's least subnormal."""
    return format.minimum_exponent - format.fraction_bits


def _ones(bits: int, format: Format) -> tuple[int, int]:
    """Factors of 2**bits - 1 that fit the significand of a format."""
    limit = 1 << (format.fraction_bits + 1)
    number = (1 << bits) - 1
    return next((number // f, f) for f in range(1, limit) if number % f == 0 and number // f < limit)


def _sign_bit(format: Format) -> Any:
    return format.dtype.type(1 << (format.sign_shift + format.ignored_low_bits))


def _power(format: Format, exponent: Codes, factor: int = 1) -> Codes:
    """Codes of factor * 2**exponent, subnormals included; zero where it is too small to exist.

    Exponents too large are lowered to the largest power of two.
    """
    length = factor.bit_length() - 1
    exponent = np.minimum(
        exponent, (format.largest_code >> format.fraction_bits) + format.minimum_exponent - 1 - length
    )
    field = (np.maximum(exponent + length - format.minimum_exponent + 1, 0)).astype(np.uint64)
    fraction = (factor << (format.fraction_bits - length)) & ((1 << format.fraction_bits) - 1)
    normal = (field << np.uint64(format.fraction_bits)) | np.uint64(fraction)
    place = exponent - lowest_exponent(format)
    tiny = np.where(place >= 0, np.uint64(factor) << np.clip(place, 0, 63).astype(np.uint64), np.uint64(0))
    code = np.where(exponent + length >= format.minimum_exponent, normal, tiny)
    return (code << np.uint64(format.ignored_low_bits)).astype(format.dtype)


def onehot(problem: Problem, stream: Stream) -> Matrices:
    """One element of each row of A (then of each column of B) is one: the result spells out the other operand."""
    m, n, k = problem.shape
    count = problem.count
    small = {name: _small_values(problem.format(name)) for name in "abc"}
    a, b, c = (stream.choice(small[name], problem.dimensions(name)) for name in "abc")
    c = np.where(stream.chance(3, 4, c.shape), c.dtype.type(0), c)
    shift = np.arange(count)
    hot_a = (np.arange(m)[None, :] + shift[:, None]) % k  # (count, m): the k that is one
    hot_b = (np.arange(n)[None, :] + shift[:, None]) % k
    pick_a = (np.arange(k)[None, None, :] == hot_a[:, :, None]).astype(a.dtype) * _one(problem.format("a"))
    pick_b = (np.arange(k)[None, :, None] == hot_b[:, None, :]).astype(b.dtype) * _one(problem.format("b"))
    first = (shift < (count + 1) // 2)[:, None, None]
    return {"a": np.where(first, pick_a, a), "b": np.where(first, b, pick_b), "c": c}


def _one(format: Format) -> Any:
    return format.dtype.type(
        (format.bias << format.fraction_bits << format.ignored_low_bits) if format.kind == "float" else 1
    )


def _small_values(format: Format) -> Codes:
    if format.kind == "float":
        return encode(np.array([1, 1.5, 2, 3, 4, 6, -1, -1.5, -2, -3, -4, -6]), format)
    top = min(1 << format.bits, 256)
    return np.arange(top).astype(format.dtype)


def small(problem: Problem, stream: Stream) -> Matrices:
    """Small integers of either sign, small addends: what quantised networks hold."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        value = stream.between(-3, 3, shape) if format.signed else stream.between(0, 3, shape)
        return (value & format.code_mask).astype(format.dtype)

    return _each(problem, make)


def saturation(problem: Problem, stream: Stream) -> Matrices:
    """Addends within one dot product of the ends of s32, blocks of K of opposite sign: where clamping happens shows."""
    m, n, k = problem.shape
    matrices = extremes(problem, stream)
    format_a, format_b, format_c = (problem.format(name) for name in "abc")
    reach = k << (format_a.bits + format_b.bits - 2)
    low = stream.between(0, min(reach * 2, 2**30), problem.dimensions("c"))
    end = np.where(stream.chance(1, 2, low.shape), -(2**31) + low, 2**31 - 1 - low)
    matrices["c"] = (end & format_c.code_mask).astype(format_c.dtype)
    # in half of the products, the first or second half of K is turned to the other sign
    if format_a.signed and format_a.bits > 1:
        turned = (np.arange(problem.count) % 2 == 0)[:, None, None] & (np.arange(k)[None, None, :] < k // 2)
        negated = (-matrices["a"].astype(np.int64)) & format_a.code_mask
        matrices["a"] = np.where(turned, negated, matrices["a"]).astype(format_a.dtype)
    return matrices


def extremes(problem: Problem, stream: Stream) -> Matrices:
    """Mostly the least and greatest integers, of one sign per product: sums as large as they get."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.bits == 1:
            return (~stream.chance(1, 16, shape)).astype(format.dtype)
        top, bottom = (1 << (format.bits - int(format.signed))) - 1, 1 << (format.bits - 1) if format.signed else 0
        each = np.where(stream.chance(1, 2, (shape[0], 1, 1)), top, bottom if bottom else top)
        noise = stream.below(3, shape)
        value = np.where(each == top, each - noise, each + noise)
        return (value & format.code_mask).astype(format.dtype)

    return _each(problem, make)


@dataclass(frozen=True)
class InputClass:
    """A named way to fill the operands."""

    name: str
    make: Callable[[Problem, Stream], Matrices]
    kinds: tuple[str, ...]  # formats' `kind` it makes sense for
    per_k: int = 0  # matrix products per unit of K instead of the default count
    applies: Callable[[Problem], bool] = lambda problem: True  # a further condition


CLASSES = {
    item.name: item
    for item in (
        InputClass("uniform", uniform, ("float", "integer", "bit")),
        InputClass("finite", finite, ("float",)),
        InputClass("normal", normal, ("float",)),
        InputClass("wide", wide, ("float",)),
        InputClass("cancellation", cancellation, ("float",)),
        InputClass("subnormals", subnormals, ("float",)),
        InputClass("underflow", underflow, ("float",)),
        InputClass("sparse", sparse, ("float", "integer", "bit")),
        InputClass("zeros", zeros, ("float", "integer", "bit")),
        InputClass("boundaries", boundaries, ("float", "integer", "bit")),
        InputClass("edges", edges, ("float",)),
        InputClass("floor", floor, ("float",), applies=floor_matters),
        InputClass("small", small, ("integer",)),
        InputClass("extremes", extremes, ("integer", "bit")),
        InputClass("saturation", saturation, ("integer", "bit")),
        InputClass("onehot", onehot, ("float", "integer", "bit"), per_k=2),
    )
}
"""Every input class by name, in the order they run."""

OUTPUTS_PER_CASE = 2048
"""Result elements of a case when the number of samples is not given."""


def classes_for(instruction: MatrixMultiply) -> list[InputClass]:
    """The classes that apply to an instruction's multiplicands."""
    kind, problem = instruction.operands["a"].format.kind, Problem(instruction, 1)
    return [item for item in CLASSES.values() if kind in item.kinds and item.applies(problem)]


def default_samples(instruction: MatrixMultiply, item: InputClass) -> int:
    """Instructions (warps) in a case: enough for `OUTPUTS_PER_CASE` results, or for every k to be hot once."""
    m, n, k = instruction.shape
    if item.per_k:
        return -(-item.per_k * k // instruction.matrices)
    return -(-OUTPUTS_PER_CASE // (m * n * instruction.matrices))


def registers(
    instruction: MatrixMultiply, item: InputClass, seed: int, samples: int
) -> dict[str, npt.NDArray[np.uint32]]:
    """The operands of a case: registers (samples, lanes, registers) of a, b and c."""
    problem = Problem(instruction, samples * instruction.matrices)
    stream = Stream(instruction.mnemonic, item.name, seed)
    matrices = item.make(problem, stream)
    out = {}
    for name, codes in matrices.items():
        inner = codes.shape[1:]
        grouped = codes.reshape(samples, instruction.matrices, *inner) if instruction.matrices > 1 else codes
        out[name] = instruction.registers(name, grouped)
    return out


def digest(arrays: dict[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of the input arrays, by which a recording knows its inputs."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        total.update(f"{name}{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


__all__ = ["CLASSES", "InputClass", "Problem", "classes_for", "default_samples", "digest", "registers"]
