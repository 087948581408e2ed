"""Mistakes with whole matrices that are no rules of an operand: signs, types, subnormals, operands exchanged, a result added to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np

from tcsim.diagnosis.problem import Attempt, Codes, Problem
from tcsim.numbers.codec import decode, encode, negated
from tcsim.numbers.formats import FORMATS, SUBNORMAL, Format


def attempts(problem: Problem) -> Iterator[Attempt]:
    """What can go wrong with a matrix as a whole, and is not a rule of an operand."""
    for name in "abcd":
        advice = f"look at the signs that {name} is given with (scale_a, scale_b, negate)"
        yield Attempt(f"{name} negated", "", advice, partial(_negated, problem, name))
    yield Attempt(
        "d transposed",
        "the whole matrix, row-major taken for column-major",
        "look at the order in memory of d, and at .row and .col",
        partial(_stored_in_other_order, problem),
    )
    for held, read in permutations(("f32", "f16", "bf16"), 2):
        for order, said in ((False, "row by row"), (True, "column by column")):
            yield Attempt(
                "c read as another type",
                f"it lies there as {held}, {said}, and is read as {read}",
                "look at the types of C and of the output in the epilogue: a pointer to one is cast to the other",
                partial(_c_as, problem, held, read, order),
            )
    yield Attempt("a and b exchanged", "", "look at the order of the operands", partial(_exchanged, problem))
    yield Attempt(
        "stale accumulator",
        "the product is added to an earlier run's result",
        "clear the accumulator, or set scale_d to 0 for the first instruction",
        partial(_run_twice, problem),
    )
    if problem.blocks > 1:
        yield Attempt(
            "accumulator restarted",
            "each instruction starts from zero: the last K block alone is left",
            "set scale_d (or pass the accumulator) after the first instruction",
            partial(replace, problem, order=problem.order[-1:], c=np.zeros_like(problem.c)),
        )
    for name in "ab":
        advice = f"tensor cores keep subnormals: {name} was converted by code that flushes them"
        yield Attempt(f"subnormals of {name} flushed", "", advice, partial(_flushed, problem, name))


def changed(problem: Problem, name: str, codes: Codes) -> Problem:
    """The problem with other codes for an operand; those of d are what would have been observed without the mistake."""
    if name == "a":
        return replace(problem, a=codes)
    if name == "b":
        return replace(problem, b=codes)
    return replace(problem, c=codes) if name == "c" else replace(problem, observed=codes)


def stored(problem: Problem, codes: Codes, inside: Codes | None) -> Problem:
    """The problem with what would have been observed, where that was given: what pads the output to the instruction's shape is not known."""
    return replace(problem, observed=codes, known=None if inside is None else inside != 0)


def operand(problem: Problem, name: str) -> Codes:
    """The codes of an operand."""
    given: Codes = getattr(problem, "observed" if name == "d" else name)
    return given


def format_of(problem: Problem, name: str) -> Format:
    """The number format of an operand."""
    return problem.machine.formats[name]


def _stored_in_other_order(problem: Problem) -> Problem:
    def turned(codes: Codes) -> Codes:
        batch, rows, columns = codes.shape
        return np.ascontiguousarray(codes.reshape(batch, columns, rows).swapaxes(1, 2))

    inside = None if problem.size is None else turned(problem.inside().astype(problem.observed.dtype))
    return stored(problem, turned(problem.observed), inside)


def _negated(problem: Problem, name: str) -> Problem | None:
    format = format_of(problem, name)
    if format.kind == "bit":
        return None
    codes = operand(problem, name)
    if format.kind == "float" or format.sign_magnitude:
        if not format.signed:
            return None
        return changed(problem, name, negated(codes, format))
    return changed(problem, name, (np.zeros_like(codes) - codes) & format.dtype.type(format.code_mask))


def _exchanged(problem: Problem) -> Problem | None:
    a, b = problem.a, problem.b
    if a.shape != b.shape or a.dtype != b.dtype:
        return None
    return replace(problem, a=b, b=a)


def _c_as(problem: Problem, held: str, read: str, by_column: bool) -> Problem | None:
    """C with each element made of the bits at its place in a memory that holds another type; zeros behind the end."""
    own = format_of(problem, "c")
    rows, columns = problem.sizes
    given = problem.c[:, :rows, :columns]
    values = decode(given, own)
    if own.kind != "float" or not given.any() or not np.array_equal(values, decode(encode(values, held), held)):
        return None
    memory = encode(values.swapaxes(1, 2) if by_column else values, held).reshape(len(values), -1)
    seen = np.zeros((len(values), rows * columns), FORMATS[read].dtype)
    found = np.ascontiguousarray(memory).view(seen.dtype)[:, : rows * columns]
    seen[:, : found.shape[1]] = found
    wide = encode(decode(seen, read), own)
    c = np.zeros_like(problem.c)
    c[:, :rows, :columns] = (
        wide.reshape(-1, columns, rows).swapaxes(1, 2) if by_column else wide.reshape(-1, rows, columns)
    )
    return replace(problem, c=c)


def _run_twice(problem: Problem) -> Problem | None:
    if format_of(problem, "c") is not format_of(problem, "d"):
        return None
    return replace(problem, order=problem.order * 2)


def _flushed(problem: Problem, name: str) -> Problem | None:
    format = format_of(problem, name)
    codes = operand(problem, name)
    if format.kind != "float":
        return None
    kind = format.fields(codes).kind
    if not (kind == SUBNORMAL).any():
        return None
    sign = format.dtype.type(1 << (format.sign_shift + format.ignored_low_bits) if format.signed else 0)
    return changed(problem, name, np.where(kind == SUBNORMAL, codes & sign, codes))
