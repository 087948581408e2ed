"""Rules tried on codes: for formats that are no numbers, and for operands that are too large, or of which numbers tell nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.predicted import Way, read_by, ways, whole
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.rules import counts_of, rules_of


def by_bits(problem: Problem, screen: list[Part]) -> Iterator[Candidate]:
    """Rules of one operand, or of K, that give every bit of every output. screen: the outputs that each is tried on first."""
    for item in _items(problem):
        way = next(ways(problem, item), None)
        if way is not None and all(_gives(problem, item, way, part) for part in screen):
            codes = whole(problem, item, way)
            if codes is not None and (as_output(problem, codes) == problem.observed)[problem.inside()].all():
                yield item


def _items(problem: Problem) -> Iterator[Candidate]:
    rules = rules_of(problem)
    yield from (Candidate(a=rule) for rule in rules["a"] if not rule.crosses)
    yield from (Candidate(b=rule) for rule in rules["b"] if not rule.crosses)
    yield from (Candidate(count=count) for count in counts_of(problem))
    if problem.c.any():
        yield from (Candidate(beta=beta) for beta in (0.0, 2.0))


def _gives(problem: Problem, item: Candidate, way: Way, part: Part) -> bool:
    """Whether a part's outputs are given, as far as they are known."""
    one, knows = read_by(problem, item, way, part), problem.knows(part)
    same = one is not None and as_output(problem, one.predict(one.every)) == problem.seen(part)
    return bool(np.all(same | ~knows))


def as_output(problem: Problem, codes: Codes) -> Codes:
    """Codes as the output tensor's type leaves them."""
    return narrowed(codes, problem.output) if problem.output else codes
