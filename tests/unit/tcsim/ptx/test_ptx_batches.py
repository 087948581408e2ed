"""Blocks that run as one batch leave what they leave one after the other, and end where they end, whatever they do."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import Limits, Memory, parse
from tcsim.ptx.launch import grid as grid_module
from tcsim.ptx.machine import batch as batch_module
from tests.support.ptx_programs import Program

OUT, SIZE = 0x10000, 1 << 17
WORDS = np.random.default_rng(5).integers(0, 1 << 32, SIZE // 4, dtype=np.uint32)
WORDS[: 1 << 14] = 0  # what kernels write; behind it is what they read
HEAD = """
    .reg .pred %p<16>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>; .reg .f64 %d<2>; .shared .align 1024 .b8 smem[4096];
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r30, %ntid.x; mad.lo.u32 %r2, %r1, %r30, %r0;
    mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %rd0, %rd1; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd0, %rd2; mov.u32 %r3, smem;
"""
"""%r0: the thread; %r1: the block; %r2: the thread in the grid; %rd1: the address of its word; %rd2: of that of its block; %r3: shared memory."""
STORE, FAR = "st.global.u32 [%rd1], %r9;", "st.global.u32 [%rd1+4096], %r9;"
COPY = "shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r3; add.s64 %rd10, %rd1, 65536; cp.async.ca.shared.global [%r10], [%rd10], 4; "
FIB = """.func (.param .b32 r) fib(.param .b32 n) {
    .reg .pred %p<2>; .reg .b32 %r<8>; ld.param.u32 %r1, [n]; mov.u32 %r2, %r1; setp.lt.u32 %p1, %r1, 2; @%p1 bra D; sub.u32 %r3, %r1, 1; sub.u32 %r4, %r1, 2;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), fib, (a); ld.param.b32 %r5, [b]; }
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), fib, (a); ld.param.b32 %r6, [b]; } add.u32 %r2, %r5, %r6; D: st.param.b32 [r], %r2; ret;
}"""
DEEP = """.func (.param .b32 r) deep(.param .b32 n) {
    .local .align 16 .b8 big[256]; .reg .pred %p<2>; .reg .b32 %r<8>; ld.param.u32 %r1, [n]; st.local.u32 [big], %r1; mov.u32 %r2, 0;
    setp.eq.u32 %p1, %r1, 0; @%p1 bra D; sub.u32 %r3, %r1, 1; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), deep, (a); ld.param.b32 %r5, [b]; }
    ld.local.u32 %r2, [big]; add.u32 %r2, %r5, %r2; D: st.param.b32 [r], %r2; ret;
}"""
PRINTF = ".extern .func (.param .b32 n) vprintf(.param .b64 f, .param .b64 v);\n.global .b8 said[5] = {37, 117, 59, 0};"
PRINTS = """
    .local .align 8 .b8 list[8]; st.local.u32 [list], %r1; mov.u64 %rd5, list; cvta.local.u64 %rd5, %rd5; mov.u64 %rd6, said; setp.eq.u32 %p0, %r0, 0;
    setp.eq.and.u32 %p0, %r1, 3, %p0;
    { .param .b64 f; .param .b64 v; .param .b32 n; st.param.b64 [f], %rd6; st.param.b64 [v], %rd5; @%p0 call (n), vprintf, (f, v); } st.global.u32 [%rd1], %r1;
"""
MALLOC = ".extern .func (.param .b64 r) malloc(.param .b64 n);"


def made(count: int) -> str:
    """An mbarrier in shared memory."""
    return f"setp.ne.u32 %p9, %r0, 0; @%p9 bra MADE; mbarrier.init.shared::cta.b64 [smem+1024], {count}; MADE: bar.sync 0; "


KINDS = (
    """
    and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, WHICH; setp.lt.u32 %p2, %r0, 7; setp.lt.u32 %p5, %r0, 32; mov.u32 %r6, 0; @!%p5 bra L;
    H: @%p1 bra R; bar.sync 1; mov.u32 %r9, 77; bra E; R: barrier.cta.red.popc.u32 %r9, 1, %p2; bra E;
    L: @!%p1 bra M; bra H; M: add.u32 %r6, %r6, 1; setp.lt.u32 %p6, %r6, 9; @%p6 bra M; bra H; E:
"""
    + STORE
)
"""A barrier that only lets wait in some blocks, which come later to it, and reduces in the others."""
WGMMA = (
    """
    mov.u32 %r4, 0; setp.eq.u32 %p1, %r1, 1; mad.lo.u32 %r5, %r0, 16, %r3; mov.b32 %r6, 0x3c003c00;
    I: st.shared.v4.u32 [%r5], {%r6,%r6,%r6,%r6}; add.u32 %r5, %r5, 2048; add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, 2; @%p0 bra I; fence.proxy.async; bar.sync 0;
    cvt.u64.u32 %rd5, %r3; shr.u64 %rd5, %rd5, 4; and.b64 %rd5, %rd5, 0x3fff; mov.u64 %rd6, 0x0000000800010000; or.b64 %rd5, %rd5, %rd6;
    wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd5, %rd5, 0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;
    @%p1 bra X; mov.b32 %r6, 0x40004000; st.shared.u32 [%r3], %r6; bra Y; X: wgmma.wait_group.sync.aligned 0; Y:
    mov.b32 %r9, %f1; wgmma.wait_group.sync.aligned 0; mov.b32 %r7, %f2; add.u32 %r9, %r9, %r7;
"""
    + STORE
)
MULTICAST = (
    made(1)
    + """
    barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, %cluster_ctarank; setp.ne.u32 %p2, %r4, 0; @%p9 bra V; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+1024], 128;
    @%p2 bra V; mul.wide.u32 %rd10, %r1, 128; add.s64 %rd10, %rd10, %rd0; mov.u16 %h1, 3;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [smem], [%rd10+65536], 128, [smem+1024], %h1;
    V: COUNT mbarrier.WAIT.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra V;
    shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r3; ld.shared.u32 %r9, [%r10]; barrier.cluster.arrive; barrier.cluster.wait;
