"""The numbers of a problem in float64: what a candidate predicts up to rounding, and how far rounding can reach."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.maps import Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.recoded import recoded
from tcsim.layouts.sparsity import Sparsity
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS, Format

_TELLS = 0.01  # of a usual output: how far rounding may take what is multiplied, at most
_BLIND = 0.5  # of a usual output: if rounding may take most that far, nothing can be told from numbers
_SEEING = 0.25  # of the outputs that must tell: lines may be next to zero
_FINEST = (2.0**-23, 2.0**-50)  # how far rounding may take a sum at least, of its terms; of f64, as float64 reckons it
_KNOWN = 0.1  # of a usual output: how far rounding may take an output, at most
Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Lines = tuple[Numbers, Numbers]  # of A and of B


@dataclass(frozen=True)
class Reals:
    """Operands and outputs as numbers; rows of A and columns of B are lines, (batch, lines, K)."""

    a: Numbers  # (batch, M, K), dense, scaled
    b: Numbers  # (batch, N, K), scaled
    c: Numbers  # (batch, M, N)
    product: Numbers  # a b, (batch, M, N)
    observed: Numbers  # (batch, M, N)
    reach: Numbers  # (batch, M, N): how far rounding can take an output
    finite: Mask  # (batch, M, N): outputs that can be reckoned with
    coarse: float  # the relative precision of what was observed
    unit: float = 0.0  # of a sum of absolute products that rounding can take off
    infinite: Numbers | float = 0.0  # (batch, M, N): 1 and -1 where an output is infinite
    largest: float = np.inf  # what is beyond it becomes infinite
    floor: bool = False  # negative results were cut to zero
    kept: Numbers | None = None  # (batch, M, kept) of a sparse A
    positions: Ints | None = None  # (batch, M, kept): where in its group each stands
    sparsity: Sparsity | None = None
    factors: tuple[Numbers, Numbers] | None = None  # (batch, lines, blocks) of A and of B
    bare: tuple[Numbers, Numbers] | None = None  # A and B without their factors
    blind: bool = False  # rounding alone could make most of what was observed
    usual: Numbers | float = (
        np.inf
    )  # (batch, M, N): the size of outputs in the row and column of each; infinite where nothing is known
    recoded: Callable[[str, str], Numbers | None] | None = None  # (operand, function of codes) -> its lines

    @property
    def right(self) -> Numbers:
        """a b + c."""
        return self.product + self.c

    @property
    def usable(self) -> Mask:
        """Outputs whose numbers say what they were computed from: not those that a clamp made zero."""
        return self.finite & (self.observed > 0) if self.floor else self.finite

    def absolute(self) -> Reals:
        """The same with absolute values."""
        pairs = [None if pair is None else (np.abs(pair[0]), np.abs(pair[1])) for pair in (self.factors, self.bare)]
        a, b, c = (np.abs(x) for x in (self.a, self.b, self.c))
        return replace(self, a=a, b=b, c=c, factors=pairs[0], bare=pairs[1], recoded=self._absolutes)

    def _absolutes(self, name: str, mistake: str) -> Numbers | None:
        found = None if self.recoded is None else self.recoded(name, mistake)
        return None if found is None else np.abs(found)

    def lines(self, name: str) -> Numbers:
        """Of A or of B."""
        return self.a if name == "a" else self.b

    def read(self, name: str, chosen: Ints, rules: Sequence[Rule]) -> Numbers:
        """(rules, samples, K): what each rule reads for each sample."""
        side = "ab".index(name)
        t, own, other = chosen[:, 0], chosen[:, 1 + side], chosen[:, 2 - side]
        sources, by = {"": self.lines(name)}, np.ones((1, 1))
        count, width = sources[""].shape[1:]
        if (
            self.factors is not None and self.bare is not None
        ):  # elements from elsewhere meet the factors of their place
            each = self.factors[side][t, own]
            sources["data"], by = self.bare[side], np.repeat(each, width // each.shape[1], axis=1)
        ends = ((0, 0), (0, 1), (0, 1))  # zeros for what lies outside; what is negative is large
        flat = {part: np.pad(lines, ends).reshape(-1) for part, lines in sources.items()}
        out = np.empty((len(rules), len(chosen), width))
        k, first = np.arange(width)[None], t[:, None] * ((count + 1) * (width + 1))
        for number, rule in enumerate(rules):
            if rule.part not in flat:
                out[number] = self._with_part(side, rule, t, own, other)
                continue
            row, at = (x.astype(np.int64, copy=False) for x in rule.where(own[:, None], k, other[:, None]))
            row, at = (np.minimum(x.view(np.uint64), n).view(np.int64) for x, n in ((row, count), (at, width)))
            place = first + row * (width + 1) + at
            flat[rule.part].take(place, out=out[number], mode="clip")  # faster than a check of each place
            if rule.part:
                out[number] *= by
        return out

    def _with_part(self, side: int, rule: Rule, t: Ints, own: Ints, other: Ints) -> Numbers:
        """Lines (n, K) of which a rule reads one part: elements, or metadata of a sparse A, or scale factors."""
        parts: tuple[Any, Any]
        if self.kept is not None and self.positions is not None and self.sparsity is not None:
            parts, none = (self.kept, self.positions), self.sparsity.kept // self.sparsity.groups
        elif self.bare is not None and self.factors is not None:
            parts, none = (self.bare[side], self.factors[side]), 0
        else:
            raise ValueError("no parts")
        place = 0 if rule.part == "data" else 1
        k = np.arange(parts[place].shape[2])
        found: list[Any] = [part[t, own] for part in parts]
        row, at = np.broadcast_arrays(*rule.where(own[:, None], k[None], other[:, None]))
        nothing = 0.0 if place == 0 else k % none if none else 1.0  # the first positions, or a factor of 1
        found[place] = at_places(parts[place], t[:, None], row, at, nothing)
        if self.sparsity is None or self.kept is None:
            scaled: Numbers = found[0] * np.repeat(found[1], found[0].shape[1] // found[1].shape[1], axis=1)
            return scaled
        shape = replace(self.sparsity, rows=len(own), k=2 * self.kept.shape[2])
        dense = np.zeros((len(own), self.a.shape[2]))
        np.put_along_axis(dense, shape.columns(found[1].astype(np.int64)), found[0], axis=1)
        return dense

    def far(self, size: Numbers | float, observed: Numbers) -> Numbers | float:
        """How far rounding takes sums of a size; 0 where that is so far that everything would fit."""
        found = self.unit * size
        usual = float(np.sqrt((observed**2).mean())) if observed.size else 0.0
        return found if float(np.median(found)) <= _TELLS * usual else 0.0

    def stretched(self, factor: Numbers | float, place: Any = ...) -> Numbers:
        """How far rounding takes outputs that are sums times a factor: no further than where it would still tell outputs apart."""
        reach = self.reach[place]
        return np.minimum(reach * np.maximum(1.0, np.abs(factor)), np.maximum(reach, _TELLS * self.usual_of(place)))

    def usual_of(self, place: Any = ...) -> Numbers | float:
        """The usual size of outputs at some places."""
        return self.usual[place] if isinstance(self.usual, np.ndarray) else self.usual

    def near(self, values: Numbers, place: Any = ..., size: Numbers | float = 0.0) -> Mask:
        """Whether numbers are the observed ones up to rounding, at all outputs or at some. size: of the sums of absolute products."""
        values = np.maximum(values, 0.0) if self.floor else values
        reach = np.maximum(self.reach[place], self.far(size, self.observed[place]))
        found: Mask = np.abs(values - self.observed[place]) <= reach
        over: Mask = values * (self.infinite[place] if isinstance(self.infinite, np.ndarray) else 0.0) > self.largest
        return found & self.finite[place] | over


def at_places(source: npt.NDArray[Any], t: Ints, row: Ints, at: Ints, outside: Any = 0) -> Any:
    """Elements (batch, rows, places)."""
    inside = (row >= 0) & (row < source.shape[1]) & (at >= 0) & (at < source.shape[2])
    return np.where(inside, source[t, np.where(inside, row, 0), np.where(inside, at, 0)], outside)


def reals_of(problem: Problem, model: npt.NDArray[Any], steps: tuple[float, float] = (0.0, 0.0)) -> Reals:
    """The numbers of a problem. model: the codes that it predicts; steps: the relative and the least of the observed ones."""
    coarse, least = steps
    machine, formats = problem.machine, problem.machine.formats
    with np.errstate(all="ignore"):
        bare, factors = _held(problem)
        a, b = scaled(bare, factors)
        c = decode(problem.c, formats["c"]).astype(np.float64)
        observed = decode(problem.observed, formats["d"]).astype(np.float64)
        finite = np.isfinite(observed) & np.isfinite(c)
        infinite = np.where(np.isinf(observed), np.sign(observed), 0.0)
        a, b, c, observed = (np.where(np.isfinite(x), x, 0.0) for x in (a, b, c, observed))
        size = np.abs(a) @ np.abs(b).swapaxes(1, 2) + np.abs(c)
        product = a @ b.swapaxes(1, 2)
        known = decode(model, formats["d"]).astype(np.float64)
        off = np.abs(known - product - c) / np.maximum(size, 1e-300)
        normal, step = smallest(formats["d"])
        off = off[np.isfinite(off) & (size > normal)]
        usual = _usual(observed)
    if formats["d"].kind != "float":
        reach, rounding, blind = np.full(c.shape, 0.25), 0.0, False
    else:
        unit = min(float(off.max()), 4 * float(np.quantile(off, 0.99))) if off.size else 0.0
        middle = float(np.median(size)) if size.size else 0.0
        rounding = 8 * max(unit, _FINEST[formats["d"].bits == 64 and not coarse])
        far = rounding * np.maximum(size, middle) * _factor(np.where(np.isfinite(known), known, 0.0), observed)
        blind = bool(np.quantile(far / usual, _SEEING) > _BLIND)
        reach = np.minimum(far, _KNOWN * usual)
        reach += coarse * np.abs(observed) + max(least, step)
    found = Reals(a, b, c, product, observed, reach, finite, coarse, rounding, usual=usual, blind=blind)
    if infinite.any():
        format = FORMATS[problem.output] if problem.output else formats["d"]
        found = replace(found, infinite=infinite, largest=format.largest * (1 - min(coarse + rounding, _KNOWN)))
    found = replace(found, recoded=lru_cache(None)(partial(_recoded, problem)))
    if factors is not None:
        found = replace(found, factors=factors, bare=bare)
    if problem.positions is not None and machine.sparsity is not None and factors is None:
        kept = decode(problem.a, formats["a"]).astype(np.float64)
        found = replace(found, kept=kept, positions=problem.positions, sparsity=machine.sparsity)
    return found


def smallest(format: Format) -> tuple[float, float]:
    """The least normal number of a format, and how far apart those below it lie; zeros of integers."""
    if format.kind != "float":
        return 0.0, 0.0
    return 2.0**format.minimum_exponent, 2.0 ** (format.minimum_exponent - format.fraction_bits)


def _factor(right: Numbers, observed: Numbers) -> float:
    """The factor below 1 that makes the right outputs the observed ones, and rounding smaller: 1 if there is none."""
    size = float((right**2).sum())
    factor = float((right * observed).sum()) / size if size else 1.0
    off = float(((observed - factor * right) ** 2).sum())
    return abs(factor) if abs(factor) < 1 and off <= _KNOWN**2 * float((observed**2).sum()) else 1.0


def _usual(observed: Numbers) -> Numbers:
    """The usual size of outputs in the row and column of each, those that are zero left out; infinite where all are."""
    seen = np.where(observed == 0, np.nan, np.abs(observed))
    known = np.isfinite(seen).any(axis=(1, 2))
    found = np.full(observed.shape, np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of lines in which all are zero
        logs = np.log2(seen[known])
        rows, columns = (np.nanmedian(logs, axis=axis, keepdims=True) for axis in (2, 1))
        whole = np.nanmedian(logs, axis=(1, 2), keepdims=True)
    found[known] = np.exp2(np.nan_to_num(rows + columns - whole, nan=np.inf))
    return found


def _recoded(problem: Problem, name: str, mistake: str) -> Numbers | None:
    """Lines of an operand whose codes are changed, numbers that are not finite as zeros; None if nothing changes."""
    changed = recoded(problem, name, mistake)
    if changed is None:
        return None
    lines = lines_of(changed)["ab".index(name)]
    return np.where(np.isfinite(lines), lines, 0.0)


def lines_of(problem: Problem) -> Lines:
    """Rows of A and columns of B as they multiply, (batch, lines, K): dense and scaled."""
    return scaled(*_held(problem))


def scaled(bare: Lines, factors: Lines | None) -> Lines:
    """Lines of A and of B with their factors."""
    if factors is None:
        return bare
    a, b = (x * np.repeat(by, x.shape[2] // by.shape[2], axis=2) for x, by in zip(bare, factors, strict=True))
    return a, b


def _held(problem: Problem) -> tuple[Lines, Lines | None]:
    """The same without their factors, and those."""
    formats = problem.machine.formats
    bare = _dense(problem), decode(problem.b, formats["b"]).astype(np.float64).swapaxes(1, 2)
    if problem.scales is None:
        return bare, None
    own, other = (decode(x, formats["scale"]).astype(np.float64) for x in problem.scales)
    return bare, (own, other.swapaxes(1, 2))


def _dense(problem: Problem) -> Numbers:
    """A as it multiplies: of a sparse one with its zeros."""
    codes = problem.a
    values = decode(codes, problem.machine.formats["a"]).astype(np.float64)
    sparsity = problem.machine.sparsity
    if problem.positions is None or sparsity is None:
        return values
    width = codes.shape[2]
    columns = replace(sparsity, rows=codes.shape[1], k=2 * width).columns(problem.positions)
    dense = np.zeros((*codes.shape[:2], 2 * width))
    np.put_along_axis(dense, columns, values, axis=2)
    return dense
