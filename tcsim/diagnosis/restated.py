"""The same mistake in other words: outputs at another place, wrong lines, a miscounted K as two wrong reads."""

from __future__ import annotations

from dataclasses import replace

from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.maps import SAME
from tcsim.diagnosis.moved import Moved, gives_of, moved
from tcsim.diagnosis.predicted import Way, way_of
from tcsim.diagnosis.problem import Codes
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.solve import WHOLE, Scored, Solver, clean, foremost


def stored(solver: Solver, model: Codes, left: Mask) -> list[Scored]:
    """Outputs that lie at another place, and the same said of lines of A and B."""
    reals = solver.reals
    found: list[Scored] = []
    for item, gives in moved(solver.problem, reals, left) if not reals.floor else ():
        found.append(_scored(solver, model, item, gives, left))
        lines = item.as_lines(bool(reals.c.any()))
        same = None if lines is None else solver.reckoned(lines, left)
        found += [] if same is None else [same]
    return foremost(found)


def is_everywhere(one: Scored, reals: Reals) -> bool:
    """Whether every output is stored: an operand's zeros are another name of outputs that are not."""
    item = one.item
    return not isinstance(item, Moved) or bool(item.source((reals.c.shape[1], reals.c.shape[2]))[2].all())


def restated(solver: Solver, model: Codes, one: Scored, left: Mask) -> list[Scored]:
    """The same in other words: wrong lines as outputs at another place, a miscounted K as two wrong reads."""
    item = one.item
    if not isinstance(item, Candidate):
        return []
    found: list[Scored | None] = []
    lines = item.a.lines_only and item.b.lines_only and not item.a.part + item.b.part
    if lines and replace(item, a=SAME, b=SAME) == Candidate():
        again = Moved(item.a, item.b, alone=bool(solver.reals.c.any()))
        gives = gives_of(again, solver.problem, solver.reals)
        found.append(_scored(solver, model, again, gives, left))
    if item.restarted:
        found.append(replace(one, item=replace(item, apart=True)))
    elif item.count is not None and item.a is SAME and item.b is SAME:
        pair = solver.reading(item.count)
        found.append(None if pair is None else solver.reckoned(replace(item, a=pair[0], b=pair[1], count=None), left))
    return [again for again in found if again is not None]


def _scored(solver: Solver, model: Codes, item: Moved, gives: Mask, left: Mask) -> Scored:
    own, seen = gives & left, solver.problem.observed
    way = None
    if item.alone:
        lines = item.as_lines(True)
        way = None if lines is None else way_of(solver.problem, lines, own, solver.ends)
    elif any((item.stored(end(model), seen) == seen)[own].all() for end in solver.ends):
        way = Way(solver.problem.order)
    everywhere = bool(gives[solver.reals.finite].all())
    return Scored(item, gives, WHOLE if everywhere else clean(gives, left), int(own.sum()), way, everywhere)
