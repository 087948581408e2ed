"""From candidates to an explanation: relations first, what was never written, then one rule after another until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from tcsim.diagnosis.addresses import addresses
from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.batches import batched
from tcsim.diagnosis.buffers import bytes_of_operands
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.carried import carried
from tcsim.diagnosis.functions import functions
from tcsim.diagnosis.kept import Kept, kept_sums
from tcsim.diagnosis.line_sums import line_sums
from tcsim.diagnosis.moved import Moved, line_maps, zero_lines
from tcsim.diagnosis.nans import NAN, NAN_ADVICE, nan_code, nan_source
from tcsim.diagnosis.overlaid import overlaid
from tcsim.diagnosis.past_end import over_next_row, past_end
from tcsim.diagnosis.predicted import End, Way, after_clamp, ends_of, way_of, whole
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals, reals_of
from tcsim.diagnosis.recovered import SOURCES, Source, recovered
from tcsim.diagnosis.relations import (
    NARROW,
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
from tcsim.diagnosis.report import Explanation
from tcsim.diagnosis.restated import is_everywhere, restated, stored
from tcsim.diagnosis.scale_tables import scale_tables
from tcsim.diagnosis.solve import WHOLE, Scored, Solver, foremost
from tcsim.diagnosis.tails import Tail, tails
from tcsim.diagnosis.tile_stages import tile_stages
from tcsim.diagnosis.tile_sums import tile_sums
from tcsim.diagnosis.unwritten import unwritten_of
from tcsim.diagnosis.where import beyond_diagonal, tiles_text, where_text
from tcsim.diagnosis.whole import Whole
from tcsim.numbers.codec import decode

_PARTS = 3  # mistakes in different parts of the output
_TIES = 6  # other names of an explanation
_FIRST: tuple[Source, ...] = (functions, line_sums, batched, past_end, scale_tables)  # before rules for the rest
_LATE = {"K blocks of a mismatched", "K blocks of b mismatched"}
_MOST = 1 << 27  # products of a problem that is solved; beyond it a part is


@dataclass(frozen=True)
class Piece:
    """A candidate and the outputs that it explains."""

    candidate: Candidate | Moved | Whole
    gives: Mask  # those that were wrong and are given
    near: Mask  # all that are given
    clean: bool = True  # they are whole blocks, or whole rows and columns
    way: Way | None = None  # in which it gives every bit
    ties: tuple[Scored, ...] = ()  # other candidates that give the same outputs


@dataclass(frozen=True)
class Solved:
    """What the numbers say."""

    problem: Problem
    reals: Reals
    relations: tuple[Relation, ...]
    unwritten: Mask
    pieces: tuple[Piece, ...]
    wrong: Mask  # beyond rounding
    left: Mask  # of them those that nothing explains
    model: Codes
    tried: int
    ends: tuple[End, ...]  # what the epilogue may do at the end
    fitted: Codes | None = None  # of a relation of rows or columns: all outputs
    base: Way | None = None  # in which the right outputs are right in every bit, if it is not the model's

    @property
    def rounding_only(self) -> bool:
        """Nothing is wrong beyond rounding."""
        return not self.wrong.any() and not self.relations

    @property
    def covered(self) -> bool:
        """Every output is given up to rounding."""
        tidy = all(piece.clean for piece in self.pieces)
        return tidy and not self.left.any() and bool(self.relations or self.pieces or self.unwritten.any())

    @property
    def complete(self) -> bool:
        """Everything is explained: every bit, or all up to rounding in an order of summation that is not known."""
        return self.covered and not self.stray

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return sum(piece.candidate.rank for piece in self.pieces) + 2 * len(self.relations) + int(self.unwritten.any())

    @property
    def candidate(self) -> Candidate | Moved | Whole | None:
        """The only candidate, if it is all there is and holds for every output."""
        if len(self.pieces) != 1 or self.relations or self.unwritten.any():
            return None
        near = np.stack([self.pieces[0].candidate.near(self.reals, t) for t in range(len(self.wrong))])
        return self.pieces[0].candidate if near[self.reals.finite].all() else None

    @property
    def picture(self) -> Mask:
        """The outputs that differ beyond rounding."""
        return self.wrong

    def explanation(self, outputs: int) -> Explanation:
        """All pieces in one."""
        names: list[tuple[str, str, str]] = []
        whole = self.candidate is not None
        for relation in self.relations:
            if relation.mistake not in (NARROW, TRUNCATED) or not any(_is_narrow(piece) for piece in self.pieces):
                names.append((relation.mistake, relation.detail, relation.advice))
        for piece in self.pieces:
            region = "" if whole else self._region(piece)
            for number, (mistake, detail, advice) in enumerate(piece.candidate.names()):
                said = "; ".join(x for x in (detail, region if number == 0 else "") if x)
                names.append((mistake, said, advice))
        if self.unwritten.any():
            names.append(self._nothing())
        bits = self.same == outputs
        by_chance = sum(int(piece.gives.sum()) for piece in self.pieces if not piece.clean)
        matched = self.same if bits or self.stray else outputs - int(self.left.sum())
        matched -= by_chance
        mistakes = list(dict.fromkeys(mistake for mistake, _, _ in names))
        details = [
            f"{detail}" if len(names) == 1 else f"{mistake}: {detail}" if detail else "" for mistake, detail, _ in names
        ]
        return Explanation(
            " + ".join(mistakes),
            "; ".join(x for x in details if x),
            "; ".join(dict.fromkeys(advice for _, _, advice in names if advice)),
            matched,
            bits=bits,
            left=where_text(self.left) if self.left.any() and not self.stray else "",
        )

    def _nothing(self) -> tuple[str, str, str]:
        """(mistake, detail, advice) of the outputs that hold one code."""
        where, code = where_text(self.unwritten), int(self.problem.observed[self.unwritten][0])
        if code == nan_code(self.problem):
            return NAN, f"{where} are {code:#x}: {nan_source(self.problem)}; or they were never written", NAN_ADVICE
        advice = "look at the store, at its predicate and at what was launched"
        side = beyond_diagonal(self.unwritten, ~self.problem.inside() | (self.problem.observed == code))
        if side:
            return (
                "part of the output masked",
                f"{side} is {code:#x}",
                "look for a causal or triangular mask in the epilogue",
            )
        past = over_next_row(self.unwritten, self.problem.size)
        return "part of the output never written", where + past, advice

    def explanations(self, outputs: int) -> list[Explanation]:
        """What is explained in part, if anything is."""
        if not (self.relations or self.pieces or self.unwritten.any()) or self.complete:
            return []
        return [self.explanation(outputs)]

    def _region(self, piece: Piece) -> str:
        own = piece.gives
        if isinstance(piece.candidate, Kept) or (own.sum() == self.wrong.sum() and own.all()):
            return ""
        return f"in {tiles_text(own)}"

    @cached_property
    def codes(self) -> Codes | None:
        """What is predicted of every output, bit for bit; None if an order of summation is not known."""
        found = [self.ended(end) for end in self.ends]
        known = [codes for codes in found if codes is not None]
        return max(known, key=lambda codes: int((codes == self.problem.observed).sum()), default=None)

    def ended(self, end: End) -> Codes | None:
        """The codes with one end of the epilogue; None if they are not known."""
        if self.fitted is not None:
            return end(self.fitted)
        base = self.model
        everywhere = self.candidate is not None
        if not everywhere and self.base is not None:
            found = whole(self.problem, Candidate(), self.base)
            base = base if found is None else found
        out = end(base)
        for piece in self.pieces:
            found = self._codes_of(piece, base)
            if found is None:
                return None
            out = end(found) if everywhere else np.where(piece.near & (out != self.problem.observed), end(found), out)
        return np.where(self.unwritten, self.problem.observed, out)

    def _codes_of(self, piece: Piece, base: Codes) -> Codes | None:
        item = piece.candidate
        if isinstance(item, Whole):
            return item.codes(self.problem)
        if isinstance(item, Moved) and not item.alone:
            return item.codes(base, self.problem.observed)
        if isinstance(item, Moved):
            lines = item.as_lines(True)
            return None if lines is None or piece.way is None else whole(self.problem, lines, piece.way)
        return None if piece.way is None else whole(self.problem, item, piece.way)

    @cached_property
    def same(self) -> int:
        """Outputs that are predicted bit for bit; 0 where that is not known."""
        return 0 if self.codes is None else int((self.codes == self.problem.observed)[self.problem.inside()].sum())

    @cached_property
    def stray(self) -> bool:
        """Nearly all outputs are right to the bit, some are not: that is not another order of summation."""
        outputs = int(self.problem.inside().sum())
        return self.fitted is None and 0.9 * outputs < self.same < outputs and not self._one_step_off

    @property
    def _one_step_off(self) -> bool:
        """What is not given to the bit is next to it in a narrower format: another order of summation seldom shows there."""
        format = self.problem.machine.formats["d"]
        if self.codes is None or self.reals.coarse == 0:
            return False
        seen, given = (decode(x, format).astype(np.float64) for x in (self.problem.observed, self.codes))
        off = np.abs(seen - given) > self.reals.reach + 1.01 * self.reals.coarse * np.abs(seen)
        return not (off & self.problem.inside() & (self.codes != self.problem.observed)).any()


def _is_narrow(piece: Piece) -> bool:
    """Whether it says already that its results are of a narrower format."""
    return isinstance(piece.candidate, Kept) and piece.candidate.form.running


def not_loaded(found: Solved) -> Iterator[Solved]:
    """Outputs of zero as rows of A or columns of B that were not loaded, where that gives the same."""
    if found.pieces or not found.unwritten.any() or found.problem.observed[found.unwritten].any():
        return
    for name in "ab":
        rule = zero_lines(found.reals, found.unwritten, name)
        if rule is None:
            continue
        item = Candidate(a=rule) if name == "a" else Candidate(b=rule)
        near = np.stack([item.near(found.reals, t) for t in range(len(found.wrong))])
        if near[found.reals.finite].all():
            way = way_of(found.problem, item, found.unwritten, found.ends)
            piece = Piece(item, found.unwritten, near, way=way)
            yield replace(found, unwritten=np.zeros_like(found.unwritten), pieces=(piece,))


@np.errstate(over="ignore", invalid="ignore")  # of hypotheses, not of the operands
def solved(problem: Problem, model: Codes, inside: Mask, known: bool) -> Solved | None:
    """Solve for what made the outputs; None for operands that are not numbers, or are too many.

    known: a catalogued mistake gives every bit, and only a single rule can be simpler.
    """
    formats = problem.machine.formats
    if any(format.kind == "bit" for format in formats.values()) or problem.between is not None:
        return None
    if problem.a.size * problem.b.shape[2] > _MOST:
        return None
    narrow = problem.output or narrow_format(problem, model)
    reals = reals_of(problem, model, precision(narrow))
    reals = replace(reals, finite=reals.finite & inside)
    wrong = ~reals.near(reals.right) & inside
    relations: list[Relation] = []
    if wrong.any() and is_relu(reals, problem.size):
        floored = replace(reals, floor=True)
        still = ~floored.near(floored.right) & inside
        if not still.any() or next(functions(problem, reals, wrong), None) is None:  # else: clamped above as well
            relations.append(RELU)
            reals, wrong = floored, still
    clamped = reals.floor
    if wrong.any() and not clamped and problem.c.any() and is_relu(before_c(reals), problem.size):
        relations.append(RELU_BEFORE_C)
        problem = replace(problem, c=np.zeros_like(problem.c), after=problem.c)
        reals = replace(before_c(reals), floor=True)
        model = np.stack(
            [after_clamp(problem, part, replace(problem, finish=None).predict(part)) for part in problem.parts()]
        )
        wrong = ~reals.near(reals.right) & inside
    ends = ends_of(clamped, (partial(narrowed, name=narrow), partial(truncated, name=narrow)) if narrow else ())
    wrong &= ~np.any([end(model) == problem.observed for end in ends], axis=0)  # NaN of an overflow, for instance
    found = Solved(problem, reals, (), np.zeros_like(wrong), (), wrong, wrong, model, 0, ends)
    kept = kept_sums(problem, reals, ends) if wrong.any() and not known else None
    line = vector(reals) if kept is None and wrong.any() and not (wrong & ~reals.finite).any() else None
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
        again = isinstance(item, Tail) and 0 < item.a == item.b  # the same tile of both a second time
        if item is None or again:
            found = _by_pieces(found, known)
        if item is not None:
            found = _or_simpler(found, item) if again else _as_whole(found, item)
    found = replace(found, relations=tuple(relations))
    if narrow and not found.rounding_only:
        values = _values(reals, found.pieces) if line is None else line.values
        cut = narrowing(narrow, reals, values) if problem.output is None else None
        if found.covered:
            found = _in_every_bit(found)
        by_bits = _narrowing_by_bits(found, narrow)
        if by_bits is not None and (problem.output is None or by_bits.mistake == TRUNCATED):
            cut = by_bits
        found = replace(found, relations=(*relations, *([cut] if cut is not None else [])))
    elif narrow and problem.output is None:
        cut = _narrowing_by_bits(found, narrow) or narrowing(narrow, reals, reals.right)
        found = replace(found, relations=(*relations, cut))
    if found.left.any() and not (found.left & reals.finite).any() and found.codes is not None:
        found = replace(found, left=found.left & (found.codes != problem.observed))  # an overflow that is given as well
    found = _in_every_bit(found) if found.covered else found
    return found if known or wrong.any() else _with_kept(found)


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
        own = np.stack([piece.candidate.values(reals, t) for t in range(len(values))])
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
    again = found if known or unwritten.any() else _recovered(found, _FIRST)
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
    return found if found.covered or known else _recovered(found)


def _as_tiles(found: Solved) -> Solved:
    """Tiles that are stored in others' places, where that explains what else takes several mistakes; the same if it does not."""
    lost = found.wrong & ~found.reals.finite
    if (lost & ~found.unwritten).any():
        return found
    for item in tile_sums(found.problem, found.reals, found.wrong & ~lost, moves=True):
        near = np.stack([item.near(found.reals, t) for t in range(len(found.wrong))])
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