"""
    + STORE
)
Case = str | tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]
KERNELS: dict[str, Case] = {
    "each its own kind of barrier": (KINDS.replace("WHICH", "0"), {"block": 64}),
    "each its own kind of barrier, the other way": (KINDS.replace("WHICH", "1"), {"block": 64}),
    "wgmma, an accumulator before a wait": (WGMMA, {"block": 128}),
    "multicast, test_wait": (MULTICAST.replace("WAIT", "test_wait").replace("COUNT", ""), {"grid": 8, "cluster": 2}),
    "multicast, try_wait": (MULTICAST.replace("WAIT", "try_wait").replace("COUNT", ""), {"grid": 8, "cluster": 2}),
    "multicast, a count of turns": (MULTICAST.replace("WAIT", "test_wait").replace("COUNT", "add.u32 %r8, %r8, %r1;"), {"grid": 8, "cluster": 2}),
    "loop": ("mov.u32 %r4, 0; mad.lo.u32 %r5, %r1, 3, %r0; and.b32 %r5, %r5, 15; L: add.u32 %r9, %r9, %r4; add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, %r5; @%p0 bra L; " + STORE),
    "turns of two warps": ("and.b32 %r5, %r1, 3; mul.lo.u32 %r5, %r5, 200; setp.lt.u32 %p0, %r0, 32; mov.u32 %r4, 0; @%p0 bra L; M: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 300; @%p1 bra M; st.shared.u32 [smem], 1; bra E; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r5; @%p1 bra L; st.shared.u32 [smem], 2; E: bar.sync 0; ld.shared.u32 %r9, [smem];" + STORE, {"block": 64}),
    "early exit": ("and.b32 %r4, %r1, 1; setp.eq.u32 %p0, %r4, 1; @%p0 ret; setp.gt.u32 %p1, %r0, 20; @%p1 exit; bar.sync 0; mov.u32 %r9, 7;" + STORE, {"block": 96}),
    "named bars": ("shr.u32 %r4, %r0, 5; and.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r4, 0; @%p0 bra A; bar.arrive 1, 64; setp.eq.u32 %p1, %r5, 0; @%p1 bar.sync 2, 64; mov.u32 %r9, 1; bra E; A: setp.eq.u32 %p2,%r5,1; @%p2 bra B; bar.sync 1, 64; bar.sync 2,64; mov.u32 %r9, 2; bra E; B: bar.sync 1, 64; mov.u32 %r9, 3; E: " + STORE, {"block": 64}),
    "bar.red and/or": ("rem.u32 %r5, %r1, 3; setp.eq.u32 %p1, %r5, 0; setp.eq.u32 %p4, %r5, 1; setp.lt.u32 %p2, %r0, 7; @%p1 bra A; @%p4 bra B; barrier.cta.red.popc.u32 %r9, 0, %p2; bra E; A: barrier.cta.red.and.pred %p3, 0, %p2; selp.u32 %r9, 5, 6, %p3; bra E; B: barrier.cta.red.or.pred %p3, 0, %p2; selp.u32 %r9, 8, 9, %p3; E: " + STORE, {"grid": 7, "block": 33}),
    "a count by block": ("and.b32 %r5, %r1, 1; add.u32 %r5, %r5, 1; shl.b32 %r5, %r5, 5; setp.lt.u32 %p0, %r0, %r5; @%p0 bar.sync 3, %r5; mov.u32 %r9, %r5;" + STORE, {"block": 64}),
    "a barrier by block": ("and.b32 %r5, %r1, 7; bar.sync %r5; mov.u32 %r9, %r5;" + STORE, {"block": 64}),
    "bad bar count": ("setp.eq.u32 %p0, %r1, 3; mov.u32 %r5, 64; @%p0 mov.u32 %r5, 33; bar.sync 1, %r5;" + STORE, {"block": 64}),
    "deadlock in a later block": ("setp.eq.u32 %p0, %r1, 3; setp.lt.u32 %p1, %r0, 32; and.pred %p0, %p0, %p1; @%p0 bar.sync 1, 96; mov.u32 %r9, 3;" + STORE, {"block": 64}),
    "trap in a later block": (STORE + "setp.eq.u32 %p0, %r1, 3; @%p0 trap; mov.u32 %r9, 3;" + STORE, {"block": 64}),
    "unmapped in a later block": (STORE + "setp.eq.u32 %p0, %r1, 3; setp.eq.u32 %p1, %r0, 13; and.pred %p0, %p0, %p1; mov.u64 %rd5, %rd1; @%p0 mov.u64 %rd5, 64; st.global.u32 [%rd5], %r9;" + STORE, {"block": 64}),
    "unaligned in a later block": (STORE + "setp.eq.u32 %p0, %r1, 3; setp.eq.u32 %p1, %r0, 13; and.pred %p0, %p0, %p1; mov.u64 %rd5, %rd1; @%p0 add.s64 %rd5, %rd5, 2; st.global.u32 [%rd5], %r9;" + STORE, {"block": 64}),
    "beyond shared memory in a later block": (STORE + "mad.lo.u32 %r5, %r1, 1300, %r3; st.shared.u32 [%r5], %r0; ld.shared.u32 %r9, [%r5];" + STORE, {"block": 64}),
    "nanosleep pred": ("shr.u32 %r6, %r0, 5; and.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r5, 1; setp.eq.u32 %p1, %r6, 0; mov.u32 %r4, 0; L: and.pred %p2, %p0, %p1; @%p2 nanosleep.u32 20; add.u32 %r4, %r4, 1; atom.shared.add.u32 %r7, [smem], 1; add.u32 %r9, %r9, %r7; setp.lt.u32 %p3, %r4, 3; @%p3 bra L; " + STORE, {"block": 64}),
    "cp.async mbar test_wait cnt": (made(64) + COPY + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; W: add.u32 %r8, %r8, 1; mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; ld.shared.u32 %r9, [%r10];" + STORE, {"block": 64}),
    "cp.async mbar try_wait": (made(64) + COPY + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; ld.shared.u32 %r9, [%r10];" + STORE, {"block": 64}),
    "cp.async mbar behind a wait by block": (made(64) + COPY + "and.b32 %r5, %r1, 1; setp.eq.u32 %p3, %r5, 0; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; @%p3 bra W; cp.async.wait_all; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; ld.shared.u32 %r9, [%r10];" + STORE, {"block": 64}),
    "test_wait by block": (made(64) + COPY + "and.b32 %r5, %r1, 1; setp.eq.u32 %p3, %r5, 0; @%p3 bra X; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; bra W; X: mbarrier.arrive.shared::cta.b64 _, [smem+1024]; W: mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; ld.shared.u32 %r9, [%r10];" + STORE, {"block": 64}),
    "cp.async groups by block": ("and.b32 %r5, %r1, 3; mov.u32 %r4, 0; L: mad.lo.u32 %r10, %r4, 128, %r3; mad.lo.u32 %r10, %r0, 4, %r10; mad.wide.u32 %rd10, %r4, 512, %rd1; add.s64 %rd10,%rd10,65536; cp.async.ca.shared.global [%r10], [%rd10], 4; cp.async.commit_group; ld.shared.u32 %r7, [%r10]; add.u32 %r9, %r9, %r7; add.u32 %r4, %r4, 1; setp.le.u32 %p0, %r4, %r5; @%p0 bra L; cp.async.wait_group 1; ld.shared.u32 %r7, [%r3]; mad.lo.u32 %r9, %r9, 3, %r7; ld.shared.u32 %r7, [%r10]; mad.lo.u32 %r9, %r9, 3, %r7; cp.async.wait_all; ld.shared.u32 %r7, [%r10]; mad.lo.u32 %r9, %r9, 3, %r7;" + STORE),
    "cp.async overwritten": ("and.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r5, 0;" + COPY + "cp.async.commit_group; @%p0 bra A; st.global.u32 [%rd10], %r2; A: cp.async.wait_group 0; ld.shared.u32 %r9, [%r10];" + STORE),
    "cp.async never waited": (COPY + "cp.async.commit_group; st.global.u32 [%rd10], %r2;" + STORE),
    "cp.async fault in a later block": ("setp.eq.u32 %p0, %r1, 3; shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r3; add.s64 %rd10, %rd1, 65536; @%p0 mov.u64 %rd10, 64; cp.async.ca.shared.global [%r10], [%rd10], 4; cp.async.wait_all; ld.shared.u32 %r9, [%r10];" + STORE),
    "bulk out": ("shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r3; mad.lo.u32 %r9, %r2, 7, 1; st.shared.u32 [%r10], %r9; fence.proxy.async; bar.sync 0; setp.ne.u32 %p9, %r0, 0; @%p9 ret; mul.wide.u32 %rd10, %r1, 128; add.s64 %rd10, %rd10, %rd0; cp.async.bulk.global.shared::cta.bulk_group [%rd10], [smem], 128; cp.async.bulk.commit_group; and.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r5, 0; @%p0 cp.async.bulk.wait_group.read 0; st.shared.u32 [smem], %r1; cp.async.bulk.wait_group 0;"),
    "spin later block": ("setp.eq.u32 %p0, %r1, 3; @%p0 bra S; W: ld.acquire.gpu.global.u32 %r9, [%rd0+8192]; setp.eq.u32 %p1, %r9, 0; @%p1 bra W; bra E; S: mov.u32 %r9, 9; st.release.gpu.global.u32 [%rd0+8192], %r9; E: " + STORE),
    "spin for ever in a later block": ("setp.ne.u32 %p0, %r1, 3; @%p0 bra E; W: ld.acquire.gpu.global.u32 %r9, [%rd0+8192]; setp.eq.u32 %p1, %r9, 0; @%p1 bra W; E: " + STORE),
    "spin shared for ever in a later block": ("setp.ne.u32 %p0, %r1, 3; @%p0 bra E; W: ld.volatile.shared.u32 %r9, [smem]; setp.eq.u32 %p1, %r9, 0; @%p1 bra W; E: " + STORE),
    "spin warp": ("setp.lt.u32 %p0, %r0, 32; @%p0 bra S; W: ld.volatile.shared.u32 %r9, [smem]; setp.eq.u32 %p1, %r9, 0; @%p1 bra W; bra E; S: mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r1; @%p2 bra L; mov.u32 %r9, 9; st.volatile.shared.u32 [smem], %r9; E: " + STORE, {"block": 64}),
    "instr limit": ("mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r1; @%p2 bra L; " + STORE + " st.global.u32 [%rd1+16384], %r4;", {"limits": Limits(instructions=75)}),
    "in place": ("ld.global.u32 %r9, [%rd1+65536]; mad.lo.u32 %r9, %r9, 3, %r1; st.global.u32 [%rd1+65536], %r9; ld.global.u32 %r9, [%rd1+65536];" + STORE, {"launches": 2}),
    "halo behind": ("ld.global.u32 %r9, [%rd1+65540]; mad.lo.u32 %r9, %r9, 3, %r1; st.global.u32 [%rd1+65536], %r9; "),
    "halo before": ("ld.global.u32 %r9, [%rd1+65532]; mad.lo.u32 %r9, %r9, 3, %r1; st.global.u32 [%rd1+65536], %r9; "),
    "same byte": ("st.global.u8 [%rd0], %r1; st.global.u32 [%rd1+4096], %r1;"),
    "bytes next": ("cvt.u64.u32 %rd5, %r1; add.s64 %rd5, %rd0, %rd5; st.global.u8 [%rd5], %r1;"),
    "bytes next + word read": ("cvt.u64.u32 %rd5, %r1; add.s64 %rd5, %rd0, %rd5; st.global.u8 [%rd5], %r1; ld.global.u32 %r9, [%rd0]; st.global.u32 [%rd1+4096], %r9;"),
    "vectors": ("mul.wide.u32 %rd5, %r2, 16; add.s64 %rd5, %rd5, %rd0; ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%rd5+65536]; add.u32 %r4, %r4, %r1; st.global.v4.u32 [%rd5], {%r4,%r5,%r6,%r1};"),
    "atom old across": ("atom.global.add.u32 %r9, [%rd0], 1;" + FAR),
    "atom shared old": ("and.b32 %r4, %r2, 3; mad.lo.u32 %r4, %r4, 4, %r3; atom.shared.add.u32 %r9, [%r4], %r0; atom.shared.exch.b32 %r7, [%r4], %r2; mad.lo.u32 %r9, %r9, 31, %r7; atom.shared.cas.b32 %r7, [%r4], %r2, %r0;  mad.lo.u32 %r9, %r9, 31, %r7;" + STORE, {"block": 96}),
    "atom shared generic": ("cvta.shared.u64 %rd5, %rd6; mov.u64 %rd5, smem; cvta.shared.u64 %rd5, %rd5; and.b32 %r4, %r2, 3; mul.wide.u32 %rd6, %r4, 4; add.s64 %rd5, %rd5, %rd6; atom.add.u32 %r9, [%rd5], %r0; red.max.u32 [%rd5], %r2; ld.u32 %r7, [%rd5]; mad.lo.u32 %r9, %r9, 31, %r7;" + STORE, {"block": 96}),
    "generic mixed red": ("mov.u64 %rd5, smem; cvta.shared.u64 %rd5, %rd5; setp.lt.u32 %p0, %r0, 13; @%p0 mov.u64 %rd5, %rd2; red.add.u32 [%rd5], %r0; bar.sync 0; ld.shared.u32 %r9, [smem];" + FAR, {"block": 96}),
    "float shared": ("cvt.rn.f32.u32 %f1, %r2; mul.f32 %f1, %f1, 0f3DCCCCCD; red.shared.add.f32 [smem], %f1; bar.sync 0; ld.shared.u32 %r9, [smem];" + STORE, {"block": 96}),
    "float global own": ("cvt.rn.f32.u32 %f1, %r2; mul.f32 %f1, %f1, 0f3DCCCCCD; red.global.add.f32 [%rd2+65536], %f1; ", {"block": 96}),
    "red then read": ("red.global.add.u32 [%rd2], %r0; ld.global.u32 %r9, [%rd2];" + FAR),
    "read then red": ("ld.global.u32 %r9, [%rd0+65536]; red.global.add.u32 [%rd0+65536], %r9;"),
    "red mixed ops": ("red.global.add.u32 [%rd0], %r0; red.global.max.u32 [%rd0], %r2;"),
    "red mixed by block": ("and.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r5, 0; @%p0 red.global.add.u32 [%rd0], %r0; @!%p0 red.global.max.u32 [%rd0], %r2;"),
    "red s/u max": ("and.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r5, 0; neg.s32 %r6, %r2; @%p0 red.global.max.u32 [%rd0], %r6; @!%p0 red.global.max.s32 [%rd0], %r6;"),
    "specials": ("".join(f"mov.u32 %r4, {s}; mad.lo.u32 %r9, %r9, 31, %r4;" for s in ["%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%clusterid.x", "%clusterid.y", "%nclusterid.x", "%cluster_ctaid.x", "%cluster_ctarank", "%cluster_nctarank", "%smid", "%nsmid", "%warpid", "%laneid", "%lanemask_lt", "%tid.y", "%tid.z", "%dynamic_smem_size", "%total_smem_size"])+ "mad.lo.u32 %r5, %r1, 96, %r0;" + STORE, {"block": (8,4,3),"grid": 7}),
    "grids of three dimensions": ("mov.u32 %r4, %ctaid.y; mov.u32 %r5, %ctaid.z; mov.u32 %r6, %tid.y; mad.lo.u32 %r7, %r5, 3, %r4; mad.lo.u32 %r7, %r7, 3, %r1; mad.lo.u32 %r7, %r7, 4, %r6; mad.lo.u32 %r7, %r7, 8, %r0; mul.wide.u32 %rd5, %r7, 4; add.s64 %rd5, %rd5, %rd0; mad.lo.u32 %r9, %r4, 100, %r5; st.global.u32 [%rd5], %r9;", {"grid": (3,3,2),"block": (8,4,1)}),
    "clock": ("mov.u32 %r9, %clock; setp.eq.u32 %p0, %r1, 2; " + STORE),
    "clock in a later block": ("setp.ne.u32 %p0, %r1, 2; @%p0 bra E; mov.u32 %r9, %clock; E: " + STORE),
    "param store": ("add.s64 %rd3, %rd0, 16; mov.u64 %rd4, 0xF2000000000000; st.u64 [%rd4], %rd3; st.global.u32 [%rd0], %r2;"),
    "activemask": ("and.b32 %r4, %r2, 5; setp.lt.u32 %p0, %r4, 4; @%p0 bra A; activemask.b32 %r9; A: " + STORE, {"block": 33}),
    "lanes in loops of their own": ("rem.u32 %r4, %r2, 5; mov.u32 %r6, 0; L: shfl.sync.bfly.b32 %r7, %r2, 1, 31, -1; add.u32 %r9, %r9, %r7; vote.sync.ballot.b32 %r7, %p1, -1; add.u32 %r9,%r9,%r7; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r1; @%p1 bra L;" + STORE, {"block": 33}),
    "member masks": ("and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; and.b32 %r5, %r1, 1; setp.eq.u32 %p2, %r5, 0; @%p0 bra A; mov.u32 %r6, 0xAAAAAAAA; shfl.sync.down.b32 %r7, %r2, 2, 31, %r6; redux.sync.add.u32 %r8, %r2, %r6; add.u32 %r9, %r7, %r8; bra E; A: @%p2 bra E; match.any.sync.b32 %r7, %r4, 0x55555555; elect.sync %r8|%p3, 0x55555555; selp.u32 %r9, %r8, %r7, %p3; E: " + STORE, {"block": 64}),
    "lanes that meet at different instructions": ("and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; and.b32 %r5, %r1, 1; setp.eq.u32 %p2, %r5, 0; @%p2 bra E; @%p0 bra A; shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1; bra E; A: shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1; E: " + STORE, {"block": 64}),
    "bar.warp": ("and.b32 %r4, %r0, 3; setp.lt.u32 %p0, %r4, 2; st.shared.u32 [smem], %r2; mov.u32 %r6, 0; @%p0 bra A; bar.warp.sync -1; mov.u32 %r9, 1; bra E; A: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r1; @%p1 bra A; bar.warp.sync -1; mov.u32 %r9, 2; E: " + STORE, {"block": 64}),
    "a table of branches": ("T: .branchtargets A, B, D; rem.u32 %r4, %r2, 3; brx.idx %r4, T; A: mov.u32 %r9, 1; bra E; B: mov.u32 %r9, 2; bra E; D: mov.u32 %r9, 3; E: " + STORE),
    "a table of branches beyond in a later block": ("T: .branchtargets A, B, D; mov.u32 %r4, %r1; brx.idx %r4, T; A: mov.u32 %r9, 1; bra E; B: mov.u32 %r9, 2; bra E; D: mov.u32 %r9, 3; E: " + STORE),
    "setmaxnreg": ("setmaxnreg.dec.sync.aligned.u32 40; bar.sync 0; setmaxnreg.inc.sync.aligned.u32 56;" + STORE, {"block": 128}),
    "setmaxnreg, a warpgroup waits for the other": ("setp.lt.u32 %p0, %r0, 128; mul.lo.u32 %r5, %r1, 40; mov.u32 %r4, 0; @!%p0 bra L; setmaxnreg.inc.sync.aligned.u32 200; mov.u32 %r9, 2; bra E; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %r5; @%p1 bra L; setmaxnreg.dec.sync.aligned.u32 24; E: " + STORE, {"block": 256}),
    "an arrival of each warp, and two of one": (made(5) + "shr.u32 %r5, %r0, 4; and.b32 %r4, %r0, 31; setp.eq.u32 %p0, %r4, 0; setp.eq.u32 %p2, %r5, 2; setp.eq.and.u32 %p3, %r1, 2, %p2; @%p0 mbarrier.arrive.shared::cta.b64 _, [smem+1024]; setp.lt.u32 %p2, %r0, 2; @%p2 mbarrier.arrive.shared::cta.b64 _, [smem+1024]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; mov.u32 %r9, 3;" + STORE, {"block": 96}),
    "shared memory of the cluster": ("mov.u32 %r4, %cluster_ctarank; st.shared.u32 [%r3], %r1; mad.lo.u32 %r6, %r1, 2, 1; xor.b32 %r4, %r4, 1; mapa.shared::cluster.u32 %r5, %r3, %r4; barrier.cluster.arrive; mov.u32 %r6, 0; L: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, %r1; @%p1 bra L; barrier.cluster.wait; ld.shared::cluster.u32 %r9, [%r5]; atom.shared::cluster.add.u32 %r7, [%r5+4], %r2; barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r7, [%r3+4]; mad.lo.u32 %r9, %r9, 17, %r7;" + STORE, {"grid": 8, "cluster": 2, "block": 64}),
    "cluster twice in a later block": ("barrier.cluster.arrive; setp.eq.u32 %p0, %r1, 5; @%p0 barrier.cluster.arrive; barrier.cluster.wait;" + STORE, {"grid": 8, "cluster": 2}),
    "cluster exit": ("setp.eq.u32 %p0, %r1, 5; @%p0 ret; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r9, 3;" + STORE, {"grid": 8, "cluster": 2, "block": 64}),
    "no such block in the cluster": ("setp.ne.u32 %p0, %r1, 5; mov.u32 %r4, 0; @!%p0 mov.u32 %r4, 7; mapa.shared::cluster.u32 %r5, %r3, %r4; ld.shared::cluster.u32 %r9, [%r5];" + STORE, {"grid": 8, "cluster": 2}),
    "remote mbar": (made(64) + "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; add.u32 %r6, %r3, 1024; mapa.shared::cluster.u32 %r5, %r6, %r4; mov.u32 %r7, 0; L: add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, %r1; @%p1 bra L; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5]; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r9, %r7; " + STORE, {"grid": 8, "cluster": 2, "block": 64}),
    "two calls in a function": ("and.b32 %r4, %r2, 7; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), fib, (a); ld.param.b32 %r9, [b]; }" + STORE, {}, FIB),
    "calls of calls": ("{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), deep, (a); ld.param.b32 %r9, [b]; }" + STORE, {}, DEEP),
    "beyond local memory that another block has": (".local .align 16 .b8 own[64]; st.local.u32 [own], %r1; setp.eq.u32 %p0, %r1, 3; mov.u32 %r4, 0; @%p0 mov.u32 %r4, 40; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), deep, (a); ld.param.b32 %r9, [b]; } mov.u32 %r5, own; add.u32 %r5, %r5, 2000; ld.local.u32 %r7, [%r5]; add.u32 %r9, %r9, %r7;" + STORE, {}, DEEP),
    "alloca": ("cvt.u64.u32 %rd5, %r1; shl.b64 %rd5, %rd5, 6; add.s64 %rd5, %rd5, 16; alloca.u64 %rd6, %rd5, 16; st.local.u32 [%rd6], %r2; ld.local.u32 %r9, [%rd6];" + STORE),
    "beyond what another block has taken": ("cvt.u64.u32 %rd5, %r1; shl.b64 %rd5, %rd5, 10; add.s64 %rd5, %rd5, 16; alloca.u64 %rd6, %rd5, 16; st.local.u32 [%rd6+1024], %r2; ld.local.u32 %r9, [%rd6+1024];" + STORE),
    "stack overflow in a later block": ("setp.eq.u32 %p0, %r1, 3; mov.u32 %r4, 3; @%p0 mov.u32 %r4, 4000; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call (b), deep, (a); ld.param.b32 %r9, [b]; }" + STORE, {}, DEEP),
    "ldmatrix": ("shl.b32 %r10, %r0, 4; add.u32 %r10, %r10, %r3; mad.lo.u32 %r4, %r2, 5, 1; st.shared.v4.u32 [%r10], {%r4,%r2,%r1,%r4}; bar.sync 0; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r10]; add.u32 %r9, %r4, %r5; add.u32 %r9, %r9, %r6; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r7,%r6,%r5,%r4}; bar.sync 0; ld.shared.u32 %r7, [%r10]; mad.lo.u32 %r9, %r9, 3, %r7; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r4,%r5,%r6,%r7}, {%r4,%r5}, {%f1,%f2,%f3,%f4}; mov.b32 %r5, %f1; add.u32 %r9, %r9, %r5;" + STORE, {"block": 64}),
    "printf in a later block": (PRINTS, {}, PRINTF),
    "malloc": ("mov.u64 %rd4, 64; { .param .b64 n; .param .b64 p; st.param.b64 [n], %rd4; call (p), malloc, (n); ld.param.b64 %rd5, [p]; } cvt.u32.u64 %r9, %rd5;" + STORE, {}, MALLOC),
    "local memory that grows": (".local .align 16 .b8 own[64]; st.local.u32 [own], %r1; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), deep, (a); ld.param.b32 %r9, [b]; } " + STORE, {"grid": 7}, DEEP),
    "alloca grow": ("cvt.u64.u32 %rd5, %r2; and.b64 %rd5, %rd5, 127; shl.b64 %rd5, %rd5, 4; add.s64 %rd5, %rd5, 16; alloca.u64 %rd6, %rd5, 16; st.local.u32 [%rd6], %r2; add.s64 %rd7, %rd6, 512; ld.local.u32 %r9, [%rd7];" + STORE, {"grid": 7}),
    "cp.async split": ("and.b32 %r5, %r1, 3; mov.u32 %r4, 0; shl.b32 %r10, %r0, 4; add.u32 %r10, %r10, %r3; mul.wide.u32 %rd10, %r2, 16; add.s64 %rd10, %rd0, %rd10; add.s64 %rd10,%rd10,65536; cp.async.cg.shared.global [%r10], [%rd10], 16; cp.async.commit_group; cp.async.cg.shared.global [%r10+2048], [%rd10], 16, 7; cp.async.commit_group; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, %r1; @%p0 bra L; st.global.u32 [%rd10], %r1; setp.eq.u32 %p1, %r5, 2; @%p1 bra Z; cp.async.wait_group 1; st.global.u32 [%rd10+4], %r1; Z: cp.async.wait_group 0; ld.shared.v4.u32 {%r5,%r6,%r7,%r8}, [%r10+2048]; add.u32 %r9, %r5, %r6; ld.shared.v4.u32 {%r5,%r6,%r7,%r8}, [%r10]; mad.lo.u32 %r9, %r9, 7, %r6; mad.lo.u32 %r9, %r9, 7, %r5;" + STORE, {"grid": 7}),
    "cp.async mbar split": (made(32) + "and.b32 %r5, %r1, 1; setp.eq.u32 %p3, %r5, 0; mul.lo.u32 %r6, %r1, 2;" + COPY + "cp.async.commit_group; mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, %r6; @%p0 bra L; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; @%p3 cp.async.wait_group 0; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; ld.shared.u32 %r9, [%r10];" + STORE, {"grid": 7}),
    "test_wait + lanes": (made(33) + COPY + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; and.b32 %r5, %r0, 1; setp.eq.u32 %p3, %r5, 0; @%p3 bra X; setp.eq.u32 %p9, %r0, 1; @%p9 mbarrier.arrive.shared::cta.b64 _, [smem+1024]; W: mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; bra Y; X: mov.u32 %r8, 5; Y: shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1; ld.shared.u32 %r7, [%r10]; add.u32 %r9, %r9, %r7;" + STORE),
    "test_wait + lanes apart": (made(33) + COPY + "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [smem+1024]; and.b32 %r5, %r0, 1; setp.eq.u32 %p3, %r5, 0; @%p3 bra X; setp.eq.u32 %p9, %r0, 1; @%p9 mbarrier.arrive.shared::cta.b64 _, [smem+1024]; W: mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra W; shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1; bra Y; X: mov.u32 %r8, 5; shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1; Y: ld.shared.u32 %r7, [%r10]; add.u32 %r9, %r9, %r7;" + STORE),
    "bulk red shared::cluster": (made(1) + "barrier.cluster.arrive; barrier.cluster.wait; shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r3; st.shared.u32 [%r10], %r2; st.shared.u32 [%r10+512], %r2; fence.proxy.async; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; add.u32 %r6, %r3, 1024; mapa.shared::cluster.u32 %r5, %r3, %r4; mapa.shared::cluster.u32 %r7, %r6, %r4; @%p9 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+1024], 128; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [smem+512], 128, [%r7]; W: V: mbarrier.try_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra V; ld.shared.u32 %r9, [%r10]; barrier.cluster.arrive; barrier.cluster.wait;" + STORE, {"grid": 8, "cluster": 2}),
    "st.async": (made(1) + "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; add.u32 %r6, %r3, 1024; shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r3; mapa.shared::cluster.u32 %r5, %r10, %r4; mapa.shared::cluster.u32 %r7, %r6, %r4; @%p9 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+1024], 128; W: bar.sync 0; st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r2, [%r7]; V: mbarrier.test_wait.parity.shared::cta.b64 %p1, [smem+1024], 0; @!%p1 bra V; ld.shared.u32 %r9, [%r10]; barrier.cluster.arrive; barrier.cluster.wait;" + STORE, {"grid": 8, "cluster": 2}),
    "grid 65": ("mov.u32 %r4, 0; and.b32 %r5, %r1, 7; L: add.u32 %r4, %r4, 1; shfl.sync.idx.b32 %r7, %r4, 3, 31, -1; add.u32 %r9, %r9, %r7; setp.lt.u32 %p0, %r4, %r5; @%p0 bra L;" + STORE, {"grid": 65}),
    "halves of warps that come apart in some blocks": ("and.b32 %r5, %r0, 1; setp.eq.u32 %p4, %r5, 0; selp.b32 %r5, 0x55555555, 0xAAAAAAAA, %p4; and.b32 %r4, %r1, 1; and.b32 %r6, %r0, 16; mul.lo.u32 %r4, %r4, %r6; setp.ne.u32 %p1, %r4, 0; @%p1 bra B; mov.u32 %r6, 2; A: redux.sync.xor.b32 %r9, %r2, %r5; bra E; B: @%p4 bra A; mov.u32 %r6, 9; bra A; E: " + STORE, {"block": 64}),
    "one thread": ("mov.u32 %r9, 5; bar.sync 0;" + STORE, {"grid": 65, "block": 1}),
    "fault far in a later block": ("setp.eq.u32 %p0, %r1, 40; mov.u64 %rd5, %rd1; @%p0 mov.u64 %rd5, 64;" + STORE + "ld.global.u32 %r9, [%rd5];", {"grid": 65}),
    "partial fault store": ("setp.eq.u32 %p0, %r1, 40; mul.lo.u32 %r5, %r0, 65536; cvt.u64.u32 %rd5, %r5; @!%p0 mov.u64 %rd5, 0; add.s64 %rd5, %rd5, %rd1; mov.u32 %r9, 1; st.global.u32 [%rd5], %r9;", {"grid": 65}),
    "conflict last": (STORE + "setp.eq.u32 %p0, %r1, 64; @%p0 ld.global.u32 %r9, [%rd0];" + STORE, {"grid": 65}),
    "shared memory of the cluster exited": ("mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p0, %r4, 1; st.shared.u32 [smem], %r1; barrier.cluster.arrive; barrier.cluster.wait; @%p0 ret; mov.u32 %r4, 1; mapa.shared::cluster.u32 %r5, %r3, %r4; ld.shared::cluster.u32 %r9, [%r5];" + STORE, {"grid": 8, "cluster": 2}),
    "shared memory of the cluster spin": ("mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p0, %r4, 1; mov.u32 %r4, 1; mapa.shared::cluster.u32 %r5, %r3, %r4; barrier.cluster.arrive; barrier.cluster.wait; @%p0 bra S; W: ld.relaxed.cluster.shared::cluster.u32 %r9, [%r5]; setp.eq.u32 %p1, %r9, 0; @%p1 bra W; bra E; S: mov.u32 %r6, 0; mul.lo.u32 %r7, %r1, 40; L: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r7; @%p2 bra L; st.relaxed.cluster.shared::cluster.u32 [%r5], %r1; E: barrier.cluster.arrive; barrier.cluster.wait;" + STORE, {"grid": 8, "cluster": 2}),
    "shared memory of the cluster spin unfair": ("mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %p0, %r4, 0; mov.u32 %r4, 0; mapa.shared::cluster.u32 %r5, %r3, %r4; barrier.cluster.arrive; barrier.cluster.wait; @%p0 bra S; W: ld.relaxed.cluster.shared::cluster.u32 %r9, [%r5]; st.shared.u32 [smem+8], %r9; setp.eq.u32 %p1, %r9, 0; @%p1 bra W; bra E; S: mov.u32 %r6, 0; mul.lo.u32 %r7, %r1, 40; L: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r7; @%p2 bra L; add.u32 %r8, %r1, 1; st.relaxed.cluster.shared::cluster.u32 [%r5], %r8; E: barrier.cluster.arrive; barrier.cluster.wait;" + STORE, {"grid": 8, "cluster": 2, "block": 64}),
}  # fmt: skip
"""By what is done: the kernel behind `HEAD`, the launch, and what stands before it."""


def _reductions() -> dict[str, Case]:
    """Reductions of every operation and type, to a place of all blocks and to one of each."""
    found: dict[str, Case] = {}
    types = dict.fromkeys(("and", "or", "xor"), ("b32", "b64")) | dict.fromkeys(
        ("min", "max"), ("u32", "s32", "u64", "s64")
    )
    types |= {"add": ("u32", "s32", "u64", "f32", "f64", "noftz.f16x2"), "inc": ("u32",), "dec": ("u32",)}
    before = """mul.lo.u32 %r4, %r2, 0x9E3779B1; cvt.u64.u32 %rd5, %r4; mul.lo.u64 %rd5, %rd5, 0x9E3779B1; cvt.rn.f32.u32 %f1, %r0; cvt.rn.f64.u32 %d1, %r0;
        mul.wide.u32 %rd6, %r1, 8; add.s64 %rd6, %rd6, %rd0;"""
    for operation, own in types.items():
        for type in own:
            value = {"f32": "%f1", "f64": "%d1"}.get(type, "%rd5" if "64" in type else "%r4")
            found[f"red.{operation}.{type}"] = (
                f"{before} red.global.{operation}.{type} [%rd0+65536], {value};",
                {"block": 33},
            )
            found[f"red.{operation}.{type} of each"] = (
                f"{before} red.global.{operation}.{type} [%rd6+65536], {value};",
                {"block": 33},
            )
    return found


KERNELS |= _reductions()
ALONE = frozenset((
    "spin later block", "halo behind", "halo before", "same byte", "bytes next + word read", "atom old across", "atom shared generic", "float global own",
    "red then read", "read then red", "red mixed ops", "red mixed by block", "red s/u max", "clock", "clock in a later block", "param store",
    "lanes that meet at different instructions", "no such block in the cluster", "beyond local memory that another block has",
    "beyond what another block has taken", "malloc", "alloca grow", "test_wait + lanes apart",
    *(name for name in KERNELS if name.startswith(("red.add.f32", "red.add.f64", "red.add.noftz", "red.inc", "red.dec"))),
))  # fmt: skip
"""Kernels of which no batch counts, of whatever size: all others run in batches at least once."""
FAULTY = (0, 1, 3, 6, 9)
"""Random kernels that end in a fault, so that their only batch is undone."""


@pytest.fixture(autouse=True)
def _batches_of_any_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks are a batch, and none is given up for the time that it takes: what is compared does not depend on what is fast."""
    monkeypatch.setattr(grid_module, "LEAST", 2)
    monkeypatch.setattr(batch_module, "_MOST_LOST", 1e12)


