"""Triton: the linear layouts of Gluon's tensor memory, for accumulators and scale factors. Run by tests/oracles/asking.py."""

from __future__ import annotations

import numpy as np
from answering import Arrays, Job, main
from triton._C.libtriton import gluon_ir, ir
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, TensorMemoryScalesLayout

CONTEXT = ir.context()
ir.load_dialects(CONTEXT)
BUILDER = gluon_ir.GluonOpBuilder(CONTEXT)


def places(bases: list[list[int]]) -> list[tuple[int, int]]:
    """The (row, column) of every number whose bits the bases say, by exclusive or."""
    found = [(0, 0)]
    for row, column in bases:
        found += [(r ^ row, c ^ column) for r, c in found]
    return found


def answer(job: Job, given: Arrays) -> Arrays:
    """Rows and columns of every (lane, unit): a unit is an element of TMEM's columns; those of the second CTA come last."""
    if job["scales"]:
        layout = TensorMemoryScalesLayout()
    else:
        pair = job["ctas"] == 2
        layout = TensorMemoryLayout(tuple(job["block"]), 1, (2, 1) if pair else None, pair)
    linear = BUILDER.to_linear_layout(layout._to_ir(BUILDER), job["shape"])
    both = np.array([[(lr ^ ur, lc ^ uc) for ur, uc in places(linear.cols)] for lr, lc in places(linear.rows)])
    return {"rows": both[..., 0], "columns": both[..., 1]}


if __name__ == "__main__":
    main("triton", answer)
