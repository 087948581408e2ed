"""From candidates to an explanation: relations first, what was never written, then one rule after another until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.batches import batched
from tcsim.diagnosis.candidate import of_operand
from tcsim.diagnosis.functions import functions, in_slices
from tcsim.diagnosis.groups import constants
from tcsim.diagnosis.kept import kept_sums
from tcsim.diagnosis.moved import zero_lines
from tcsim.diagnosis.passes import as_whole, by_first, explained, in_every_bit, recovered
from tcsim.diagnosis.predicted import ends_of, way_of
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals, reals_of
from tcsim.diagnosis.relations import (
    RELU,
    RELU_BEFORE_C,
    TRUNCATED,
    Relation,
    before_c,
    fitted_codes,
    is_relu,
    narrow_format,
    narrowed_by,
    narrowing,
    precision,
    truncated,
    vector,
)
from tcsim.diagnosis.scale_tables import scale_tables
from tcsim.diagnosis.solution import Piece, Solved
from tcsim.diagnosis.solve import Scored, Solver

_MOST = 1 << 27  # products of a problem that is solved; beyond it a part is


def not_loaded(found: Solved) -> Iterator[Solved]:
    """Outputs of zero as rows of A or columns of B that were not loaded, where that gives the same."""
    if found.pieces or not found.unwritten.any() or found.problem.observed[found.unwritten].any():
        return
    for name in "ab":
        rule = zero_lines(found.reals, found.unwritten, name)
        if rule is None:
            continue
        item = of_operand(name, rule)
        if item.everywhere(found.reals):
            way = way_of(found.problem, item, found.unwritten, found.ends)
            piece = Piece(item, found.unwritten, item.gives(found.reals), way=way)
            yield replace(found, unwritten=np.zeros_like(found.unwritten), pieces=(piece,))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of hypotheses, not of the operands
def solved(problem: Problem, model: Codes, inside: Mask, known: bool) -> Solved | None:
    """Solve for what made the outputs; None for operands that are not numbers, or are too many, or products that say nothing of the outputs.

    known: a catalogued mistake gives every bit, and only a single rule can be simpler.
    """
    formats = problem.machine.formats
    if any(format.kind == "bit" for format in formats.values()):
        return None
    if problem.a.size * problem.b.shape[2] > _MOST:
        return None
    narrow = narrow_format(problem, model) or problem.output  # a wider array may hold results of a narrower type
    bare = model if problem.finish is None else problem.bare.outputs
    reals, nothing = reals_of(problem, bare, precision(narrow)), np.zeros_like(inside)
    found = Solved(problem, reals, (), nothing, (), nothing, nothing, model, 0, ends_of(False, ()))
    reals = replace(reals, finite=reals.finite & inside)
    wrong = ~reals.near(reals.right) & inside
    if reals.blind:
        item = next(functions(problem, reals, wrong), None)
        return as_whole(replace(found, reals=reals, wrong=wrong, left=wrong), item) if item is not None else None
    sliced = next((item for item in in_slices(problem, reals, wrong) if item.everywhere(reals)), None)
    if sliced is not None and not known:
        return as_whole(replace(found, reals=reals, wrong=wrong, left=wrong), sliced)
    clamp, problem, reals, model = _clamped(problem, reals, model, wrong, inside)
    relations, clamped = [clamp] if clamp is not None else [], clamp is RELU
    wrong = ~reals.near(reals.right) & inside
    ends = ends_of(clamped, (partial(narrowed, name=narrow), partial(truncated, name=narrow)) if narrow else ())
    wrong &= ~np.any([end(model) == problem.observed for end in ends], axis=0)  # NaN of an overflow, for instance
    found = Solved(problem, reals, (), nothing, (), wrong, wrong, model, 0, ends)
    kept = kept_sums(problem, reals, ends) if wrong.any() and not known else None
    whole = kept is None and wrong.any() and not (wrong & ~reals.finite).any()
    line = vector(reals) if whole else None
    plainer: list[Scored] = []
    if (
        line is not None and not known
    ):  # C that is another's is off by a vector where C is one; so are factors of one block of K
        solver = Solver(problem, reals, ends=ends)
        if line.adds:
            plainer = solver.of_c(wrong)
            for source in (batched, constants):
                plainer = plainer or recovered(solver, wrong, source)
        else:
            plainer = recovered(solver, wrong, scale_tables)
        left_out = line.adds and reals.near(reals.product)[wrong].all()  # C, in a part
        line = None if plainer or left_out else line
    if kept is not None:
        found = as_whole(found, kept)
    elif plainer:
        found = by_first(found, plainer)
    elif line is not None:
        relations.append(line.relation)
        found = replace(found, left=np.zeros_like(wrong), fitted=fitted_codes(problem, line, narrow, ends))
    elif wrong.any():
        found = explained(replace(found, left=wrong), known)
    found = replace(found, relations=tuple(relations))
    if narrow and not found.rounding_only:
        values = _values(reals, found.pieces) if line is None else line.values
        cut = narrowing(narrow, reals, values) if narrow != problem.output else None
        if found.covered:
            found = in_every_bit(found)
        by_bits = _narrowing_by_bits(found, narrow)
        if by_bits is not None and (narrow != problem.output or by_bits.mistake == TRUNCATED):
            cut = by_bits
        found = replace(found, relations=(*relations, *([cut] if cut is not None else [])))
    elif narrow and narrow != problem.output:
        cut = _narrowing_by_bits(found, narrow) or narrowing(narrow, reals, reals.right)
        found = replace(found, relations=(*relations, cut))
    if found.left.any() and not (found.left & reals.finite).any() and found.codes is not None:
        found = replace(found, left=found.left & (found.codes != problem.observed))  # an overflow that is given as well
    found = in_every_bit(found) if found.covered else found
    return found if known or wrong.any() else _with_kept(found)


def _clamped(
    problem: Problem, reals: Reals, model: Codes, wrong: Mask, inside: Mask
) -> tuple[Relation | None, Problem, Reals, Codes]:
    """A clamp at zero, of everything or before C is added, with what there is without it."""
    if wrong.any() and is_relu(reals, problem.size):
        floored = replace(reals, floor=True)
        still = ~floored.near(floored.right) & inside
        if not still.any() or next(functions(problem, reals, wrong), None) is None:  # else: clamped above as well
            return RELU, problem, floored, model
    if wrong.any() and problem.c.any() and is_relu(before_c(reals), problem.size):
        problem = replace(problem, c=np.zeros_like(problem.c), after=problem.c)
        model = problem.after_clamp(problem.bare.outputs)
        return RELU_BEFORE_C, problem, replace(before_c(reals), floor=True), model
    return None, problem, reals, model


def _with_kept(found: Solved) -> Solved:
    """Of an epilogue's relations alone, with sums that are kept narrow where no right order gives every bit."""
    if not found.relations or found.fitted is not None or found.same == int(found.problem.inside().sum()):
        return found
    kept = kept_sums(found.problem, found.reals, found.ends)
    return found if kept is None else as_whole(found, kept)


def _narrowing_by_bits(found: Solved, narrow: str) -> Relation | None:
    """Whether the results are rounded or cut, if one of the two gives every bit."""
    known = found.problem.inside() & ~found.unwritten
    codes = [found.ended(end) for end in found.ends]
    same = [one is not None and (one == found.problem.observed)[known].all() for one in codes]
    return None if same[0] == same[1] else narrowed_by(narrow, bool(same[1]))


def _values(reals: Reals, pieces: tuple[Piece, ...]) -> Numbers:
    """What is predicted of every output before a narrower format."""
    values = reals.right.copy()
    for piece in pieces:
        own = piece.candidate.all_values(reals)
        values[piece.gives] = own[piece.gives]
    return np.maximum(values, 0) if reals.floor else values