def shape(extent: Any) -> tuple[int, int, int]:
    """An extent of one dimension, or of three."""
    return extent if isinstance(extent, tuple) else (extent, 1, 1)


def told(module: Any, batch: int, schedule: str, options: dict[str, Any], processes: int = 1) -> tuple[Any, Any]:
    """The last run of one or two launches of a kernel, and all that they said and left."""
    memory, said = Memory(), []
    memory.map(OUT, WORDS.view(np.uint8))
    limits = replace(options.get("limits", Limits()), batch=batch, processes=processes)
    grid, block, cluster = (
        shape(options.get(name, least)) for name, least in (("grid", 5), ("block", 32), ("cluster", 1))
    )
    for _ in range(options.get("launches", 1)):
        run = module.kernel().launch(memory, [OUT], grid, block, cluster, schedule=schedule, limits=limits, check=False)
        hazards = [(item.name, item.message, item.line, item.block, item.thread, item.detail) for item in run.hazards]
        said.append((run.completed, hazards, run.instructions, run.inexact, run.output))
    return run, (said, memory.read(OUT, SIZE).tobytes(), memory.heap)


def compare(
    source: str, options: dict[str, Any], batches: tuple[int, ...], schedules: tuple[str, ...] = ("late", "early")
) -> int:
    """Launches with batches of some sizes leave what they leave without: in how many of them blocks ran in batches."""
    module, count = parse(source), 0
    for schedule in schedules:
        _, alone = told(module, 1, schedule, options)
        for batch in batches:
            run, found = told(module, batch, schedule, options)
            assert found == alone, (schedule, batch)
            count += run.batch > 1
    return count


