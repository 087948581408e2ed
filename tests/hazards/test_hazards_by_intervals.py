"""Blocks in which nothing can be wrong need not be watched, wherever in shared memory their data lead them; where anything may be wrong, all of it is said."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.check.intervals import Doubtful, Intervals, Unproven
from tests.hazards.kernels import Kernel
from tests.hazards.test_hazards_in_batches import CONTENT, HEAD, heard, told

DATA = np.random.default_rng(11).integers(0, 1 << 32, len(CONTENT), dtype=np.uint32)
PLACES = """
    mul.wide.u32 %rd5, %r0, 4; add.s64 %rd5, %rd5, %rd1; ld.global.u32 %r10, [%rd5]; and.b32 %r11, %r10, 255; shl.b32 %r11, %r11, 2; add.u32 %r11, %r11, %r1;
    ld.global.u32 %r12, [%rd1]; and.b32 %r12, %r12, 63; xor.b32 %r12, %r12, %r0; shl.b32 %r12, %r12, 2; add.u32 %r12, %r12, %r1;
    shr.u32 %r13, %r10, 9; and.b32 %r13, %r13, RANKS; mapa.shared::cluster.u32 %r14, %r11, %r13; xor.b32 %r15, %r31, RANKS; mapa.shared::cluster.u32 %r15, %r12, %r15;
    setp.lt.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r0, 5; and.b32 %r16, %r0, 31; shl.b32 %r16, %r16, 4; add.u32 %r16, %r16, %r1;
