"""The GEMM kernels without a GPU: they compile, their machine code is as claimed, their tiles cover the output."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import tcsim
from hwkernels import gemm_tiles
from hwkernels.device_arrays import DeviceMatrix, OperandTypeError, read_matrix, round_up
from hwkernels.gemm_build import SHARED_LIMIT, Build, cubin_of
from hwkernels.gemm_call import GemmError, Tuning, find_kernel, layout_of, problem_dtype, target_for, tuned
from hwkernels.gemm_kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES, OUTPUT_TMA
from hwkernels.gemm_tiles import Shape, choose
from hwkernels.nvrtc import compile_cubin, find_compilers
from hwkernels.sass import SassError, disassemble, opcode_counts
from hwkernels.toolchain import AssembleError, ToolchainError

SQUARE = Shape(4096, 4096, 4096)
MULTIPLIES = ("HMMA", "QMMA", "IMMA", "HGMMA", "QGMMA", "IGMMA")


def builds_of(name: str) -> list[Build]:
    """For one kernel: each format with its default output, and one format with each other choice that exists."""
    kernel = KERNELS[name]
    found = [
        choose(kernel, SQUARE, (f, f, OPERAND_FORMATS[f].outputs[0]), target=kernel.targets[-1]) for f in kernel.formats
    ]
    first = found[0]
    for out in OPERAND_FORMATS[first.a].outputs[1:]:
        found.append(replace(first, out=out, scaled=True))
    if first.a in kernel.mn_major:
        found.append(replace(first, a_mn_major=True, b_mn_major=True))
    found += [choose(kernel, SQUARE, (first.a, first.b, first.out), target=target) for target in kernel.targets[:-1]]
    if kernel.ctas:
        found.append(tuned(first, Tuning(block_n=kernel.block_n[-1])))
    elif kernel.persistent:
        found += [tuned(first, Tuning(block_n=n)) for n in kernel.block_n[1:]]
        found.append(replace(first, tma_store=False, cluster=(1, 1), a_mn_major=True))
        found.append(tuned(first, Tuning(cluster=(2, 2))))
        found.append(tuned(choose(kernel, SQUARE, ("e4m3", "e5m2", "bf16")), Tuning(block_n=128, promote=1)))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_to_the_machine_code_it_claims(name: str) -> None:
    """No note, no spill (either raises), and the opcodes; no multiplication that is not claimed."""
    checked = 0
    for build in builds_of(name):
        cubin = cubin_of(build)
        if build.target == "sm_70":  # no nvdisasm wheel reads it
            with pytest.raises(SassError, match="no installed nvdisasm reads this cubin"):
                disassemble(cubin)
            checked += 1
            continue
        counts = opcode_counts(disassemble(cubin))
        for opcode in build.opcodes:
            assert any(found.startswith(opcode) for found in counts), f"{build}: no {opcode} in {sorted(counts)}"
        others = [
            found
            for found in counts
            if found.startswith(MULTIPLIES) and not found.startswith(build.row.multiply_opcodes[build.a])
        ]
        assert not others, f"{build}: {others}"
        assert not any(found.startswith(("LDL", "STL")) for found in counts), f"{build} uses local memory"
        checked += 1
    assert checked >= len(KERNELS[name].formats)