def _of_all(found: Solved) -> Whole | None:
    """What explains everything: an operand's bytes, the end of K, accumulators of other tiles, buffers that overlap."""
    given = found.problem, found.reals, found.wrong
    for item in chain(bytes_of_operands(*given), tails(*given), carried(*given), overlaid(*given)):
        near = np.stack([item.near(found.reals, t) for t in range(len(found.wrong))])
        if near[found.reals.finite].all():
            return item
    return None


def _as_whole(found: Solved, item: Whole) -> Solved:
    """Solved by one hypothesis of all outputs."""
    return replace(
        found, pieces=(Piece(item, found.wrong, found.reals.finite),), left=np.zeros_like(found.wrong), tried=1
    )


def _or_simpler(found: Solved, item: Whole) -> Solved:
    """The simpler of such a hypothesis and of what else explains everything, with the other as its equal."""
    if len(found.pieces) != 1 or not found.covered or found.unwritten.any() or found.rank >= item.rank:
        return _as_whole(found, item)
    piece = found.pieces[0]
    tie = Scored(item, piece.near, WHOLE, int(piece.gives.sum()), None, True)
    return replace(found, pieces=(replace(piece, ties=(*piece.ties, tie)),))


def _pieces(found: Solved, wrong: Mask, most: int, known: bool) -> tuple[list[Piece], Mask, int]:
    problem, reals = found.problem, found.reals
    random = np.random.default_rng(0)
    left = wrong & reals.finite
    lost = wrong & ~reals.finite
    pieces: list[Piece] = []
    tried = 0
    total = int(wrong.sum())
    while left.any() and len(pieces) < most:
        more = (own + other for own, other in zip(line_maps(reals, left), addresses(problem, reals, left), strict=True))
        solver = Solver(problem, reals, (next(more), next(more)), found.ends)
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
