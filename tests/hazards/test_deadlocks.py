"""What a launch that cannot go on says: who waits at which line, for what, and why it does not come."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from tcsim.ptx import Hazard, Memory, parse
from tests.hazards.kernels import FIRST, OWN, PARAMS
from tests.support.ptx_copies import text, wait

_BARRIER = "add.u32 %r2, %r1, 1024; @%p1 mbarrier.init.shared::cta.b64 [%r2], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


@dataclass(frozen=True)
class Stuck:
    """A kernel that cannot go on. `{a}` in what is said is the line with the comment `// a`."""

    name: str
    body: str
    said: tuple[str, ...]
    threads: int = 64
    blocks: int = 1  # of the cluster
    target: str = "sm_90a"
    directives: str = ""


CASES = (
    Stuck(
        "a copy brings too little",
        f"""
        {PARAMS} {OWN} {FIRST} {_BARRIER} add.u32 %r4, %r1, 128;
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256; // a
        @%p1 {_BULK} [%r1], [%rd1], 128, [%r2]; // b
        @%p1 {_BULK} [%r4], [%rd1], 112, [%r2]; // c
        {wait("W", "%r2", "0")}
        """,
        ("smem + 1024", "phase 0 under way, 0 of 1 arrivals missing, 16 bytes missing", "256 bytes expected by mbarrier.arrive.expect_tx.shared::cta.b64 (line {a})",
         f"240 delivered (128 by {_BULK} (line {{b}}), 112 by {_BULK} (line {{c}}))"),
    ),
    Stuck(
        "copies bring too much",
        f"""
        {PARAMS} {OWN} {FIRST} {_BARRIER} add.u32 %r4, %r1, 128;
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
        @%p1 {_BULK} [%r1], [%rd1], 128, [%r2];
        @%p1 {_BULK} [%r4], [%rd1], 144, [%r2];
        {wait("W", "%r2", "0")}
        """,
        ("0 of 1 arrivals missing, 16 bytes too many", "256 bytes expected", "272 delivered (128 by ", ", 144 by "),
    ),
    Stuck(
        "a named barrier that half of the block passes by",
        """
        setp.ge.u32 %p1, %r0, 32; @%p1 bra L;
        bar.sync 3, 64; // wait
        L: add.u32 %r1, %r0, 1;
        """,
        ("barrier 3 for 64 threads", "arrived: threads 0 to 31", "no other thread is left"),
    ),
    Stuck(
        "two halves at two barriers",
        """
        setp.ge.u32 %p1, %r0, 32; @%p1 bra L;
        bar.sync 1, 64; // wait
        bra E;
        L: bar.sync 2, 64; // b
        E: add.u32 %r1, %r0, 1;
        """,
        ("threads 0 to 31, line {wait}: waits at barrier 1", "threads 32 to 63, line {b}: waits at barrier 2"),
    ),
    Stuck(
        "half of a warp",
        """
        setp.ge.u32 %p1, %r0, 16; @%p1 bra L;
        bar.warp.sync -1; // wait
        L: @!%p1 bra E;
        bar.sync 1, 64;
        E: add.u32 %r1, %r0, 1;
        """,
        ("threads 0 to 15, line {wait}: waits for the other lanes of its warp: threads 16 to 31",),
        threads=32,
    ),
    Stuck(
        "a block that the cluster waits for",
        f"""
        {OWN} {FIRST} {_BARRIER} mov.u32 %r9, %cluster_ctarank; setp.eq.u32 %p3, %r9, 1; @%p3 bra L;
        barrier.cluster.arrive;
        barrier.cluster.wait; // wait
        bra E;
        L: {wait("W", "%r2", "0")}
        E: add.u32 %r1, %r0, 1;
        """,
        ("waits at the cluster's barrier; not arrived: threads 0 to 63 of block (1, 0, 0)", "block (1, 0, 0), threads 0 to 63", "1 of 1 arrivals missing"),
        blocks=2,
    ),
    Stuck(
        "a block that has left",
        f"""
        {OWN} {FIRST} {_BARRIER} barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r9, %cluster_ctarank; setp.eq.u32 %p3, %r9, 1; @%p3 bra L;
        {wait("W", "%r2", "0")}
        L: add.u32 %r1, %r0, 1;
        """,
        ("1 of 1 arrivals missing; block (1, 0, 0) ended before",),
        blocks=2,
    ),
    Stuck(
        "registers that nobody gave back",
        """
        setp.ge.u32 %p1, %r0, 128; @%p1 bra L;
        setmaxnreg.inc.sync.aligned.u32 240; // wait
        L: add.u32 %r1, %r0, 1;
        """,
        ("threads 0 to 127, line {wait}: waits for 240 registers for each of its threads", "each of the 16 warps still has the 128 of its launch"),
        threads=512,
        directives=".reqntid 512\n.maxnreg 128",
    ),
    Stuck(
        "too few registers given back",
        """
        setp.ge.u32 %p1, %r0, 128; @%p1 bra L;
        setmaxnreg.inc.sync.aligned.u32 240; // wait
        bra E;
        L: setmaxnreg.dec.sync.aligned.u32 160;
        E: add.u32 %r1, %r0, 1;
        """,
        ("threads 0 to 127, line {wait}", "4 warps have 160, 4 warps have 168, and free are 32"),
        threads=256,
        directives=".maxntid 256\n.maxnreg 168",
    ),
    Stuck(
        "columns that another warp holds",
        f"""
        {OWN} setp.ge.u32 %p1, %r0, 32; @%p1 bra L;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 256; // a
        bar.sync 1, 64;
        bra E;
        L: bar.sync 1, 64;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 512; // wait
        E: add.u32 %r1, %r0, 1;
        """,
        ("threads 32 to 63, line {wait}: waits for 512 columns of Tensor Memory", "256 by tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 (line {a})",
         "free: 256"),
        target="sm_100a",
    ),
)  # fmt: skip


def _stuck(case: Stuck, check: bool) -> tuple[Hazard, dict[str, int]]:
    """The last hazard, and the lines of the comments."""
    memory = Memory()
    pointers = [memory.allocate(np.zeros(4096, np.uint8)) for _ in range(2)]
    source = text(".param .u64 source, .param .u64 target", case.body, case.target, directives=case.directives)
    lines = {
        match[1]: line
        for line, own in enumerate(source.splitlines(), 1)
        if (match := re.search(r"// (\w+)$", own.strip()))
    }
    found = parse(source).kernel().launch(
        memory, pointers, grid=(case.blocks, 1, 1), block=(case.threads, 1, 1), cluster=(case.blocks, 1, 1), check=check
    )  # fmt: skip
    assert not found.completed
    return found.hazards[-1], lines


@pytest.mark.parametrize("case", CASES, ids=lambda own: own.name)
def test_a_deadlock_says_who_waits_for_what_and_why_it_does_not_come(case: Stuck) -> None:
    found, lines = _stuck(case, check=True)
    assert found.name == "DEADLOCK"
    missing = [part for part in case.said if part.format(**lines) not in found.message]
    assert not missing, f"{missing} not in {found.message}"


@pytest.mark.parametrize(
    "case", [own for own in CASES if re.search(r"// wait$", own.body, re.M)], ids=lambda own: own.name
)
def test_a_deadlock_stands_at_the_line_that_waits(case: Stuck) -> None:
    """Of the first thread that waits; without the check too."""
    for check in (True, False):
        found, lines = _stuck(case, check)
        assert found.line == lines["wait"]
