"""What an epilogue does with C in the place of adding it: a function of it, or a product with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcsim.diagnosis.enough import follows
from tcsim.diagnosis.hypothesis import Hypothesis, Operands, WrongKernel
from tcsim.diagnosis.named_functions import ACTIVATIONS, Function, conversions
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.numbers.codec import decode, encode

_NEAR = 2e-3  # relative: an approximation of a function
_GATES = ("ReLU", "GELU", "SiLU", "sigmoid", "tanh")
_LOOK = "look at what the epilogue does with C: a bias, a residual, a gate"
Combined = Callable[[Numbers, Numbers], Numbers]  # (a b, C) -> D


@dataclass(frozen=True, eq=False)
class WithC(Hypothesis):
    """One function of the product and C."""

    mistake: str
    detail: str
    combine: Combined
    exact: bool

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        return [(self.mistake, self.detail, _LOOK)]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        with np.errstate(all="ignore"):
            return self.combine(reals.product[matrix], reals.c[matrix])

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of the product goes through the function."""
        values, (c, reach) = self.values(reals, matrix), (reals.c[matrix], reals.reach[matrix])
        with np.errstate(all="ignore"):
            ends = [self.combine(reals.product[matrix] + sign * reach, c) for sign in (1, -1)]
        far = np.maximum(np.max([np.abs(end - values) for end in ends], axis=0), reals.coarse * np.abs(values))
        far += (2.0**-22 if self.exact else _NEAR) * np.abs(values)
        found: Mask = np.abs(values - reals.observed[matrix]) <= np.minimum(far, 0.1 * reals.usual_of(matrix))
        return found & reals.finite[matrix]

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output where that is every bit of what was observed; None if it is not."""
        formats = problem.machine.formats
        parts = replace(problem.bare, c=np.zeros_like(problem.c)).outputs, problem.c
        product, c = (decode(x, formats[name]).astype(np.float64) for x, name in zip(parts, "dc", strict=True))
        with np.errstate(all="ignore"):
            codes = encode(self.combine(product, c), formats["d"])
        return codes if np.array_equal(codes, problem.observed) else None


def _replaced(run: Function, given: Operands) -> Operands:
    """The same with a function of C."""
    return given._replace(c=run(given.c))


def _gated(of_c: bool, run: Function, product: Numbers, c: Numbers) -> Numbers:
    return product * run(c) if of_c else run(product) * c


def with_c(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Hypothesis]:
    """Those that give every wrong output."""
    if not reals.c.any() or problem.machine.formats["c"].kind != "float" or reals.floor:
        return
    items: list[Hypothesis] = []
    for one in (*conversions(0.0), *ACTIVATIONS):
        said = "ReLU" if one.mistake.startswith("ReLU") else one.said
        if one.mistake.endswith("format"):
            names = (
                f"c passed through {said}",
                "each element of c is rounded",
                f"look at the type that C is stored in and loaded as: {said}",
            )
        else:
            names = "activation applied to c", f"{said} of c is added", _LOOK
        items += [WrongKernel((names,), partial(_replaced, one.run))] if one.simple else []
        for of_c, gate in (
            ((True, f"the product times {said} of c"), (False, f"{said} of the product times c"))
            if said in _GATES
            else ()
        ):
            items.append(WithC("c multiplied, not added", gate, partial(_gated, of_c, one.run), one.simple))
    items.append(WithC("c multiplied, not added", "the product times c", np.multiply, True))
    for item in items:
        near = item.gives(reals)
        if not (wrong & reals.finite & ~near).any() and follows(
            item.all_values(reals)[wrong & near], reals.observed[wrong & near]
        ):
            yield item
