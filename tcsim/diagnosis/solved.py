"""From candidates to an explanation: relations first, what was never written, then one rule after another until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.addresses import addresses
from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.batches import batched
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.functions import functions
from tcsim.diagnosis.hypothesis import Hypothesis, WrongKernel
from tcsim.diagnosis.k_bounds import bounds
from tcsim.diagnosis.kept import kept_sums
from tcsim.diagnosis.line_sums import line_sums
from tcsim.diagnosis.misread import bytes_of_operands, overlaid, past_end, tails
from tcsim.diagnosis.moved import line_maps, zero_lines
from tcsim.diagnosis.predicted import ends_of, way_of
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals, reals_of
from tcsim.diagnosis.recovered import SOURCES, Source, recovered
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
    shifted,
    truncated,
    vector,
)
from tcsim.diagnosis.restated import is_everywhere, restated, stored
from tcsim.diagnosis.scale_tables import scale_tables
from tcsim.diagnosis.slice_functions import in_slices
from tcsim.diagnosis.solution import Piece, Solved, shows
from tcsim.diagnosis.solve import WHOLE, Scored, Solver, foremost
from tcsim.diagnosis.some_tiles import in_some_tiles
from tcsim.diagnosis.tile_stages import tile_stages
from tcsim.diagnosis.tile_sums import not_cleared, tile_sums
from tcsim.diagnosis.unwritten import unwritten_of

_PARTS = 3  # mistakes in different parts of the output
_TIES = 6  # other names of an explanation
_FIRST: tuple[Source, ...] = (
    not_cleared,
    functions,
    line_sums,
    batched,
    past_end,
    scale_tables,
)  # before rules for the rest
_LATE = {"K blocks of a mismatched", "K blocks of b mismatched"}
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
    bare = model if problem.finish is None else problem.bare.outputs()
    reals = reals_of(problem, bare, precision(narrow))
    if reals.blind:
        return None
    reals = replace(reals, finite=reals.finite & inside)
    wrong = ~reals.near(reals.right) & inside
    sliced = next((item for item in in_slices(problem, reals, wrong) if item.everywhere(reals)), None)
    if sliced is not None and not known:
        return _as_whole(
            Solved(problem, reals, (), np.zeros_like(wrong), (), wrong, wrong, model, 0, ends_of(False, ())), sliced
        )
    clamp, problem, reals, model = _clamped(problem, reals, model, wrong, inside)
    relations, clamped = [clamp] if clamp is not None else [], clamp is RELU
    wrong = ~reals.near(reals.right) & inside
    ends = ends_of(clamped, (partial(narrowed, name=narrow), partial(truncated, name=narrow)) if narrow else ())
    wrong &= ~np.any([end(model) == problem.observed for end in ends], axis=0)  # NaN of an overflow, for instance
    axis = None if wrong.any() or relations else shifted(reals)
    line = None if axis is None else vector(reals, (axis,))
    if line is not None:
        wrong = (model != problem.observed) & inside
    found = Solved(problem, reals, (), np.zeros_like(wrong), (), wrong, wrong, model, 0, ends)
    kept = kept_sums(problem, reals, ends) if wrong.any() and not known and line is None else None
    if kept is None and line is None and wrong.any() and not (wrong & ~reals.finite).any():
        line = vector(reals)
    sums = next(line_sums(problem, reals, wrong), None) if line is not None and line.adds else None
    if kept is not None:
        found = _as_whole(found, kept)
    elif sums is not None and sums.grouped:
        found, line = _as_whole(found, sums), None
    elif line is not None:
        relations.append(line.relation)
        found = replace(found, left=np.zeros_like(wrong), fitted=fitted_codes(problem, line, narrow, ends))
    elif wrong.any():
        item = _of_all(found)
        again = isinstance(item, WrongKernel) and item.again
        if item is None or again:
            found = _by_pieces(found, known)
        if item is not None:
            found = _or_simpler(found, item) if again else _as_whole(found, item)
    found = replace(found, relations=tuple(relations))
    if narrow and not found.rounding_only:
        values = _values(reals, found.pieces) if line is None else line.values
        cut = narrowing(narrow, reals, values) if narrow != problem.output else None
        if found.covered:
            found = _in_every_bit(found)
        by_bits = _narrowing_by_bits(found, narrow)
        if by_bits is not None and (narrow != problem.output or by_bits.mistake == TRUNCATED):
            cut = by_bits
        found = replace(found, relations=(*relations, *([cut] if cut is not None else [])))
    elif narrow and narrow != problem.output:
        cut = _narrowing_by_bits(found, narrow) or narrowing(narrow, reals, reals.right)
        found = replace(found, relations=(*relations, cut))
    if found.left.any() and not (found.left & reals.finite).any() and found.codes is not None:
        found = replace(found, left=found.left & (found.codes != problem.observed))  # an overflow that is given as well
    found = _in_every_bit(found) if found.covered else found
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
        model = problem.after_clamp(problem.bare.outputs())
        return RELU_BEFORE_C, problem, replace(before_c(reals), floor=True), model
    return None, problem, reals, model


def _with_kept(found: Solved) -> Solved:
    """Of an epilogue's relations alone, with sums that are kept narrow where no right order gives every bit."""
    if not found.relations or found.fitted is not None or found.same == int(found.problem.inside().sum()):
        return found
    kept = kept_sums(found.problem, found.reals, found.ends)
    return found if kept is None else _as_whole(found, kept)


