"""Fragments of tcgen05.ld and tcgen05.st against the copy atoms of CUTLASS's CuTe DSL: element by element, and as CuTe writes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from tcsim import catalog
from tcsim.isa.tcgen05.move import MoveRow
from tcsim.model.row import Row
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.layouts import evaluate, values_of

PROJECT = "nvidia-cutlass-dsl"
SCRIPT = "ask_cutlass.py"
KINDS = {"tcgen05.ld": ("load", "d"), "tcgen05.st": ("store", "registers")}
SHAPES = {"16x64b": (16, 64), "16x128b": (16, 128), "16x256b": (16, 256), "32x32b": (32, 32), "16x32bx2": (16, 32)}
"""Lanes and bits, as the DSL names them."""


def question(row: Row) -> Question:
    """The atom of a row."""
    assert isinstance(row, MoveRow)
    count = int(row.modifiers["count"][2:])
    kind, _ = KINDS[row.family]
    return Question({"kind": kind, "shape": list(SHAPES[row.movement.name]), "count": count, "packed": row.packed})


def test_fragments_of_tensor_memory(tmp_path: Path) -> None:
    """All 148: the same element in every register of every lane, and the same text."""
    rows = [row for row in catalog.rows().values() if row.family in KINDS]
    answers = ask(PROJECT, SCRIPT, [question(row) for row in rows], tmp_path)
    counts: Counter[str] = Counter()
    for row, said in zip(rows, answers, strict=True):
        layout = row.operands[KINDS[row.family][1]].layout
        text = str(said["registers"])
        r, c = values_of(layout)
        ours = c + layout.columns * r
        lane, value = np.indices(ours.shape)
        answers_of_row = Answers(PROJECT, row.mnemonic, {"lane": lane, "value": value}, evaluate(text), ours)
        counts["elements"] += compare(answers_of_row)
        assert str(layout) == text, row.mnemonic
        counts["texts"] += 1
    assert counts["texts"] == len(rows) == 148
    assert counts["elements"] == sum(row.shape[0] * row.shape[1] for row in rows)
