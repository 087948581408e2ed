"""What the numbers say: relations of the epilogue, outputs that were never written, and candidates for the rest, with what they predict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tcsim.diagnosis.at_sight import NAN, NAN_ADVICE, nan_code, nan_source, unwritten_of
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.enough import enough, follows
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.kept import Kept
from tcsim.diagnosis.misread import PAST_END, over_next_row
from tcsim.diagnosis.moved import Moved
from tcsim.diagnosis.predicted import End, Way, whole
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.relations import NARROW, TRUNCATED, Relation
from tcsim.diagnosis.report import Explanation
from tcsim.diagnosis.solve import Scored
from tcsim.diagnosis.where import beyond_diagonal, tiles_text, where_text
from tcsim.numbers.codec import decode, encode

UNWRITTEN = "part of the output never written"
_SHARE = 0.1  # of the wrong outputs that are not zero, from which on something is explained in part
_BETTER = 4  # times nearer than the right output: an output that tells
_BESIDE = 3  # the rank of outputs that nothing is stored to, beside an operand's mistake


@dataclass(frozen=True)
class Piece:
    """A candidate and the outputs that it explains."""

    candidate: Hypothesis
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
        return self.covered and not self.stray and (bool(self.relations) or not self.pieces or self._tells)

    @property
    def _tells(self) -> bool:
        """Whether enough outputs are given much better than by the right ones, or every bit: where rounding takes sums far, anything is near."""
        if self.same == int(self.problem.inside().sum()):
            return True
        off, given = np.abs(self.reals.observed - self.reals.right), np.full(self.wrong.shape, np.nan)
        tells = self.unwritten | (self.wrong & ~self.reals.finite)
        with np.errstate(all="ignore"):
            for piece in self.pieces:
                own = piece.candidate.all_values(self.reals)
                tells |= piece.gives & (_BETTER * np.abs(own - self.reals.observed) <= off)
                given[piece.gives] = own[piece.gives]
        tells &= self.wrong
        told = self.wrong & self.reals.finite & np.isfinite(given) & ~self.unwritten
        if not follows(given[told], self.reals.observed[told]):
            return False
        return enough(int(tells.sum())) or bool(tells[self.wrong].all())

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        stores = not self.pieces or any(isinstance(piece.candidate, Moved) for piece in self.pieces)
        nothing = (1 if stores else _BESIDE) * int(self.unwritten.any())  # a store elsewhere leaves places empty
        return sum(piece.candidate.rank for piece in self.pieces) + 2 * len(self.relations) + nothing

    @property
    def candidate(self) -> Hypothesis | None:
        """The only candidate, if it is all there is and holds for every output."""
        if len(self.pieces) != 1 or self.relations or self.unwritten.any():
            return None
        item = self.pieces[0].candidate
        return item if item.everywhere(self.reals) else None

    @cached_property
    def blank(self) -> Mask:
        """Wrong outputs that look as if they had never been written."""
        return unwritten_of(self.problem, self.reals, self.wrong, self.model)

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
        past, alone = over_next_row(self.unwritten, self.problem.size)
        if alone:
            return PAST_END, f"{where} are {code:#x}: {past}", "mask the store at N, as the loads are"
        return (
            UNWRITTEN,
            where + (past and f"; or nothing of theirs is missing: {past}"),
            advice,
        )

    def explanations(self, outputs: int) -> list[Explanation]:
        """What is explained in part, if anything is."""
        tidy = tuple(piece for piece in self.pieces if piece.clean)
        if len(tidy) < len(self.pieces):  # scattered outputs are given by chance
            chance = np.any([piece.gives for piece in self.pieces if not piece.clean], axis=0)
            return replace(self, pieces=tidy, left=self.left | chance).explanations(outputs)
        if not (self.relations or self.pieces or self.unwritten.any()) or self.complete:
            return []
        if self.pieces and not self._tells:
            return []
        if not self.unwritten.any() and not shows(self.problem, self.model != self.problem.observed, ~self.left):
            return []
        return [self.explanation(outputs)]

    def _region(self, piece: Piece) -> str:
        own = piece.gives
        if isinstance(piece.candidate, Kept) or (own.sum() == self.wrong.sum() and own.all()):
            return ""
        return f"in {beyond_diagonal(own, piece.near | ~self.problem.inside()) or tiles_text(own)}"

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
        if isinstance(item, Moved) and not item.alone:
            return item.stored(base, self.problem.observed)
        lines = item.as_lines(True) if isinstance(item, Moved) else item
        if isinstance(lines, Candidate):
            return None if piece.way is None else whole(self.problem, lines, piece.way)
        return None if lines is None else lines.codes(self.problem)

    @cached_property
    def same(self) -> int:
        """Outputs that are predicted bit for bit; 0 where that is not known."""
        return 0 if self.codes is None else int((self.codes == self.problem.observed)[self.problem.inside()].sum())

    @cached_property
    def stray(self) -> bool:
        """Nearly all outputs are right to the bit, some are not: that is not another order of summation."""
        outputs = int(self.problem.inside().sum())
        return (
            self.fitted is None
            and 0.9 * outputs < self.same < outputs
            and not self._one_step_off
            and not self._rounded_once
        )

    @property
    def _rounded_once(self) -> bool:
        """Every output is the exact sum, rounded once, which with few products an instruction's sum mostly is too."""
        item, format = self.candidate, self.problem.machine.formats["d"]
        if item is None or self.codes is None or format.kind != "float":
            return False
        exact = item.all_values(self.reals)
        known = self.problem.inside() & self.reals.finite
        rounded = decode(encode(np.where(known, exact, 0.0), format), format).astype(np.float64)
        return bool((rounded == self.reals.observed)[known].all())

    @property
    def _one_step_off(self) -> bool:
        """What is not given to the bit is next to it in a narrower format: another order of summation seldom shows there."""
        format = self.problem.machine.formats["d"]
        if self.codes is None or self.reals.coarse == 0:
            return False
        seen, given = (decode(x, format).astype(np.float64) for x in (self.problem.observed, self.codes))
        off = np.abs(seen - given) > self.reals.reach + 1.01 * self.reals.coarse * np.abs(seen)
        return not (off & self.problem.inside() & (self.codes != self.problem.observed)).any()


def shows(problem: Problem, wrong: Mask, given: Mask) -> bool:
    """Whether what is given in part is more than zeros, which an epilogue that clamps makes of half of all sums, of noise too."""
    seen = decode(problem.observed, problem.machine.formats["d"]).astype(np.float64)
    told = wrong & problem.inside() & (seen != 0)
    return not told.any() or int((told & given).sum()) >= _SHARE * int(told.sum())


def _is_narrow(piece: Piece) -> bool:
    """Whether it says already that its results are of a narrower format."""
    return isinstance(piece.candidate, Kept) and piece.candidate.form.running
