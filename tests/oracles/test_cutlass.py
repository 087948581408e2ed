"""Fragment layouts against the MMA atoms of CUTLASS's CuTe DSL: element by element, and as CuTe writes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim import catalog
from tcsim.isa.mma.sparse_operand import SparseRow
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.row import Row
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.layouts import Ints, evaluate, values_of

PROJECT = "nvidia-cutlass-dsl"
SCRIPT = "ask_cutlass.py"
KINDS = {"mma.sync": "dense", "mma.sp": "sparse", "wgmma": "warpgroup"}
# Of how many rows the DSL has an atom. It has none of m8n8k4 f16, of f64 but m8n8k4, of int4, of b1, and of sparse fp8,
# fp6, fp4 and int4. Its atom for fp6 and fp4 is the block-scaled one, whose layouts depend on the shape alone.
ATOMS = {"mma.sync": 111, "mma.sp": 48, "wgmma": 546}
CUTE_UNIT = {"b1": 8}  # CuTe counts the operands of a warpgroup's b1 atom in bytes


def multiplicands(row: Row) -> tuple[str, str]:
    """The types of A and B as the mnemonic has them: of wgmma, B has no registers."""
    words = row.mnemonic.removesuffix(".xor.popc").removesuffix(".and.popc").split(".")
    return (words[-2], words[-1]) if row.family == "wgmma" else (words[-3], words[-2])


def question(row: Row) -> Question:
    """The atom of a row."""
    kind = "block scaled" if row.arithmetic == "f6f4" and row.family == "mma.sync" else KINDS[row.family]
    types = [*multiplicands(row), row.operands["c"].format.name]
    return Question({"kind": kind, "shape": list(row.shape), "types": types})


def dense_index(row: Row, name: str) -> Ints:
    """CuTe's index of every (lane, value): m + M k for A, n + N k for B, m + M n for C."""
    layout = row.operands[name].layout
    r, c = values_of(layout)
    return c + layout.columns * r if name == "b" else r + layout.rows * c


def group_index(row: Row, index: Ints, sparsity: Sparsity) -> tuple[Ints, Ints]:
    """Of a sparse A: (row, group) of every (lane, dense value), by CuTe's index and by where tcsim keeps the value."""
    kept_row, kept_column = (x.repeat(2, axis=1) for x in values_of(row.operands["a"].layout))
    theirs = index % sparsity.rows, index // sparsity.rows // sparsity.group
    ours = kept_row, kept_column // (sparsity.group // 2)
    return theirs[0] * sparsity.groups + theirs[1], ours[0] * sparsity.groups + ours[1]


@pytest.mark.parametrize("family", KINDS)
def test_layouts_of_atoms(family: str, tmp_path: Path) -> None:
    """Every lane's values are the same elements; so is the text, but of a sparse A, which CuTe counts dense."""
    rows = [row for row in catalog.rows().values() if row.family == family and not row.dropped]
    answers = ask(PROJECT, SCRIPT, [question(row) for row in rows], tmp_path)
    counts: Counter[str] = Counter()
    for row, said in zip(rows, answers, strict=True):
        if "refused" in said:
            counts["refused"] += 1
            continue
        counts["atoms"] += 1
        for name in "abc":
            if name not in row.operands:
                continue
            text, operand = str(said[name]), row.operands[name]
            theirs: Ints = evaluate(text)
            unit = CUTE_UNIT.get(operand.format.name, 1)
            inputs: dict[str, Any] = {}
            if family == "mma.sp" and name == "a":
                assert isinstance(row, SparseRow) and row.sparsity
                theirs, ours = group_index(row, theirs, row.sparsity)
            else:
                ours = dense_index(row, name)
                if unit > 1:  # every unit-th value, and its K in units
                    r, c = ours[:, ::unit] % row.shape[0], ours[:, ::unit] // row.shape[0]
                    assert (c % unit == 0).all()
                    ours = r + row.shape[0] * (c // unit)
                else:
                    assert str(operand.layout) == text, f"{row.mnemonic} {name}"
                    counts["texts"] += 1
            inputs["lane"], inputs["value"] = np.indices(ours.shape)
            counts["elements"] += compare(Answers(PROJECT, f"{row.mnemonic} {name}", inputs, theirs, ours))
    assert counts["atoms"] == ATOMS[family]
    assert counts["atoms"] + counts["refused"] == len(rows)
    assert counts["texts"] >= 2 * counts["atoms"] - 18 * (family == "wgmma")
    assert counts["elements"] > 32 * counts["texts"]
