"""Global memory between blocks, where a launch asks for it: flags, counters and barriers, each with what it must not lack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse
from tcsim.ptx.hazards.rules import GRID
from tests.support.ptx_copies import text, wait

RACE, RELEASE, ACQUIRE, SCOPE = "GMEM_RACE", "GMEM_RELEASE_MISSING", "GMEM_ACQUIRE_MISSING", "GMEM_SCOPE"
APART = "GMEM_FENCE_APART"


@dataclass(frozen=True)
class Shared:
    """A kernel that is right, and the words in it that have to be others for a hazard."""

    name: str
    body: str
    defects: tuple[tuple[str, str, str], ...]  # words, what they become, and the hazard between clusters
    blocks: int = 2
    inside: bool = False  # whether each defect is a race between blocks of one cluster too


_FLAG = """
    @{loads} bra LOADS;
    @%p3 st.global.u32 [%rd1], %r0;
    @%p3 st.release.gpu.global.u32 [%rd2], 1;
    bra END;
    LOADS: ld.acquire.gpu.global.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, 1; @%p2 bra LOADS;
    ld.global.u32 %r1, [%rd1];
    END: add.u32 %r1, %r0, 1;
"""
STORED, PROXY = "TMA_STORE_NOT_VISIBLE", "PROXY_FENCE_GLOBAL"
_ACQUIRES = "{0}: ld.acquire.gpu.global.u32 %r2, [{1}]; setp.ne.u32 %p2, %r2, 1; @%p2 bra {0};"
_LOADS = f"""
    mov.u32 %r6, smem; add.u32 %r7, %r6, 1024;
    @%p3 mbarrier.init.shared::cta.b64 [%r7], 1;
    @%p3 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 16;
    @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd1], 16, [%r7];
    {wait("FULL", "%r7", "0")}
    ld.shared.u32 %r1, [%r6];
"""
"""What a block loads by a bulk copy."""
_BULK = f"""
    @!%p1 bra LOADS;
    mov.u32 %r6, smem; shl.b32 %r7, %r0, 2; add.u32 %r7, %r7, %r6;
    st.shared.u32 [%r7], %r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p3 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r6], 128;
    @%p3 cp.async.bulk.commit_group;
    @%p3 cp.async.bulk.wait_group 0;
    @%p3 st.release.gpu.global.u32 [%rd2], 1;
    @%p3 cp.async.bulk.wait_group 0;  // late
    bra END;
    {_ACQUIRES.format("LOADS", "%rd2")}
    READS
    END: add.u32 %r1, %r0, 1;
"""
_WRITER, _READER, _BETWEEN = (
    "fence.proxy.async.global;  // writer",
    "fence.proxy.async;  // reader",
    "fence.proxy.async.global;  // between",
)
_COPIED = f"""
    setp.eq.u32 %p4, %r9, 1;
    @%p4 bra BETWEEN;
    @!%p1 bra LOADS;
    @%p3 st.global.u32 [%rd1], %r0;
    {{writer}}
    @%p3 st.release.gpu.global.u32 [%rd2], 1;
    bra END;
    {_ACQUIRES.format("BETWEEN", "%rd2")}
    {{between}}
    @%p3 st.release.gpu.global.u32 [%rd2+64], 1;
    bra END;
    {_ACQUIRES.format("LOADS", "%rd2+64")}
    {{reader}}
    {_LOADS}
    END: add.u32 %r1, %r0, 1;
