"""Input classes of integers and bits: small values, and sums near the ends of s32."""

from __future__ import annotations

import numpy as np

from conformance.stimuli.codes import integers, sign_bit
from conformance.stimuli.problem import Codes, Matrices, Problem, each_operand
from conformance.stimuli.stream import Stream
from tcsim.numbers.formats import Format


def small(problem: Problem, stream: Stream) -> Matrices:
    """Small integers of either sign, small addends: what quantised networks hold."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        value = stream.between(-3, 3, shape) if format.signed else stream.between(0, 3, shape)
        return integers(value, format)

    return each_operand(problem, make)


def saturation(problem: Problem, stream: Stream) -> Matrices:
    """Addends within one dot product of the ends of s32, blocks of K of opposite sign: where clamping happens shows."""
    m, n, k = problem.shape
    matrices = extremes(problem, stream)
    format_a, format_b, format_c = (problem.format(name) for name in "abc")
    reach = k << (format_a.bits + format_b.bits - 2)
    low = stream.between(0, min(reach * 2, 2**30), problem.dimensions("c"))
    end = np.where(stream.chance(1, 2, low.shape), -(2**31) + low, 2**31 - 1 - low)
    matrices["c"] = (end & format_c.code_mask).astype(format_c.dtype)
    # in half of the products, the first or second half of K is negated
    if format_a.signed and format_a.bits > 1:
        flipped = (np.arange(problem.count) % 2 == 0)[:, None, None] & (np.arange(k)[None, None, :] < k // 2)
        codes = matrices["a"].astype(np.int64)
        negated = codes ^ int(sign_bit(format_a)) if format_a.sign_magnitude else -codes & format_a.code_mask
        matrices["a"] = np.where(flipped, negated, matrices["a"]).astype(format_a.dtype)
    return matrices


def extremes(problem: Problem, stream: Stream) -> Matrices:
    """Mostly the least and greatest integers, of one sign per product: sums as large as they get."""

    def make(name: str, format: Format, shape: tuple[int, ...]) -> Codes:
        if format.bits == 1:
            return (~stream.chance(1, 16, shape)).astype(format.dtype)
        bottom, top = format.limits
        each = np.where(stream.chance(1, 2, (shape[0], 1, 1)), top, bottom if bottom else top)
        noise = stream.below(3, shape)
        value = np.where(each == top, each - noise, each + noise)
        return integers(value, format)

    return each_operand(problem, make)
