"""What kind of error a wrong answer is: decided by bits, then by which wrong way of computing gives exactly it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.mma.mutants import flushed
from conformance.stimuli.problem import Codes, Matrices
from conformance.vectors.subjects import Multiply, Subject
from tcsim.arithmetic.steps import Arithmetic, DotAdd, IntegerAdd, IntegerDot, Lowering, Step
from tcsim.numbers.formats import Format
from tcsim.numbers.rounding import Rounding

WIDE = 44
"""Fraction bits of a unit that cuts next to nothing. More would not be exact in the model's float64."""
WIDTHS = (*range(7, 38), WIDE)
WIDTH = "alignment width"
_MODES: tuple[Rounding, ...] = ("rne", "rz")
_SEVERAL = 3
"""Outputs that a width of alignment must give to be believed."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Kind:
    """A kind of error, and what exactly."""

    kind: str
    what: str


UNKNOWN = Kind("unknown", "x or z: the implementation does not know it")
OTHER = Kind("other", "nothing that is known gives it")
ULP = Kind("rounding", "one unit in the last place, by no known way of rounding")


@dataclass(frozen=True)
class _Way:
    """A wrong way of computing."""

    kind: Kind
    run: Callable[[Matrices], Codes]


def classify(own: Subject, records: Matrices, got: Codes, known: Mask) -> list[Kind]:
    """The kind of each wrong answer: records of wrong outputs (n, elements), the answers (n,), and whether each is known.

    A way of computing that gives nine of ten answers is taken first; then what the codes say by themselves; then the ways that give most.
    A width of alignment counts only if it gives some of them: any one output has a width that gives it.
    """
    expected = records["d"][:, 0].astype(np.uint64)
    kinds: list[Kind | None] = [None if flag else UNKNOWN for flag in known]

    def put(where: Mask, kind: Kind) -> None:
        for at in np.flatnonzero(where):
            kinds[at] = kinds[at] or kind

    def left() -> Mask:
        return np.array([kind is None for kind in kinds], bool)

    format = own.formats["d"] if isinstance(own, Multiply) else None
    bits = list(_by_bits(expected, got, format)) if format is not None and format.kind == "float" else []
    for kind, where in bits[:1]:
        put(where, kind)
    ways = []
    if isinstance(own, Multiply) and left().any():
        ways = [(way.kind, (way.run(records).astype(np.uint64) == got)) for way in _ways(own)]
    for share, found in ((0.9, []), (0, bits)):
        for kind, where in found:
            put(where, kind)
        while ways:
            counts = [int((where & left()).sum()) for _, where in ways]
            least = [max(1, _SEVERAL, len(kinds) // 20) if kind.kind == WIDTH else 1 for kind, _ in ways]
            able = [at for at, count in enumerate(counts) if count >= max(least[at], share * left().sum())]
            if not able:
                break
            best = max(able, key=lambda at: counts[at])
            put(ways[best][1], ways[best][0])
    if format is None or format.kind == "float":
        put(np.abs(expected.astype(np.int64) - got.astype(np.int64)) == 1, ULP)
    return [kind or OTHER for kind in kinds]


def _by_bits(expected: Codes, got: Codes, format: Format) -> Iterator[tuple[Kind, Mask]]:
    """What the two codes say by themselves."""
    magnitude = np.uint64((1 << format.sign_shift) - 1)
    size, own = expected & magnitude, got & magnitude
    infinity, least = np.uint64(format.largest_code + 1), np.uint64(1 << format.fraction_bits)
    yield Kind("NaN payload", "another NaN"), (size > infinity) & (own > infinity)
    yield Kind("special value", "NaN expected"), size > infinity
    yield Kind("special value", "NaN where a number or an infinity is expected"), own > infinity
    yield Kind("zero", "the other sign of zero"), (size == 0) & (own == 0)
    yield Kind("overflow", "an infinity expected"), (size == infinity) & (own < infinity)
    yield Kind("overflow", "an infinity where a number is expected"), (own == infinity) & (size < infinity)
    yield Kind("subnormal", "a subnormal result is flushed to zero"), (size > 0) & (size < least) & (own == 0)


def _ways(own: Multiply) -> Iterator[_Way]:
    """Wrong ways of computing what an instruction computes, the likeliest first."""
    steps = own.steps
    adds = [step for step in steps if isinstance(step, DotAdd)]

    def changed(**fields: Any) -> tuple[Step, ...]:
        return tuple(
            replace(step, unit=replace(step.unit, **fields)) if isinstance(step, DotAdd) else step for step in steps
        )

    def way(kind: str, what: str, other: tuple[Step, ...], flush: bool = False) -> _Way:
        return _Way(Kind(kind, what), lambda records: evaluated(own, other, records, flush))

    if adds:
        unit = adds[0].unit
        rounding = "rne" if unit.rounding == "rz" else "rz"
        yield way(
            "rounding",
            f"the sum is rounded {rounding.upper()}, not {unit.rounding.upper()}",
            changed(rounding=rounding),
        )
        yield way(
            "rounding",
            f"terms that are hardly cut ({WIDE} bits kept), rounded to nearest even",
            changed(fraction_bits=WIDE, rounding="rne", floor=-10000),
        )
        near = sorted(
            (width for width in WIDTHS if width != unit.fraction_bits),
            key=lambda width: abs(width - unit.fraction_bits),
        )
        for width in near:
            yield way(
                WIDTH,
                f"{width} bits kept below the largest exponent, not {unit.fraction_bits} bits",
                changed(fraction_bits=width),
            )
        for width in near:
            if width != WIDE:
                what = f"{width} bits kept, not {unit.fraction_bits}, and rounded {rounding.upper()}"
                yield way(WIDTH, what, changed(fraction_bits=width, rounding=rounding))
        yield way("floor", "the largest exponent has no floor", changed(floor=-10000))
        yield way("subnormal", "subnormal inputs are taken for zero", steps, flush=True)
        yield way("zero", "a zero keeps the sign of its sum", changed(keep_negative_zero=True))
        yield way(
            "order of summation", "the addend is added after the products were rounded", changed(addend_last=True)
        )
        yield way("alignment", "products are normalised before they are aligned", changed(renormalise_products=True))
        if "scale" not in own.formats:
            for name, chain in _chains(own).items():
                yield way("order of summation", name, chain)
    if any(isinstance(step, IntegerDot | IntegerAdd) for step in steps):
        flipped = tuple(
            replace(step, saturate=not step.saturate) if isinstance(step, IntegerDot | IntegerAdd) else step
            for step in steps
        )
        yield way("overflow", "clamped where it wraps, or wrapped where it is clamped", flipped)


def _chains(own: Multiply) -> dict[str, tuple[Step, ...]]:
    """Sums without a tensor core, k ascending."""
    k, out = own.fields[-1].elements, own.formats["d"].name
    found = {}
    for mode in _MODES:
        text = f"rounded {mode.upper()}, from zero, then c"
        found[f"sums in f16 of f32 products, each {text}"] = _narrow(k, mode, out)
        found[f"products and sums in f16, each {text}"] = _summed(k, "f16", mode, out)
    if out == "f32":
        fma = tuple(
            Arithmetic("fma", "acc" if at < k - 1 else "d", (f"a[{at}]", f"b[{at}]", "acc" if at else "c"), out)
            for at in range(k)
        )
        found["one fused multiply-add in f32 after another, from c"] = fma
        found["f32 products, added one after another to c"] = _summed(k, out, "rne", out, first="c")
        found["f32 products, added one after another, then c"] = _summed(k, out, "rne", out)
    return found


def _summed(k: int, format: str, mode: Rounding, out: str, first: str = "+0") -> tuple[Step, ...]:
    """Each product rounded, then added; c is the first addend, or is added at the end."""
    steps: list[Step] = []
    for at in range(k):
        end = "d" if first == "c" and at == k - 1 else "acc"
        steps.append(Arithmetic("mul", "product", (f"a[{at}]", f"b[{at}]"), format, mode))
        steps.append(Arithmetic("add", end, ("product", "acc" if at else first), format, mode))
    return (
        tuple(steps)
        if first == "c"
        else (*steps, Arithmetic("add", "d", ("acc", "c"), out, mode if out == "f16" else "rne"))
    )


def _narrow(k: int, mode: Rounding, out: str) -> tuple[Step, ...]:
    """An accumulator of f16 beside f32 arithmetic."""
    steps: list[Step] = []
    for at in range(k):
        steps.append(Arithmetic("mul", "product", (f"a[{at}]", f"b[{at}]"), "f32"))
        steps.append(Arithmetic("add", "sum", ("product", "acc" if at else "+0"), "f32"))
        steps.append(Arithmetic("convert", "acc", ("sum",), "f16", mode))
    if out == "f32":
        return (*steps, Arithmetic("add", "d", ("acc", "c"), "f32"))
    return (*steps, Arithmetic("add", "sum", ("acc", "c"), "f32"), Arithmetic("convert", "d", ("sum",), "f16", mode))


def evaluated(own: Multiply, steps: tuple[Step, ...], records: Matrices, flush: bool = False) -> Codes:
    """What other steps make of the records (n, elements): codes (n,)."""
    a, b, c = (records[name].astype(own.formats[name].dtype) for name in "abc")
    if "metadata" in records:
        columns = own.sparsity.columns(records["metadata"][:, None].astype(np.uint8))[:, 0]
        b = np.take_along_axis(b, columns, axis=1)
    if flush:
        a, b, c = (flushed(codes, own.formats[name]) for name, codes in zip("abc", (a, b, c), strict=True))
    scales = {}
    if "scale" in own.formats:
        format = own.formats["scale"]
        scales = {
            "scale_a": (records["scale_a"][:, None].astype(format.dtype), format),
            "scale_b": (records["scale_b"][:, :, None].astype(format.dtype), format),
        }
    formats = own.formats["a"], own.formats["b"], own.formats["c"]
    with np.errstate(all="ignore"):
        return Lowering("native", steps).run(a[:, None], b[:, :, None], c[:, :, None], formats, scales)[:, 0, 0]
