"""The steps of a lowering in words, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from tcsim.arithmetic.steps import Arithmetic, BitDot, DotAdd, IntegerAdd, IntegerDot, ScaledDotAdd, Widen
from tcsim.core.ranges import runs


def short_runs(k: tuple[int, ...]) -> str:
    """Indices as ranges; of more than four ranges the middle ones are left out.

    >>> short_runs(tuple(range(0, 32, 2)))
    '0,2,...,30'
    """
    parts = runs(k).split(",")
    return ",".join(parts if len(parts) <= 4 else [*parts[:2], "...", parts[-1]])


@singledispatch
def step_text(step: Any) -> str:
    """One step in one line; of a class that is not known here, what its `repr` says."""
    return repr(step)


@step_text.register
def _(step: Widen) -> str:
    return f"a, b widened to {step.format}, exactly"


@step_text.register
def _(step: DotAdd) -> str:
    unit = step.unit
    constants = f"F = {unit.fraction_bits}, floor {unit.floor}"
    result = f"{unit.output} {unit.rounding.upper()}"
    return f"{step.result} = dot-add of k {short_runs(step.k)} and {step.addend} ({constants}) to {result}"


@step_text.register
def _(step: ScaledDotAdd) -> str:
    unit, terms = step.unit, f"groups of {step.group} products" if step.group else "products"
    constants = f"F = {unit.fraction_bits}, floor {unit.floor}"
    result = f"{unit.output} {unit.rounding.upper()}"
    return f"{step.result} = dot-add of scaled {terms} of k {short_runs(step.k)} and {step.addend} ({constants}) to {result}"


@step_text.register
def _(step: Arithmetic) -> str:
    return f"{step.result} = {step.op}({', '.join(step.arguments)}) in {step.format} {step.rounding.upper()}"


@step_text.register
def _(step: IntegerDot) -> str:
    end = "clamped to s32 once" if step.saturate else "mod 2^32"
    addend = "" if step.addend == "+0" else f" + {step.addend}"
    return f"{step.result} = integer dot{addend}, {end}"


@step_text.register
def _(step: IntegerAdd) -> str:
    return f"{step.result} = acc + c, {'clamped to s32' if step.saturate else 'mod 2^32'}"


@step_text.register
def _(step: BitDot) -> str:
    return f"{step.result} = c + popc(a {step.op} b) mod 2^32"


def steps_text(steps: Sequence[Any], without: str = "none") -> tuple[str, ...]:
    """A whole lowering, a line each; a chain of fused multiply-adds over k is one line. `without`: what a lowering without steps is called.

    >>> mma = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", arch="sm_90")
    >>> steps_text(mma.lowering.steps)
    ('acc = c', 'acc = fma(a[k], b[k], acc) in f64 RNE for k = 0 to 3', 'd = acc')
    """
    if not steps:
        return (without,)
    first = steps[0]
    chain = isinstance(first, Arithmetic) and all(isinstance(step, Arithmetic) and step.op == "fma" for step in steps)
    if chain and first.arguments[2] == "c":
        loop = f"acc = fma(a[k], b[k], acc) in {first.format} {first.rounding.upper()} for k = 0 to {len(steps) - 1}"
        return ("acc = c", loop, "d = acc")
    return tuple(step_text(step) for step in steps)
