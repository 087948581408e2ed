"""Named classes of inputs for block-scaled multiplies: the classes of plain ones with scales, and some about scales alone.

A pure function of (mnemonic, class, seed, count), as in conformance/stimuli/classes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli import classes as plain
from conformance.stimuli.codes import build
from conformance.stimuli.problem import Matrices, Problem
from conformance.stimuli.stream import Stream
from tcsim.arithmetic.steps import ScaledDotAdd
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.numbers.codec import encode
from tcsim.numbers.formats import FORMATS, Format

Codes = npt.NDArray[Any]


class ScaledProblem(Problem):
    """The products of a block-scaled instruction; of a sparse A those of the kept elements."""

    instruction: ScaledMatrixMultiply

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, and how many products a result has."""
        m, n, _ = self.instruction.shape
        return m, n, self.instruction.operands["a"].shape[1]

    @property
    def blocks(self) -> int:
        """Scales of a row of A."""
        return self.instruction.blocks

    @property
    def scale(self) -> Format:
        """The format of the scales."""
        return self.instruction.row.scale_a.format

    @property
    def group(self) -> int:
        """Products that are summed before they are scaled; 0: none."""
        return scaled_step(self.instruction).group

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns) of a matrix, B with the rows that the products have."""
        m, n, k = self.shape
        inner = {"a": (m, k), "b": (k, n), "c": (m, n), "scale_a": (m, self.blocks), "scale_b": (self.blocks, n)}[name]
        return (self.count, *inner)


def scaled_step(instruction: ScaledMatrixMultiply) -> ScaledDotAdd:
    """The step that the instruction lowers to."""
    return next(step for step in instruction.lowering.steps if isinstance(step, ScaledDotAdd))


def reaches_floor(instruction: ScaledMatrixMultiply) -> bool:
    """True if scales can be so small that the floor of the largest exponent counts: powers of two can."""
    least = 2 * FORMATS[instruction.row.scale_a.format.name].minimum_exponent
    return least < scaled_step(instruction).unit.floor


# --- scales for the classes of plain multiplies


def any_scales(problem: ScaledProblem, stream: Stream) -> Matrices:
    """Every bit random, NaN and ignored signs included."""
    return {
        name: (stream.words(problem.dimensions(name)) & np.uint64(0xFF)).astype(np.uint8)
        for name in ("scale_a", "scale_b")
    }


def near_one(problem: ScaledProblem, stream: Stream) -> Matrices:
    """Scales from 2**-6 to 2**6, of any significand."""
    out = {}
    for name in ("scale_a", "scale_b"):
        shape = problem.dimensions(name)
        out[name] = build(problem.scale, np.zeros(shape, np.uint64), stream.between(-6, 6, shape), stream.words(shape))
    return out


def inverse(problem: ScaledProblem, stream: Stream) -> Matrices:
    """Powers of two in A, their inverses in B, one of each for every block: the products stay what the class made them."""
    exponent = stream.between(-6, 6, (problem.count, problem.blocks))
    a = np.broadcast_to(exponent[:, None, :], problem.dimensions("scale_a"))
    b = np.broadcast_to(-exponent[:, :, None], problem.dimensions("scale_b"))
    return {"scale_a": _powers(problem.scale, a), "scale_b": _powers(problem.scale, b)}


def _powers(format: Format, exponent: Codes) -> Codes:
    return encode(np.ldexp(1.0, exponent), format)


# --- classes about scales


def scales(problem: ScaledProblem, stream: Stream) -> Matrices:
    """Scales at the ends of their format, few of them NaN; elements and addends of moderate size."""
    format, matrices = problem.scale, plain.CLASSES["normal"].make(problem, stream)
    one = format.bias << format.fraction_bits
    table = [0, 1, 2, one - 1, one, one + 1, format.largest_code - 1, format.largest_code]
    table += [1 << format.fraction_bits, (1 << format.fraction_bits) - 1]
    for name in ("scale_a", "scale_b"):
        shape = problem.dimensions(name)
        codes = stream.choice(np.array(table, np.uint8), shape)
        codes = np.where(stream.chance(1, 2, shape), np.uint8(one), codes)
        codes = np.where(stream.chance(1, 48, shape), np.uint8(format.largest_code + 1), codes)
        if format.bits < 8:  # a bit that is ignored
            codes = np.where(stream.chance(1, 4, shape), codes | np.uint8(0x80), codes)
        matrices[name] = codes.astype(np.uint8)
    return matrices


def cancelled(problem: ScaledProblem, stream: Stream) -> Matrices:
    """Large terms that cancel, and small terms around the last bit that is kept: what a cancelled term's exponent does.

    In half of the results products of +-1 cancel, with the largest scales there are; the rest is about 2**-F smaller.
    """
    m, n, k = problem.shape
    kept = scaled_step(problem.instruction).unit.fraction_bits
    sign = np.where(np.arange(k) % 2 == 0, 1.0, -1.0)
    length = k // problem.blocks
    big = np.arange(k) < (problem.group or length)  # the first group, or the first block
    others = stream.between(0, 3, problem.dimensions("a")) * np.where(
        stream.chance(1, 2, problem.dimensions("a")), 0.5, -0.5
    )
    values_a = np.where(big, sign, others)
    uneven = stream.chance(1, 2, (problem.count, m, 1)) & (np.arange(k) == 1)
    a = encode(np.where(uneven, 0.0, values_a), problem.format("a"))
    b = encode(np.where(stream.chance(7, 8, problem.dimensions("b")) | big[:, None], 1.0, 0.0), problem.format("b"))
    top = 6 if problem.scale.bits < 8 else stream.between(-20, 20, (problem.count, 1, 1))
    drop = stream.between(kept - 12, kept + 2, (problem.count, 1, 1))
    low = np.maximum(top - drop, -6) if problem.scale.bits < 8 else top - drop
    first = np.arange(problem.blocks) == 0
    scale_a = np.where(first, top, low) + np.zeros(problem.dimensions("scale_a"), np.int64)
    scale_b = np.where(first[:, None], 0, stream.between(-1, 1, problem.dimensions("scale_b")))
    if problem.scale.bits < 8:  # two small scales reach further than one
        scale_b = np.where(first[:, None], 6, -6) + 0 * scale_b
    lead = scale_a[:, :1, :1] + scale_b[:, :1, :1]
    exponent_c = lead - stream.between(kept - 14, kept + 1, problem.dimensions("c"))
    words = stream.words(problem.dimensions("c"))
    c = build(problem.format("c"), words >> np.uint64(63), exponent_c, words)
    c = np.where(stream.chance(1, 4, c.shape), c.dtype.type(0), c)
    return {
        "a": a, "b": b, "c": c, "scale_a": _powers(problem.scale, scale_a), "scale_b": _powers(problem.scale, scale_b),
    }  # fmt: skip


def tiny(problem: ScaledProblem, stream: Stream) -> Matrices:
    """Sums that are exactly the least result, in a few rows of A but for one small product: the floor's cut decides them.

    Leading products 6 * 6 and one more make a power of two, at scales where it is the least result, which lies far below
    the floor. A product around the last bit that the floor leaves, mostly of the other sign, counts or is cut.
    """
    m, n, k = problem.shape
    unit, result = scaled_step(problem.instruction).unit, problem.instruction.operands["d"].format
    cut, least = unit.floor - unit.fraction_bits, plain.lowest_exponent(result)
    count, blocks = problem.count, problem.blocks
    sixes, last = (14, (4.0, 2.0)) if problem.group else (7, (2.0, 2.0))  # 14 * 36 + 8 = 512, 7 * 36 + 4 = 256
    leading = np.arange(k) < (k // blocks if problem.group else sixes + 1)
    at = np.arange(k) % (problem.group or k)
    a, b = (np.where(leading & (at < sixes), 6.0, np.where(leading & (at == sixes), x, 0.0)) for x in last)
    few = stream.chance(1, 24, (count, m, k)) & ~leading
    a = np.where(few, stream.choice([-1.0, -0.5, -1.5, 0.5], (count, m, k)), a)
    a = np.where(stream.chance(1, 4, (count, m, 1)), -a, a)
    b = np.where(~leading[:, None], stream.choice([0.5, 0.5, 1.0], (count, k, n)), b[:, None])
    # the sum of the leading products, in powers of two; with blocks of their own, small products have other scales
    power = 9 + (k // blocks // problem.group).bit_length() - 1 if problem.group else 8
    small = cut + stream.between(-3, 2, (count, blocks))
    total = np.where(np.arange(blocks) == 0, least - power, small)
    half = stream.between(-3, 3, (count, blocks)) + total // 2
    scale_a = np.broadcast_to(half[:, None, :], problem.dimensions("scale_a"))
    scale_b = np.broadcast_to((total - half)[:, :, None], problem.dimensions("scale_b"))
    return {
        "a": encode(a, problem.format("a")),
        "b": encode(b, problem.format("b")),
        "c": np.zeros(problem.dimensions("c"), problem.format("c").dtype),
        "scale_a": _powers(problem.scale, scale_a),
        "scale_b": _powers(problem.scale, scale_b),
    }


# --- all of them


@dataclass(frozen=True)
class ScaledClass:
    """A named way to fill the operands, scales included."""

    name: str
    make: Callable[[ScaledProblem, Stream], Matrices]
    per_k: int = 0  # samples per product instead of the default number
    applies: Callable[[ScaledMatrixMultiply], bool] = lambda instruction: True


def _with(item: plain.InputClass) -> ScaledClass:
    fill = {"uniform": any_scales, "finite": near_one, "normal": near_one, "wide": near_one}.get(item.name, inverse)

    def make(problem: ScaledProblem, stream: Stream) -> Matrices:
        return {**item.make(problem, stream), **fill(problem, stream)}

    return ScaledClass(item.name, make, item.per_k)


CLASSES = {
    item.name: item
    for item in (
        *(_with(item) for item in plain.CLASSES.values() if "float" in item.kinds and item.name != "floor"),
        ScaledClass("scales", scales),
        ScaledClass("cancelled", cancelled),
        ScaledClass("tiny", tiny, applies=reaches_floor),
    )
}
"""Every input class of block-scaled multiplies by name, in the order they run."""

OUTPUTS_PER_CASE = 1024


def default_samples(instruction: ScaledMatrixMultiply, item: ScaledClass) -> int:
    """Instructions (warps) in a case: enough for `OUTPUTS_PER_CASE` results, or for every product to be hot once."""
    m, n, _ = instruction.shape
    return item.per_k * instruction.operands["a"].shape[1] if item.per_k else OUTPUTS_PER_CASE // (m * n)
