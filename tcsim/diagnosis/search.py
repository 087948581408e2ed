"""`tcsim.diagnose`: solve for what made each output, try every known mistake, keep what reproduces what was observed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis import arithmetic, memory, operands
from tcsim.diagnosis.at_sight import NAN, NAN_ADVICE, nan_code, nan_source, reread
from tcsim.diagnosis.bitwise import by_bits, off, reach
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.equivalence import Fresh, alike
from tcsim.diagnosis.error_map import ErrorMap, error_map
from tcsim.diagnosis.moves import diagnose_move
from tcsim.diagnosis.problem import Attempt, Codes, Part, Problem
from tcsim.diagnosis.question import named, problem_of
from tcsim.diagnosis.reals import Mask, Numbers
from tcsim.diagnosis.relations import Relation, precision
from tcsim.diagnosis.report import Diagnosis, Explanation, described
from tcsim.diagnosis.rounded import within_rounding
from tcsim.diagnosis.solution import UNWRITTEN, Solved, shows
from tcsim.diagnosis.solved import not_loaded, solved
from tcsim.diagnosis.where import where_text
from tcsim.numbers.codec import decode

CATALOGUE: dict[Callable[[Problem], Iterator[Attempt]], int] = {
    operands.attempts: 2,
    memory.attempts: 4,
    operands.of_selectors: 6,
    operands.of_registers: 7,
    arithmetic.attempts: 8,
}
"""Where mistakes come from that are no rules of an operand, with how simple they are: smaller is simpler."""

BOTH: tuple[Callable[[Problem], Iterator[Attempt]], ...] = tuple(
    partial(operands.in_both, source) for source in (operands.attempts, memory.attempts, operands.of_registers)
)
"""The same mistake in both operands, where none in one explains everything."""

_SCREEN = (12, 16)  # rows and columns of the outputs that every mistake is tried on first
_NEAREST = 5  # how many partial explanations are worked out in full
_ALSO = 3  # other names of an explanation that are given
_FILL = "fill the output with NaN before the launch: what is still NaN was never written, what is zero was computed from zeros"
_CANNOT_TELL = "this data cannot tell them apart: random operands of the same shapes would"
_ALL_ZERO = f"every output is zero: the data cannot tell which of these it is; {_FILL}"
_PART_OF_A_TILE = 128  # rows or columns: some tiles are twice as large, so that half of them lies behind the edge


@dataclass(frozen=True)
class _Score:
    matched: int
    known: int
    telling: int  # matched outputs that the model without a mistake gets wrong

    @property
    def share(self) -> float:
        return self.matched / self.known if self.known else 0.0


@dataclass(frozen=True)
class _Found:
    """An explanation of everything that can be predicted, and how it would explain other data."""

    explanation: Explanation
    rank: int
    known: bool  # every output can be predicted
    predicts: Callable[[Fresh], Numbers | None]  # without what the epilogue does
    single: bool = True  # not the same mistake in both operands
    epilogue: tuple[Relation, ...] = ()
    in_part: bool = False  # of the output: rules, in what they explain and nowhere else


def diagnose(instruction: Any, *, observed: Any, arch: str = "sm_90", **operands: Any) -> Diagnosis:
    """Find the mistake that turns the operands into the observed result.

    instruction: a mnemonic, or what `tcsim.instruction` gives. The operands are named as in its `execute` or `matmul`:
    codes of whole matrices a (..., M, K), b (..., K, N), c (..., M, N) (zeros if left out) with `observed` (..., M, N), of
    any M, N and K; or registers, with `observed` registers (..., lanes, registers); for
    wgmma also smem= with descriptors. A sparse A comes with metadata=, block scales as scale_a= and scale_b=, tcgen05.mma's
    instruction descriptor as idesc=, all as `matmul` takes them. `observed` and the
    matrices may be NumPy, ml_dtypes, PyTorch, CuPy or DLPack arrays of exactly the format; `observed` may be of a narrower float type
    than the instruction's D. An instruction that multiplies nothing (ldmatrix,
    stmatrix, movmatrix, wmma.load, wmma.store, tcgen05.ld and .st, cvt) takes the arguments of its `execute`, and `observed` is
    its result, of several arrays a tuple.

    Raises OperandError for operands that do not fit, InstructionError for an unknown instruction.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> random = np.random.default_rng(0)
    >>> a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    >>> c = np.zeros((16, 8), np.float32)
    >>> print(tcsim.diagnose(mma, a=a, b=b, observed=mma.matmul(a.T, b, c)))
    128 of 128 outputs differ from the model: rows 0-15, columns 0-7
    explained: this mistake reproduces every output bit for bit
      a transposed (the whole matrix, row-major taken for column-major)
        look at the order in memory of a, and at .row and .col
    """
    found_instruction, call = named(instruction, arch)
    if not hasattr(found_instruction, "matmul"):
        return diagnose_move(found_instruction, call, observed, operands)
    problem = problem_of(found_instruction, call, observed, operands)
    model = problem.outputs
    inside = problem.inside()
    wrong = (model != problem.observed) & inside
    outputs = int(inside.sum())
    right = outputs - int(wrong.sum())
    same = alike(problem)
    if not wrong.any():
        return Diagnosis("correct", outputs, outputs, (), (), 0, note=_said(problem.note, same))
    where = where_text(wrong)
    found = _constant(problem)
    if found and found[0].mistake != NAN:
        return described(outputs, right, found, [], len(found), where, same, _ALL_ZERO if len(found) > 1 else "")
    other = reread(problem)
    if other is not None:
        return described(outputs, right, [other], [], 2, where, same)
    tried, exact, nearest = _catalogued(problem, wrong, outputs)
    if found:
        others = [item.explanation for item in exact][:_ALSO]
        return described(outputs, right, [*found, *others], [], tried, where, same, _CANNOT_TELL if others else "")
    own = solved(problem, model, inside, any(item.known and item.single for item in exact))
    if own is None:  # a rule may be simpler than a catalogued mistake that gives the same
        exact += [_of_rule(item, outputs) for item in by_bits(problem, _screen(wrong))]
    if own is not None and own.rounding_only:
        single = [item.explanation for item in exact if item.single]  # the same in both operands is another order of K
        answer = within_rounding(problem, model, own, single, where, tried)
        return replace(answer, note=_said(answer.note, same))
    if own is not None and own.complete:
        exact += _of_solver(own, outputs)
        tried += own.tried
    if own is not None:
        nearest += own.explanations(outputs)
    nearest.sort(key=lambda item: -item.matched)
    merged, telling = _merged(problem, exact)
    answer = described(outputs, right, merged, nearest[:_NEAREST], tried, where, same, telling)
    return replace(answer, errors=_errors(problem, model, own))


def _said(note: str, same: str) -> str:
    """What is said of a right result; same: why the operands would not show most mistakes."""
    return "; ".join(
        filter(None, (note, f"but {same}, so most mistakes would not show: try random operands" if same else ""))
    )


def _errors(problem: Problem, model: Codes, own: Solved | None) -> ErrorMap:
    """Where and how the observed outputs differ; up to the rounding that the solver allows, if it could reckon with them."""
    format = problem.machine.formats["d"]
    seen, right = (decode(codes, format).astype(np.float64) for codes in (problem.observed, model))
    coarse = precision(problem.output)[0] if own is None else own.reals.coarse
    return error_map(seen, right, None if own is None else ~own.wrong, problem.size, coarse)


def _of_solver(own: Solved, outputs: int) -> list[_Found]:
    """The solver's explanation, and other candidates that give the same bits."""

    def predicts(fresh: Fresh) -> Numbers | None:
        values = fresh.reals.right.copy()
        if own.unwritten.any():  # those that are right by chance too
            values[own.problem.observed == own.problem.observed[own.unwritten][0]] = np.nan
        for piece in own.pieces:
            found = piece.candidate.all_values(fresh.reals)
            region = piece.gives | (piece.near & (own.model != own.problem.observed))  # some are nearly right by chance
            values = found if own.candidate is not None else np.where(region, found, values)
        return values

    in_part = bool(own.pieces) and own.candidate is None and not own.relations and not own.unwritten.any()
    found = [_Found(own.explanation(outputs), own.rank, True, predicts, epilogue=own.relations, in_part=in_part)]
    found += [other for again in not_loaded(own) if again.same == own.same for other in _of_solver(again, outputs)]
    for number, piece in enumerate(own.pieces):
        for one in piece.ties:
            again = replace(piece, candidate=one.item, way=one.way, ties=())
            other = replace(own, pieces=(*own.pieces[:number], again, *own.pieces[number + 1 :]))
            if other.complete and other.same >= own.same:
                found += _of_solver(replace(other, pieces=tuple(replace(p, ties=()) for p in other.pieces)), outputs)
    return found


