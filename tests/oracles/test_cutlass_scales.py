"""Layouts of block-scaled mma.sync against the SM120 atoms of CUTLASS's CuTe DSL: A, B, C, and the scales of A and B."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

import tcsim
from tcsim import catalog
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare
from tests.oracles.layouts import evaluate
from tests.oracles.test_cutlass import PROJECT, SCRIPT, dense_index

ROWS = [row for row in catalog.rows().values() if row.family == "mma.sync.block_scale"]


def question(mma: ScaledMatrixMultiply, of_scales: bool) -> Question:
    """The atom of an instruction, or the same atom as it lays out scales."""
    types = [mma.operands[name].format.name for name in "abc"]
    job = {"kind": "block scaled", "shape": list(mma.shape), "types": types, "of scales": of_scales}
    return Question(job | {"vector": mma.block, "scale": mma.row.scale_a.format.name})


def test_layouts_of_scaled_atoms(tmp_path: Path) -> None:
    """Every lane's elements, as CuTe writes them; and for every selector, whose scale every lane's byte is.

    CuTe gives every lane a scale for each k, also the lanes that are not read: those that are must hold what it says.
    """
    instructions = [tcsim.instruction(row.mnemonic, arch="sm_120") for row in ROWS]
    answers = ask(
        PROJECT, SCRIPT, [question(mma, scales) for mma in instructions for scales in (False, True)], tmp_path
    )
    counts: Counter[str] = Counter()
    for number, mma in enumerate(instructions):
        fragments, scales = answers[2 * number : 2 * number + 2]
        assert "refused" not in fragments, mma.mnemonic
        for name in "abc":
            theirs, ours = evaluate(str(fragments[name])), dense_index(mma.row, name)
            inputs = dict(zip(("lane", "value"), np.indices(ours.shape), strict=True))
            counts["elements"] += compare(Answers(PROJECT, f"{mma.mnemonic} {name}", inputs, theirs, ours))
            assert str(mma.operands[name].layout) == str(fragments[name])
        for side in "ab":
            layout = mma.scales[f"scale_{side}"].layout
            theirs = evaluate(str(scales[side])) % layout.extent  # (lane, k) -> row of A or column of B
            for byte_id in layout.byte_ids:
                for thread_id in layout.thread_ids:
                    lane, slot = np.divmod(np.unique(layout.places(byte_id, thread_id)), 4)
                    row, column = layout(lane, np.zeros_like(lane), slot, byte_id=byte_id, thread_id=thread_id)
                    outer, block = (row, column) if side == "a" else (column, row)
                    said = theirs[lane, block * mma.block]
                    inputs = {"lane": lane, "slot": slot}
                    subject = f"{mma.mnemonic} scale_{side} byte {byte_id} thread {thread_id}"
                    counts["scales"] += compare(Answers(PROJECT, subject, inputs, said, outer))
                    if byte_id == thread_id == 0:  # along k, the block is k / block
                        index = evaluate(str(scales[side]))[lane[block == 0]] // layout.extent
                        assert (index == np.arange(mma.shape[2])).all()
    assert len(instructions) == 55
    assert counts["elements"] == 50 * (512 + 256 + 128) + 5 * (1024 + 512 + 128)
    assert counts["scales"] == 50 * 4 * (2 * 16 + 4 * 8) + 3 * 2 * 2 * (2 * 16 + 4 * 8) + 2 * 4 * (2 * 16 + 4 * 8)
