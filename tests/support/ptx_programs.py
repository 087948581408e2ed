"""Random PTX kernels of several blocks: control that parts by thread, warp and block, memories, barriers and what waits for them."""

from __future__ import annotations

import re
from random import Random

REGISTERS = """
    .reg .pred %p<400>; .reg .b32 %r<400>; .reg .b64 %rd<400>; .reg .f32 %f<8>; .shared .align 1024 .b8 smem[2048];
    .local .align 16 .b8 own[64];
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r2, %r1, %r2, %r0;
    mov.u32 %r3, smem; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd1, %rd0, %rd1; mov.u32 %r4, %cluster_ctarank;
    mul.lo.u32 %r5, %r2, 0x9E3779B1; xor.b32 %r6, %r5, %r1; mov.u32 %r7, %r0; mov.u32 %r8, 1;
"""
"""%r0: the thread; %r1: the block; %r2: the thread in the grid; %r3: shared memory; %r4: the rank; %rd1: its word; %r5 to %r8: what is computed."""
FUNCTION = """
.func (.param .b32 result) sum(.param .b32 given)
{
    .reg .pred %p<2>; .reg .b32 %r<8>; .local .align 16 .b8 kept[48];
    ld.param.u32 %r1, [given]; st.local.u32 [kept], %r1; mov.u32 %r2, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra DONE; sub.u32 %r3, %r1, 1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), sum, (a); ld.param.b32 %r4, [b]; }
    ld.local.u32 %r5, [kept]; mad.lo.u32 %r2, %r4, 3, %r5;
    DONE: st.param.b32 [result], %r2; ret;
}
"""
READ, COUNTERS = 0x8000, 0x10000
"""Offsets in global memory of what is only read, and of what all blocks add to."""
_KINDS = {"n": "%r", "w": "%rd", "p": "%p", "l": "L"}
THREAD, WARP, BLOCK, CLUSTER = range(4)
"""Who goes the same way at a place: the lanes of no warp, each warp, each block, each cluster."""


