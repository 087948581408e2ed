"""Registers of wgmma that are touched before a wait: ptxas orders them, so the bits are those of a kernel that waits.

The digests are those of what an H200 wrote (2026-11-28, ptxas 13.0), with the wait and without.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.hazards.hazard import Hazard

SCHEDULES = ("late", "early", 1, 2, 3)
ROUNDS, OF_A = 3, 0x3C003C00
THREADS = 256  # two warpgroups, each with registers of its own

HEAD = """.version 8.2
.target sm_90a
.address_size 64
.visible .entry in_flight(.param .u64 out, .param .u32 rounds, .param .u32 of_a)
{
  .reg .pred %p<4>; .reg .b32 %r<24>; .reg .b64 %d<9>; .reg .f32 %f<12>;
  .shared .align 1024 .b8 tile[1024]; .local .b32 kept;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, tile;
  shl.b32 %r2, %r0, 1; add.u32 %r2, %r2, %r1;
  and.b32 %r3, %r0, 3; shl.b32 %r3, %r3, 8; add.u32 %r3, %r3, 0x3C00;
  st.shared.b16 [%r2], %r3;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  shr.u32 %r2, %r1, 4;
  cvt.u64.u32 %d1, %r2;
  or.b64 %d1, %d1, 0x0000000800080000;
  mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f40000000; mov.f32 %f2, 0f40400000; mov.f32 %f3, 0f40800000;
  mov.f32 %f4, 0f00000000; mov.f32 %f5, %f4; mov.f32 %f6, %f4; mov.f32 %f7, %f4;
  ld.param.u32 %r16, [rounds]; ld.param.u32 %r17, [of_a];
  and.b32 %r4, %r0, 7; shl.b32 %r4, %r4, 6; add.u32 %r4, %r4, %r17;
  xor.b32 %r5, %r4, 0x0400; xor.b32 %r6, %r4, 0x04000000; xor.b32 %r7, %r4, 0x02000200;
  mov.b32 %r8, 0x44444444;
  mov.u32 %r9, 0;
"""
TAIL = """  wgmma.wait_group.sync.aligned 0;
  mul.wide.u32 %d2, %r0, 32;
  add.s64 %d3, %d0, %d2;
  st.global.v4.f32 [%d3], {%f0,%f1,%f2,%f3};
  st.global.v4.f32 [%d3+16], {%f4,%f5,%f6,%f7};
  ret;
}
"""
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, {%r4,%r5,%r6,%r7}, %d1, 1, 1, 1, 0;"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0,%f1,%f2,%f3}, {%r4,%r5,%r6,%r7}, %d1, %r8, 0, 1, 1, 1, 0;"
HALVES = "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16 {%r10,%r11,%r12,%r13}, {%r4,%r5,%r6,%r7}, %d1, 0, 1, 1, 0;"
OF_HALVES = (
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, {%r10,%r11,%r12,%r13}, %d1, 1, 1, 1, 0;"
)


@dataclass(frozen=True)
class Case:
    """A product, what touches its registers before the wait, and what that is called."""

    touch: str
    rule: str
    product: str = PRODUCT

    def ptx(self, pending: int) -> str:
        """The kernel whose wait in the loop leaves some groups in flight."""
        loop = f"""LOOP:
  wgmma.fence.sync.aligned;
  {self.product}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned {pending};
  {self.touch}
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p0, %r9, %r16;
  @%p0 bra LOOP;
