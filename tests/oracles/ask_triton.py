"""Triton: the linear layouts of Gluon's MMA layouts, for a version of the MMA. Run by tests/oracles/asking.py.

A layout is an MLIR attribute; nothing is compiled and no GPU is needed.
"""

from __future__ import annotations

import numpy as np
from answering import Arrays, Job, main
from triton._C.libtriton import gluon_ir, ir
from triton.experimental.gluon.language import DotOperandLayout, NVMMADistributedLayout

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
    """Rows and columns of every (thread, value) of the accumulator or of operand 0 or 1: threads of all warps in order."""
    layout = NVMMADistributedLayout(job["version"], [job["warps"], 1], job["instruction"])
    if job["operand"] is not None:
        layout = DotOperandLayout(job["operand"], layout, job["k_width"])
    linear = BUILDER.to_linear_layout(layout._to_ir(BUILDER), job["shape"])
    threads = places([*linear.lane_bases, *linear.warp_bases])
    values = places(linear.reg_bases)
    both = np.array([[(tr ^ vr, tc ^ vc) for vr, vc in values] for tr, tc in threads])
    return {"rows": both[..., 0], "columns": both[..., 1]}


if __name__ == "__main__":
    main("triton", answer)
