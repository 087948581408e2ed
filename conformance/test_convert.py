"""Whole arrays from f32 to narrower formats: the kernel's codes equal `tcsim.quantize`'s. They need a GPU; nothing is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.convert_cases import ConvertCase, call_of, inputs, predicted
from conformance.suite import Outcome, Suite
from hwkernels.convert_call import conversion
from hwkernels.toolchain import AssembleError, ToolchainError
from hwkernels.worker import ContextLost, ExecutorError, Hang

SHOWN = 5  # mismatches


def test_convert(converted: ConvertCase, suite: Suite, conclude: Any) -> None:
    """Run it twice, compare the runs, then the first with the prediction."""
    name = conversion(converted.format, converted.saturate, suite.settings.arch).mnemonic
    conclude("convert", name, run(converted, suite))


def run(case: ConvertCase, suite: Suite) -> Outcome:
    """The verdict on a case."""
    settings = suite.settings
    if suite.hardware is None:
        return Outcome("UNTESTED", how="a whole array needs a GPU: nothing is recorded")
    where = suite.hardware.text
    rerun = f'rerun: pytest "conformance/test_convert.py::test_convert[{case.id}]" --arch {settings.arch} --live'
    rerun += f" --seed {settings.seed}" if settings.seed else ""
    x = inputs(case, settings.seed)
    try:
        first, second = suite.hardware.run_conversion(call_of(case, x, repeat=2))
    except Hang as error:
        return Outcome("HANG", how=where, text=f"{error}\n{rerun}")
    except ContextLost as error:
        return Outcome("CONTEXT_LOST", how=where, text=f"{error}\n{rerun}")
    except (ExecutorError, AssembleError, ToolchainError) as error:
        return Outcome("FAIL", how=where, text=f"{case.id}: {error}\n{rerun}")
    want = predicted(case, x)
    first, second = (np.ascontiguousarray(item).view(want.dtype) for item in (first, second))
    if not np.array_equal(first, second):
        changed = int((first != second).sum())
        return Outcome("UNSTABLE", how=where, text=f"two runs of {case.id} differ in {changed} codes\n{rerun}")
    wrong = np.flatnonzero(first != want)
    if not wrong.size:
        return Outcome("PASS", want.size, 0, where)
    width = 2 + 2 * want.dtype.itemsize
    lines = [f"{case.id}: {wrong.size} of {want.size} codes differ"]
    lines += [
        f"MISMATCH element {i}: input {int(x.view(np.uint32)[i]):#010x} hardware {int(first[i]):#0{width}x} "
        f"model {int(want[i]):#0{width}x}"
        for i in wrong[:SHOWN]
    ]
    return Outcome("FAIL", want.size, int(wrong.size), where, "\n".join([*lines, rerun]))
