"""No kernel of the GPU's engine spills registers: a part of `conformance.engines.spills`, and what happens to one that does."""

from __future__ import annotations

import pytest

from conformance.engines.spills import TARGETS, complaint, kernels
from hwkernels.device.toolchain import AssembleError
from hwkernels.engine import fast
from hwkernels.engine.run import cubin_of
from tests.support.extent import part


@pytest.mark.parametrize("target", TARGETS)
def test_no_kernel_spills(target: str) -> None:
    every = kernels(target)
    large, others = ([one for one in every if (one[1] == "fast") is wanted] for wanted in (True, False))
    complaints = [complaint(one, target) for one in (*part(large, 2, target), *part(others, 1, target))]
    assert not any(complaints), "\n".join(filter(None, complaints))


def test_a_spill_is_an_error() -> None:
    work = next(work for work, kernel in kernels("sm_90") if kernel == "fast")
    with pytest.raises(AssembleError, match="register spill in engine_gemm"):
        cubin_of(work, "fast", "sm_90", TARGETS["sm_90"], fast.Tile(64, 128, 4, 16, 2))
