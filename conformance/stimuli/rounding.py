"""Input classes whose sums cancel, or end at the last bit that an adder keeps: floats only."""

from __future__ import annotations

import numpy as np

from conformance.stimuli.codes import build, lowest_exponent, ones, power, sign_bit, window
from conformance.stimuli.problem import Codes, Matrices, Problem, each_operand
from conformance.stimuli.stream import Stream
from tcsim.numbers.formats import Format


def cancellation(problem: Problem, stream: Stream) -> Matrices:
    """Products in pairs of opposite sign that cancel exactly or nearly, and a small addend."""
    m, n, k = problem.shape
    count = problem.count
    format_a, format_b, format_c = (problem.format(name) for name in "abc")
    half = k // 2
    a = window(format_a, stream, (count, m, half), -6, 12)
    b = window(format_b, stream, (count, half, n), -6, 12)
    negated = a ^ sign_bit(format_a)
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

    return each_operand(problem, make)


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
    codes_a = power(formats["a"], top + offsets - middle.transpose(0, 2, 1))
    codes_b = power(formats["b"], np.broadcast_to(middle, shape_b))
    codes_a = np.where(stream.chance(1, 6, shape_a), codes_a | sign_bit(formats["a"]), codes_a)
    codes_a = np.where(stream.below(max(k, 6), shape_a) < 4, codes_a, formats["a"].dtype.type(0))
    codes_b = np.where(stream.chance(1, 8, shape_b), formats["b"].dtype.type(0), codes_b)
    codes_c = power(formats["c"], top - stream.choice([0, 1, precision + 1, kept], shape_c))
    codes_c = np.where(stream.chance(1, 3, shape_c), codes_c | sign_bit(formats["c"]), codes_c)
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
    factor_a, factor_b, place = (1, 1, least - 1) if unit.rounding == "rne" else (*ones(least - cut, format_b), cut)
    # exponents of B; subnormals keep their format's least exponent, so that the large product needs one of its own
    half, half_base = cut // 2, place // 2
    special = stream.below(k, (problem.count, 1, 1))
    at = np.arange(k)
    tiny = stream.choice([cut, cut, cut - 1, cut - 1, cut + 1], shape_a)
    codes_a = np.where(stream.below(max(k, 4), shape_a) < 3, power(format_a, tiny - half), format_a.dtype.type(0))
    base = power(format_a, np.full(shape_a, place - half_base), factor_a)
    codes_a = np.where(at[None, None, :] == special, base, codes_a)
    codes_b = power(format_b, np.full(shape_b, half))
    codes_b = np.where(at[None, :, None] == special, power(format_b, np.full(shape_b, half_base), factor_b), codes_b)
    codes_b = np.where(stream.chance(1, 6, shape_b), format_b.dtype.type(0), codes_b)
    negative = stream.chance(1, 4, (problem.count, m, 1))
    codes_a = np.where(negative, codes_a | sign_bit(format_a), codes_a)
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
        matrices[name] = np.where(stream.chance(odds, 8, shape), values | sign_bit(format), values)
    return matrices


def floor_matters(problem: Problem) -> bool:
    """True if some product has bits at and below the cut that the unit's floor causes."""
    if problem.unit is None:
        return False
    lowest = lowest_exponent(problem.format("a")) + lowest_exponent(problem.format("b"))
    return lowest < problem.unit.floor - problem.unit.fraction_bits