class Program:
    """A kernel, written statement by statement."""

    def __init__(self, random: Random, threads: int, cluster: int, faults: bool) -> None:
        self.random, self.threads, self.cluster, self.faults = random, threads, cluster, faults
        self.lines: list[str] = []
        self.registers, self.labels = 20, 0

    @property
    def source(self) -> str:
        """The module."""
        ways = {"B": self._branch, "L": self._loop, "S": self._simple}
        self.ways = ways
        self._body(CLUSTER if self.cluster > 1 else BLOCK, 0, self.random.randrange(4, 9))
        self.add("st.global.u32 [%rd1], %r5; st.global.u32 [%rd1+16384], %r6;")
        body = "\n    ".join(self.lines)
        return f".version 8.8\n.target sm_90a\n.address_size 64\n{FUNCTION}\n.visible .entry k(.param .u64 out)\n{{{REGISTERS}    {body}\n    ret;\n}}\n"

    def add(self, text: str) -> None:
        """A line. $a to $d: values; $n, $w, $p, $l: a new register of 32 or 64 bits, predicate or label; $N, $W, $P, $L: the last one."""
        last: dict[str, str] = {}

        def named(found: re.Match[str]) -> str:
            mark = found[1]
            if mark in "abcd":
                return self.value()
            if mark in _KINDS:
                self.registers += 1
                last[mark.upper()] = f"{_KINDS[mark]}{self.registers}"
            return last[mark.upper()]

        self.lines.append(re.sub(r"\$([a-dnwplNWPL])", named, text))

    def value(self, uniform: int = THREAD) -> str:
        """A register that is the same for all of a warp, a block or a cluster."""
        if uniform == CLUSTER:
            return f"{self.random.randrange(6)}"
        if uniform == BLOCK:
            return "%r1"
        return self.random.choice(("%r5", "%r6", "%r7", "%r8", "%r0", "%r2", "%r1"))

    def target(self) -> str:
        """A register that may be changed."""
        return self.random.choice(("%r5", "%r6", "%r7", "%r8"))

    def small(self, uniform: int, most: int) -> str:
        """A new register with a number below some power of two, as uniform as is asked for."""
        self.registers += 1
        name = f"%r{self.registers}"
        if uniform == WARP:
            self.lines.append(
                f"shr.u32 {name}, %r0, 5; add.u32 {name}, {name}, %r1; and.b32 {name}, {name}, {most - 1};"
            )
        elif uniform == CLUSTER:
            self.lines.append(
                f"sub.u32 {name}, %r1, %r4; mul.lo.u32 {name}, {name}, 5; shr.u32 {name}, {name}, 1; and.b32 {name}, {name}, {most - 1};"
            )
        else:
            self.lines.append(
                f"mad.lo.u32 {name}, {self.value(uniform)}, {self.random.choice((1, 3, 5))}, {self.random.randrange(4)}; and.b32 {name}, {name}, {most - 1};"
            )
        return name

    def _body(self, uniform: int, depth: int, count: int) -> None:
        for _ in range(count):
            kinds = "SSSBL" if depth < 3 else "S"
            self.ways[self.random.choice(kinds)](uniform, depth)

    def _narrower(self, uniform: int) -> int:
        return self.random.randrange(uniform + 1)

    def _branch(self, uniform: int, depth: int) -> None:
        within = self._narrower(uniform)
        number = self.small(within, 4)
        self.registers += 1
        name = self.registers
        self.add(
            f"setp.{self.random.choice(('eq', 'lt', 'ge'))}.u32 %p{name}, {number}, {self.random.randrange(1, 4)}; @%p{name} bra ELSE{name};"
        )
        self._body(within, depth + 1, self.random.randrange(1, 4))
        self.add(f"bra JOIN{name}; ELSE{name}:")
        self._body(within, depth + 1, self.random.randrange(3))
        self.add(f"JOIN{name}:")

    def _loop(self, uniform: int, depth: int) -> None:
        within = self._narrower(uniform)
        number = self.small(within, 8 if depth < 2 else 4)
        self.registers += 1
        name = self.registers
        self.add(f"mov.u32 %r{name}, 0; TURN{name}:")
        self._body(within, depth + 1, self.random.randrange(1, 4))
        self.add(f"add.u32 %r{name}, %r{name}, 1; setp.le.u32 %p{name}, %r{name}, {number}; @%p{name} bra TURN{name};")

    def _simple(self, uniform: int, depth: int) -> None:
        lines = list(ANYWHERE)
        lines += (
            WARPS * (uniform >= WARP)
            + BLOCKS * (uniform >= BLOCK)
            + CLUSTERS * (uniform >= CLUSTER and self.cluster > 1)
        )
        if uniform >= BLOCK and self.threads > 32:
            lines += SEVERAL_WARPS
        if self.faults and self.random.randrange(6) == 0:
            lines = list(FAULTS)
        self.add(
            self.random.choice(lines)
            .replace("$t", self.target())
            .replace("$u", self.target())
            .replace("$T", f"{-(-self.threads // 32) * 32}")
            .replace("$k", f"{self.random.randrange(8)}")
        )


