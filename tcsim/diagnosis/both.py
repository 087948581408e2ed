"""The same mistake in both operands: one helper makes both descriptors, or loads both fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from tcsim.diagnosis.problem import Attempt, Problem

Source = Callable[[Problem], Iterator[Attempt]]


def in_both(source: Source, problem: Problem) -> Iterator[Attempt]:
    """Of what a source tries in one operand alone, what it can try in both."""
    waiting: dict[tuple[str, ...], Attempt] = {}
    for own in source(problem):
        if own.operand == "a":
            waiting[own.form] = own
        elif own.operand and (other := waiting.pop(own.form, None)) is not None:
            detail = f"{other.mistake}: {other.detail}; {own.mistake}: the same" if own.detail else ""
            made = partial(_made, problem, other, own)
            yield Attempt(f"{other.mistake} + {own.mistake}", detail, f"in both operands: {other.advice}", made)


def _made(problem: Problem, a: Attempt, b: Attempt) -> Problem | None:
    one, other = a.change(), b.change()
    if one is None or other is None:
        return None
    known = [own.known for own in (one, other) if own.known is not None]
    both = replace(problem, a=one.a, b=other.b)
    return replace(both, known=known[0] & known[-1]) if known else both