def _narrowing_by_bits(found: Solved, narrow: str) -> Relation | None:
    """Whether the results are rounded or cut, if one of the two gives every bit."""
    known = found.problem.inside() & ~found.unwritten
    codes = [found.ended(end) for end in found.ends]
    same = [one is not None and (one == found.problem.observed)[known].all() for one in codes]
    return None if same[0] == same[1] else narrowed_by(narrow, bool(same[1]))


def _in_every_bit(found: Solved) -> Solved:
    """With other orders of summation, where the instruction's own does not give every bit."""
    if found.same == int(found.problem.inside().sum()) or found.fitted is not None:
        return found
    base, pieces = found.base, found.pieces
    given = np.any([piece.near for piece in pieces], axis=0) if pieces else np.zeros_like(found.wrong)
    right = found.problem.inside() & ~found.wrong & ~found.unwritten & ~given  # those of a piece are right by chance
    if (
        found.candidate is None
        and right.any()
        and not any((end(found.model) == found.problem.observed)[right].all() for end in found.ends)
    ):
        base = way_of(found.problem, Candidate(), right, found.ends, others=True)
        found = replace(found, base=base)
    return replace(found, pieces=tuple(_timed(found, piece) for piece in pieces))


def _timed(found: Solved, piece: Piece) -> Piece:
    """In the first order of summation that gives every bit of all its outputs, if there is one."""
    item = piece.candidate
    if not isinstance(item, Candidate):
        return piece
    tried = (way_of(found.problem, item, piece.gives, found.ends, others, every=True) for others in (False, True))
    return replace(piece, way=next((way for way in tried if way is not None), piece.way))


def _values(reals: Reals, pieces: tuple[Piece, ...]) -> Numbers:
    """What is predicted of every output before a narrower format."""
    values = reals.right.copy()
    for piece in pieces:
        own = piece.candidate.all_values(reals)
        values[piece.gives] = own[piece.gives]
    return np.maximum(values, 0) if reals.floor else values


def _by_pieces(found: Solved, known: bool) -> Solved:
    """What was never written, and rules for the rest."""
    problem, wrong = found.problem, found.wrong
    most = 1 if known else _PARTS
    unwritten = unwritten_of(problem, found.reals, wrong, found.model)
    nothing = np.zeros_like(wrong)
    if unwritten.any() and not (wrong & ~unwritten).any():
        return replace(found, unwritten=unwritten, left=nothing)
    first = (scale_tables,) if unwritten.any() else _FIRST  # factors that are zero write zeros
    again = found if known else _recovered(found, first)
    if again.pieces:
        return again
    pieces, left, tried = _pieces(found, wrong, 1 if unwritten.any() else most, known)
    if unwritten.any() and left.any():
        written = replace(found, reals=replace(found.reals, finite=found.reals.finite & ~unwritten))
        pieces, left, tried = _pieces(written, wrong & ~unwritten, most, known)
    else:
        unwritten = nothing
    found = replace(found, pieces=tuple(pieces), left=left & ~unwritten, unwritten=unwritten, tried=tried)
    if len(pieces) + unwritten.any() > 1 and not known:
        found = _as_tiles(found)
        if len({name for piece in found.pieces for name, _, _ in piece.candidate.names()} & _LATE) > 1:
            again = _recovered(found, (tile_stages,))  # one operand's, where each tile has its own
            found = again if again.covered else found
        if len(found.pieces) > 1:
            again = _recovered(found, (in_some_tiles,))
            found = again if again.covered else found
    return found if found.covered or known else _recovered(found)