def _of_rule(item: Candidate, outputs: int) -> _Found:
    """A rule that gives every bit."""
    (mistake, detail, advice), *_ = item.names()
    explanation = Explanation(mistake, detail, advice, outputs)
    return _Found(explanation, item.rank, True, lambda fresh: item.all_values(fresh.reals))


def _catalogued(problem: Problem, wrong: Mask, outputs: int) -> tuple[int, list[_Found], list[Explanation]]:
    """Every mistake of the catalogue: how many were tried, those that explain everything, and the nearest of the others."""
    screen = _screen(wrong)
    far = reach(problem, screen)
    tried = 0
    exact: list[_Found] = []
    near: list[tuple[float, int, Attempt]] = []
    single = all(size <= unit for size, unit in zip(wrong.shape[1:], problem.machine.shape, strict=False))
    for number, source in enumerate((*CATALOGUE, *BOTH)):
        one = source.args[0] if isinstance(source, partial) else source
        rank = 2 if single and one is operands.of_registers else CATALOGUE[one]
        for attempt in source(problem) if number < len(CATALOGUE) or not exact else ():
            changed = attempt.change()
            if changed is None:
                continue
            tried += 1
            score = _score(changed, screen, wrong, far=far if changed.machine is problem.machine else np.inf)
            if score.known and score.matched == score.known:
                whole = _score(changed, list(changed.parts()), wrong)
                if _explains(whole, outputs, int(wrong.sum())):
                    exact.append(_of_attempt(problem, attempt, source, rank, whole, outputs))
                    continue
            near.append((score.share, -tried, attempt))
    nearest = []
    if not exact:
        for _, _, attempt in sorted(near, key=lambda item: item[:2], reverse=True)[:_NEAREST]:
            changed, given = attempt.change(), np.zeros_like(wrong)
            assert changed is not None
            whole = _score(changed, list(changed.parts()), wrong, given)
            if changed.observed is problem.observed and not shows(problem, wrong, given):
                continue
            left = problem.inside() & ~given & (True if changed.known is None else changed.known)
            where = where_text(left) if changed.observed is problem.observed and left.any() else ""  # else: moved
            nearest.append(Explanation(attempt.mistake, attempt.detail, attempt.advice, whole.matched, left=where))
    if any(item.known for item in exact):
        exact = [item for item in exact if item.known]
    return tried, exact, nearest


