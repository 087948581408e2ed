"""What an epilogue does to every output alike: a narrower format, ReLU, a bias, factors of rows or columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.groups import whose_scales
from tcsim.diagnosis.named_functions import NARROWER
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals, smallest
from tcsim.diagnosis.where import ranges
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format

NARROW = "result passed through a narrower format"
TRUNCATED = "result truncated to a narrower format"
_LINES, _ALIKE = 8, 0.02  # so many numbers that are another's multiples up to this part are no chance
_LISTED = 4  # numbers that are listed
_TELLS = 4  # times the reach of rounding: a line that is scaled must have an output beyond it


@dataclass(frozen=True)
class Relation:
    """One thing an epilogue does."""

    mistake: str
    detail: str
    advice: str


def narrow_format(problem: Problem, model: Codes) -> str | None:
    """The narrowest format that every observed f32 or f64 fits, though not every one of the model's; None if there is none."""
    format = problem.machine.formats["d"]
    if format.name not in ("f32", "f64"):
        return None
    inside = problem.inside()
    seen = problem.observed[inside & np.isfinite(decode(problem.observed, format))]
    if seen.size < 8 or not seen.any():
        return None
    values, right = (decode(codes, format) for codes in (seen, model[inside]))
    if (values == np.rint(values)).all() and (right != np.rint(right)).mean() > 0.5:
        return None  # whole numbers are no format's
    for name in (*NARROWER, *(("f32",) if format.name == "f64" else ())):
        if _fits(seen[:64], name).all() and _fits(seen, name).all() and _fits(model[inside], name).mean() < 0.5:
            return name
    return None


def _fits(codes: npt.NDArray[Any], name: str) -> Mask:
    fits: Mask = narrowed(codes, name) == codes
    return fits


def precision(name: str | None) -> tuple[float, float]:
    """The relative and the smallest step of a narrower format, which truncation can take off; 0 for none."""
    if name is None:
        return 0.0, 0.0
    format = FORMATS[name]
    return 2.0**-format.fraction_bits, smallest(format)[1]


def truncated(codes: Codes, name: str) -> Codes:
    """f32 or f64 codes cut to a narrower format, toward zero."""
    return narrowed(codes, name, "rz")


def narrowing(name: str, reals: Reals, values: Numbers) -> Relation:
    """Whether the observed results are rounded or cut, given what they were before."""
    toward = np.abs(reals.observed) <= np.abs(values) + reals.reach * 1e-3
    known = reals.finite & np.isfinite(values)
    return narrowed_by(name, bool(toward[known].mean() > 0.99))


def narrowed_by(name: str, cut: bool) -> Relation:
    """Rounded to a narrower format, or cut."""
    if cut:
        return Relation(TRUNCATED, name, "the epilogue cuts bits off: cvt.rn rounds to nearest even")
    return Relation(
        NARROW, name, f"the epilogue or the output tensor is {name}, or the accumulator was moved as {name}"
    )


def is_relu(reals: Reals, size: tuple[int, int] | None) -> bool:
    """No negative output, and in most rows and columns some zeros and some others. size: M and N that were given."""
    seen = reals.observed if size is None else reals.observed[:, : size[0], : size[1]]
    if (seen < 0).any() or not (reals.right < 0).any():
        return False
    zeros = seen == 0
    if not 0.2 < zeros.mean() < 0.8:
        return False
    for axis in (1, 2):
        share = zeros.mean(axis=axis)
        if ((share > 0) & (share < 1)).mean() < 0.9:
            return False
    return True


RELU = Relation("ReLU applied", "negative results are 0", "the epilogue clamps at zero")


RELU_BEFORE_C = Relation(
    "ReLU applied", "to the product, before c is added: negative products are 0", "the epilogue clamps before it adds C"
)


def before_c(reals: Reals) -> Reals:
    """The numbers of the product alone: without C in what was observed, and what is zero up to rounding is zero."""
    seen = reals.observed - reals.c
    zero = np.zeros_like(reals.c)
    return replace(reals, observed=np.where(np.abs(seen) <= reals.reach, zero, seen), c=zero)


@dataclass(frozen=True)
class Line:
    """A number for each row or each column, and what is predicted with it."""

    relation: Relation
    values: Numbers  # (batch, M, N)
    axis: int | tuple[int, ...]  # along which the number is the same
    adds: bool  # a bias, else a factor
    part: str = "result"  # what a factor multiplies: the result, the product or c alone


