"""From candidates to an explanation: relations first, what was never written, then one rule after another until nothing is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.moved import Moved, line_maps, moved
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals, reals_of
from tcsim.diagnosis.relations import (
    NARROW,
    RELU,
    TRUNCATED,
    Relation,
    is_relu,
    narrow_format,
    narrowing,
    precision,
    truncated,
    vector,
)
from tcsim.diagnosis.report import Explanation
from tcsim.diagnosis.solve import Candidate, Solver, clean, codes_of
from tcsim.diagnosis.where import where_text

_PARTS = 3  # mistakes in different parts of the output
_MOST = 1 << 27  # products of a problem that is solved; beyond it a part is


@dataclass(frozen=True)
class Piece:
    """A candidate and the outputs that it explains."""

    candidate: Candidate | Moved
    gives: Mask  # those that were wrong and are given
    near: Mask  # all that are given
    clean: bool = True  # they are whole blocks, or whole rows and columns
    ties: tuple[Candidate | Moved, ...] = ()  # other candidates that give the same outputs


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
    narrow: str | None
    predicted: Numbers | None = None  # of the vector relations: all outputs

    @property
    def rounding_only(self) -> bool:
        """Nothing is wrong beyond rounding."""
        return not self.wrong.any() and not self.relations

    @property
    def complete(self) -> bool:
        """Everything is explained up to rounding."""
        tidy = all(piece.clean for piece in self.pieces)
        return (
            tidy
            and not self.left.any()
            and not self.stray
            and bool(self.relations or self.pieces or self.unwritten.any())
        )

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return sum(piece.candidate.rank for piece in self.pieces) + 2 * len(self.relations) + int(self.unwritten.any())

    @property
    def candidate(self) -> Candidate | Moved | None:
        """The only candidate, if it is all there is and holds for every output."""
        if len(self.pieces) != 1 or self.relations or self.unwritten.any():
            return None
        values = np.stack([self.pieces[0].candidate.values(self.reals, t) for t in range(len(self.wrong))])
        return self.pieces[0].candidate if self.reals.near(values)[self.reals.finite].all() else None

    @property
    def picture(self) -> Mask:
        """The outputs that differ beyond rounding."""
        return self.wrong

    def explanation(self, outputs: int) -> Explanation:
        """All pieces in one."""
        names: list[tuple[str, str, str]] = []
        whole = self.candidate is not None
        for relation in self.relations:
            names.append((relation.mistake, relation.detail, relation.advice))
        for piece in self.pieces:
            region = "" if whole else self._region(piece)
            for number, (mistake, detail, advice) in enumerate(piece.candidate.names()):
                said = "; ".join(x for x in (detail, region if number == 0 else "") if x)
                names.append((mistake, said, advice))
        if self.unwritten.any():
            advice = "look at the store, at its predicate and at what was launched"
            names.append(("part of the output never written", where_text(self.unwritten), advice))
        bits = self.same == outputs
        matched = self.same if bits or self.stray else outputs - int(self.left.sum())
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

    def explanations(self, outputs: int) -> list[Explanation]:
        """What is explained in part, if anything is."""
        if not (self.relations or self.pieces or self.unwritten.any()) or self.complete:
            return []
        found = self.explanation(outputs)
        return [found]

    def _region(self, piece: Piece) -> str:
        own = piece.gives
        if own.sum() == self.wrong.sum() and own.all():
            return ""
        return f"in {where_text(own)}"

    @cached_property
    def codes(self) -> Codes | None:
        """What is predicted of every output, bit for bit; None if an order of summation is not known."""
        if self.predicted is not None:
            return None
        out = self._ended(self.model)
        everywhere = self.candidate is not None
        for piece in self.pieces:
            found: Codes | None
            if isinstance(piece.candidate, Candidate):
                found = codes_of(self.problem, piece.candidate)
            else:
                row, column, _ = piece.candidate.source((out.shape[1], out.shape[2]))
                found = None if piece.candidate.alone else self.model[:, row, column]
            if found is None:
                return None
            found = self._ended(found)
            here = piece.gives | (piece.near & (out != self.problem.observed))
            out = found if everywhere else np.where(here, found, out)
        return np.where(self.unwritten, self.problem.observed, out)

    def _ended(self, codes: Codes) -> Codes:
        """What the epilogue makes of them."""
        names = {relation.mistake for relation in self.relations}
        if self.reals.floor:
            codes = np.where(codes >> (codes.dtype.itemsize * 8 - 1) == 1, codes.dtype.type(0), codes)
        if self.narrow and names & {NARROW, TRUNCATED}:
            codes = (truncated if TRUNCATED in names else narrowed)(codes, self.narrow)
        return codes

    @cached_property
    def same(self) -> int:
        """Outputs that are predicted bit for bit; 0 where that is not known."""
        return 0 if self.codes is None else int((self.codes == self.problem.observed)[self.problem.inside()].sum())

    @cached_property
    def stray(self) -> bool:
        """Nearly all outputs are right to the bit, some are not: that is not another order of summation."""
        outputs = int(self.problem.inside().sum())
        return 0.9 * outputs < self.same < outputs


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
    relations: list[Relation] = []
    predicted: Numbers | None = None
    wrong = ~reals.near(reals.right) & inside
    if wrong.any() and is_relu(reals):
        relations.append(RELU)
        reals = replace(reals, floor=True)
        wrong = ~reals.near(reals.right) & inside
    unwritten = np.zeros_like(wrong)
    pieces: list[Piece] = []
    left = wrong
    tried = 0
    if wrong.any():
        found = vector(reals) if not reals.floor else None
        if found is not None:
            relations.append(found[0])
            predicted, left = found[1], np.zeros_like(wrong)
        else:
            unwritten = _unwritten(problem, reals, wrong, model)
            only = unwritten.any() and not (wrong & ~unwritten).any()
            if not only:
                pieces, left, tried = _pieces(problem, reals, wrong, 1 if unwritten.any() or known else _PARTS, known)
            if unwritten.any() and left.any() and not only:
                pieces, left, tried = _pieces(problem, reals, wrong & ~unwritten, 1 if known else _PARTS, known)
            elif not only:
                unwritten = np.zeros_like(wrong)
            left = left & ~unwritten
    if narrow and problem.output is None:
        values = predicted if predicted is not None else _values(reals, pieces)
        relations.append(narrowing(narrow, reals, values))
    return Solved(
        problem, reals, tuple(relations), unwritten, tuple(pieces), wrong, left, model, tried, narrow, predicted
    )


def _every_bit(problem: Problem, item: Candidate | Moved, gives: Mask) -> bool:
    """Whether a candidate gives every bit of the outputs that it gives."""
    if isinstance(item, Moved):
        return False
    codes = codes_of(problem, item)
    return codes is not None and bool((codes == problem.observed)[gives].all())


def _values(reals: Reals, pieces: list[Piece]) -> Numbers:
    """What is predicted of every output before a narrower format."""
    values = reals.right.copy()
    for piece in pieces:
        own = np.stack([piece.candidate.values(reals, t) for t in range(len(values))])
        values[piece.gives] = own[piece.gives]
    return np.maximum(values, 0) if reals.floor else values


def _unwritten(problem: Problem, reals: Reals, wrong: Mask, model: Codes) -> Mask:
    """Wrong outputs that all hold one code, where there are many of it: zeros or what filled the memory before."""
    codes = problem.observed[wrong]
    values, counts = np.unique(codes, return_counts=True)
    most = int(counts.argmax())
    if counts[most] < max(8, 0.01 * codes.size):
        return np.zeros_like(wrong)
    unwritten: Mask = (model != problem.observed) & (problem.observed == values[most])
    runs = 1 + int((np.diff(np.flatnonzero(unwritten)) > 1).sum())
    if (reals.floor and values[most] == 0) or not (clean(unwritten, unwritten) or unwritten.sum() >= 4 * runs):
        return np.zeros_like(wrong)  # scattered: clamped rather than never written
    return unwritten


def _pieces(problem: Problem, reals: Reals, wrong: Mask, most: int, known: bool) -> tuple[list[Piece], Mask, int]:
    random = np.random.default_rng(0)
    left = wrong & reals.finite
    lost = wrong & ~reals.finite
    pieces: list[Piece] = []
    tried = 0
    total = int(wrong.sum())
    while left.any() and len(pieces) < most:
        options: list[tuple[int, int, Candidate | Moved, Mask]] = []
        solver = Solver(problem, reals, line_maps(reals, left))
        shift = moved(reals, left) if not reals.floor else None
        stored = () if shift is None else (shift[0],)
        if shift is not None:
            lines = shift[0].as_lines(bool(reals.c.any()))
            given = int((shift[1] & left).sum())
            options.append((given, -shift[0].rank, lines or shift[0], shift[1]))
        best: list[tuple[Candidate, Mask]] = []
        if shift is None or options[0][0] < left.sum() or shift[0].rank > 3:
            best = solver.best(left, random, pairs=not known)
            if best:
                options.append((int((best[0][1] & left).sum()), -best[0][0].rank, *best[0]))
        tried += sum(map(len, solver.rules.values()))
        if not options:
            break
        count, _, candidate, gives = max(options, key=lambda item: item[:2])
        if count < max(8 if total >= 8 else 1, 0.02 * total):
            break
        ties: list[Candidate | Moved] = [item for item, _ in best]
        if candidate not in ties:
            ties = [candidate, *stored]
        ties.sort(key=lambda item: not _every_bit(problem, item, gives & left))  # stable: the simplest of those
        chosen = ties[0]
        pieces.append(Piece(chosen, gives & left, gives, clean(gives, left), tuple(ties[1:])))
        left = left & ~gives
    return pieces, left | lost, tried
