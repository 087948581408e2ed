"""A product of arrays as a launch file writes it: "d = a @ b.T + c"."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WRITTEN = re.compile(r"(\w+)(\.T)? = (\w+)(\.T)? @ (\w+)(\.T)?(?: \+ (\w+)(\.T)?)?")


@dataclass(frozen=True)
class Factor:
    """An operand of the product."""

    name: str  # of the array
    turned: bool  # whether it lies transposed: A as K x M, B as N x K, D as N x M

    def __str__(self) -> str:
        return f"{self.name}.T" if self.turned else self.name


def factors_of(text: str) -> dict[str, Factor]:
    """The operands of a product as `Product` writes it, by d, a, b and c; none for another text.

    >>> factors_of("y = x @ w.T")["b"]
    Factor(name='w', turned=True)
    """
    found = _WRITTEN.fullmatch(text)
    parts = found.groups() if found else ()
    return {
        name: Factor(parts[2 * at], parts[2 * at + 1] is not None)
        for at, name in enumerate("dabc")
        if parts and parts[2 * at]
    }