def vector(reals: Reals) -> Line | None:
    """A bias or factors of rows or of columns; None if there is none, or one factor does for all."""
    right, seen, product = reals.right, reals.observed, reals.product
    if min(right.shape[1:]) < 4:
        return None
    shown = reals.finite & (seen > 0) if reals.floor else reals.finite
    outputs = int(shown.sum())
    for axis, line, other in ((1, "column", "rows"), (2, "row", "columns")):
        if not enough(outputs, int(shown.any(axis=axis).sum())):
            continue
        low = np.where(shown, seen - right - reals.reach, -np.inf).max(axis=axis, keepdims=True)
        high = np.where(shown, seen - right + reals.reach, np.inf).min(axis=axis, keepdims=True)
        known = np.isfinite(low) & np.isfinite(high)  # not a line of clamped zeros
        off = np.where(known, (np.where(known, low, 0.0) + np.where(known, high, 0.0)) / 2, 0.0)
        values = right + off
        if reals.near(values)[reals.finite].all() and np.ptp(off) > 0:
            said = f"one number for each {line}, {_listed(np.where(np.abs(off) <= reals.reach.max(), 0, off), 0)}"
            bias = reals.c.take([0], axis=axis)
            if bias.all() and (reals.c == bias)[reals.finite].all():
                said += f": as if c, a bias itself, came in {(1 + off / bias).min():.4g} to {(1 + off / bias).max():.4g} times"
            relation = Relation("bias added", said, f"the epilogue adds a vector along the {other}")
            relation = _of_an_operand(reals, off, axis) or relation
            return Line(relation, np.maximum(values, 0) if reals.floor else values, axis, True)
    if reals.floor:
        return None
    parts: list[tuple[str, Numbers, Numbers | float]] = [("result", right, 0.0), ("product", product, reals.c)]
    parts += [("c", reals.c, product)] if reals.c.any() else []
    for _, base, rest in parts:
        factor = float((base * (seen - rest)).sum() / max(float((base**2).sum()), 1e-300))
        if _near_with(reals, factor, base, rest):
            return None  # one factor for all is simpler
    axes: list[tuple[int | tuple[int, ...], str]] = [(2, "rows"), (1, "columns")]
    for along, what in [((1, 2), "matrices"), *axes] if len(right) > 1 else axes:
        if not enough(outputs, int(shown.any(axis=along).sum())):
            continue
        for part, base, rest in parts:
            with np.errstate(all="ignore"):
                own = np.where(reals.finite, base, 0.0)
                factors = (own * (seen - rest)).sum(axis=along, keepdims=True) / (own**2).sum(axis=along, keepdims=True)
                factors = np.where(np.isnan(factors), 1.0, factors)  # lines of zeros, and those beyond the output
            apart = np.ptp(factors) > 1e-4 * np.abs(factors).max()
            largest, reach = (
                np.where(reals.finite, x, 0.0).max(axis=along, keepdims=True) for x in (np.abs(base), reals.reach)
            )
            zero = (np.abs(factors) * largest < _TELLS * reach) & (largest > 0)
            apart &= not zero.any() or bool((np.abs(factors[~zero] - 1) > _ALIKE).any())  # else: lines that are zero
            if apart and _near_with(reals, factors, base, rest):
                given = (
                    factors.compress(own.any(axis=(0, along)), axis=3 - along) if isinstance(along, int) else factors
                )
                said = f"factors {_listed(given, 1)}" + ", of c alone" * (part == "c")
                if part != "c" and len(given) == 1:
                    lines = reals.lines("ab"[along == 1])[0, : given.size]
                    said += whose_scales(lines, given.reshape(-1, 1), what[:-1])
                advice = f"the epilogue multiplies {'c in ' * (part == 'c')}each of the {what} by a number"
                return Line(Relation(f"{what} scaled", said, advice), factors * base + rest, along, False, part)
    return None


def _listed(numbers: Numbers, usual: float) -> str:
    """Numbers of lines (batch, lines, 1 or 1, lines), and where they are not the usual one."""
    each = numbers.reshape(len(numbers), -1)
    other = np.abs(each - usual) > 1e-3 * np.abs(each).max()
    size = 10.0 ** (3 - np.floor(np.log10(np.abs(each[other]).max())))
    values = np.unique(np.rint(each[other] * size))
    values = values[np.diff(values, prepend=-np.inf) > 1] / size
    what = "rows" if numbers.shape[2] == 1 else "columns"
    if len(values) > _LISTED:
        said = f"from {numbers.min():.4g} to {numbers.max():.4g}"
        lines = other.any(axis=0)
        return said if lines.all() else f"{said}, in {what} {ranges(np.flatnonzero(lines))}"
    texts = []
    for value in values:
        at = other & (np.abs(each - value) <= 2 / size)
        lines, matrices = np.flatnonzero(at.any(axis=0)), np.flatnonzero(at.any(axis=1))
        where = [f"matrices {ranges(matrices)}"] * (len(matrices) < len(at))
        where += [f"{what} {ranges(lines)}"] * (len(lines) < at.shape[1])
        texts.append(f"{value:.4g}" + " (twice as large)" * bool(value == 2) + f" in {', '.join(where)}" * bool(where))
    return "; ".join(texts)