"""
_FENCED = "@%p3 membar.gl;  // acquire"
_BEFORE, _GIVEN = "bar.sync 0;  // before", "@%p3 st.shared.u32 [%r6], %r2; bar.sync 0;"
_RELEASED, _HANDED = "st.release.gpu.global.u32 [%rd2], 1;", "red.relaxed.gpu.global.add.u32 [%rd2], 1;"
_SUM = "red.global.add.u32 [%rd1], 1;"
_HALF = "ld.global.u16 %h1, [%rd4]"
CASES = (
    Shared(
        "flag",
        _FLAG.format(loads="!%p1"),
        (("ld.acquire", "ld.relaxed", ACQUIRE), ("st.release", "st.relaxed", RELEASE)),
        inside=True,
    ),
    Shared(
        "flag of a later block",
        _FLAG.format(loads="%p1"),
        (("ld.acquire.gpu", "ld.acquire.cta", SCOPE), ("st.release.gpu", "st.release.cluster", SCOPE)),
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
        (("fence.acq_rel.gpu;  // before", "", RELEASE), ("fence.acq_rel.gpu;  // after", "", ACQUIRE)),
        inside=True,
    ),
    Shared(
        "counter of blocks of two warps",
        f"""
        mul.lo.u32 %r5, %r9, 64; add.u32 %r5, %r5, %r0; mul.wide.u32 %rd3, %r5, 4; add.u64 %rd3, %rd3, %rd1; mov.u32 %r6, smem;
        st.global.u32 [%rd3], %r9;
        {_BEFORE}
        @%p3 membar.gl;  // release
        @%p3 atom.global.add.u32 %r2, [%rd2], 1;
        {_FENCED}
        {_GIVEN}
        ld.shared.u32 %r2, [%r6]; setp.eq.u32 %p4, %r2, 2;
        mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1;
        @%p4 ld.global.u32 %r3, [%rd3]; @%p4 ld.global.u32 %r4, [%rd3+256];
        """,
        (
            (_BEFORE, "", RELEASE),
            ("@%p3 membar.gl;  // release", "", RELEASE),
            ("membar.gl;  // release", "membar.cta;", SCOPE),
            (_FENCED, "", ACQUIRE),
            (_FENCED, "@%p3 fence.acq_rel.cta;", ACQUIRE),
            (f"{_BEFORE}\n        @%p3 membar.gl;  // release", f"membar.gl; {_BEFORE}", APART),
            (f"{_BEFORE}\n        @%p3 membar.gl;  // release", f"@%p3 membar.gl; {_BEFORE}", RELEASE),
            (f"{_FENCED}\n        {_GIVEN}", f"{_GIVEN} membar.gl;", APART),
            (f"{_FENCED}\n        {_GIVEN}", f"{_GIVEN} @%p3 membar.gl;", ACQUIRE),
        ),
        blocks=3,
    ),
    Shared(
        "barrier of the grid",
        """
        mul.lo.u32 %r5, %r9, 64; add.u32 %r5, %r5, %r0; mul.wide.u32 %rd3, %r5, 4; add.u64 %rd3, %rd3, %rd1;
        st.global.u32 [%rd3], %r0;
        bar.sync 0;
        @!%p3 bra WAITED;
        atom.add.release.gpu.global.u32 %r2, [%rd2], 1;
        AGAIN: ld.acquire.gpu.global.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, 3; @%p2 bra AGAIN;
        WAITED: bar.sync 0;  // behind
        xor.b32 %r5, %r0, 63; mul.wide.u32 %rd3, %r5, 4; add.u64 %rd3, %rd3, %rd1;
        ld.global.u32 %r3, [%rd3]; ld.global.u32 %r4, [%rd3+256]; ld.global.u32 %r4, [%rd3+512];
        """,
        (("add.release", "add.relaxed", RELEASE), ("ld.acquire", "ld.relaxed", ACQUIRE)),
        blocks=3,
    ),
    Shared(
        "lock that the last block resets",
        """
        @!%p3 bra TAKEN;
        TRIED: ld.acquire.gpu.global.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, %r9; @%p2 bra TRIED;
        TAKEN: bar.sync 0;  // behind
        mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1;
        ld.global.u32 %r4, [%rd3]; add.u32 %r4, %r4, 1; st.global.u32 [%rd3], %r4;
        bar.sync 0;
        setp.eq.u32 %p4, %r9, 2; setp.eq.u32 %p5, %r0, 32;
        @%p4 bra LAST;
        fence.acq_rel.gpu;
        @%p3 red.relaxed.gpu.global.add.u32 [%rd2], 1;
        LAST: and.pred %p4, %p4, %p5; @%p4 st.global.u32 [%rd2], 0;
        """,
        (("fence.acq_rel.gpu;", "", RELEASE), ("ld.acquire", "ld.relaxed", ACQUIRE), ("ld.acquire.gpu", "ld.weak", RACE)),
        blocks=3,
    ),
    Shared(
        "sums",
        f"{_SUM} atom.relaxed.gpu.global.add.u32 %r2, [%rd1], 1; st.global.u16 [%rd4], %h1;",
        (
            ("red.global", "red.relaxed.cta.global", SCOPE),
            (_SUM, "ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;", RACE),
            (_SUM, f"@%p1 st.global.u32 [%rd1], 0; {_SUM}", RACE),
            ("[%rd4]", "[%rd2]", RACE),
        ),
    ),
    Shared(
        "flag that the block has changed itself",
        """
        @!%p3 bra END; @!%p1 bra LOADS;
        red.release.gpu.global.add.u32 [%rd2], 1; st.global.u32 [%rd1], %r0; red.release.gpu.global.add.u32 [%rd2+64], 1; bra END;
        LOADS: atom.acq_rel.gpu.global.add.u32 %r2, [%rd2], 1;
        AGAIN: atom.acq_rel.gpu.global.or.b32 %r2, [%rd2+64], 0; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;
        ld.global.u32 %r1, [%rd1];
        END: add.u32 %r1, %r0, 1;
        """,
        (("%r2, [%rd2+64], 0", "%r2, [%rd2], 0", RACE),),
    ),
    Shared(
        "multicast objects",
        """
        @!%p1 bra LOADS; @!%p3 bra END;
        st.global.u32 [%rd1], %r0; multimem.red.release.gpu.global.add.u32 [%rd2], 1; bra END;
        LOADS: multimem.ld_reduce.acquire.gpu.global.add.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, 1; @%p2 bra LOADS;
        ld.global.u32 %r1, [%rd1];
        END: add.u32 %r1, %r0, 1;
        """,
        ((".release", ".relaxed", RELEASE), (".acquire.gpu", ".weak", RACE)),
    ),
    Shared(
        "sum of two blocks",
        """
        setp.lt.u32 %p4, %r9, 2; @!%p3 bra END;
        @%p4 red.global.add.u32 [%rd1], 1;
        red.release.gpu.global.add.u32 [%rd2], 1;
        AGAIN: ld.acquire.gpu.global.u32 %r2, [%rd2]; setp.lt.u32 %p2, %r2, 3; @%p2 bra AGAIN;
        @!%p4 ld.global.u32 %r3, [%rd1];
        END: add.u32 %r1, %r0, 1;
        """,
        (("red.release", "@%p1 red.relaxed.gpu.global.add.u32 [%rd2], 1; @!%p1 red.release", RELEASE),),
        blocks=3,
    ),
    Shared(
        "release that atomics hand on",
        f"""
        setp.eq.u32 %p4, %r9, 2; @!%p3 bra END; @%p4 bra LOADS; @!%p1 bra BETWEEN;
        st.global.u32 [%rd1], %r0; {_RELEASED} bra END;
        BETWEEN: ld.relaxed.gpu.global.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, 1; @%p2 bra BETWEEN;
        {_HANDED} bra END;
        LOADS: ld.relaxed.gpu.global.u32 %r2, [%rd2]; setp.ne.u32 %p2, %r2, 2; @%p2 bra LOADS;
        ld.acquire.gpu.global.u32 %r2, [%rd2]; ld.global.u32 %r1, [%rd1];
        END: add.u32 %r1, %r0, 1;
        """,
        (
            (_HANDED, "st.relaxed.gpu.global.u32 [%rd2], 2;", RACE),
            (_RELEASED, _RELEASED.replace("release", "relaxed"), RELEASE),
            ("ld.acquire.gpu.global.u32 %r2, [%rd2]; ld", "ld", ACQUIRE),
        ),
        blocks=3,
    ),
    Shared(
        "in place",
        f"{_HALF}; st.global.u16 [%rd4], %h1;",
        ((_HALF, _HALF.replace("rd4", "rd2"), RACE), (_HALF, _HALF.replace("rd4", "rd2+2"), RACE)),
    ),
    *(
        Shared(
            f"bulk store, {how}",
            _BULK.replace("READS", reads),
            (
                ("wait_group 0;\n    @%p3 st", "wait_group.read 0;\n    @%p3 st", STORED),
                ("@%p3 cp.async.bulk.wait_group 0;\n    @%p3 st", "@%p3 st", STORED),
                ("ld.acquire", "ld.relaxed", ACQUIRE),
            ),
        )
        for how, reads in (("read", "ld.global.u32 %r1, [%rd1];"), ("bulk load", _LOADS))
    ),
    *(
        Shared(
            f"bulk load, fence of the {place}",
            _COPIED.format(**{"writer": "", "between": "", "reader": "", place: fence}),
            ((fence, "", PROXY), (fence, "fence.proxy.async.shared::cta;", PROXY)),
            blocks=3,
        )
        for place, fence in (("writer", _WRITER), ("between", _BETWEEN), ("reader", _READER))
    ),
)  # fmt: skip


def _run(case: Shared, body: str, schedule: str, together: bool) -> Run:
    memory = Memory()
    pointers = [memory.allocate(np.zeros(1024, np.uint8)) for _ in range(2)]
    head = """
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target]; mov.u16 %h1, 7;
    mov.u32 %r9, %ctaid.x; setp.eq.u32 %p1, %r9, 0; setp.eq.u32 %p3, %r0, 0; mov.u32 %r2, 0;
    mul.wide.u32 %rd4, %r9, 2; add.u64 %rd4, %rd4, %rd2;
    """
    target = "sm_100a" if schedule == "early" else "sm_90a"
    found = parse(text(".param .u64 source, .param .u64 target", head + body, target)).kernel().launch(
        memory, pointers, grid=(case.blocks, 1, 1), block=(64 if case.blocks > 2 else 32, 1, 1),
        cluster=(case.blocks if together else 1, 1, 1), schedule=schedule, races=True,
    )  # fmt: skip
    assert found.completed, found.hazards
    return found


@pytest.mark.parametrize("schedule", ["late", "early"])
@pytest.mark.parametrize("case", CASES, ids=lambda own: own.name)
def test_what_orders_blocks_in_global_memory_is_missed(case: Shared, schedule: str) -> None:
    """Each defect has its name between clusters, and is a race within one where no fence is too narrow for that; without it there is nothing."""
    for together in (False, True)[: 1 + case.inside]:
        assert _run(case, case.body, schedule, together).hazards == []
        for words, others, name in case.defects:
            assert words in case.body
            found = {own.name for own in _run(case, case.body.replace(words, others), schedule, together).hazards}
            assert found == {RACE if together else name}, (words, together)


def test_every_rule_between_blocks_has_a_planted_defect() -> None:
    planted = {name for case in CASES for *_, name in case.defects}
    within = {"GMEM_RACE_UNUSED"}  # a block: test_planted.py
    assert planted | within == {own.name for own in GRID} | {RACE, STORED, PROXY} and not planted & within


def test_a_barrier_of_the_cluster_orders_its_blocks() -> None:
    arrive, wait = "barrier.cluster.arrive;", "barrier.cluster.wait;"
    case = Shared("barrier", f"@%p1 st.global.u32 [%rd1], %r0; {arrive} {wait} @!%p1 ld.global.u32 %r1, [%rd1];", ())
    assert _run(case, case.body, "late", True).hazards == []
    for together, words, others in (
        (True, f"{arrive} {wait}", ""),
        (True, "arrive;", "arrive.relaxed;"),
        (False, "", ""),
    ):
        run = _run(case, case.body.replace(words, others), "late", together)
        assert {own.name for own in run.hazards} == {RACE}


_FLAGS = f"""
    mov.u32 %r6, smem; mapa.shared::cluster.u32 %r7, %r6, 0;
    @%p3 st.shared.u32 [%r6+4], 0;
    barrier.cluster.arrive; barrier.cluster.wait;
    @%p1 bra READS;
    @%p3 st.shared::cluster.u32 [%r7], %r0;
    @%p3 st.release.cluster.shared::cluster.u32 [%r7+4], 1;
    bra END;
    {_ACQUIRES.format("READS", "%r6+4").replace("gpu.global", "cluster.shared")}
    @%p3 ld.shared.u32 %r1, [%r6];
    END: barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize(
    ("body", "defects", "name"),
    [
        (
            _FLAG.format(loads="!%p1").replace(".gpu", ".cluster"),
            (("st.release.cluster", "st.release.cta"), ("ld.acquire.cluster", "ld.acquire.cta")),
            SCOPE,
        ),
        (
            _FLAG.format(loads="!%p1")
            .replace("@%p3 st.release.gpu", "fence.acq_rel.cluster; @%p3 st.relaxed.cluster")
            .replace("acquire.gpu", "relaxed.cluster")
            .replace("ld.global.u32 %r1", "fence.acq_rel.cluster;  // behind\n ld.global.u32 %r1"),
            (("fence.acq_rel.cluster; ", "membar.cta; "), ("fence.acq_rel.cluster;  // behind", "fence.acq_rel.cta;")),
            SCOPE,
        ),
        (
            "@%p3 atom.relaxed.cluster.global.add.u32 %r1, [%rd1], 1;",
            (("atom.relaxed.cluster", "atom.relaxed.cta"),),
            SCOPE,
        ),
        (
            _FLAGS,
            (("st.release.cluster", "st.release.cta"), ("ld.acquire.cluster", "ld.acquire.cta")),
            "SMEM_RACE_RAW",
        ),
    ],
    ids=["flag", "fences", "sum", "shared memory"],
)
def test_what_is_for_a_block_orders_nothing_with_the_other_blocks_of_its_cluster(
    body: str, defects: tuple[tuple[str, str], ...], name: str
) -> None:
    """.cluster does."""
    case = Shared(name, body, ())
    assert _run(case, body, "late", True).hazards == []
    for words, others in defects:
        assert words in body
        found = {own.name for own in _run(case, body.replace(words, others, 1), "late", True).hazards}
        assert found == {name}, words


