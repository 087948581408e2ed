"""Whole GEMMs: every kernel's output equals `tcsim.gemm`'s, bit for bit. They need a GPU; nothing of them is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.gemm_cases import GemmCase, call_of, operands, predicted
from conformance.suite import Outcome, Suite
from hwkernels.toolchain import AssembleError, ToolchainError
from hwkernels.worker import ContextLost, ExecutorError, Hang

SHOWN = 5  # mismatches


def test_gemm(gemm: GemmCase, suite: Suite, conclude: Any) -> None:
    """Run it twice, compare the runs, then the first with the prediction."""
    conclude("gemm", gemm.build(suite.settings.arch).instruction.mnemonic, run(gemm, suite))


def run(case: GemmCase, suite: Suite) -> Outcome:
    """The verdict on a case."""
    settings = suite.settings
    if suite.hardware is None:
        return Outcome("UNTESTED", how="a whole GEMM needs a GPU: nothing is recorded")
    where = suite.hardware.text
    rerun = f'rerun: pytest "conformance/test_gemm.py::test_gemm[{case.id}]" --arch {settings.arch} --live'
    rerun += f" --seed {settings.seed}" if settings.seed else ""
    a, b, c = operands(case, settings.seed)
    try:
        first, second = suite.hardware.run_gemm(call_of(case, a, b, c, repeat=2))
    except Hang as error:
        return Outcome("HANG", how=where, text=f"{error}\n{rerun}")
    except ContextLost as error:
        return Outcome("CONTEXT_LOST", how=where, text=f"{error}\n{rerun}")
    except (ExecutorError, AssembleError, ToolchainError) as error:
        return Outcome("FAIL", how=where, text=f"{case.id}: {error}\n{rerun}")
    want = predicted(case, settings.arch, a, b, c)
    first, second = (np.ascontiguousarray(item).view(want.dtype) for item in (first, second))
    if not np.array_equal(first, second):
        changed = int((first != second).sum())
        return Outcome("UNSTABLE", how=where, text=f"two runs of {case.id} differ in {changed} outputs\n{rerun}")
    if np.array_equal(first, want):
        return Outcome("PASS", want.size, 0, where)
    wrong = np.argwhere(first != want)
    width = 2 + 2 * want.dtype.itemsize
    lines = [f"{case.id}: {len(wrong)} of {want.size} outputs differ"]
    lines += [
        f"MISMATCH row {m}, column {n}: hardware {int(first[m, n]):#0{width}x} model {int(want[m, n]):#0{width}x}"
        for m, n in wrong[:SHOWN]
    ]
    rows, columns = (sorted(set((wrong[:, axis] // 64).tolist())) for axis in (0, 1))
    lines.append(f"in blocks of 64: rows {rows[:20]}, columns {columns[:20]}")
    return Outcome("FAIL", want.size, len(wrong), where, "\n".join([*lines, rerun]))
