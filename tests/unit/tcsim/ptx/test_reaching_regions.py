"""Loads and stores in regions: as in NumPy, whatever they reach, in whatever order threads meet, and where they go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Limits, Memory, parse
from tcsim.ptx.compile.regions import VARIABLE, Recorded, Region
from tcsim.ptx.compile.temporaries import temporaries

SIZE, THREADS = 1 << 14, 96
FROM, OTHER, TO = 0x10000, 0x40000, 0x80000
WORDS = np.random.default_rng(3).integers(0, 1 << 32, SIZE // 4, dtype=np.uint32)
HEAD = """.version 8.7
.target sm_90
.address_size 64
.const .align 16 .b8 table[256] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
.visible .entry made(.param .u64 from, .param .u64 other, .param .u64 to) {
  .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .b64 %d<16>; .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b128 %q<2>; .shared .align 16 .b8 smem[4096];
  ld.param.u64 %d0, [from]; ld.param.u64 %d1, [other]; ld.param.u64 %d2, [to]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
  mad.lo.u32 %r2, %r1, 96, %r0; mul.wide.u32 %d3, %r2, 16; add.s64 %d2, %d2, %d3; mov.u32 %r3, smem;
  mul.lo.u32 %r4, %r2, 0x9E3779B1; shr.u32 %r4, %r4, 22; shl.b32 %r5, %r4, 4; cvt.u64.u32 %d4, %r5; add.s64 %d4, %d4, %d0;
  shl.b32 %r6, %r0, 4; add.u32 %r6, %r6, %r3; setp.lt.u32 %p1, %r4, 700; and.b32 %r7, %r0, 7; mov.u32 %r10, 0; mov.u32 %r11, 0; mov.b64 %d10, 0;
  st.shared.v4.u32 [%r6], {%r2, %r4, %r5, %r6}; bar.sync 0;
"""
"""%d4: somewhere in `from`, a multiple of 16; %r6: the thread's 16 bytes of shared memory; %p1: some threads; %d2: its 16 bytes of `to`."""
TAIL = "\n  st.global.v4.u32 [%d2], {%r10, %r11, %r12, %r13}; ret; }"
MIX = "xor.b32 %r10, %r10, %r11; shr.u32 %r12, %r10, 3; "
LOADS = {
    **{f"{type} of {space}": f"ld.{space}.{type} %r10, [{at}]; " + MIX for type in ("u8", "s8", "u16", "s16", "b32") for space, at in (("global", "%d4+4"), ("shared", "%r6+4"))},
    **{f"vectors of {space}": f"ld.{space}.v2.u32 {{%r10, %r11}}, [{at}+8]; ld.{space}.v4.u32 {{%r12, %r13, %r14, %r15}}, [{at}]; ld.{space}.v4.u16 {{%h0, %h1, %h2, %h3}}, [{at}+8]; "
       f"ld.{space}.v2.b64 {{%d10, %d11}}, [{at}]; xor.b64 %d10, %d10, %d11; mov.b64 {{%r16, %r17}}, %d10; mov.b32 %r18, {{%h3, %h1}}; xor.b32 %r10, %r16, %r18; " + MIX
       for space, at in (("global", "%d4"), ("shared", "%r6"))},
    "a predicate": "@%p1 ld.global.u32 %r10, [%d4]; @!%p1 ld.shared.u32 %r10, [%r6]; " + MIX,
    "nothing mapped where the predicate does not hold": "selp.b64 %d5, %d4, 0, %p1; @%p1 ld.global.u32 %r10, [%d5]; " + MIX,
    "a chain of addresses": "ld.global.u32 %r11, [%d4]; and.b32 %r11, %r11, 0xFFC; cvt.u64.u32 %d5, %r11; add.s64 %d5, %d5, %d0; ld.global.u32 %r10, [%d5]; " + MIX,
    "two arrays in a warp": "selp.b64 %d5, %d0, %d1, %p1; ld.global.u32 %r10, [%d5+32]; " + MIX,
    "an array for each warp": "setp.lt.u32 %p2, %r0, 32; selp.b64 %d5, %d0, %d1, %p2; ld.global.u32 %r10, [%d5+32]; " + MIX,
    "constants": "ld.const.u32 %r10, [table+8]; " + MIX,
    "generic": "ld.u32 %r10, [%d4]; cvta.shared.u64 %d6, %rd; ld.u32 %r11, [%d6]; ".replace("%rd", "%d7").replace("cvta", "cvt.u64.u32 %d7, %r6; cvta") + MIX,
    "what is written elsewhere in the block": "ld.global.u32 %r10, [%d2]; st.global.u32 [%d2+8], %r10; ld.global.u32 %r11, [%d2+8]; ",
    "what another block writes": "st.global.u32 [%d1], %r1; bar.sync 0; ld.global.u32 %r10, [%d1]; " + MIX,
    "a value that nobody uses": "ld.global.u32 %r14, [%d4+1048576]; mov.u32 %r14, 0; " + MIX,
    "not aligned": "ld.global.u32 %r10, [%d4+2]; " + MIX,
    "not aligned in shared memory": "add.u32 %r14, %r6, %r7; ld.shared.u32 %r10, [%r14]; " + MIX,
    "behind shared memory": "mad.lo.u32 %r14, %r0, 64, %r3; ld.shared.u32 %r10, [%r14]; " + MIX,
    "the shared memory of no block": "or.b32 %r14, %r6, 0x5000000; ld.shared::cluster.u32 %r10, [%r14]; " + MIX,
    "the first instruction that goes wrong, not the first thread": "setp.eq.u32 %p3, %r0, 3; setp.eq.u32 %p4, %r0, 90; @%p4 add.s64 %d4, %d4, 1048576; ld.global.u32 %r10, [%d4]; "
    "@%p3 add.s64 %d4, %d4, 1048576; ld.global.u32 %r11, [%d4]; " + MIX,
    "threads of which each second goes wrong behind a store": "st.shared.u32 [%r6], %r0; and.b32 %r14, %r0, 1; mad.wide.u32 %d5, %r14, 1048576, %d4; ld.global.u32 %r10, [%d5]; " + MIX,
}  # fmt: skip
READ = "bar.sync 0; ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r6]; "
STORES = {
    **{f"{type}": f"st.shared.{type} [%r6+8], %r2; " + READ for type in ("u8", "u16", "u32")},
    "u64": "mov.b64 %d10, {%r2, %r4}; st.shared.u64 [%r6+8], %d10; " + READ,
    "vectors": "mov.b64 %d10, {%r2, %r4}; mov.b32 {%h0, %h1}, %r4; st.shared.v2.u32 [%r6], {%r4, %r2}; st.shared.v2.u64 [%r6], {%d10, %d4}; st.shared.v4.u16 [%r6+8], {%h0, %h1, %h0, %h1}; " + READ,
    **{f"threads that meet, {type}": f"and.b32 %r14, %r4, 3; mad.lo.u32 %r14, %r14, 16, %r3; mov.b64 %d10, {{%r2, %r0}}; st.shared.{type} [%r14], {what}; bar.sync 0; "
       "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [smem]; " for type, what in (("u8", "%r2"), ("u16", "%r2"), ("u32", "%r2"), ("u64", "%d10"), ("v2.u32", "{%r2, %r0}"), ("v4.u32", "{%r2, %r0, %r4, %r2}"), ("v2.u64", "{%d10, %d10}"))},
    "two stores that meet": "and.b32 %r14, %r4, 3; mad.lo.u32 %r14, %r14, 16, %r3; xor.b32 %r15, %r14, 16; st.shared.u32 [%r14], %r2; st.shared.u32 [%r15], %r0; " + READ,
    "a predicate": "@%p1 st.shared.u32 [%r6], %r5; " + READ,
    "values of the same block": "add.u32 %r14, %r2, 5; st.shared.u32 [%r6], %r14; add.u32 %r14, %r14, 7; st.shared.u32 [%r6+4], %r14; mul.lo.u32 %r6, %r14, 0; add.u32 %r6, %r6, %r3; " + READ,
    "not aligned": "add.u32 %r14, %r6, %r7; st.shared.u32 [%r14], %r2; " + READ,
    "the second one goes wrong": "st.shared.u32 [%r6], %r2; mad.lo.u32 %r14, %r0, 64, %r3; st.shared.u32 [%r14], %r2; " + READ,
    "threads that meet before another access is left to NumPy": "and.b32 %r14, %r0, 1; mad.lo.u32 %r14, %r14, 16, %r3; st.shared.u32 [%r14], %r2; setp.lt.u32 %p2, %r0, 50; "
    "selp.b64 %d5, %d0, %d1, %p2; ld.global.u32 %r11, [%d5+32]; " + READ,
    "one warp that waits for what another one stores": "setp.gt.u32 %p2, %r0, 31; mov.u32 %r14, 0; @%p2 bra WAIT; COUNT: add.u32 %r14, %r14, 1; setp.lt.u32 %p3, %r14, 300; "
    "@!%p3 st.shared.u32 [smem+2048], %r14; @%p3 bra COUNT; bra DONE; WAIT: ld.volatile.shared.u32 %r10, [smem+2048]; setp.ne.u32 %p4, %r10, 300; @%p4 bra WAIT; DONE: ",
    "an address that only the variable has": "st.shared.u32 [smem+16], %r2; " + READ,
}  # fmt: skip
SHUFFLES = {
    **{f"{mode} by {by}": f"mov.u32 %r14, {by}; shfl.sync.{mode}.b32 %r10|%p3, %r4, %r14, {mask}, -1; selp.u32 %r11, 1, 2, %p3; shfl.sync.{mode}.b32 %r12, %r10, {by}, {mask}, -1; "
       for mode, by, mask in (("up", 1, 0), ("up", 40, 0x1000), ("down", 3, 31), ("down", 5, 0x181F), ("bfly", 16, 31), ("bfly", 9, 0x1C1F), ("idx", 7, 31), ("idx", 70, 0x101F))},
    "a lane that each one names": "xor.b32 %r14, %r4, %r0; shfl.sync.idx.b32 %r10|%p3, %r2, %r14, 31, -1; selp.u32 %r11, %r10, 7, %p3; ",
    "a register into itself": "mov.u32 %r10, %r4; shfl.sync.bfly.b32 %r10, %r10, 17, 31, -1; shfl.sync.bfly.b32 %r10, %r10, 16, 31, -1; ",
    "a register that is written behind it": "mov.u32 %r10, %r2; mov.u32 %r14, %r4; add.u32 %r12, %r0, 1; bar.sync 0; shfl.sync.down.b32 %r11, %r14, 16, 31, -1; add.u32 %r14, %r14, %r11; xor.b32 %r10, %r14, %r12; ",
    "a sum over a warp": "cvt.rn.f32.u32 %f0, %r4; " + "".join(f"mov.b32 %r14, %f0; shfl.sync.bfly.b32 %r15, %r14, {by}, 31, -1; mov.b32 %f1, %r15; add.f32 %f0, %f0, %f1; " for by in (16, 8, 4, 2, 1)) + "mov.b32 %r10, %f0; ",
    "some lanes of a warp": "and.b32 %r14, %r0, 3; setp.eq.u32 %p2, %r14, 1; @!%p2 bra SKIP; shfl.sync.bfly.b32 %r10, %r4, 4, 31, 0x22222222; shfl.sync.idx.b32 %r11, %r4, 0, 31, 0x22222222; SKIP: ",
    "threads that have ended": "and.b32 %r14, %r0, 31; setp.gt.u32 %p2, %r14, 20; @%p2 exit; shfl.sync.down.b32 %r10, %r4, 8, 31, 0x1FFFFF; shfl.sync.idx.b32 %r11, %r10, 3, 31, 0x1FFFFF; ",
    "a load before it and a store behind it": "ld.global.u32 %r14, [%d4]; shfl.sync.bfly.b32 %r15, %r14, 16, 31, -1; add.u32 %r15, %r15, %r14; st.shared.u32 [%r6], %r15; bar.sync 0; ld.shared.u32 %r10, [%r6]; shfl.sync.up.b32 %r11, %r10, 2, 0, -1; ",
    "threads that have ended, of a whole warp": "and.b32 %r14, %r0, 31; setp.gt.u32 %p2, %r14, 20; @%p2 exit; shfl.sync.down.b32 %r10, %r4, 8, 31, -1; ",
    "a register that has another value by now": "mov.u32 %r14, %r4; bar.sync 0; mov.u32 %r15, %r14; mov.u32 %r14, %r0; shfl.sync.bfly.b32 %r10, %r15, 16, 31, -1; add.u32 %r11, %r14, %r15; ",
    "a load that is left to NumPy": "and.b32 %r14, %r0, 31; setp.eq.u32 %p2, %r14, 20; bar.sync 0; shfl.sync.bfly.b32 %r11, %r4, 16, 31, -1; selp.b64 %d5, %d0, %d1, %p2; ld.global.u32 %r10, [%d5+32]; ",
}  # fmt: skip


@pytest.fixture(autouse=True)
def new_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch compiles its program anew."""
    monkeypatch.setattr("tcsim.ptx.kernel.store", lambda: type("Store", (), {"get": lambda self, key, make: make()})())


def launched(body: str, **options: Any) -> tuple[Any, ...]:
    """All that a launch leaves and tells."""
    memory = Memory()
    for address in (FROM, OTHER, TO):
        memory.map(address, WORDS.view(np.uint8) if address != TO else np.zeros(SIZE, np.uint8))
    limits = Limits(batch=options.pop("batch", 64), processes=options.pop("processes", 1))
    run = parse(HEAD + body + TAIL).kernel().launch(memory, [FROM, OTHER, TO], (5, 1, 1), (options.pop("threads", THREADS), 1, 1), limits=limits, **options)  # fmt: skip
    told = [(own.name, own.line, own.message, own.block, own.thread) for own in run.hazards]
    octets = [memory.read(address, SIZE).tobytes() for address in (FROM, OTHER, TO)]
    return octets, told, run.instructions, run.completed, sorted(run.inexact.items())


BODIES = {f"loads: {name}": body for name, body in LOADS.items()} | {f"stores: {n}": b for n, b in STORES.items()}
BODIES |= {f"exchanges: {name}": body for name, body in SHUFFLES.items()}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_what_reaches_memory_does_the_same(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block at a time, in batches, in two processes, with a block that is no multiple of a warp, and with the check."""
    reached: list[bool] = []
    before = Region.__call__

    def call(own: Region, *parts: Any) -> None:
        reached.append(own.reaches)
        before(own, *parts)

    monkeypatch.setattr(Region, "__call__", call)
    ways: list[dict[str, Any]] = [{"check": False}, {"check": False, "batch": 1, "threads": 75}, {"check": False, "schedule": 7}, {"check": True}]  # fmt: skip
    ways += [{"check": False, "processes": 2}]
    for way in ways:
        monkeypatch.setenv(VARIABLE, "all")
        found = launched(body, **way)
        monkeypatch.setenv(VARIABLE, "off")
        assert found == launched(body, **way), way
    assert any(reached)


def test_a_read_behind_which_another_block_writes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in which a block reads, by compiled code, what a later one writes: the blocks run one after the other."""
    body = "ld.global.u32 %r10, [%d1]; xor.b32 %r11, %r10, 1; setp.eq.u32 %p3, %r1, 2; @%p3 st.global.u32 [%d1], %r11; "
    monkeypatch.setenv(VARIABLE, "all")
    found = launched(body, check=False)
    monkeypatch.setenv(VARIABLE, "off")
    assert found == launched(body, check=False) == launched(body, check=False, batch=1)
    words = np.frombuffer(found[0][2], np.uint32).reshape(-1, 4)[: 5 * THREADS, 0]
    assert len(set(words.tolist())) == 2  # blocks 3 and 4 read what block 2 wrote


@pytest.mark.parametrize("kind", ["global.u8", "global.v2.u64", "u32"])
def test_processes_see_what_compiled_code_reads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block reads what the first one writes, and runs in another process."""
    to = {"global.u8": "%r10", "u32": "%r10", "global.v2.u64": "{%d10, %d11}"}[kind]
    body = f"setp.eq.u32 %p3, %r1, 0; @%p3 st.global.u32 [%d1+12], %r2; setp.eq.u32 %p4, %r1, 4; @%p4 ld.{kind} {to}, [%d1]; cvt.u32.u64 %r11, %d11; @%p4 ld.{kind.split('.')[-1]} %r12, [%d1+12]; "
    body = body.replace("ld.u64 %r12", "ld.u32 %r12")
    monkeypatch.setenv(VARIABLE, "all")
    found = launched(body, check=False, batch=1, processes=2)
    monkeypatch.setenv(VARIABLE, "off")
    assert found == launched(body, check=False, batch=1) == launched(body, check=False, batch=1, processes=2)


def test_a_temporary_is_not_put_back_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers that only one basic block names, behind whose first line that writes them all others read, need not be kept."""
    kept: list[set[int]] = []
    before = Recorded.region

    def region(own: Recorded, *given: Any) -> Region:
        made = before(own, *given)
        kept.append(set(own.made.results))
        return made

    monkeypatch.setattr(Recorded, "region", region)
    monkeypatch.setenv(VARIABLE, "all")
    body = "add.u32 %r14, %r2, 5; mul.lo.u32 %r15, %r14, %r14; LOOP: add.u32 %r10, %r10, %r15; add.u32 %r16, %r10, 3; xor.b32 %r11, %r11, %r16; setp.lt.u32 %p2, %r10, 9999; @%p2 bra LOOP; "
    found = launched(body, check=False)
    memory = Memory()
    program = parse(HEAD + body + TAIL).kernel().compiled(memory, "sm_90")
    assert program.temporaries is None  # until something is compiled
    sizes = [len(own) for own in kept]
    monkeypatch.setenv(VARIABLE, "off")
    assert found == launched(body, check=False)
    assert sizes and min(sizes) <= 3  # of the loop: two sums and the predicate, not %r16


def test_a_program_that_waits_or_is_watched_has_no_temporaries() -> None:
    """Whether it spins is seen from all registers, and an observer may look at them."""
    wait = "LOOP: ld.volatile.global.u32 %r14, [%d1]; setp.ne.u32 %p2, %r14, 7; @%p2 bra LOOP; "
    plain, waiting = (
        parse(HEAD + body + TAIL).kernel() for body in ("add.u32 %r14, %r2, 5; add.u32 %r10, %r14, 1; ", wait)
    )
    assert temporaries(plain.compiled(Memory(), "sm_90"))
    assert not temporaries(plain.compiled(Memory(), "sm_90", True))
    assert not temporaries(waiting.compiled(Memory(), "sm_90"))