def _of_attempt(
    problem: Problem,
    attempt: Attempt,
    source: Callable[[Problem], Iterator[Attempt]],
    rank: int,
    score: _Score,
    outputs: int,
) -> _Found:
    def predicts(fresh: Fresh) -> Numbers | None:
        if problem.memory is not None or problem.metadata is not None or problem.scale_words is not None:
            return None
        for other in source(fresh.problem):
            if (other.mistake, other.detail) == (attempt.mistake, attempt.detail):
                return fresh.of_attempt(other)
        return None

    explanation = Explanation(attempt.mistake, attempt.detail, attempt.advice, score.matched)
    return _Found(explanation, rank, score.known == outputs, predicts, not isinstance(source, partial))


def _merged(problem: Problem, exact: list[_Found]) -> tuple[list[Explanation], str]:
    """One explanation for each thing said, the simplest first, with other names of the same; which operands would tell some apart.

    If any gives every bit, only those that do are left.
    """
    exact = [item for item in exact if item.known] or exact
    exact = [item for item in exact if item.explanation.bits] or exact
    if len(exact) < 2:
        return [item.explanation for item in exact], ""
    exact = sorted(
        exact, key=lambda one: (len(_unlike(_mistakes(one.explanation))) > 1, one.in_part, one.rank)
    )  # one mistake before two, and what explains everything before what does so in a part
    classes = _classes(exact, Fresh(problem))
    classes = [members for members in classes if members[0].in_part <= classes[0][0].in_part]
    parts = [_mistakes(members[0].explanation) for members in classes]
    simple = [not any(other < own for other in parts) for own in parts]  # no other says less
    classes = [members for members, kept in zip(classes, simple, strict=True) if kept]
    found = []
    for members in classes:
        first, *others = (item.explanation for item in members)
        also: dict[str, str] = {}
        named = [_mistakes(first)]
        combined = 0  # beside one mistake that explains everything
        for other in others:
            own = _mistakes(other)
            if any(less <= own for less in named):
                continue
            named.append(own)
            if len(_unlike(own)) > 1 == len(named[0]):
                combined += 1
            else:
                also[other.mistake] = str(other)
        found.append(replace(first, also=tuple(also.values())[:_ALSO], combined=combined))
    telling = ""
    if len({item.mistake for item in found}) > 1:
        telling = _FILL if any(item.mistake == UNWRITTEN for item in found) else _CANNOT_TELL
    elif any(item.also for item in found) and not problem.c.any():
        apart = _classes([item for members in classes for item in members], Fresh(problem, with_c=True))
        if len(apart) > len(classes):
            telling = "C is zero here: one that is not would tell some of the names apart"
    return found, telling


