"""Which explanations say the same thing: those that predict the same of fresh random operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.problem import Attempt, Codes, Problem
from tcsim.diagnosis.reals import Numbers, Reals, reals_of
from tcsim.diagnosis.relations import precision
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import Format


def fresh(problem: Problem, with_c: bool = False) -> Problem:
    """The problem with other operands, drawn at random; C stays zero where it is and a vector where it is one, unless `with_c`. `observed` numbers the outputs."""
    random = np.random.default_rng(1)
    formats = problem.machine.formats
    a, b, c = (_drawn(random, getattr(problem, name).shape, formats[name]) for name in "abc")
    if problem.size is not None:  # nothing but zeros lies beyond
        a[:, problem.size[0] :], b[:, :, problem.size[1] :] = 0, 0
    if problem.depth is not None:
        a[:, :, problem.depth * problem.kept // problem.step :], b[:, problem.depth :] = 0, 0
    if not with_c:
        rows, columns = problem.sizes
        given = problem.c[:, :rows, :columns]
        c = c[:, :1] + 0 * c if (given == given[:, :1]).all() else c  # one bias for each column, or for each row
        c = c[:, :, :1] + 0 * c if (given == given[:, :, :1]).all() else c
        c = np.where(problem.c == 0, problem.c, c)
    observed = np.arange(problem.observed.size).astype(problem.observed.dtype).reshape(problem.observed.shape)
    scales = problem.scales
    if scales is not None:
        own, other = (_drawn_scales(random, x.shape, formats["scale"]) for x in scales)
        scales = own, other
    return replace(problem, a=a, b=b, c=c, observed=observed, scales=scales)


def _drawn(random: np.random.Generator, shape: tuple[int, ...], format: Format) -> Codes:
    if format.kind == "float":
        return encode(random.standard_normal(shape), format)
    return (random.integers(0, 1 << min(format.bits, 8), shape) & format.code_mask).astype(format.dtype)


def _drawn_scales(random: np.random.Generator, shape: tuple[int, ...], format: Format) -> Codes:
    return encode(2.0 ** random.integers(-3, 4, shape), format)


def alike(problem: Problem) -> str:
    """Why the operands cannot tell mistakes apart; empty if they can."""
    said = []
    for name, codes, lines in (("a", problem.a, "rows"), ("b", problem.b.swapaxes(1, 2), "columns")):
        if problem.size is not None:
            codes = codes[:, : problem.size["ab".index(name)]]
        if codes.shape[1] > 1 and (codes == codes[:, :1]).all():
            said.append(f"all {lines} of {name} are equal")
    return " and ".join(said)


class Fresh:
    """A problem with other operands, on which explanations are compared."""

    def __init__(self, problem: Problem, with_c: bool = False) -> None:
        """Made once for a diagnosis."""
        self.problem = fresh(problem, with_c)
        right = self.problem.outputs
        self.reals: Reals = reals_of(replace(self.problem, observed=right), right, precision(problem.output))

    def of_attempt(self, attempt: Attempt) -> Numbers | None:
        """What an attempt made on this problem predicts of it; None if it cannot be made. NaN where it is not known."""
        changed = attempt.change()
        if changed is None:
            return None
        d = changed.machine.formats["d"]
        values = decode(changed.outputs, d).astype(np.float64)
        if changed.known is not None:
            values = np.where(changed.known, values, np.nan)
        moved = np.empty_like(values).reshape(-1)
        codes = changed.observed.reshape(-1)
        if d.kind == "float":  # the numbers' top bit is a changed sign
            sign = codes.dtype.type(1 << (8 * codes.dtype.itemsize - 1))
            values = np.where((codes >= sign).reshape(values.shape), -values, values)
            codes = codes & ~sign
        place: npt.NDArray[np.int64] = codes.astype(np.int64)
        if not np.array_equal(np.sort(place), np.arange(place.size)):
            return None  # its codes were changed, not moved
        moved[place] = values.reshape(-1)
        return moved.reshape(values.shape)

    def same(self, one: Numbers, two: Numbers) -> bool:
        """Whether two predictions agree up to rounding wherever both are known."""
        both = np.isfinite(one) & np.isfinite(two) & self.problem.inside()
        if both.sum() * 4 < self.problem.inside().sum():
            return False
        middle = float(np.median(np.abs(self.reals.right))) + 1e-300
        return bool((np.abs(one - two)[both] <= self.reals.reach[both] + 1e-5 * middle).all())
