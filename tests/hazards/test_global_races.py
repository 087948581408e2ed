"""Global memory between the blocks of a cluster, where a launch asks for it: flags, counters and the cluster's barrier, each with what it must not lack."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.shadow.checker import Checker
from tests.ptx_copies import text


@dataclass(frozen=True)
class Shared:
    """A kernel that is right, and the words in it that have to be others for a race."""

    name: str
    body: str
    defects: tuple[tuple[str, str], ...]


CASES = (
    Shared(
        "barrier",
        """
        @%p1 st.global.u32 [%rd1], %r0;
        barrier.cluster.arrive; barrier.cluster.wait;
        @!%p1 ld.global.u32 %r1, [%rd1];
        """,
        (("barrier.cluster.arrive; barrier.cluster.wait;", ""), ("cluster.arrive;", "cluster.arrive.relaxed;")),
    ),
    Shared(
        "flag",
        """
        @%p1 bra STORES;
        AGAIN: ld.acquire.gpu.global.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, 1; @%p2 bra AGAIN;
        ld.global.u32 %r1, [%rd1];
        bra END;
        STORES: @%p3 st.global.u32 [%rd1], %r0;
        @%p3 st.release.gpu.global.u32 [%rd2], 1;
        END: add.u32 %r1, %r0, 1;
        """,
        (("ld.acquire", "ld.relaxed"), ("st.release", "st.relaxed")),
    ),
    Shared(
        "counter of a split K",
        """
        mul.wide.u32 %rd3, %r9, 4; add.u64 %rd3, %rd3, %rd1;
        @%p3 st.global.u32 [%rd3], %r9;
        fence.acq_rel.gpu;  // before
        @%p3 atom.relaxed.gpu.global.add.u32 %r2, [%rd2], 1;
        fence.acq_rel.gpu;  // after
        setp.eq.u32 %p4, %r2, 1; and.pred %p4, %p4, %p3;
        @%p4 ld.global.v2.u32 {%r3, %r4}, [%rd1];
        """,
        (("fence.acq_rel.gpu;  // before", ""), ("fence.acq_rel.gpu;  // after", "")),
    ),
)


def _races(body: str, schedule: str) -> set[str]:
    memory = Memory()
    pointers = [memory.allocate(np.zeros(256, np.uint8)) for _ in range(2)]
    head = """
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target];
    mov.u32 %r9, %ctaid.x; setp.eq.u32 %p1, %r9, 0; setp.eq.u32 %p3, %r0, 0; mov.u32 %r2, 0;
    """
    found = parse(text(".param .u64 source, .param .u64 target", head + body)).kernel().launch(
        memory, pointers, grid=(2, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1), schedule=schedule,
        observe=partial(Checker, races=True),
    )  # fmt: skip
    assert found.completed
    return {own.name for own in found.hazards}


@pytest.mark.parametrize("schedule", ["late", "early"])
@pytest.mark.parametrize("case", CASES, ids=lambda own: own.name)
def test_what_orders_blocks_of_a_cluster_in_global_memory_is_missed(case: Shared, schedule: str) -> None:
    assert _races(case.body, schedule) == set()
    for words, others in case.defects:
        assert words in case.body
        assert _races(case.body.replace(words, others), schedule) == {"GMEM_RACE"}, words