def _as_tiles(found: Solved) -> Solved:
    """Tiles that are stored in others' places, where that explains what else takes several mistakes; the same if it does not."""
    lost = found.wrong & ~found.reals.finite
    if (lost & ~found.unwritten).any():
        return found
    for item in tile_sums(found.problem, found.reals, found.wrong & ~lost, moves=True):
        near = item.gives(found.reals)
        if not (found.wrong & ~lost & ~near).any():
            nothing = np.zeros_like(lost)
            return replace(found, pieces=(Piece(item, found.wrong & ~lost, near),), left=nothing, unwritten=lost)
    return found


def _recovered(found: Solved, sources: tuple[Source, ...] = SOURCES) -> Solved:
    """What no rule explains, solved for; the same if that gives nothing."""
    solver = Solver(found.problem, found.reals, ends=found.ends)
    first, *others = recovered(solver, found.wrong, sources) or (None,)
    if first is None:
        return found
    names = {name for name, _, _ in first.item.names()}
    ties = tuple(one for one in others if not names <= {name for name, _, _ in one.item.names()})[:_TIES]
    piece = Piece(first.item, first.gives & found.wrong, first.gives, True, first.way, ties)
    nothing = np.zeros_like(found.wrong)
    return replace(found, pieces=(piece,), left=found.wrong & ~first.gives, unwritten=nothing)


def _of_all(found: Solved) -> Hypothesis | None:
    """What explains everything: an operand's bytes, the end of K, buffers that overlap."""
    given = found.problem, found.reals, found.wrong
    listed = chain.from_iterable(source(*given) for source in (bytes_of_operands, tails, overlaid))
    return next((item for item in listed if item.everywhere(found.reals)), None)


def _as_whole(found: Solved, item: Hypothesis) -> Solved:
    """Solved by one hypothesis of all outputs."""
    return replace(
        found, pieces=(Piece(item, found.wrong, found.reals.finite),), left=np.zeros_like(found.wrong), tried=1
    )


def _or_simpler(found: Solved, item: Hypothesis) -> Solved:
    """The simpler of such a hypothesis and of what else explains everything, with the other as its equal; that which gives more bits, if one does."""
    whole = _as_whole(found, item)
    if len(found.pieces) != 1 or not found.covered or found.unwritten.any() or found.rank >= item.rank:
        return whole
    if _in_every_bit(found).same < whole.same == int(found.problem.inside().sum()):
        return whole
    piece = found.pieces[0]
    tie = Scored(item, piece.near, WHOLE, int(piece.gives.sum()), None, True)
    return replace(found, pieces=(replace(piece, ties=(*piece.ties, tie)),))


def _pieces(found: Solved, wrong: Mask, most: int, known: bool) -> tuple[list[Piece], Mask, int]:
    problem, reals = found.problem, found.reals
    random = repeatable()
    left = wrong & reals.finite
    lost = wrong & ~reals.finite
    pieces: list[Piece] = []
    tried = 0
    total = int(wrong.sum())
    while left.any() and len(pieces) < most:
        more = (own + other for own, other in zip(line_maps(reals, left), addresses(problem, reals, left), strict=True))
        of_a, of_b = more
        solver = Solver(problem, reals, (of_a, of_b + bounds(problem, reals, left)), found.ends)
        places = stored(solver, found.model, left)
        options = places
        first = places[0] if places else None
        simple = first is not None and first.everywhere and first.item.rank < 2 and is_everywhere(first, reals)
        if first is None or not simple or first.given < left.sum():
            lines = solver.best(left, random, pairs=not known)
            options = foremost(
                [*places, *lines, *(also for one in lines for also in restated(solver, found.model, one, left))]
            )
        tried += sum(map(len, solver.rules.values()))
        if not options:
            break
        best = options[0]
        if best.given < max(8 if total >= 8 else 1, 0.02 * total):
            break
        if reals.floor and not shows(problem, left, best.gives):
            break
        names = [{name for name, _, _ in best.item.names()}]
        ties = []
        for one in options[1:]:
            own = {name for name, _, _ in one.item.names()}
            if not any(other <= own for other in names) and ((one.gives & left) == (best.gives & left)).all():
                names.append(own)
                ties.append(one)
        pieces.append(Piece(best.item, best.gives & left, best.gives, best.clean > 0, best.way, tuple(ties[:_TIES])))
        left, lost = left & ~best.gives, lost & ~best.gives
    return pieces, left | lost, tried