def _of_an_operand(reals: Reals, off: Numbers, axis: int) -> Relation | None:
    """What is added, if it is what a constant in each element of an operand comes to: that times the sums of the other's lines."""
    own, other = ("b", "a") if axis == 2 else ("a", "b")
    sums = reals.lines(other).sum(axis=2)
    sums = np.expand_dims(sums, axis)
    size = float((sums**2).sum())
    constant = float((off * sums).sum()) / size if size else 0.0
    rest = off - constant * sums  # elements that became larger were rounded: it is small, not nothing
    if not constant or off.size < _LINES or float((rest**2).mean()) > _ALIKE**2 * float((off**2).mean()):
        return None
    line = "row" if other == "a" else "column"
    return Relation(
        f"constant added to {own}",
        f"every element of {own} is {abs(constant):.4g} too {'large' if constant > 0 else 'small'}: each {line} is off by that "
        f"times the sum of the {line} of {other}",
        f"the zero point of {own} is not subtracted, or subtracted twice",
    )


def _near_with(reals: Reals, factor: Any, base: Numbers, rest: Any) -> bool:
    """Whether a factor, or one for each line, predicts every output up to rounding."""
    own = reals.coarse * np.abs(reals.observed)  # of the result's format, whatever the factor
    reach = own + replace(reals, reach=reals.reach - own).stretched(factor)
    return bool((np.abs(factor * base + rest - reals.observed) <= reach)[reals.finite].all())


def fitted_codes(problem: Problem, line: Line, narrow: str | None, ends: tuple[Any, ...]) -> Codes:
    """The codes with the numbers of a line that fit all its outputs, before the epilogue's end."""
    formats, bare = problem.machine.formats, problem.bare
    c = decode(problem.c, formats["c"]).astype(np.float64)
    if line.part != "result":
        bare = replace(bare, c=np.zeros_like(problem.c))
    codes = bare.outputs
    base = decode(codes, formats["d"]).astype(np.float64)
    base, rest = (c, base) if line.part == "c" else (base, c if line.part == "product" else np.zeros_like(c))
    low, high = _interval(problem.observed, formats["d"], narrow)
    clamped = any((end(codes) != codes).any() for end in ends) and (decode(problem.observed, formats["d"]) >= 0).all()
    low = np.where(clamped & (low <= 0), -np.inf, low)
    with np.errstate(all="ignore"):
        low, high = low - (base if line.adds else rest), high - (base if line.adds else rest)
        if not line.adds:
            low, high = np.fmin(low / base, high / base), np.fmax(low / base, high / base)
    inside = problem.inside()
    low = np.where(inside, low, -np.inf).max(axis=line.axis, keepdims=True)
    high = np.where(inside, high, np.inf).min(axis=line.axis, keepdims=True)
    number = _within(low, high)
    with np.errstate(all="ignore"):
        found = base + number if line.adds else number * base + rest
        return encode(found if formats["d"].kind == "float" else np.rint(found), formats["d"])


def _interval(codes: Codes, format: Format, narrow: str | None) -> tuple[Numbers, Numbers]:
    """The numbers that round to codes, from and to."""
    value = decode(codes, format).astype(np.float64)
    if format.kind != "float":
        return value, value
    step = np.float64(2.0) ** -(FORMATS[narrow].fraction_bits if narrow else format.fraction_bits)
    scale = np.exp2(np.floor(np.log2(np.maximum(np.abs(value), 1e-300))))
    far, near = scale * step / 2, scale * step / np.where(np.abs(value) == scale, 4, 2)  # finer below a power of two
    return value - np.where(value < 0, far, near), value + np.where(value < 0, near, far)


def _within(low: Numbers, high: Numbers) -> Numbers:
    """A number from low to high, of few bits where one is there."""
    low, high = np.where(np.isfinite(low), low, high), np.where(np.isfinite(high), high, low)
    low, high = (np.where(np.isfinite(x), x, 0.0) for x in (low, high))
    middle = (low + high) / 2
    for name in ("f32", "f16", "bf16"):
        short = decode(encode(middle, name), name).astype(np.float64)
        middle = np.where((low < short) & (short < high), short, middle)
    found: Numbers = middle
    return found