ANYWHERE = (
    "mad.lo.u32 $t, $a, $b, $c;",
    "xor.b32 $t, $a, $b;",
    "shr.u32 $n, $a, 3; add.u32 $t, $N, $b;",
    "and.b32 $n, $a, 511; mad.lo.u32 $N, $N, 4, %r3; st.shared.u32 [$N], $b;",
    "and.b32 $n, $a, 511; mad.lo.u32 $N, $N, 4, %r3; ld.shared.u32 $t, [$N];",
    "mad.lo.u32 $n, %r0, 4, %r3; st.shared.u32 [$N], $a;",
    "and.b32 $n, $a, 15; mad.lo.u32 $N, $N, 4, %r3; red.shared.add.u32 [$N], $b;",
    "and.b32 $n, $a, 3; mad.lo.u32 $N, $N, 4, %r3; atom.shared.add.u32 $t, [$N], $b;",
    "and.b32 $n, $a, 3; mad.lo.u32 $N, $N, 4, %r3; atom.shared.exch.b32 $t, [$N], $b;",
    "and.b32 $n, $a, 1; mad.lo.u32 $N, $N, 4, %r3; atom.shared.cas.b32 $t, [$N], $b, $c;",
    "st.global.u32 [%rd1], $a;",
    "st.global.u8 [%rd1+1], $a;",
    "ld.global.u32 $t, [%rd1];",
    f"and.b32 $n, $a, 1023; mul.wide.u32 $w, $N, 4; add.s64 $W, $W, %rd0; ld.global.u32 $t, [$W+{READ}];",
    f"and.b32 $n, $a, 15; mul.wide.u32 $w, $N, 4; add.s64 $W, $W, %rd0; red.global.add.u32 [$W+{COUNTERS}], $b;",
    f"red.global.max.s32 [%rd0+{COUNTERS + 256}], $a;",
    f"red.global.xor.b32 [%rd0+{COUNTERS + 260}], $a;",
    "nanosleep.u32 20;",
    "setp.lt.u32 $p, $a, $b; @$P nanosleep.u32 20;",
    "setp.lt.u32 $p, $a, $b; selp.u32 $t, $c, $d, $P;",
    "st.local.u32 [own+8], $a;",
    "ld.local.u32 $t, [own+8];",
    "and.b32 $n, $a, 3; { .param .b32 a; .param .b32 b; st.param.b32 [a], $N; call (b), sum, (a); ld.param.b32 $t, [b]; }",
    "and.b32 $n, $a, 31; add.u32 $N, $N, 4; cvt.u64.u32 $w, $N; alloca.u64 $W, $W, 16; st.local.u32 [$W], $b; ld.local.u32 $t, [$W];",
    f"mad.lo.u32 $n, %r0, 4, %r3; cp.async.ca.shared.global [$N], [%rd1+{READ}], 4; cp.async.commit_group;",
    f"and.b32 $n, $a, 63; mad.lo.u32 $N, $N, 4, %r3; cp.async.ca.shared.global [$N+512], [%rd1+{READ}], 4; cp.async.commit_group;",
    "cp.async.wait_group 1;",
    "cp.async.wait_all;",
    "and.b32 $n, $a, 1; setp.eq.u32 $p, $N, 1; @$P cp.async.wait_group 0;",
    "setp.eq.u32 $p, %r1, $k; @$P ret;",
    "and.b32 $n, $a, 31; setp.eq.u32 $p, $N, $k; @$P exit;",
    "activemask.b32 $t;",
    "cvt.rn.f32.u32 %f1, $a; red.shared.add.f32 [smem+1024], %f1;",
)
WARPS = [
    "shfl.sync.bfly.b32 $t, $a, 1, 31, -1;",
    "shfl.sync.idx.b32 $t, $a, $k, 31, -1;",
    "vote.sync.ballot.b32 $t, $p, -1;",
    "setp.lt.u32 $p, $a, $b; vote.sync.ballot.b32 $t, $P, -1;",
    "redux.sync.add.u32 $t, $a, -1;",
    "match.any.sync.b32 $t, $a, -1;",
    "elect.sync $t|$p, -1;",
    "bar.warp.sync -1;",
    "and.b32 $n, %r0, 1; setp.eq.u32 $p, $N, 0; selp.u32 $n, 0x55555555, 0xAAAAAAAA, $P; redux.sync.xor.b32 $t, $a, $N;",
    "and.b32 $n, %r0, 1; setp.eq.u32 $p, $N, 0; @$P bra $l; bar.warp.sync 0xAAAAAAAA; shfl.sync.bfly.b32 $t, $a, 2, 31, 0xAAAAAAAA; $L: bar.warp.sync -1;",
]
BLOCKS = [
    "bar.sync 0;",
    "bar.sync 0;",
    "and.b32 $n, %r1, 7; bar.sync $N;",
    "setp.lt.u32 $p, $a, $b; barrier.cta.red.popc.u32 $t, 0, $P;",
    "setp.lt.u32 $p, $a, $b; barrier.cta.red.or.pred $p, 1, $P; selp.u32 $t, 3, 4, $P;",
    f"""bar.sync 0; setp.ne.u32 $p, %r0, 0; @$P bra $l; mbarrier.init.shared::cta.b64 [smem+1152], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [smem+1152], 128;
    mul.wide.u32 $w, %r1, 128; add.s64 $W, $W, %rd0; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+1280], [$W+{READ}], 128, [smem+1152];
    $L: bar.sync 0; $l: mbarrier.test_wait.parity.shared::cta.b64 $p, [smem+1152], 0; @!$P bra $L; ld.shared.u32 $t, [smem+1284];""",
    f"""bar.sync 0; setp.ne.u32 $p, %r0, 0; @$P bra $l; mbarrier.init.shared::cta.b64 [smem+1152], 1; $L: bar.sync 0; cp.async.ca.shared.global [smem+1280], [%rd1+{READ}], 4;
    cp.async.mbarrier.arrive.shared::cta.b64 [smem+1152]; setp.ne.u32 $p, %r0, 0; @$P bra $l; mbarrier.arrive.shared::cta.b64 _, [smem+1152]; $L: cp.async.wait_all; bar.sync 0;""",
    "bar.sync 0; fence.proxy.async; setp.ne.u32 $p, %r0, 0; @$P bra $l; mul.wide.u32 $w, %r1, 16; add.s64 $W, $W, %rd0; cp.async.bulk.global.shared::cta.bulk_group [$W+28672], [smem+64], 16; cp.async.bulk.commit_group; $L:",
    "cp.async.bulk.wait_group 0;",
]
SEVERAL_WARPS = [
    "setp.lt.u32 $p, %r0, 32; @$P bra $l; bar.arrive 9, $T; $L: setp.ge.u32 $p, %r0, 32; @$P bra $l; bar.sync 9, $T; $L:",
    "setp.lt.u32 $p, %r0, 64; @!$P bra $l; bar.sync 10, 64; $L:",
    "setp.lt.u32 $p, %r0, 32; @$P bra $l; add.u32 $t, $a, 1; bar.sync 11; $L: @!$P bra $l; bar.sync 11; $L:",
]
CLUSTERS = [
    "barrier.cluster.arrive; barrier.cluster.wait;",
    "barrier.cluster.arrive; add.u32 $t, $a, 3; barrier.cluster.wait;",
    "xor.b32 $n, %r4, 1; mapa.shared::cluster.u32 $n, %r3, $N; ld.shared::cluster.u32 $t, [$N+128];",
    "xor.b32 $n, %r4, 1; mapa.shared::cluster.u32 $n, %r3, $N; st.shared::cluster.u32 [$N+128], $a;",
    "xor.b32 $n, %r4, 1; mapa.shared::cluster.u32 $n, %r3, $N; atom.shared::cluster.add.u32 $t, [$N+132], $a;",
]
FAULTS = (
    "setp.eq.u32 $p, %r1, $k; @$P trap;",
    "setp.eq.u32 $p, %r1, $k; mov.u64 $w, 64; @$P ld.global.u32 $t, [$W];",
    "setp.eq.u32 $p, %r1, $k; @$P ld.global.u32 $t, [%rd1+2];",
    "setp.eq.u32 $p, %r1, $k; @$P st.shared.u32 [smem+4096], $a;",
    "mov.u32 $t, %clock;",
    "ld.global.u32 $t, [%rd1+4];",
    "st.global.u32 [%rd0], $a;",
    "st.global.u32 [%rd1+128], $a;",
    "setp.eq.u32 $p, %r1, $k; @$P bar.sync 14, 96;",
    "setp.eq.u32 $p, %r1, $k; mov.u32 $n, 64; @$P mov.u32 $N, 33; bar.arrive 13, $N;",
    "atom.global.add.u32 $t, [%rd0+66000], $a;",
    f"ld.global.u32 $t, [%rd0+{COUNTERS}];",
    f"red.global.min.u32 [%rd0+{COUNTERS}], $a;",
    "setp.eq.u32 $p, %r1, $k; $l: @$P bra $L;",
)
