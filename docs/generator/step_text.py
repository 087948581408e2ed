"""The steps of a lowering in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from tcsim.steps import Arithmetic, BitDot, DotAdd, IntegerAdd, IntegerDot, Step, Widen, runs


def short_runs(k: tuple[int, ...]) -> str:
    """Indices as ranges; of more than four ranges the middle ones are left out."""
    parts = runs(k).split(",")
    return ",".join(parts if len(parts) <= 4 else [*parts[:2], "...", parts[-1]])


@singledispatch
def step_text(step: Step) -> str:
    """One step of a lowering in one line."""
    return repr(step)


@step_text.register
def _(step: Widen) -> str:
    return f"a, b widened to {step.format}"


@step_text.register
def _(step: DotAdd) -> str:
    unit = step.unit
    constants = f"F = {unit.fraction_bits}, floor {unit.floor}"
    result = f"{unit.output} {unit.rounding.upper()}"
    return f"{step.result} = dot-add of k {short_runs(step.k)} and {step.addend} ({constants}) to {result}"


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


def steps_text(steps: Sequence[Step], separator: str = "; ") -> str:
    """A whole lowering; a chain of fused multiply-adds from c is told as such."""
    if not steps:
        return "none: it moves data"
    first = steps[0]
    chain = isinstance(first, Arithmetic) and all(isinstance(step, Arithmetic) and step.op == "fma" for step in steps)
    if chain and isinstance(first, Arithmetic) and first.arguments[2] == "c":
        lines = [
            "acc = c",
            f"acc = fma(a[k], b[k], acc) in {first.format} {first.rounding.upper()} for k = 0 to K - 1",
            "d = acc",
        ]
        return separator.join(lines)
    return separator.join(step_text(step) for step in steps)
