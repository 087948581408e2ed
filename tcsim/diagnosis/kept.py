"""Sums that a kernel keeps in a narrow type: a running sum that is rounded every so often, or parts of K that are stored narrow.

What such a kernel gives is first reckoned in float64 on a few outputs, for every type, every length of a part and every way to add the parts; what
fits most of them is then run with the instruction itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.samples import repeatable
from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.least_squares import in_parts
from tcsim.diagnosis.predicted import End
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.relations import NARROW
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.rounding import RoundingName

_SIDE = 8  # rows and columns of the outputs that are tried first
_OFF = (1e-8, 0.05)  # of a usual output: how far rounding of sums takes one
_SHARE = 0.3  # of the outputs that must fit in float64
_RUN = 6  # forms that are run bit for bit
_PARTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
_STEPS = (1, 2, 4, 8, 16)
_ROUNDINGS: tuple[tuple[str, RoundingName], ...] = (("bf16", "rne"), ("f16", "rne"), ("bf16", "rz"))
Sums = Callable[[int, Numbers | None], Numbers]  # (number of a part, what it starts from) -> its sums


@dataclass(frozen=True)
class Form:
    """One way to keep sums narrow. size: steps of a part; running: the sum so far is rounded; stored: each part is."""

    format: str
    rounding: RoundingName
    size: int
    parts: int
    running: bool
    stored: bool
    through: bool = False  # the sum so far goes through the instruction as its accumulator
    late: bool = True  # C comes last, in f32
    wide: bool = False  # the accumulator starts from C in f32
    owner: int | None = None  # the part that is not stored: its block adds the others' to what it holds

    def total(self, part: Sums, c: Numbers) -> Numbers:
        """The sums, as f32 numbers. part(number, start) gives the sums of a part of K."""
        cut = partial(_cut, self.format, self.rounding)
        start = np.zeros_like(c) if self.late else c
        total = cut(start) if self.running and not self.wide else start
        for number in range(self.parts):
            if self.through:
                total = cut(part(number, total))
                continue
            own = part(number, None)
            total = (total + (cut(own) if self.stored and number != self.owner else own)).astype(np.float32)
            total = cut(total) if self.running else total
        return (total + c).astype(np.float32) if self.late else total

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return 2 + (self.rounding != "rne") + (self.running and self.stored) + (self.owner is not None)

    def said(self, step: int) -> tuple[str, str, str]:
        """(mistake, detail, advice)."""
        cut = " (cut, not rounded)" if self.rounding == "rz" else ""
        name, length = self.format, self.size * step
        if self.parts == 1:
            return NARROW, f"the product is {name}{cut} before c is added", f"add c in f32 and convert to {name} once"
        if not self.stored:
            said = f"the running sum is rounded to {name}{cut} after every {length} of K"
            advice = f"a sum that is kept or added up as {name} between parts of K: keep it in f32 and convert once, at the end"
            return f"accumulator in {name}", said, advice
        added = name if self.running else "f32"
        each = "each partial sum" if self.owner is None else f"each but the {'last' if self.owner else 'first'}"
        said = f"K in {self.parts} parts of {length}: {each} is {name}{cut}, and they are added in {added}"
        advice = f"the workspace or the atomics of a split K are {name}: keep partial sums in f32 and convert once, at the end"
        return f"partial sums kept in {name}", said, advice


def _cut(name: str, rounding: RoundingName, values: Numbers) -> Numbers:
    found: Numbers = decode(encode(values, name, rounding), name).astype(np.float32)
    return found


@dataclass(frozen=True, eq=False)
class Kept(Hypothesis):
    """All outputs, of one form."""

    form: Form
    found: Codes
    step: int

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return self.form.rank

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        return [self.form.said(self.step)]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """The right ones: rounding is all that is wrong."""
        found: Numbers = reals.right[matrix]
        return found

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Every output: it was run bit for bit."""
        return np.ones(reals.right[matrix].shape, bool)

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit."""
        return self.found


def forms(problem: Problem) -> Iterator[Form]:
    """All of a problem."""
    count = problem.blocks
    has_c = bool(problem.c.any())
    sizes = sorted({-(-count // parts) for parts in _PARTS} | {size for size in _STEPS if size <= count}, reverse=True)
    for name, rounding in _ROUNDINGS:
        for size in sizes:
            parts = -(-count // size)
            for late in (True, False) if has_c else (True,):
                if parts > 1:
                    yield Form(name, rounding, size, parts, True, False, True, late)
                    if not late:
                        yield Form(name, rounding, size, parts, True, False, True, late, True)
                    yield Form(name, rounding, size, parts, True, False, False, late)
                    yield Form(name, rounding, size, parts, True, True, False, late)
                    yield Form(name, rounding, size, parts, False, True, False, late)
                    for owner in (0, parts - 1):
                        yield Form(name, rounding, size, parts, False, True, False, late, owner=owner)
                elif has_c and late:
                    yield Form(name, rounding, size, parts, False, True)


def kept_sums(problem: Problem, reals: Reals, ends: tuple[End, ...]) -> Kept | None:
    """The form that gives every bit where no right order does; None if there is none, or outputs are off by more than rounding of sums."""
    formats = problem.machine.formats
    if formats["d"].name != "f32" or formats["c"].name != "f32" or problem.after is not None:
        return None
    known = reals.usable
    off, usual = (
        float(np.sqrt((x[known] ** 2).mean())) if known.any() else 0.0
        for x in (reals.observed - reals.right, reals.right)
    )
    if not _OFF[0] * usual < off < _OFF[1] * usual:
        return None
    matrix = int(known.sum(axis=(1, 2)).argmax())
    random = repeatable()
    rows, columns = (
        np.sort(random.permutation(np.flatnonzero(known[matrix].any(axis=axis)))[:_SIDE]) for axis in (1, 0)
    )
    place = (matrix, rows[:, None], columns[None])
    seen, c = reals.observed[place], reals.c[place]
    near = reals.reach[place] if reals.coarse == 0 else 1e-6 * np.abs(seen)  # narrow results are the same, or apart
    scored: list[tuple[float, int, int, Form]] = []
    sums: dict[int, Numbers] = {}
    a, b = reals.a[matrix, rows], reals.b[matrix, columns]
    for form in forms(problem):
        if form.size not in sums:
            sums[form.size] = _parts(a, b, form.size * problem.step)
        total = form.total(partial(_of, sums[form.size]), c)
        given = [decode(end(encode(total, "f32")), "f32") for end in ends]
        share = max(float((np.abs(one - seen) <= near).mean()) for one in given)
        if share > _SHARE:
            scored.append((-share, form.rank, len(scored), form))
    few = Part(matrix, rows, columns)
    for _, _, _, form in sorted(scored)[:_RUN]:
        tried = _run(problem, form, few)
        if any((end(tried) == problem.seen(few)).all() for end in ends):
            codes = np.stack([_run(problem, form, part) for part in problem.parts()])
            if any(_tells(problem, codes, end) for end in ends):
                return Kept(form, codes, problem.step)
    return None


def _tells(problem: Problem, codes: Codes, end: End) -> bool:
    """Whether codes are what was observed, in every bit, and the right ones are not in several."""
    inside = problem.inside()
    apart = (end(problem.bare.outputs) != problem.observed)[inside]
    same: bool = (end(codes) == problem.observed)[inside].all()
    return same and enough(int(apart.sum()))


def _parts(a: Numbers, b: Numbers, length: int) -> Numbers:
    """Sums of each part of K: (parts, rows, columns)."""
    found: Numbers = np.einsum("ipk,jpk->pij", in_parts(a, length), in_parts(b, length))
    return found


def _of(sums: Numbers, number: int, start: Numbers | None) -> Numbers:
    return (sums[number] + (0.0 if start is None else start)).astype(np.float32)


def _run(problem: Problem, form: Form, part: Part) -> Codes:
    """A form run with the instruction."""
    bare = problem.bare

    def sums(number: int, start: Numbers | None) -> Numbers:
        c = np.zeros_like(problem.c)
        if start is not None:
            c[part.matrix][np.ix_(part.rows, part.columns)] = encode(start, "f32")
        steps = tuple(range(number * form.size, min((number + 1) * form.size, problem.blocks)))
        found: Numbers = decode(replace(bare, c=c, order=steps).predict(part), "f32").astype(np.float32)
        return found

    c: npt.NDArray[Any] = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], "f32")
    return encode(form.total(sums, c.astype(np.float32)), "f32")
