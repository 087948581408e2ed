"""Every GEMM kernel of hwkernels runs whole on the CPU and leaves the bytes that `tcsim.gemm` says: a part, under each schedule.

`tox -e whole` runs twice as many, `python -m tests.kernels.corpora.gemm` all.
"""

from __future__ import annotations

from collections import Counter

import pytest

from hwkernels.gemm.kernels import KERNELS
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS
from tests.kernels.corpora.gemm.products import Case, Schedule, arch_of, multiplied
from tests.kernels.corpora.gemm.whole import SCHEDULES, products, share
from tests.support.extent import part

SHARE = share()
TAKEN = part(SHARE, len(SHARE) // 2)
INFERRED = ("sm_100", "sm_120")
"""Archs on which no hardware was seen to agree with what these kernels multiply with."""
OTHERS = ("sm_70", "sm_75", "sm_80", "sm_89")
"""Archs on which it depends on the instruction: some were published."""


def test_the_corpus_is_whole() -> None:
    """Each kernel on each of its targets, in each of its formats; of the share each kernel once at least, under every schedule."""
    listed = {(case.kernel, target, case.a) for case, target in products()}
    rows = {**KERNELS, **SCALED_KERNELS}
    assert {(kernel, target) for kernel, target, _ in listed} == {
        (name, target) for name, row in rows.items() for target in row.targets
    }
    own = {(kernel, format_) for kernel, target, format_ in listed if target == rows[kernel].targets[0]}
    assert len(own) >= sum(len(row.formats) for row in SCALED_KERNELS.values()) + 60
    assert {case.kernel for case, _, _ in SHARE} == set(rows)
    assert min(Counter(schedule for _, _, schedule in SHARE).values()) >= len(SHARE) // len(SCHEDULES)
    ids = [(case.id, target) for case, target in products()]
    assert len(ids) == len(set(ids)) > 500


@pytest.mark.parametrize(
    ("case", "target", "schedule"), TAKEN, ids=[f"{case.id}-{target}-{schedule}" for case, target, schedule in TAKEN]
)
def test_a_kernel_leaves_the_bytes_of_gemm(case: Case, target: str, schedule: Schedule) -> None:
    """Every byte of the output, the padding of its rows included; the kernel ends, and nothing is an error."""
    found = multiplied(case, arch_of(target), schedule)
    assert found.run.completed and not found.run.errors, found.run.errors[:3]
    assert found.wrong == 0, f"{found.wrong} of {found.compared} bytes differ"
    unknown = [name for name in found.run.inexact if "mma" in name]
    assert len(unknown) == (arch_of(target) in INFERRED) or arch_of(target) in OTHERS, found.run.inexact
    assert arch_of(target) != "sm_90" or not found.run.inexact
    assert found.compared >= case.size[0] * case.size[1] and found.run.instructions > 100
