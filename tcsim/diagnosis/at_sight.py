"""What outputs show at sight: NaN where the operands are none, one code where the model has others, results of 16 bits that are read in the other format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.enough import enough, runs
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.report import Explanation
from tcsim.diagnosis.solve import clean
from tcsim.numbers.codec import decode, encode

NAN = "NaN among what is multiplied"
NAN_ADVICE = "fill what lies outside of a matrix with zeros (a tensor map's oobFill, masks of loads), and write all of a tile before it is read"
_TILE = 128  # of K; a K that is a multiple of it ends with a tile


def nan_code(problem: Problem) -> int | None:
    """The code of d that the instruction gives where an input is NaN; None if it has no NaN."""
    format = problem.machine.formats["c"]
    if format.kind != "float" or problem.machine.formats["d"].kind != "float":
        return None
    c = problem.c.copy()
    c[0, 0, 0] = encode(np.nan, format)
    first = np.zeros(1, np.intp)
    return int(replace(problem, c=c).predict(Part(0, first, first))[0, 0])


def nan_source(problem: Problem) -> str:
    """Where a NaN comes from that is not among the operands."""
    depth = problem.depth or problem.a.shape[2] // problem.kept * problem.step
    places = ["a tile that was not written"]
    if depth % _TILE:
        places.insert(0, f"what fills a tile of K out of bounds, behind K = {depth}")
    return " or ".join(places)


def unwritten_of(problem: Problem, reals: Reals, wrong: Mask, model: Codes) -> Mask:
    """Wrong outputs that all hold one code, where there are many of it: zeros or what filled the memory before."""
    codes = problem.observed[wrong]
    values, counts = np.unique(codes, return_counts=True)
    most = int(counts.argmax())
    unwritten: Mask = (model != problem.observed) & (problem.observed == values[most])
    held = (problem.observed == values[most]) | ~problem.inside()
    for axis in (1, 2):  # whole lines of it: others hold the same code by chance
        lines = unwritten & held.all(axis=axis, keepdims=True)
        which = lines.any(axis=(0, axis))  # of many lines in no order some hold it by chance, too
        told = counts[most] >= 8 and enough(int(lines.sum()), 2 * runs(which) * (runs(which) > 1))
        if told and lines.sum() > 0.9 * unwritten.sum() and not (reals.floor and values[most] == 0):
            return lines
    unwritten &= _beside(unwritten) if _beside(unwritten).sum() > 0.9 * unwritten.sum() else True
    many = counts[most] >= 0.01 * codes.size and unwritten.sum() >= 4 * runs(unwritten.reshape(-1))
    if counts[most] < 8 or (reals.floor and values[most] == 0) or not (many or clean(unwritten, unwritten)):
        return np.zeros_like(wrong)  # scattered: clamped rather than never written
    return unwritten


def _beside(mask: Mask) -> Mask:
    """Which outputs of a mask have a neighbour in it: others hold the same code by chance."""
    padded = np.pad(mask, ((0, 0), (1, 1), (1, 1)))
    middle = slice(1, -1)
    found: Mask = padded[:, :-2, middle] | padded[:, 2:, middle] | padded[:, middle, :-2] | padded[:, middle, 2:]
    return found & mask


_OTHER = {"f16": "bf16", "bf16": "f16"}
_NEAR, _MOST = 2.0**-6, 0.98
"""Sums in another order differ by less, in nearly every output."""


def reread(problem: Problem) -> Explanation | None:
    """The mistake, if the codes are the model's results in the other format: bit for bit, or but for the order of summation."""
    own = problem.output
    if own is None or own not in _OTHER:
        return None
    other, inside = _OTHER[own], problem.inside()
    codes = encode(decode(problem.observed, "f32"), own)
    model = replace(problem, output=None, finish=None).outputs
    numbers, right = decode(codes, other), decode(narrowed(model, other), "f32")
    same = int(((numbers == right) & inside).sum())
    usual = float(np.abs(right[inside & np.isfinite(right)]).mean()) if np.isfinite(right[inside]).any() else 0.0
    with np.errstate(invalid="ignore"):
        off = np.abs(numbers - right)
    near = (numbers == right) | np.isfinite(right) & (off <= _NEAR * np.maximum(np.abs(right), usual))
    if near[inside].mean() < _MOST:
        return None
    said = f"the codes are those of {other} results, and were read as {own}"
    advice = "give the output tensor the type that the epilogue converts to"
    return Explanation(f"d: {other} read as {own}", said, advice, same, bits=same == int(inside.sum()))