"""
"""%r11: a word that each thread's data choose; %r12: a word of its own, the block's data choose which; %r14, %r15: the same in the cluster; %r16: a row for ldmatrix."""
FILL = "".join(f"st.shared.u32 [%r3+{256 * own}], 0; " for own in range(4))
STAGE = "cp.async.ca.shared.global [%r3], [%rd1], 4; cp.async.commit_group;"
ROWS = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20,%r21,%r22,%r23}, [%r16];"
STORED = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r16], {%r0,%r0,%r0,%r0};"
SYNC = ("bar.sync 0;", "barrier.cluster.arrive; barrier.cluster.wait;")
CLEAN = {
    "histogram": (f"{FILL} bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1; bar.sync 0; ld.shared.u32 %r21, [%r4];", 1),
    "a permutation": ("st.shared.u32 [%r12], %r10; bar.sync 0; ld.shared.u32 %r21, [%r3]; bar.sync 0; st.shared.u32 [%r12], 1;", 1),
    "stores of one number at once": (f"{FILL} bar.sync 0; st.shared.u32 [%r11], 1; bar.sync 0; ld.shared.u32 %r21, [%r4];", 1),
    "reads of anything": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r11]; @%p2 ld.shared.u32 %r20, [%r11];", 1),
    "counts in the cluster": (f"{FILL} {SYNC[1]} red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1; {SYNC[1]} ld.shared.u32 %r21, [%r4];", 2),
    "a copy": ("cp.async.ca.shared.global [%r12], [%rd1], 4; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r20, [%r3];", 1),
    "stages of copies": (f"{STAGE} {STAGE.replace('[%r3]', '[%r3+256]')} cp.async.wait_group 1; bar.sync 0; ld.shared.u32 %r20, [%r4]; cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r20, [%r4+256]; {STAGE} st.shared.u32 [%r3+512], 1; cp.async.wait_group 0;", 1),
    "rows of matrices": (f"{FILL} bar.sync 0; {ROWS} {ROWS} bar.sync 0; st.shared.u32 [%r12], 1;", 1),
    "rows that are stored": (f"{FILL} bar.sync 0; @%p2 {STORED} bar.sync 0; ld.shared.u32 %r20, [%r11]; bar.sync 0; {STORED.replace('%r0', '%r16')}", 1),
    "threads that have ended": (f"{FILL} bar.sync 0; @%p3 exit; st.shared.u32 [%r3], 1; bar.sync 0; ld.shared.u32 %r20, [%r4];", 1),
    "a barrier that orders something once": ("mov.u32 %r22, 0; L: setp.eq.u32 %p5, %r22, 2; @%p5 st.shared.u32 [%r3], 1; bar.sync 0; add.u32 %r22, %r22, 1; setp.lt.u32 %p6, %r22, 3; @%p6 bra L; ld.shared.u32 %r20, [%r4];", 1),
    "a barrier for all threads by number": ("st.shared.u32 [%r12], 1; bar.sync 3, 64; ld.shared.u32 %r20, [%r3];", 1),
    "barriers of the block in the cluster": (f"st.shared.u32 [%r12], %r10; bar.sync 0; ld.shared.u32 %r21, [%r4]; bar.sync 0; st.shared.u32 [%r3], 1; {SYNC[1]} ld.shared::cluster.u32 %r20, [%r15]; {SYNC[1]}", 2),
    "a permutation in the cluster": (f"{SYNC[1]} st.shared::cluster.u32 [%r15], %r10; {SYNC[1]} ld.shared.u32 %r21, [%r3]; {SYNC[1]}", 2),
}  # fmt: skip
"""Kernels in which nothing is wrong wherever the data lead: behind `HEAD` and `PLACES`, and the blocks of a cluster."""
DOUBTFUL = {
    "an atomic and a load": (f"{FILL} bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1; ld.shared.u32 %r21, [%r4];", 1),
    "an atomic and a store": (f"{FILL} bar.sync 0; @%p3 st.shared.u32 [%r11], 1; atom.shared.add.u32 %r20, [%r11], 1;", 1),
    "a load and an atomic": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r4]; atom.shared.add.u32 %r20, [%r11], 1;", 1),
    "a store and a load": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; ld.shared.u32 %r20, [%r11];", 1),
    "a load and a store": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r11]; st.shared.u32 [%r12], 1;", 1),
    "a word that all load, and the last stores": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r1]; setp.eq.u32 %p4, %r0, 63; @%p4 st.shared.u32 [%r1], 1;", 1),
    "two stores": (f"{FILL} bar.sync 0; st.shared.u32 [%r3], 1; st.shared.u32 [%r12], 1;", 1),
    "stores of other numbers at once": ("st.shared.u32 [%r11], %r10;", 1),
    "a load of what others stored too": ("st.shared.u32 [%r11], 1; ld.shared.u32 %r20, [%r11];", 1),
    "a load of what others stored too, by the last": ("setp.eq.u32 %p4, %r0, 63; st.shared.u32 [%r1], 1; @%p4 ld.shared.u32 %r20, [%r1];", 1),
    "what nobody wrote": ("@%p2 st.shared.u32 [%r12], 1; bar.sync 0; ld.shared.u32 %r20, [%r11];", 1),
    "an atomic on what nobody wrote": ("@%p2 st.shared.u32 [%r12], 1; bar.sync 0; atom.shared.add.u32 %r20, [%r11], 1;", 1),
    "a barrier of one warp": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; @%p2 bar.sync 1, 32; ld.shared.u32 %r20, [%r11];", 1),
    "a block that has not started": (f"red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1; {SYNC[1]}", 2),
    "a store to a block that has not started": (f"st.shared::cluster.u32 [%r15], 1; {SYNC[1]}", 2),
    "a block that may have ended": (f"{FILL} {SYNC[1]} red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1;", 2),
    "a relaxed barrier": (f"{FILL} {SYNC[1]} st.shared::cluster.u32 [%r15], 1; barrier.cluster.arrive.relaxed; barrier.cluster.wait; ld.shared.u32 %r20, [%r3]; {SYNC[1]}", 2),
    "between arrival and wait": (f"{FILL} {SYNC[1]} barrier.cluster.arrive; st.shared::cluster.u32 [%r15], 1; barrier.cluster.wait; ld.shared.u32 %r20, [%r3]; {SYNC[1]}", 2),
    "a barrier of the block alone": (f"{FILL} {SYNC[1]} st.shared::cluster.u32 [%r15], 1; bar.sync 0; ld.shared.u32 %r20, [%r3]; {SYNC[1]}", 2),
    "atomics of the block's scope": (f"{FILL} {SYNC[1]} red.relaxed.cta.shared::cluster.add.u32 [%r14], 1; {SYNC[1]}", 2),
    "threads that have ended": (f"{FILL} bar.sync 0; @%p2 st.shared.u32 [%r12], 1; @%p3 exit; {SYNC[1]} ld.shared.u32 %r20, [%r11]; {SYNC[1]}", 2),
    "lanes that meet": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; bar.warp.sync -1; ld.shared.u32 %r20, [%r11];", 1),
    "a copy in flight": (f"{STAGE} bar.sync 0; ld.shared.u32 %r20, [%r4]; cp.async.wait_all;", 1),
    "a copy that others have not waited for": (f"{STAGE} @%p3 cp.async.wait_all; bar.sync 0; @%p3 ld.shared.u32 %r20, [%r3];", 1),
    "a copy without a barrier": (f"{STAGE} cp.async.wait_all; ld.shared.u32 %r20, [%r3];", 1),
    "a group too many": (f"{STAGE} {STAGE.replace('[%r3]', '[%r3+256]')} cp.async.wait_group 1; bar.sync 0; ld.shared.u32 %r20, [%r4+256];", 1),
    "a copy that is in no group": ("cp.async.ca.shared.global [%r3], [%rd1], 4; cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r20, [%r4];", 1),
    "two copies": (f"{STAGE} bar.sync 0; {STAGE.replace('%r3', '%r4')} cp.async.wait_all;", 1),
    "a copy and a store": (f"{STAGE} cp.async.wait_all; st.shared.u32 [%r12], 1;", 1),
    "a load and a copy": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r11]; {STAGE} cp.async.wait_all;", 1),
    "a row and a store": (f"{FILL} bar.sync 0; {ROWS} st.shared.u32 [%r12], 1;", 1),
    "a store and a row": (f"{FILL} bar.sync 0; st.shared.u32 [%r12], 1; {ROWS}", 1),
    "stored rows and a load": (f"{FILL} bar.sync 0; @%p2 {STORED} ld.shared.u32 %r20, [%r11];", 1),
    "a load and stored rows": (f"{FILL} bar.sync 0; ld.shared.u32 %r20, [%r11]; @%p2 {STORED}", 1),
    "rows that two warps store": (f"{FILL} bar.sync 0; {STORED}", 1),
    "a row of nothing": (f"st.shared.u32 [%r12], 1; bar.sync 0; {ROWS}", 1),
    "threads that have stored and ended": (f"{FILL} bar.sync 0; @%p3 st.shared.u32 [%r3], 2; @%p3 exit; bar.sync 0; ld.shared.u32 %r20, [%r11];", 1),
    "threads that have ended, to another block": (f"{FILL} {SYNC[1]} @%p3 st.shared.u32 [%r3], 2; @%p3 exit; {SYNC[1]} ld.shared::cluster.u32 %r20, [%r15]; {SYNC[1]}", 2),
    "rows of threads that have ended": (f"{FILL} bar.sync 0; {ROWS} @%p2 exit; bar.sync 0; st.shared.u32 [%r3], 1;", 1),
    "an mbarrier": ("@%p3 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0;", 1),
    "atomics of the block's scope, of the block": (f"{FILL} {SYNC[1]} atom.relaxed.cta.shared::cta.add.u32 %r20, [%r12], 1; red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1; {SYNC[1]}", 2),
}  # fmt: skip
"""Kernels in which the places may matter."""


UNPROVEN = {
    "a barrier in a branch": ("st.shared.u32 [%r12], 1; @%p2 bra A; bar.sync 0; bra B; A: bar.sync 0; B: ld.shared.u32 %r20, [%r3];", 1),
    "a barrier that orders nothing": ("st.shared.u32 [%r12], 1; bar.sync 0; bar.sync 0; ld.shared.u32 %r20, [%r3];", 1),
    "a barrier of one warp": ("st.shared.u32 [%r12], 1; @%p2 bar.sync 1, 32;", 1),
    "a barrier in parts of a warp": ("st.shared.u32 [%r12], 1; @%p3 bra A; barrier.cta.sync 0; bra B; A: barrier.cta.sync 0; B: ld.shared.u32 %r20, [%r3];", 1),
    "a barrier that lanes reach one after the other": ("st.shared.u32 [%r12], 1; @%p3 bra B; A: barrier.cta.sync 0; bra C; B: add.u32 %r22, %r0, 1; bra A; C: ld.shared.u32 %r20, [%r3];", 1),
    "a barrier for fewer threads": ("st.shared.u32 [%r12], 1; bar.sync 1, 32;", 1),
    "arrivals": ("st.shared.u32 [%r12], 1; @%p2 bra A; bar.arrive 1, 64; bra B; A: bar.sync 1, 64; B:", 1),
    "an arrival and a wait of the same threads": ("st.shared.u32 [%r12], 1; @%p2 bar.arrive 1, 64; bar.sync 1, 64;", 1),
    "a product without a lane": ("@!%p3 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r0}, {%f0,%f1,%f2,%f3};", 1),
}  # fmt: skip
"""Kernels in which the places do not matter, and something else is wrong or may be."""
HARMLESS = frozenset((
    "ended", "exchanged", "fenced", "followed", "following", "given", "landed", "landing", "met", "needed", "signalled", "touched", "tracking",
))  # fmt: skip
"""Events of which nothing wrong can come where nothing is in doubt: what they are about is, or they only order."""


@pytest.fixture(name="doubts")
def _doubts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often it was tried to prove that nothing is wrong, and how that failed."""
    found = {"made": 0, "doubtful": 0, "unproven": 0}

    def counted(kind: type, name: str) -> None:
        begin = kind.__init__  # type: ignore[misc]

        def made(self: Any, *given: Any) -> None:
            found[name] += 1
            begin(self, *given)

        monkeypatch.setattr(kind, "__init__", made)

    counted(Intervals, "made")
    counted(Doubtful, "doubtful")
    counted(Unproven, "unproven")
    return found


