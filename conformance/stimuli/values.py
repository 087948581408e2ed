"""Input classes for every kind of number: random bits, usual values, zeros, ends of the range, one element that is one."""

from __future__ import annotations

import numpy as np

from conformance.stimuli.codes import finite_bits, landmarks, one_code, random_bits, sign_bit, small_values, window
from conformance.stimuli.problem import Codes, Matrices, Problem, each_operand
from conformance.stimuli.stream import Stream
from tcsim.numbers.codec import encode
from tcsim.numbers.formats import Format


def uniform(problem: Problem, stream: Stream) -> Matrices:
    """Every bit random: NaN and infinity included."""
    return each_operand(problem, lambda name, format, shape: random_bits(format, stream, shape))


def finite(problem: Problem, stream: Stream) -> Matrices:
    """Every bit random but no NaN and no infinity: exponents over the whole range."""
    return each_operand(problem, lambda name, format, shape: finite_bits(format, stream, shape))


def normal(problem: Problem, stream: Stream) -> Matrices:
    """Values near a normal distribution of variance 1: what networks hold."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        parts = stream.words((*shape, 3))
        quarters = parts[..., None] >> (np.uint64(16) * np.arange(4, dtype=np.uint64)) & np.uint64(0xFFFF)
        total = quarters.sum((-1, -2)).astype(np.int64)
        return encode((total - 6 * 0xFFFF) / 65536.0, format, saturate=True)

    return each_operand(problem, make)


def wide(problem: Problem, stream: Stream) -> Matrices:
    """Products and addend spread over a window about twice the width of the adder."""
    reach = 3 if problem.instruction.operands["d"].format.exponent_bits <= 5 else 10

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        low, high = (-24, 2 * reach + 4) if name == "c" else (-10, reach)
        return window(format, stream, shape, low, high)

    return each_operand(problem, make)


def sparse(problem: Problem, stream: Stream) -> Matrices:
    """Seven of eight values are zeros of either sign."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.kind != "float":
            return np.where(stream.chance(7, 8, shape), format.dtype.type(0), random_bits(format, stream, shape))
        values = window(format, stream, shape, -6, 6)
        return np.where(stream.chance(7, 8, shape), values & sign_bit(format), values)

    return each_operand(problem, make)


def zeros(problem: Problem, stream: Stream) -> Matrices:
    """Zeros of either sign: all of them, or A only, or all but the addend."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.kind != "float":
            return np.zeros(shape, format.dtype)
        values = finite_bits(format, stream, shape)
        which = np.arange(shape[0]) % 3
        zero = {"a": which >= 0, "b": which != 1, "c": which != 2}[name][:, None, None]
        sign = sign_bit(format)
        # a third of the products: every sign minus, so that a sum of zeros of one sign occurs
        signs = np.where((which == 0)[:, None, None], stream.words(shape).astype(format.dtype) & sign, values & sign)
        if name in "ac":
            signs = np.where((np.arange(shape[0]) % 6 == 0)[:, None, None], sign, signs)
        if name == "b":
            signs = np.where((np.arange(shape[0]) % 6 == 0)[:, None, None], format.dtype.type(0), signs)
        return np.where(zero, signs, values)

    return each_operand(problem, make)


def boundaries(problem: Problem, stream: Stream) -> Matrices:
    """Least and largest numbers, neighbours of one, zeros; in half of the products few infinities and NaN of all kinds."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.kind != "float":
            top = 1 << (format.bits - 1)
            table = [0, 1, top - 1, top, top + 1, 2 * top - 1] if format.bits > 1 else [0, 1]
            return stream.choice((np.array(table, np.uint64) & np.uint64(format.code_mask)).astype(format.dtype), shape)
        values = stream.choice(landmarks(format, specials=False), shape)
        # blank most of them, so that single products and single roundings show
        keep = stream.below(4, (shape[0], 1, 1)) + 1
        values = np.where(stream.below(4, shape) < keep, values, format.dtype.type(0))
        if format.nan != "none":
            seldom = stream.chance(1, 64 if name != "c" else 24, shape) & (np.arange(shape[0]) % 2 == 1)[:, None, None]
            values = np.where(seldom, stream.choice(landmarks(format, specials=True), shape), values)
        if format.ignored_low_bits:  # what the hardware does not read must not matter: an infinity stays one
            noise = (stream.words(shape) & np.uint64((1 << format.ignored_low_bits) - 1)).astype(format.dtype)
            values = np.where(stream.chance(1, 2, shape), values | noise, values)
        return values

    return each_operand(problem, make)


def onehot(problem: Problem, stream: Stream) -> Matrices:
    """One element of each row of A (then of each column of B) is one: the result spells out the other operand."""
    m, n, k = problem.shape
    count = problem.count
    small = {name: small_values(problem.format(name)) for name in "abc"}
    a, b, c = (stream.choice(small[name], problem.dimensions(name)) for name in "abc")
    c = np.where(stream.chance(3, 4, c.shape), c.dtype.type(0), c)
    shift = np.arange(count)
    hot_a = (np.arange(m)[None, :] + shift[:, None]) % k  # (count, m): the k that is one
    hot_b = (np.arange(n)[None, :] + shift[:, None]) % k
    pick_a = (np.arange(k)[None, None, :] == hot_a[:, :, None]).astype(a.dtype) * one_code(problem.format("a"))
    pick_b = (np.arange(k)[None, :, None] == hot_b[:, None, :]).astype(b.dtype) * one_code(problem.format("b"))
    first = (shift < (count + 1) // 2)[:, None, None]
    return {"a": np.where(first, pick_a, a), "b": np.where(first, b, pick_b), "c": c}
