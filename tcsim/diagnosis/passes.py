"""The search: one list of passes, each of which takes what is not explained yet; the first explanation of everything stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.addresses import addresses, bounds
from tcsim.diagnosis.batches import batched
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.functions import functions
from tcsim.diagnosis.groups import constants, factors, in_both
from tcsim.diagnosis.hypothesis import Hypothesis, WrongKernel
from tcsim.diagnosis.k_steps import k_steps
from tcsim.diagnosis.maps import SAME
from tcsim.diagnosis.misread import bytes_of_operands, other_buffers, past_end, tails
from tcsim.diagnosis.mixed import k_maps, part_maps, stage_phases, weights_of_k
from tcsim.diagnosis.mixed_tiles import mixed_tiles
from tcsim.diagnosis.moved import Moved, gives_of, line_maps, moved
from tcsim.diagnosis.predicted import Way, way_of
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.scale_tables import scale_tables
from tcsim.diagnosis.solution import Piece, Solved, shows
from tcsim.diagnosis.solve import WHOLE, Scored, Solver, clean, foremost
from tcsim.diagnosis.some_tiles import in_part, in_some_tiles
from tcsim.diagnosis.tables import tables
from tcsim.diagnosis.tile_sums import moved_tiles, not_cleared, tile_sums
from tcsim.diagnosis.with_c import with_c


def stored(solver: Solver, model: Codes, left: Mask) -> list[Scored]:
    """Outputs that lie at another place, and the same said of lines of A and B."""
    reals = solver.reals
    found: list[Scored] = []
    for item, gives in moved(solver.problem, reals, left) if not reals.floor else ():
        found.append(_stored_there(solver, model, item, gives, left))
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
        found.append(_stored_there(solver, model, again, gives, left))
    if item.restarted:
        found.append(replace(one, item=replace(item, apart=True)))
    elif item.count is not None and item.a is SAME and item.b is SAME:
        pair = solver.reading(item.count)
        found.append(None if pair is None else solver.reckoned(replace(item, a=pair[0], b=pair[1], count=None), left))
    return [again for again in found if again is not None]


def _stored_there(solver: Solver, model: Codes, item: Moved, gives: Mask, left: Mask) -> Scored:
    own, seen = gives & left, solver.problem.observed
    way = None
    if item.alone:
        lines = item.as_lines(True)
        way = None if lines is None else way_of(solver.problem, lines, own, solver.ends)
    elif any((item.stored(end(model), seen) == seen)[own].all() for end in solver.ends):
        way = Way(solver.problem.order)
    everywhere = bool(gives[solver.reals.finite].all())
    return Scored(item, gives, WHOLE if everywhere else clean(gives, left), int(own.sum()), way, everywhere)


_PARTS = 3  # mistakes in different parts of the output
_SIMPLE = (4, 8)  # the rank of two rules that are likely together, and of one in both operands
_TIES = 6  # other names of an explanation

Source = Callable[[Problem, Reals, Mask], Iterator[Hypothesis]]
When = Callable[[Solved, bool], bool]
Pass = tuple[When, Callable[[Solved, bool], Solved]]


def _open(found: Solved, known: bool) -> bool:
    """Not everything is explained."""
    return not known and not found.covered


def _written(found: Solved, known: bool) -> bool:
    """And nothing looks as if it had never been written."""
    return _open(found, known) and not found.blank.any()


def _first(found: Solved, known: bool) -> bool:
    """Nothing is explained: also where a catalogued mistake gives every bit, as a rule may be simpler."""
    return not found.covered


def _several(found: Solved, known: bool) -> bool:
    """It takes several mistakes so far."""
    return not known and len(found.pieces) + bool(found.unwritten.any()) > 1


def _in_parts(found: Solved, known: bool) -> bool:
    """It takes several rules so far."""
    return not known and len(found.pieces) > 1


def _far_fetched(found: Solved, known: bool) -> bool:
    """Everything is explained by rules of both operands that are not simple: one order of K, or a count, may do the same."""
    item = found.pieces[0].candidate if len(found.pieces) == 1 else None
    if known or not found.covered or not isinstance(item, Candidate) or SAME in (item.a, item.b):
        return False
    return found.rank > _SIMPLE[item.a.detail == item.b.detail]


def explained(found: Solved, known: bool) -> Solved:
    """What the passes make of outputs that are wrong beyond rounding.

    known: a catalogued mistake gives every bit, and only a single rule can be simpler.
    """
    for when, run in PASSES:
        if when(found, known):
            again = run(found, known)
            if again.covered or again.left.sum() < found.left.sum():
                found = again
    return found


def as_whole(found: Solved, item: Hypothesis) -> Solved:
    """Explained by one hypothesis that gives all outputs."""
    piece = Piece(item, found.wrong, found.reals.finite)
    return replace(found, pieces=(piece,), left=np.zeros_like(found.wrong), tried=1)


def _whole(source: Source, found: Solved, known: bool) -> Solved:
    """The first hypothesis of a source that gives all outputs."""
    for item in source(found.problem, found.reals, found.wrong):
        if not (isinstance(item, WrongKernel) and item.again) and item.everywhere(found.reals):
            return as_whole(found, item)
    return found


def _again(found: Solved, known: bool) -> Solved:
    """Ends of K that add products of the right sum once more: the simpler of that and of what else explains everything, with the other as its equal; that which gives more bits, if one does."""
    listed = tails(found.problem, found.reals, found.wrong)
    item = next((item for item in listed if item.again and item.everywhere(found.reals)), None)
    if item is None:
        return found
    whole = as_whole(found, item)
    if len(found.pieces) != 1 or not found.covered or found.unwritten.any() or found.rank >= item.rank:
        return whole
    if in_every_bit(found).same < whole.same == int(found.problem.inside().sum()):
        return whole
    piece = found.pieces[0]
    tie = Scored(item, piece.near, WHOLE, int(piece.gives.sum()), None, True)
    return replace(found, pieces=(replace(piece, ties=(*piece.ties, tie)),))


def _never_written(found: Solved, known: bool) -> Solved:
    """Outputs that hold one code, if that is all that is wrong."""
    if (found.wrong & ~found.blank).any():
        return found
    return replace(found, unwritten=found.blank, left=np.zeros_like(found.wrong))


def _moved_tiles(found: Solved, known: bool) -> Solved:
    """Tiles that are stored in others' places, where that explains what else takes several mistakes."""
    lost = found.wrong & ~found.reals.finite
    if (lost & ~found.unwritten).any():
        return found
    for item in moved_tiles(found.problem, found.reals, found.wrong & ~lost):
        near = item.gives(found.reals)
        if not (found.wrong & ~lost & ~near).any():
            nothing = np.zeros_like(lost)
            return replace(found, pieces=(Piece(item, found.wrong & ~lost, near),), left=nothing, unwritten=lost)
    return found