def test_what_is_for_a_block_orders_its_warps_in_a_cluster() -> None:
    within = _FLAG.replace("@{loads} bra", "setp.lt.u32 %p5, %r0, 32; @!%p5 bra").replace(".gpu", ".cta")
    run = _run(Shared("", "", (), blocks=3), f"@!%p1 bra END; {within}", "late", True)
    assert run.hazards == []


def test_a_hazard_between_blocks_says_who_lacks_what() -> None:
    case = next(own for own in CASES if own.name == "counter of blocks of two warps")
    said = {
        "@%p3 membar.gl;  // release": "block (0, 0, 0) has no fence for the GPU, and no .release, between that and what tells block (2, 0, 0)",
        "bar.sync 0;  // before": "another warp of block (0, 0, 0) releases, and no barrier orders this one's access before that",
        _FENCED: "block (2, 0, 0) has no .acquire, and no fence for the GPU, between what block (0, 0, 0) tells it and this",
        "membar.gl;  // release": "membar.cta (line ",
    }  # fmt: skip
    for words, message in said.items():
        found = _run(case, case.body.replace(words, "membar.cta;" if words[0] == "m" else ""), "late", False).errors[0]
        assert message in found.message and "written by st.global.u32" in found.message
        assert found.line and found.other_line and found.block == (2, 0, 0) and found.detail["other_block"][0] in (0, 1)


@pytest.mark.parametrize(
    ("store", "named"),
    [("st.global.u32 [%rd1], %r0;", True), ("st.global.u32 [%rd1], 7;", False), ("st.relaxed.gpu.global.u32 [%rd1], %r0;", False)],
)  # fmt: skip
def test_warps_store_to_one_place_with_one_instruction(store: str, named: bool) -> None:
    run = _run(Shared("", "", (), blocks=3), f"setp.ne.u32 %p4, %r9, 1; @%p4 bra END; {store} END:", "late", False)
    assert [(own.name, own.thread, own.line == own.other_line) for own in run.hazards] == [(RACE, 63, True)] * named
