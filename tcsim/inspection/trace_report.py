"""A trace as something to read: each step's terms, and their columns of bits."""

from __future__ import annotations

from typing import Any

from tcsim.inspection.bit_columns import bit_columns, said_of
from tcsim.inspection.report import WIDTH, Facts, Lines, Mark, Report, table
from tcsim.inspection.trace_steps import TracedStep


def trace_report(instruction: Any, place: tuple[int, int], steps: tuple[TracedStep, ...], width: int = WIDTH) -> Report:
    """Every step with its terms; on a page a term is linked with its bits. width: of the columns of bits."""
    facts = (("lowering", instruction.lowering.kind), ("evidence", str(instruction.evidence)))
    parts: list[Any] = [Facts(facts)]
    for number, step in enumerate(steps, 1):
        title = f"Step {number}: {step.text}"
        if step.terms:
            rows = [(term.name, *_factors(term.factors), _exponent(term)) for term in step.terms]
            marks = [Mark(f"step{number}term{place}", said_of(term, step)) for place, term in enumerate(step.terms)]
            cells = tuple((mark,) * len(row) for mark, row in zip(marks, rows, strict=True))
            parts.append(table(("", "a, or addend", "b", "exponent"), rows, title, right=(3,), marks=cells))
            drawn = bit_columns(step, width)
            rest = (Mark(),) * (len(drawn) - len(marks) - 1)
            parts.append(Lines(drawn, marks=(Mark(), *marks, *rest) if drawn else ()))
        else:
            parts.append(Lines(step.notes, title, wrap=True))
        if step.result is not None:
            floor = f"; largest exponent {step.exponent}, floor {step.floor}" if step.terms else ""
            parts.append(Lines((f"{step.result.name} = {step.result.hex} ({step.result.value!r}){floor}",)))
    title = f"{instruction.mnemonic} on {instruction.arch.name}"
    if hasattr(instruction, "matmul") or hasattr(instruction, "desc"):
        title += f": ({place[0]}, {place[1]})"
    return Report(title, tuple(parts))


def _factors(factors: Any) -> tuple[str, str]:
    texts = [f"{factor.hex} ({factor.value!r})" for factor in factors]
    return texts[0], texts[1] if len(texts) > 1 else ""


def _exponent(term: Any) -> str:
    if term.exponent is not None:
        return str(term.exponent)
    return "zero" if term.kept == 0 else "not finite"
