"""Which work the kernel for ordinary arithmetic computes (hwkernels/kernels/engine_native.cu), and the text of its instruction."""

from __future__ import annotations

from hwkernels.engine.source import UnsupportedError, headers_of, instruction_text
from tcsim.arithmetic.steps import Arithmetic
from tcsim.engines.contract import Work

SIDE = 16  # threads along M and along N of a block
SPAN = 16  # places along K of a stage
_CALLS = {
    ("mul", "f32"): "product32({}, {})",
    ("add", "f32"): "sum32({}, {})",
    ("fma", "f32"): "fused32({}, {}, {})",
    ("convert", "f16"): "halved({})",
}
"""Operations that round to nearest even; those of f64 are fused multiply-adds with a rounding of their own."""


def why_not(work: Work) -> str:
    """Why the kernel does not compute this; empty if it does."""
    a, b, c = work.formats
    if not all(isinstance(step, Arithmetic) for step in work.steps):
        return "its steps are not all ordinary arithmetic"
    if work.sparse or c != work.result or SPAN % work.k:
        return f"its result is not its addend, or K is not a divisor of {SPAN}"
    if (a.name, b.name, c.name) not in {("f64",) * 3, ("f16", "f16", "f32"), ("f16",) * 3}:
        return "its operands are neither f64 nor f16 with sums of f32"
    try:
        instruction_text(work)  # which refuses what the headers have no text for
        lines = _lines(work)
    except UnsupportedError as error:
        return str(error)
    return "" if lines else "it has no steps"


def each_of(work: Work) -> tuple[int, int]:
    """Rows and columns of the outputs of a thread: fewer where f64, or several sums at a time, need more registers."""
    names = {step.result for step in work.steps if isinstance(step, Arithmetic)} - {"d"}
    return (8, 8) if work.result.name != "f64" and len(names) < 2 else (4, 8)


def headers(work: Work, each: tuple[int, int] | None = None) -> dict[str, str]:
    """All headers that the kernel includes."""
    names = (item.name for item in work.formats)
    value = "double" if work.result.name == "f64" else "float"
    rounding = next(step.rounding for step in work.steps if isinstance(step, Arithmetic)).upper()
    rows, columns = each or each_of(work)
    text = (
        f"#pragma once\ntypedef {value} Value;\nenum {{ EACH_M = {rows}, EACH_N = {columns}, FUSED_ROUNDING = {rounding} }};\n"
        + "".join(f"typedef {name} {letter}Format;\n" for letter, name in zip("ABC", names, strict=True))
        + "#define INSTRUCTION(first) \\\n"
        + " \\\n".join(f"    {line}" for line in _lines(work))
        + "\n"
    )
    return {**headers_of(work), "constants.cuh": text}


def _lines(work: Work) -> list[str]:
    """The steps of an instruction on all outputs of a thread. Raises UnsupportedError."""
    steps = [step for step in work.steps if isinstance(step, Arithmetic)]
    results = sorted({step.result for step in steps})
    found = [f"Value {', '.join(f'{name}[EACH_M][EACH_N]' for name in results)};"]
    for step in steps:
        places = {name[1:] for name in step.arguments if name[1:2] == "["}
        if len(places) > 1:
            raise UnsupportedError("elements of several places of K in one step")
        for place in places:
            found.append(f"OPERANDS(first + {place[1:-1]})")
        call = f"fused<{step.rounding.upper()}>({{}}, {{}}, {{}})" if step.format == "f64" else ""
        call = call or _CALLS.get((step.op, step.format), "")
        if not call:
            raise UnsupportedError(f"{step.op} to {step.format}")
        found.append(f"EACH({step.result}, ({call.format(*map(_operand, step.arguments))}))")
    return [*found, "EACH(c, d[i][j])"]


def _operand(name: str) -> str:
    if name == "+0":
        return "0.0f"
    if name[1:2] == "[":
        return "x[i]" if name[0] == "a" else "y[j]"
    return f"{name}[i][j]"