def compare(body: str, blocks: int) -> Any:
    """A launch in batches, which tells what it tells block by block."""
    source = f"{HEAD}{PLACES.replace('RANKS', str(blocks - 1))}{body}\n    ret;\n}}\n"
    module, kernel = parse(source), replace(Kernel("data", ""), blocks=blocks, threads=64)
    _, expected = told(module, 1, "late", kernel, DATA)
    run, found = told(module, 64, "late", kernel, DATA)
    assert found == expected, [str(own) for own in (*expected["hazards"], *found["hazards"])]
    return run


def test_every_event_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the check hears of is heard, or nothing wrong can come of it."""
    _, names = heard(monkeypatch)
    assert names["Intervals"] == names["Checker"] - HARMLESS and names["Checker"] >= HARMLESS


@pytest.mark.parametrize("name", CLEAN)
def test_places_that_do_not_matter(name: str, doubts: dict[str, int]) -> None:
    run = compare(*CLEAN[name])
    assert run.batch > 2 and not run.alone and not run.hazards
    assert doubts == {"made": 1, "doubtful": 0, "unproven": 0}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_places_that_may_matter(name: str, doubts: dict[str, int]) -> None:
    compare(*DOUBTFUL[name])
    assert doubts == {"made": 1, "doubtful": 1, "unproven": 0}


@pytest.mark.parametrize("name", UNPROVEN)
def test_something_else_may_be_wrong(name: str, doubts: dict[str, int]) -> None:
    run = compare(*UNPROVEN[name])
    assert run.batch > 2 and not run.alone and doubts["made"] > 1 == doubts["unproven"] and not doubts["doubtful"]


OPERATIONS = (
    "st.shared.u32 [%r3], %r10;", "st.shared.u32 [%r11], %r10;", "st.shared.u32 [%r11], 7;", "ld.shared.u32 %r20, [%r3];", "ld.shared.u32 %r20, [%r4];", "st.shared.u32 [%r12], %r10;", "ld.shared.u32 %r20, [%r12];",
    "atom.shared.add.u32 %r20, [%r11], 1;", "red.shared.max.u32 [%r11], %r10;", "ld.shared.u32 %r20, [%r11];", "st.shared.u8 [%r12+1], %r10;",
    "@%p2 st.shared.u32 [%r12+256], 1;", "@%p3 atom.shared.exch.b32 %r20, [%r12], 1;", "atom.shared.add.u32 %r20, [%r12], 1;", "ld.volatile.shared.u32 %r20, [%r12];",
)  # fmt: skip
REMOTE = (
    "red.relaxed.cluster.shared::cluster.add.u32 [%r14], 1;", "st.shared::cluster.u32 [%r15], 1;", "ld.shared::cluster.u32 %r20, [%r15];",
    "atom.shared::cluster.add.u32 %r20, [%r14], 1;", "ld.shared::cluster.u32 %r20, [%r14];",
)  # fmt: skip
COPIES = (
    STAGE, STAGE.replace("%r3", "%r12"), f"@%p2 {STAGE}", "cp.async.ca.shared.global [%r3+256], [%rd1], 4;", "cp.async.wait_all;", "cp.async.wait_all;",
    "cp.async.wait_group 0;", "cp.async.wait_group 1;", "@%p2 cp.async.wait_all;", "@%p3 cp.async.wait_all;", ROWS, ROWS, "cp.async.commit_group;",
)  # fmt: skip
BARRIERS = (
    "bar.sync 0, 64;", "bar.sync 1;", "barrier.cta.sync 0;", "@%p2 bra AX; bar.sync 0; bra BX; AX: bar.sync 0; BX:", "@%p3 exit;", "@%p2 exit;", "bar.sync 0; bar.sync 0;",
    "@%p2 bar.sync 1, 32;", "@%p2 bra AX; bar.arrive 1, 64; bra BX; AX: bar.sync 1, 64; BX:", "bar.warp.sync -1;", "@%p3 bra AX; barrier.cta.sync 0; bra BX; AX: barrier.cta.sync 0; BX:",
    "membar.cta;", "shfl.sync.bfly.b32 %r22, %r20, 1, 31, -1;",
)  # fmt: skip
RANDOM = 100


def body_of(random: Random, blocks: int) -> str:
    """A kernel that does anything."""
    body = [FILL if random.random() < 0.8 else "", SYNC[blocks - 1]]
    operations = (*OPERATIONS, *(REMOTE if blocks > 1 else ()), *(random.random() < 0.5) * COPIES)
    for place in range(random.randrange(1, 5)):
        body += random.choices(operations, k=random.randrange(1, 3))
        body += [random.choice((*SYNC[:blocks], *SYNC[blocks - 1 :], "")) if random.random() < 0.9 else ""]
        body += [random.choice(BARRIERS).replace("X", f"{place}")] if random.random() < 0.2 else []
    return "\n".join((*body, SYNC[blocks - 1]))


def test_random_kernels(doubts: dict[str, int]) -> None:
    """Whatever they do. Of some nothing is watched, and some of those that are watched are wrong."""
    clean = wrong = 0
    for number in range(RANDOM):
        random, before = Random(number), dict(doubts)
        blocks = random.choice((1, 1, 2))
        run = compare(body_of(random, blocks), blocks)
        failed = doubts["doubtful"] + doubts["unproven"] > before["doubtful"] + before["unproven"]
        clean += doubts["made"] > before["made"] and not failed
        wrong += failed and bool(run.hazards)
    assert clean > 10 and wrong > 10


@pytest.mark.parametrize(
    ("store", "threads", "thread"),
    [
        ("st.shared.u32 [s], %r1;", 64, 63),  # other numbers
        ("st.shared.v2.u32 [s], {%r2, %r1};", 64, 63),
        ("st.shared.u8 [s+1], %r2;", 64, 63),  # the warp's number
        ("st.shared.u32 [s], 7;", 64, None),
        ("st.shared.u32 [s], %r1;", 32, None),  # of one warp, whose order an H200 has
        ("st.volatile.shared.u32 [s], %r1;", 64, None),
        ("@%p1 st.shared.u32 [s], %r1;", 64, None),  # one thread
        ("st.shared.u32 [%r3], %r1;", 64, None),  # each to its own place
    ],
)
@pytest.mark.parametrize("grid", [1, 9])
def test_warps_store_to_one_place_with_one_instruction(store: str, threads: int, thread: int | None, grid: int) -> None:
    """Named once where what stays there is another number for another order, and no barrier decides."""
    source = f"""
        .version 8.0 .target sm_90 .address_size 64
        .visible .entry k() {{
        .reg .b32 %r<9>; .reg .pred %p<2>; .shared .align 8 .b8 s[512];
        mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.eq.u32 %p1, %r1, 40; mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r3, %r3, %r4;
        {store}
        ret; }}"""
    run = parse(source).kernel("k").launch(Memory(), [], (grid, 1, 1), (threads, 1, 1), arch="sm_90")
    found = [(own.name, own.thread, own.block, own.line == own.other_line) for own in run.hazards]
    assert found == ([] if thread is None else [("SMEM_RACE_WAW", thread, (0, 0, 0), True)])
    assert all("other warps store other numbers with the same instruction" in own.message for own in run.hazards)


def test_one_block_of_many_stores_other_numbers() -> None:
    """Its accesses are those of the others; what it stores is not."""
    source = """
        .version 8.0 .target sm_90 .address_size 64
        .visible .entry k() {
        .reg .b32 %r<9>; .reg .pred %p<2>; .shared .align 8 .b8 s[512];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 5; selp.u32 %r3, %r1, 7, %p1;
        st.shared.u32 [s], %r3;
        ret; }"""
    run = parse(source).kernel("k").launch(Memory(), [], (12, 1, 1), (64, 1, 1), arch="sm_90")
    assert [(own.name, own.block) for own in run.hazards] == [("SMEM_RACE_WAW", (5, 0, 0))] and run.batch > 1
