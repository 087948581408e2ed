"""`tcsim.diagnose`: try every known mistake on a problem, keep those that reproduce what was observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import runs
from tcsim.diagnosis import arithmetic, blocks, memory, operands, registers, scales, sparsity
from tcsim.diagnosis.moves import diagnose_move
from tcsim.diagnosis.problem import Attempt, Part, Problem
from tcsim.diagnosis.question import named, problem_of
from tcsim.diagnosis.report import Diagnosis, Explanation, described

CATALOGUE: tuple[Callable[[Problem], Iterator[Attempt]], ...] = (
    operands.attempts,
    blocks.attempts,
    memory.attempts,
    sparsity.attempts,
    scales.attempts,
    registers.attempts,
    arithmetic.attempts,
)
"""Where mistakes come from, the commonest first."""

_SCREEN = (12, 16)  # rows and columns of the outputs that every mistake is tried on first
_NEAREST = 5  # how many partial explanations are worked out in full
_TELLING = 8  # outputs that differ from the model and that an explanation must reproduce


@dataclass(frozen=True)
class _Score:
    matched: int
    known: int
    telling: int  # matched outputs that the model without a mistake gets wrong

    @property
    def share(self) -> float:
        return self.matched / self.known if self.known else 0.0


def diagnose(instruction: Any, *, observed: Any, arch: str = "sm_90", **operands: Any) -> Diagnosis:
    """Find the mistake that turns the operands into the observed result.

    instruction: a mnemonic, or what `tcsim.instruction` gives. The operands are named as in its `execute` or `matmul`:
    codes of whole matrices a (..., M, K), b (..., K, N), c (..., M, N) (zeros if left out) with `observed` (..., M, N), of
    any multiple of the instruction's M, N and K; or registers, with `observed` registers (..., lanes, registers); for
    wgmma also smem= with descriptors. A sparse A comes with metadata=, block scales as scale_a= and scale_b=, tcgen05.mma's
    instruction descriptor as idesc=, all as `matmul` takes them. `observed` and the
    matrices may be NumPy or ml_dtypes arrays of exactly the format. An instruction that multiplies nothing (ldmatrix,
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
        look at the order in memory that a is given in, and at .row and .col
    """
    found_instruction, call = named(instruction, arch)
    if not hasattr(found_instruction, "matmul"):
        return diagnose_move(found_instruction, call, observed, operands)
    problem = problem_of(found_instruction, call, observed, operands)
    right, wrong = _model(problem)
    outputs = problem.observed.size
    if not wrong.any():
        return Diagnosis("correct", outputs, outputs, (), (), 0)
    where = _where(wrong)
    found = _constant(problem)
    if found is not None:
        return Diagnosis("explained", outputs, right, (found,), (), 1, where)
    screen = _screen(wrong)
    tried = 0
    exact: list[Explanation] = []
    partial: list[tuple[float, int, Attempt, Problem]] = []
    for source in CATALOGUE:
        for attempt in source(problem):
            changed = attempt.change()
            if changed is None:
                continue
            tried += 1
            score = _score(changed, screen, wrong)
            if score.known and score.matched == score.known:
                whole = _score(changed, list(changed.parts()), wrong)
                if _explains(whole, outputs, int(wrong.sum())):
                    exact.append(Explanation(attempt.mistake, attempt.detail, attempt.advice, whole.matched))
                    continue
            partial.append((score.share, -tried, attempt, changed))
    nearest = []
    if not exact:
        for _, _, attempt, changed in sorted(partial, key=lambda item: item[:2], reverse=True)[:_NEAREST]:
            whole = _score(changed, list(changed.parts()), wrong)
            nearest.append(Explanation(attempt.mistake, attempt.detail, attempt.advice, whole.matched))
    exact.sort(key=lambda item: -item.matched)
    nearest.sort(key=lambda item: -item.matched)
    return described(outputs, right, exact, nearest, tried, where)


def _explains(score: _Score, outputs: int, wrong: int) -> bool:
    """All that can be predicted is reproduced, and it is enough."""
    enough = score.known * 4 >= outputs and score.telling >= min(_TELLING, wrong)
    return score.matched == score.known and enough


def _model(problem: Problem) -> tuple[int, npt.NDArray[np.bool_]]:
    """How many outputs are right, and which are wrong: (batch, M, N)."""
    wrong = np.empty(problem.observed.shape, bool)
    for part in problem.parts():
        wrong[part.matrix] = problem.predict(part) != problem.seen(part)
    return int(wrong.size - wrong.sum()), wrong


def _score(changed: Problem, parts: list[Part], wrong: npt.NDArray[np.bool_]) -> _Score:
    matched = known = telling = 0
    for part in parts:
        knows = changed.knows(part)
        if not knows.any():
            continue
        same = (changed.predict(part) == changed.seen(part)) & knows
        matched, known = matched + int(same.sum()), known + int(knows.sum())
        telling += int((same & wrong[part.matrix][np.ix_(part.rows, part.columns)]).sum())
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


def _constant(problem: Problem) -> Explanation | None:
    """A result that holds one code everywhere was never computed."""
    first = problem.observed.reshape(-1)[0]
    if problem.observed.size < _TELLING or (problem.observed != first).any():
        return None
    detail = f"every output is {int(first):#x}"
    advice = "the result was never written, or all its inputs were zero: look at the store and at what was launched"
    return Explanation("output never written", detail, advice, problem.observed.size)


def _where(wrong: npt.NDArray[np.bool_]) -> str:
    texts = []
    if len(wrong) > 1:
        texts.append(f"matrices {_ranges(np.flatnonzero(wrong.any(axis=(1, 2))))}")
    texts.append(f"rows {_ranges(np.flatnonzero(wrong.any(axis=(0, 2))))}")
    texts.append(f"columns {_ranges(np.flatnonzero(wrong.any(axis=(0, 1))))}")
    return ", ".join(texts)


def _ranges(places: npt.NDArray[np.intp]) -> str:
    text = runs(tuple(int(x) for x in places))
    return text if len(text) <= 60 else f"{len(places)} of {places[0]}-{places[-1]}"
