"""Fragment layouts against Triton's: the linear layouts that its compiler computes for mma.sync and wgmma."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tcsim import catalog
from tcsim.model.operand import Fragment
from tcsim.model.row import Row
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.layouts import values_of

PROJECT = "triton"
SCRIPT = "ask_triton.py"
# Triton lays out m16n8kK of mma.sync, from K of one register a row to two, and m64nNkK of wgmma with N a power of two.
VERSIONS = {"mma.sync": ([2, 0], 1), "wgmma": ([3, 0], 4)}  # version of the MMA, warps
OPERANDS = {"a": 0, "b": 1, "c": None}
ROWS = {"mma.sync": 133, "wgmma": 126}


def asked(row: Row) -> bool:
    """Whether Triton has the shape."""
    m, n, _ = row.shape
    return m == {"mma.sync": 16, "wgmma": 64}[row.family] and n & (n - 1) == 0


def question(row: Row, operand: Fragment) -> Question:
    """The tile of whole 4 x 8 registers that begins with the fragment: a smaller K is the first half of its values."""
    version, warps = VERSIONS[row.family]
    per_register = max(1, 32 // operand.layout.element_bits)
    k = max(row.shape[2], 8 * per_register)
    shape = {"a": [row.shape[0], k], "b": [k, row.shape[1]], "c": [row.shape[0], row.shape[1]]}[operand.name]
    instruction = [16, 8] if row.family == "mma.sync" else [16, row.shape[1], k]
    job = {"version": version, "warps": warps, "instruction": instruction, "shape": shape}
    return Question(job | {"operand": OPERANDS[operand.name], "k_width": per_register})


@pytest.mark.parametrize("family", VERSIONS)
def test_layouts_of_fragments(family: str, tmp_path: Path) -> None:
    """Every thread's values are the same elements, in the same order."""
    rows = [row for row in catalog.rows().values() if row.family == family and not row.dropped and asked(row)]
    pairs = [(row, row.operands[name]) for row in rows for name in OPERANDS if name in row.operands]
    answers = ask(PROJECT, SCRIPT, [question(row, operand) for row, operand in pairs], tmp_path)
    counts: Counter[str] = Counter()
    for (row, operand), said in zip(pairs, answers, strict=True):
        r, c = values_of(operand.layout)
        count = r.shape[1]
        inputs = dict(zip(("thread", "value"), np.indices(r.shape), strict=True))
        theirs = said["rows"][:, :count] << 16 | said["columns"][:, :count]
        counts["elements"] += compare(
            Answers(PROJECT, f"{row.mnemonic} {operand.name}", inputs, theirs.astype(np.int64), r << 16 | c)
        )
        counts["operands"] += 1
    assert len(rows) == ROWS[family]
    assert counts["operands"] == len(pairs) >= 2 * len(rows)
    assert counts["elements"] > 32 * counts["operands"]
