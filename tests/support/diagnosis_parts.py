"""A small right product for tests of single rules of the diagnosis, and what a rule reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import tcsim
from tcsim.diagnosis.maps import Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.question import problem_of
from tcsim.diagnosis.reals import Reals, reals_of

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SCALED = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"


def problem(
    m: int = 16, n: int = 8, k: int = 64, c: bool = False, arch: str = "sm_90", mnemonic: str = MMA, **changes: Any
) -> Problem:
    """A right product of small numbers."""
    random = np.random.default_rng(m * n * k)
    a, b, added = (random.standard_normal(shape) for shape in ((m, k), (k, n), (m, n)))
    given = {
        "a": tcsim.encode(a, "f16"),
        "b": tcsim.encode(b, "f16"),
        "c": tcsim.encode(added if c else 0 * abs(added), "f32"),
    }
    found = problem_of(tcsim.instruction(mnemonic, arch=arch), "diagnose", np.zeros((m, n), np.uint32), given)
    return replace(replace(found, observed=found.outputs), **changes)


def numbers(own: Problem) -> Reals:
    """Of a problem."""
    return reals_of(own, replace(own, finish=None).outputs)


def read(rule: Rule, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """What a rule reads at every place."""
    r, k = np.indices((rows, columns))
    row, column = rule.where(r, k, r * 0)
    return np.broadcast_to(row, r.shape), np.broadcast_to(column, r.shape)
