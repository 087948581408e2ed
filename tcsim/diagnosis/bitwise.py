"""Rules tried on codes: for formats that are no numbers, and for operands that are too large, or of which numbers tell nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.predicted import Way, read_by, ways, whole
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Numbers
from tcsim.diagnosis.rules import counts_of, rules_of
from tcsim.numbers.codec import decode

_SAFE = 16  # times the model's own distance from exact sums: outputs that are further off are not those of a mistake


def by_bits(problem: Problem, screen: list[Part]) -> Iterator[Candidate]:
    """Rules of one operand, or of K, that give every bit of every output. screen: the outputs that each is tried on first."""
    far = reach(problem, screen)
    for item in _items(problem):
        way = next(ways(problem, item), None)
        if way is not None and all(_gives(problem, item, way, part, far) for part in screen):
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


def _gives(problem: Problem, item: Candidate, way: Way, part: Part, far: float) -> bool:
    """Whether a part's outputs are given, as far as they are known; the instruction runs only if exact sums come near one."""
    one, knows = read_by(problem, item, way, part), problem.knows(part)
    if one is None:
        return False
    every = one.every
    seen = problem.seen(part)
    near = (off(one, every, seen) <= far)[knows].all()
    return bool(near and (as_output(problem, one.predict(every)) == seen)[knows].all())


def as_output(problem: Problem, codes: Codes) -> Codes:
    """Codes as the output tensor's type leaves them."""
    return narrowed(codes, problem.output) if problem.output else codes


def reach(problem: Problem, parts: list[Part]) -> float:
    """How far outputs may be from the exact sums, of their absolute products: several times what they are in the model."""
    return _SAFE * max(float(off(problem, part, problem.predict(part)).max()) for part in parts) + 2.0**-20


def off(problem: Problem, part: Part, codes: Codes) -> Numbers:
    """How far outputs are from the exact sums, of their absolute products; 0 where that cannot be said."""
    formats, step = problem.machine.formats, problem.step
    plain = formats["d"].kind == "float" and problem.finish is None
    if not plain or problem.positions is not None or problem.scales is not None:
        return np.zeros(codes.shape)
    k = (np.array(problem.order)[:, None] * step + np.arange(step)).reshape(-1)
    with np.errstate(all="ignore"):
        a = decode(problem.a[part.matrix][np.ix_(part.rows, k)], formats["a"]).astype(np.float64)
        b = decode(problem.b[part.matrix][np.ix_(k, part.columns)], formats["b"]).astype(np.float64)
        c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], formats["c"]).astype(np.float64)
        found = np.abs(decode(codes, formats["d"]).astype(np.float64) - a @ b - c) / (np.abs(a) @ np.abs(b) + np.abs(c))
    return np.where(np.isfinite(found), found, 0.0)