"""
        return HEAD + loop + TAIL


A, READ, WRITE = "WGMMA_A_REG_HAZARD", "WGMMA_ACC_READ_IN_FLIGHT", "WGMMA_ACC_WRITE_IN_FLIGHT"
CASES = {
    "one register of A is added to": Case("add.u32 %r4, %r4, 0x04000400;", A),
    "A is loaded anew": Case("ld.shared.v2.b32 {%r5, %r7}, [%r1+16];", A),
    "A is loaded by ldmatrix": Case("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r4, %r6}, [%r1];", A),
    "A is packed anew by half of the lanes": Case(
        "and.b32 %r14, %r0, 1; setp.eq.u32 %p1, %r14, 0; @%p1 mov.b32 %r6, 0x40004000;", A
    ),
    "A is negated in a branch": Case(
        "and.b32 %r14, %r9, 1; setp.eq.u32 %p1, %r14, 0; @%p1 bra OVER;\n  xor.b32 %r5, %r5, 0x80008000;\nOVER:", A
    ),
    "A of a sparse product is moved": Case("mov.b32 %r15, %r4; mov.b32 %r4, %r5; mov.b32 %r5, %r15;", A, SPARSE),
    "metadata change": Case("xor.b32 %r8, %r8, 0xAAAAAAAA;", "", SPARSE),
    "an accumulator is summed": Case("add.f32 %f4, %f4, %f0; add.f32 %f5, %f5, %f3;", READ),
    "an accumulator is converted": Case("cvt.rzi.u32.f32 %r14, %f1; cvt.rn.f32.u32 %f6, %r14;", READ),
    "an accumulator is stored": Case("st.local.f32 [kept], %f1; ld.local.f32 %f6, [kept];", READ),
    "an accumulator is shuffled": Case(
        "mov.b32 %r14, %f2; shfl.sync.bfly.b32 %r14, %r14, 1, 31, 0xffffffff; mov.b32 %f7, %r14;", READ
    ),
    "an accumulator decides": Case(
        "setp.gt.f32 %p1, %f0, 0f41C80000; @%p1 bra OVER;\n  add.f32 %f4, %f4, 0f3F800000;\nOVER:", READ
    ),
    "two accumulators are joined": Case("mov.b64 %d4, {%f0, %f1}; mov.b64 {%f6, %f7}, %d4;", READ),
    "an accumulator is scaled": Case("mul.f32 %f0, %f0, 0f3F000000;", READ),
    "an accumulator is cleared": Case("mov.f32 %f2, 0f00000000;", WRITE),
    "an accumulator is cleared by some lanes": Case(
        "and.b32 %r14, %r0, 4; setp.eq.u32 %p1, %r14, 0; @%p1 mov.f32 %f3, 0f00000000;", WRITE
    ),
    "accumulators are A of the next product": Case(
        f"wgmma.fence.sync.aligned;\n  {OF_HALVES}\n  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;",
        READ,
        HALVES,
    ),
}
DIGESTS = {
    "one register of A is added to": "24edefbb0f722058",
    "A is loaded anew": "121490b655c97ae0",
    "A is loaded by ldmatrix": "8488a2e91df28c50",
    "A is packed anew by half of the lanes": "a8c5805b6f5eebcd",
    "A is negated in a branch": "25b387a3c73ae648",
    "A of a sparse product is moved": "9b8ae4bb539fddd4",
    "metadata change": "f68bc256c2d9a8e6",
    "an accumulator is summed": "c4351bdd5fdbb451",
    "an accumulator is converted": "cb50bc1c762ba39b",
    "an accumulator is stored": "c29426fcd9e5b8b1",
    "an accumulator is shuffled": "893ca5ee3bddb8f9",
    "an accumulator decides": "8af685619d237159",
    "two accumulators are joined": "16f184afe4afbf11",
    "an accumulator is scaled": "47afe965a2e34275",
    "an accumulator is cleared": "977050236ccb23ea",
    "an accumulator is cleared by some lanes": "eeea258406e87c69",
    "accumulators are A of the next product": "ffa8a4b1fb1924e3",
}
"""Of what an H200 wrote."""


def launched(ptx: str, schedule: str | int) -> tuple[bytes, list[Hazard], dict[str, int]]:
    """What a launch leaves in memory, what it is told, and what is not exact."""
    memory = Memory()
    out = memory.allocate(np.zeros(32 * THREADS, np.uint8))
    run = parse(ptx).kernel().launch(memory, [out, ROUNDS, OF_A], block=(THREADS, 1, 1), schedule=schedule)
    assert run.completed
    return memory.read(out, 32 * THREADS).tobytes(), run.hazards, dict(run.inexact)


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_programs_order(name: str) -> None:
    case = CASES[name]
    right, hazards, inexact = launched(case.ptx(0), "late")
    assert not hazards
    assert not inexact
    assert sha256(right).hexdigest()[:16] == DIGESTS[name]
    counts = set()
    for schedule in SCHEDULES:
        found, hazards, inexact = launched(case.ptx(1), schedule)
        assert found == right, schedule
        assert {own.severity for own in hazards} <= {"repaired"}
        assert not case.rule or case.rule in {own.name for own in hazards}
        assert bool(inexact) == (
            case.rule in (READ, WRITE)
        )  # A is always kept; an accumulator only where ptxas sees it
        counts.add(tuple(inexact.items()))
    assert len(counts) == 1  # whatever the order of completion
