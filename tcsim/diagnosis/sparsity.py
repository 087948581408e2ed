"""Mistakes with the metadata of a sparse A."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import TcsimError
from tcsim.diagnosis.problem import Attempt, Problem

Positions = npt.NDArray[np.int64]


def attempts(problem: Problem) -> Iterator[Attempt]:
    """Wrong groups, wrong rows, none at all; nothing for a dense instruction."""
    sparsity = problem.machine.sparsity
    if problem.positions is None or sparsity is None:
        return
    per_group = sparsity.kept // sparsity.groups  # kept elements that a group describes
    where = "look at which lanes and bits of the metadata register hold a group: docs/sparsity.md"
    for mistake, detail, change in (
        ("metadata groups swapped", "each two neighbours", partial(_swapped, count=per_group)),
        ("metadata of another row", "row i with i + 8", _rows_swapped),
        ("metadata of another row", "row i with i ^ 1", partial(_rows_xor, mask=1)),
        ("metadata reversed", "the groups of a row from the other end", partial(_reversed, count=per_group)),
        ("metadata ignored", "the first elements of every group", partial(_constant, count=per_group, high=False)),
        ("metadata ignored", "the last elements of every group", partial(_constant, count=per_group, high=True)),
    ):
        yield Attempt(mistake, detail, where, partial(_with, problem, change))
    if problem.metadata is not None:
        for selector in sparsity.selectors:
            if selector != problem.selector:
                said = "look at the last immediate of the instruction: which lanes' metadata it reads"
                yield Attempt("metadata selector wrong", f"{selector}", said, partial(_selected, problem, selector))


def _with(problem: Problem, change: Callable[[Positions, int], Positions | None]) -> Problem | None:
    sparsity, given = problem.machine.sparsity, problem.positions
    if given is None or sparsity is None:
        return None
    positions = change(given, sparsity.group)
    return None if positions is None else replace(problem, positions=positions)


def _selected(problem: Problem, selector: int) -> Problem | None:
    multiply = problem.machine.instruction
    if problem.metadata is None:
        return None
    try:
        return replace(problem, positions=multiply.decode_metadata(problem.metadata, selector))
    except TcsimError:
        return None  # what those lanes hold is not metadata


def _swapped(positions: Positions, group: int, count: int) -> Positions | None:
    if positions.shape[-1] % (2 * count):
        return None
    pairs = positions.reshape(*positions.shape[:-1], -1, 2, count)
    return pairs[..., ::-1, :].reshape(positions.shape)


def _rows_swapped(positions: Positions, group: int) -> Positions | None:
    return None if positions.shape[-2] % 16 else positions[..., np.arange(positions.shape[-2]) ^ 8, :]


def _rows_xor(positions: Positions, group: int, mask: int) -> Positions:
    return positions[..., np.arange(positions.shape[-2]) ^ mask, :]


def _reversed(positions: Positions, group: int, count: int) -> Positions:
    groups = positions.reshape(*positions.shape[:-1], -1, count)
    return groups[..., ::-1, :].reshape(positions.shape)


def _constant(positions: Positions, group: int, count: int, high: bool) -> Positions:
    own = np.arange(count) + (group - count if high else 0)
    return np.broadcast_to(np.tile(own, positions.shape[-1] // count), positions.shape)