def recovered(solver: Solver, wrong: Mask, source: Source) -> list[Scored]:
    """Hypotheses of a source that give all wrong outputs, simplest first."""
    found = []
    for item in source(solver.problem, solver.reals, wrong):
        one = solver.reckoned(item, wrong)
        if one is not None and one.clean > 0 and not (wrong & solver.reals.finite & ~one.gives).any():
            found.append(one)
    if any(one.way is not None for one in found):  # all are compared on the same terms, which a sample is not
        kinds = {isinstance(one.item, Candidate) for one in found}
        found = [_compared(one, solver) for one in found] if len(kinds) > 1 else found
    return foremost(found) if found else []


def _compared(one: Scored, solver: Solver) -> Scored:
    """With what is known of every bit of all outputs."""
    if isinstance(one.item, Candidate):
        return replace(one, way=way_of(solver.problem, one.item, one.gives, solver.ends, every=True))
    return replace(one, bits=_exact(one.item, solver))


def _exact(item: Hypothesis, solver: Solver) -> bool:
    """Whether it gives every bit."""
    codes, seen, inside = item.codes(solver.problem), solver.problem.observed, solver.problem.inside()
    return codes is not None and any((end(codes) == seen)[inside].all() for end in solver.ends)


def _recovered(source: Source, found: Solved, known: bool) -> Solved:
    """What a source reads off the outputs, if it gives all that are wrong."""
    scored = recovered(Solver(found.problem, found.reals, ends=found.ends), found.wrong, source)
    return by_first(found, scored) if scored else found


def _simpler(source: Source, found: Solved, known: bool) -> Solved:
    """The same, if it is simpler than what is found."""
    again = _recovered(source, found, known)
    return again if again.rank < found.rank else found


def by_first(found: Solved, scored: list[Scored]) -> Solved:
    """Explained by the simplest of some hypotheses, the others as its equals."""
    first, *others = scored
    names = {name for name, _, _ in first.item.names()}
    ties = tuple(one for one in others if not names <= {name for name, _, _ in one.item.names()})[:_TIES]
    piece = Piece(first.item, first.gives & found.wrong, first.gives, True, first.way, ties)
    nothing = np.zeros_like(found.wrong)
    return replace(found, pieces=(piece,), left=found.wrong & ~first.gives, unwritten=nothing)


def _by_rules(found: Solved, known: bool) -> Solved:
    """One rule after another until nothing is left, beside what was never written."""
    most, blank = 1 if known else _PARTS, found.blank
    pieces, left, tried = _pieces(found, found.wrong, 1 if blank.any() else most, known)
    if blank.any() and left.any():
        written = replace(found, reals=replace(found.reals, finite=found.reals.finite & ~blank))
        pieces, left, tried = _pieces(written, found.wrong & ~blank, most, known)
    else:
        blank = np.zeros_like(blank)
    return replace(found, pieces=tuple(pieces), left=left & ~blank, unwritten=blank, tried=tried)


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


def in_every_bit(found: Solved) -> Solved:
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


def in_parts_of_k(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Hypothesis]:
    """How operands are read in a part of K alone, and the same said of where its sums are stored."""
    found = [*in_some_tiles(problem, reals, open_)]
    yield from (*found, *(in_part(problem, reals, open_) if found else ()))


def tiles(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Hypothesis]:
    """Tiles of one operand in the place of others, and the same said of the sums that output tiles hold."""
    found = [*mixed_tiles(problem, reals, open_)]
    yield from (*found, *(tile_sums(problem, reals, open_) if found else ()))


def _passes(when: When, *sources: Source) -> tuple[Pass, ...]:
    return tuple((when, partial(_recovered, source)) for source in sources)


PASSES: tuple[Pass, ...] = (
    *((_first, partial(_whole, source)) for source in (bytes_of_operands, tails)),
    (_first, _never_written),
    *_passes(_written, not_cleared, functions),
    *_passes(_open, batched, with_c),
    *_passes(_written, past_end),
    *_passes(_open, scale_tables),  # factors that are zero write zeros
    (_first, _by_rules),
    (_several, _moved_tiles),
    *((_far_fetched, partial(_simpler, source)) for source in (weights_of_k, k_maps, tiles, k_steps)),
    *_passes(_in_parts, in_parts_of_k, tiles),
    *_passes(_open, other_buffers, tiles, k_steps, weights_of_k, in_parts_of_k, stage_phases, part_maps, tables),
    *_passes(_open, constants, in_both, factors, k_maps, tile_sums, in_part),
    (lambda found, known: True, _again),
)
"""When a pass runs, and what it does: what is true of all outputs, of memory, of the epilogue; rules; what is solved for, the fewest numbers first."""