def of(name: str) -> tuple[str, dict[str, Any]]:
    """A module of a kernel with one pointer, and its launch."""
    case = KERNELS[name]
    body, options, before = (case, {}, "") if isinstance(case, str) else (*case, "")[:3]
    target = ".version 8.8\n.target sm_90a\n.address_size 64"
    return (
        f"{target}\n{before}\n.visible .entry k(.param .u64 out) .maxntid 256 .minnctapersm 2\n{{{HEAD}    {body}\n    ret;\n}}\n",
        options,
    )


@pytest.mark.parametrize("name", KERNELS)
def test_as_one_after_the_other(name: str) -> None:
    source, options = of(name)
    assert (compare(source, options, (3 * options.get("cluster", 1), 64)) > 0) == (name not in ALONE)


@pytest.mark.parametrize("number", range(10))
def test_random_kernels(number: int) -> None:
    """Control that parts at random, in blocks of 1 to 96 threads and clusters of 1 to 4, some with faults."""
    random = Random(number)
    threads, cluster = random.choice((1, 31, 32, 33, 64, 96)), random.choice((1, 1, 1, 2, 4))
    options = {
        "block": threads,
        "cluster": cluster,
        "grid": cluster * random.choice((2, 3, 5, 7)),
        "limits": Limits(instructions=3000),
    }
    source = Program(random, threads, cluster, faults=number % 3 == 0).source
    found = compare(source, options, (2 * cluster, 64), (random.choice(("late", "early")),))
    assert found == (0 if number in FAULTY else 2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="grids run in order where there is no fork")
@pytest.mark.parametrize(
    "name",
    [
        "loop",
        "halo behind",
        "in place",
        "shared memory of the cluster",
        "unmapped in a later block",
        "red.add.u32 of each",
    ],
)
def test_two_processes(name: str) -> None:
    source, options = of(name)
    module = parse(source)
    _, alone = told(module, 1, "late", options)
    run, found = told(module, 64, "late", options, processes=2)
    assert found == alone and run.processes == (2 if run.completed else 1)


@pytest.mark.parametrize("grid", [1, 2, 3, 7, 65])
@pytest.mark.parametrize("block", [1, 31, 33, 96])
def test_grids_and_blocks(grid: int, block: int) -> None:
    assert compare(of("loop")[0], {"grid": grid, "block": block}, (2, 3, 8, 64), ("late",)) == 4 * (grid > 1)


def test_how_many_ran_at_once() -> None:
    """`Run.batch`, and `Run.alone` where blocks could not."""
    cases = {
        "loop": (5, ""),
        "halo before": (1, "a block writes what another one reads or writes"),
        "clock": (1, "%clock: instructions are counted for each block"),
    }
    for name, expected in cases.items():
        run, _ = told(parse(of(name)[0]), 64, "late", {})
        assert (run.batch, run.alone) == expected
