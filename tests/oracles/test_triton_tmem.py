"""Places in Tensor Memory against Triton's linear layouts of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tcsim.memory.tmem_layout import TmemLayout, accumulator_layout, scale_layout
from tests.oracles.asking import Question, ask
from tests.oracles.comparing import Answers, compare

PROJECT = "triton"
SCRIPT = "ask_triton_tmem.py"


def agree(what: str, said: dict[str, np.ndarray], layout: TmemLayout) -> int:
    """Triton puts each element where tcsim does, in every copy; what it says of places that hold nothing does not count."""
    cta, lane, column, slot = layout.cells
    unit = (cta * layout.width + column) * layout.slots + slot
    row, k = np.indices((layout.rows, layout.columns))
    ours = np.broadcast_to(row << 16 | k, lane.shape).astype(np.int64)
    theirs = (said["rows"] << 16 | said["columns"])[lane, unit].astype(np.int64)
    inputs = {"lane": lane, "unit": unit}
    return compare(Answers(PROJECT, what, inputs, theirs, ours))


def test_accumulators(tmp_path: Path) -> None:
    cases = [(m, n, g) for m, g in ((64, 1), (128, 1), (128, 2), (256, 2)) for n in (32, 64, 128, 256)]
    questions = [Question({"scales": False, "block": [m // g, n], "ctas": g, "shape": [m, n]}) for m, n, g in cases]
    compared = 0
    for (m, n, g), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        compared += agree(f"D {m}x{n} cta_group::{g}", said, accumulator_layout(m, n, g))
    assert compared == sum(m * n for m, n, _ in cases)


def test_scale_factors(tmp_path: Path) -> None:
    """One to 8 factors a row; 8 are two words, the second after those of all rows."""
    cases = [(rows, vectors) for rows in (128, 256) for vectors in (4, 8)]
    questions = [Question({"scales": True, "shape": [rows, vectors]}) for rows, vectors in cases]
    compared = 0
    for (rows, vectors), said in zip(cases, ask(PROJECT, SCRIPT, questions, tmp_path), strict=True):
        compared += agree(f"SF {rows}x{vectors}", said, scale_layout("b", rows, vectors))
    assert compared == 4 * sum(rows * vectors for rows, vectors in cases)
