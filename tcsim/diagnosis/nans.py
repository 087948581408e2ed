"""Outputs that are NaN where the operands are not: the instruction's own NaN tells a NaN in its inputs from memory that nobody wrote."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tcsim.diagnosis.problem import Part, Problem
from tcsim.numbers.codec import encode

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
