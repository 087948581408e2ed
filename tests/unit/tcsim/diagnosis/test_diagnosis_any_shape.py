"""Products of any M, N and K, whatever the instruction: sparse and block-scaled ones are diagnosed as the others are."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim

SPARSE = ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90")
SCALED = ("mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120")


def problem(mnemonic: str, arch: str, m: int, n: int, k: int) -> dict[str, np.ndarray]:
    """Operands at random."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    random = np.random.default_rng(m)
    given = {"b": tcsim.encode(random.standard_normal((k, n)), ins.formats["b"])}
    if mnemonic == SPARSE[0]:
        a = random.standard_normal((m, k // 4, 4)) * (np.argsort(random.random((m, k // 4, 4))) < 2)
        given["a"], given["metadata"] = ins.sparsity.compress_matrix(tcsim.encode(a.reshape(m, k), "f16"), "f16")
        return given
    given["a"] = tcsim.encode(random.standard_normal((m, k)), ins.formats["a"])
    for name, shape in (("scale_a", (m, -(-k // 32))), ("scale_b", (-(-k // 32), n))):
        given[name] = tcsim.encode(2.0 ** random.integers(-3, 4, shape), "ue8m0")
    return given


@pytest.mark.parametrize(("mnemonic", "arch"), [SPARSE, SCALED])
def test_the_ends_may_be_ragged(mnemonic: str, arch: str) -> None:
    """M, N and K that are not multiples of the instruction's: a right result, and rows 0-15 in the place of rows 16-27."""
    given = problem(mnemonic, arch, 28, 20, 72)
    right = tcsim.gemm(**given, instruction=mnemonic, arch=arch)
    assert tcsim.diagnose(mnemonic, arch=arch, **given, observed=right).verdict == "correct"
    observed = right[np.arange(28) % 16]
    found = tcsim.diagnose(mnemonic, arch=arch, **given, observed=observed)
    assert found.verdict == "explained" and "the block of 16 is always the first" in str(found), str(found)
