"""Special functions of a constant: the assembler computes them when it assembles, correctly rounded, and the unit is not asked.

Found by assembling each function of 1,200 constants with ptxas 13.5 for sm_90a and reading the constants in the machine code: all
are the function's value rounded to nearest (libm's of an f64, rounded to f32), where that is finite; of tanh, of 16-bit numbers and
of f64 none is folded. A quotient keeps its steps, with the reciprocal of a constant divisor folded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tcsim.arithmetic import mufu
from tcsim.arithmetic.mufu import Unit
from tcsim.isa.special.rows import SpecialRow
from tcsim.isa.special.steps import Codes, Ordinary, run
from tcsim.lowering.traced import asarray

_VALUES: Mapping[str, Callable[[Any], Any]] = MappingProxyType({
    "rcp": np.reciprocal, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos,
})  # fmt: skip
_LEAST = np.float32(2.0**-126)
_FLUSHED = ("sin", "cos")
"""Functions that take subnormal numbers as zeros without .ftz, too."""


def rounded(function: str, codes: Codes, ftz: bool) -> Codes:
    """The function's value of f32 codes, rounded to nearest.

    >>> hex(rounded("rcp", np.array([0x41F9852D], np.uint32), False)[0])  # 1 / 31.19: the unit gives ...f4
    '0x3d0352f3'
    """
    given = codes.view(np.float32)
    with np.errstate(all="ignore"):
        given = np.where(ftz & (np.abs(given) < _LEAST), np.copysign(np.float32(0), given), given)
        found = asarray(_VALUES[function](given.astype(np.float64))).astype(np.float32)
        found = np.where(ftz & (np.abs(found) < _LEAST), np.copysign(np.float32(0), found), found)
    return found.view(np.uint32)


@dataclass(frozen=True)
class _Assembler(Unit):
    """What the assembler takes the unit for."""

    def compute(self, function: str, codes: Codes) -> Codes:
        """The rounded value where it is finite, else what the unit gives."""
        return _finite(rounded(function, codes, True), super().compute(function, codes))


def _finite(found: Codes, other: Codes) -> Codes:
    return np.where(np.isfinite(found.view(np.float32)), found, other)


def folds(row: SpecialRow) -> bool:
    """Whether the assembler computes a row whose last source is a constant."""
    return row.unit is not None and row.unit.format == "f32" and row.unit.function in _VALUES


def folded(row: SpecialRow, *sources: Codes) -> Codes:
    """The result of a row whose last source is a constant, or a step of it: registers in, registers out."""
    operands = dict(zip(("a", "b"), sources, strict=False))
    if len(sources) > 1:
        return run(row.steps, operands, _Assembler())
    flushed = row.family in _FLUSHED or "ftz" in row.mnemonic.split(".")
    return _finite(rounded(row.family, sources[0], flushed), run(row.steps, operands, mufu.unit()))


def product(row: SpecialRow) -> Ordinary | None:
    """The product that is the last step of a row, which the assembler may fuse with a sum, as it does any other.

    >>> from tcsim.isa.special.rows import rows
    >>> [row.mnemonic for row in rows("div") if product(row)]
    ['div.approx.f32', 'div.approx.ftz.f32', 'div.full.f32', 'div.full.ftz.f32']
    """
    last = row.steps[-1]
    return last if isinstance(last, Ordinary) and last.operation == "multiply" and last.when is None else None


def factors(row: SpecialRow, constant: bool, *sources: Codes) -> tuple[Codes, Codes]:
    """The factors of that product; `constant`: whether the last source is one."""
    last = product(row)
    if last is None or not isinstance(last.b, str):
        raise ValueError(f"{row.mnemonic} does not end with a product")
    values = {name: asarray(codes) for name, codes in zip(("a", "b"), sources, strict=False)}
    for step in row.steps[:-1]:
        step.run(values, _Assembler() if constant else mufu.unit())
    return values[last.a], values[last.b]