def _mistakes(item: Explanation) -> set[str]:
    """What it consists of; a store elsewhere that leaves places empty is one mistake."""
    names = set(item.mistake.split(" + "))
    return names - {UNWRITTEN} if any(name.startswith("d: ") for name in names) else names


def _unlike(mistakes: set[str]) -> set[str]:
    """What is not the same in the other operand: a block index that is ignored picks rows of a and columns of b."""
    return {re.sub("^[ab]: (rows|columns)?", "", name) for name in mistakes}


def _classes(exact: list[_Found], fresh: Fresh) -> list[list[_Found]]:
    """Explanations that predict the same of fresh operands, or of which that is not known and the name is the same."""
    classes: list[tuple[list[_Found], Numbers | None]] = []
    for item in exact:
        predicted = item.predicts(fresh)
        for members, shown in classes:
            same = item.explanation.mistake == members[0].explanation.mistake
            if predicted is not None and shown is not None and item.epilogue == members[0].epilogue:
                same = fresh.same(predicted, shown)
            if same:
                members.append(item)
                break
        else:
            classes.append(([item], predicted))
    return [members for members, _ in classes]


def _explains(score: _Score, outputs: int, wrong: int) -> bool:
    """All that can be predicted is reproduced, and it is enough."""
    telling = enough(score.telling) or score.telling == wrong
    return score.matched == score.known and score.known * 4 >= outputs and telling


def _score(changed: Problem, parts: list[Part], wrong: Mask, given: Mask | None = None, far: float = np.inf) -> _Score:
    """given: is set where an output is reproduced; far: parts without an output so near are not predicted."""
    matched = known = telling = 0
    for part in parts:
        knows = changed.knows(part)
        if not knows.any():
            continue
        same = np.zeros_like(knows)
        if (off(changed, part, changed.seen(part)) <= far)[knows].any():
            same = (changed.predict(part) == changed.seen(part)) & knows
        matched, known = matched + int(same.sum()), known + int(knows.sum())
        place = np.ix_(part.rows, part.columns)
        telling += int((same & wrong[part.matrix][place]).sum())
        if given is not None:
            given[part.matrix][place] = same
    return _Score(matched, known, telling)


def _screen(wrong: npt.NDArray[np.bool_]) -> list[Part]:
    """Rows and columns with most mistakes, and some spread over the matrix, of the two worst matrices."""
    counts = wrong.sum(axis=(1, 2))
    worst = np.argsort(-counts, kind="stable")[:2]
    parts = []
    for matrix in worst:
        chosen = []
        for axis, size in enumerate(_SCREEN):
            number = wrong.shape[1 + axis]
            most = np.argsort(-wrong[matrix].sum(axis=1 - axis), kind="stable")[: size // 2]
            spread = np.linspace(0, number - 1, size - size // 2).astype(np.intp)
            chosen.append(np.unique(np.concatenate([most, spread])))
        parts.append(Part(int(matrix), *chosen))
    return parts


def _constant(problem: Problem) -> list[Explanation]:
    """A result that holds one code everywhere was never computed, or a NaN goes into every output; of a chain of instructions zeros may be the last thing that was stored."""
    seen = problem.observed[problem.inside()]
    first = seen[0]
    if not enough(seen.size) or (seen != first).any():
        return []
    detail = f"every output is {int(first):#x}"
    advice = "the result was never written, or all its inputs were zero: look at the store and at what was launched"
    unwritten = Explanation("output never written", detail, advice, seen.size)
    if not int(first) and problem.blocks > 1:
        said = "whatever is stored last holds no products: an empty slice of split-K that stores where it should add, a warp or a block past the edge"
        found = [
            unwritten,
            Explanation("zeros stored over the output", said, "look at who else stores to these outputs", seen.size),
        ]
        rows, columns = problem.sizes
        if min(rows, columns) <= _PART_OF_A_TILE:
            said = f"rows or columns of a tile behind the end of M = {rows} or N = {columns} are stored, which are zero"
            look = "look at which rows (lanes of Tensor Memory, warps) and columns of the accumulators the epilogue reads: exchanged, rotated, or with an offset"
            found.append(Explanation("d: stored from another place", said, look, seen.size))
        return found
    if int(first) != nan_code(problem):
        return [unwritten]
    detail += ", the NaN that the instruction gives: " + nan_source(problem)
    return [Explanation(NAN, detail, NAN_ADVICE, seen.size, also=(str(unwritten),))]
