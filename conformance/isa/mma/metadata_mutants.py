"""Mutants of sparsity metadata: which lanes hold it, which bits say which group, and what the two indices mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.testbench import Array, Inputs, Mutant
from tcsim.isa.mma.sparse_operand import SparseOperand

Execute = Callable[[Any, Inputs], Array]
Groups = npt.NDArray[np.uint8]


def _with_groups(execute: Execute, change: Callable[[Groups], Groups]) -> Execute:
    """Run with the 4-bit groups (samples, rows, groups) changed."""

    def run(instruction: SparseOperand, inputs: Inputs) -> Array:
        sparsity, selector = instruction.sparsity, int(inputs["selector"][0])
        groups = change(sparsity.groups_of(inputs["metadata"][..., 0], selector))
        return execute(instruction, {**inputs, "metadata": sparsity.words_of(groups, selector)[..., None]})

    return run


def _selector_ignored(execute: Execute) -> Execute:
    """Lane 0 (or 0 and 1) of every four, whatever the selector says; undefined words there count as the first two."""

    def run(instruction: SparseOperand, inputs: Inputs) -> Array:
        sparsity = instruction.sparsity
        groups = sparsity.groups_of(inputs["metadata"][..., 0], 0)
        groups = np.where(np.isin(groups, sparsity.valid), groups, np.uint8(sparsity.valid[0]))
        selector = int(inputs["selector"][0])
        return execute(instruction, {**inputs, "metadata": sparsity.words_of(groups, selector)[..., None]})

    return run


def _rows_exchanged(groups: Groups) -> Groups:
    return groups[..., np.arange(groups.shape[-2]) ^ 8, :]


def _warps_exchanged(groups: Groups) -> Groups:
    return groups[..., np.arange(groups.shape[-2]) ^ 16, :]


def _groups_exchanged(groups: Groups) -> Groups:
    return groups[..., np.arange(groups.shape[-1]) ^ 1]


def _halves_exchanged(groups: Groups) -> Groups:
    return np.roll(groups, groups.shape[-1] // 2, axis=-1)


def _indices_exchanged(groups: Groups) -> Groups:
    return ((groups & 3) << 2 | groups >> 2).astype(np.uint8)


def _not_tf32(instruction: SparseOperand) -> bool:
    return instruction.sparsity.element_bits != 32


def _has_selectors(instruction: SparseOperand) -> bool:
    return len(instruction.sparsity.selectors) > 1


def _four_warps(instruction: SparseOperand) -> bool:
    return instruction.sparsity.rows > 16


def metadata_mutants(execute: Execute) -> tuple[Mutant, ...]:
    """The mutants of a family whose cases `execute` runs."""
    return (
        Mutant("selector ignored", "the metadata of selector 0 is read", _has_selectors,
               _selector_ignored(execute)),
        Mutant("metadata rows exchanged", "rows g and g + 8 change places", lambda i: True,
               _with_groups(execute, _rows_exchanged)),
        Mutant("metadata nibbles swapped", "neighbouring 4-bit groups change places", lambda i: True,
               _with_groups(execute, _groups_exchanged)),
        Mutant("metadata halves swapped", "the groups of the lower and the upper half of K change places",
               lambda i: True, _with_groups(execute, _halves_exchanged)),
        Mutant("metadata of the next warp", "neighbouring warps' rows change places", _four_warps,
               _with_groups(execute, _warps_exchanged)),
        Mutant("indices swapped", "the two indices of a group change places", _not_tf32,
               _with_groups(execute, _indices_exchanged)),
    )  # fmt: skip
