"""Small kernels that are right, with the defects that can be planted in them.

A comment at the end of a line names the rule that taking the line out breaks (`//- RULE`), or putting another text in its place
(`//~ RULE: text`); a line of its own may be put in (`//+ RULE: text`). All lines with a mark of one rule are changed together; a
number behind a rule (`RULE.2`) is another way to break it. `//! RULE` marks the line at which the run has to name it, `//? RULE` the
one that it conflicts with: there the text gets the comments that `Kernel.lines` looks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tcsim
from tests.support.ptx_copies import text, wait

SOURCE = 0x7000_0000_0000
"""Where the first array of a launch lies that `tcsim.ptx.Memory` allocates."""
_MARK = re.compile(r"^//(?P<how>[-~+!?]) (?P<rule>[A-Z0-9_]+(?:\.\d)?)(?:: (?P<text>.*))?$")
_PLACES = {"!": "// named here", "?": "// in conflict with this"}


@dataclass(frozen=True)
class Kernel:
    """A kernel that is right."""

    name: str
    body: str
    threads: int = 64
    blocks: int = 1  # of the cluster, and of the grid
    target: str = "sm_90a"
    directives: str = ""
    before: str = ""  # the PTX of a launch that this one depends on

    @property
    def source(self) -> str:
        """The PTX without any defect."""
        return self._text(_planted(self.body, ""))

    @property
    def defects(self) -> tuple[str, ...]:
        """The rules that can be broken, with their numbers."""
        found = (match["rule"] for line in self.body.splitlines() for match in _marks(line))
        return tuple(dict.fromkeys(found))

    def without(self, defect: str) -> str:
        """The PTX with a defect."""
        return self._text(_planted(self.body, defect))

    def lines(self, defect: str) -> tuple[list[int], list[int]]:
        """The lines, from 1, at which a defect has to be named, and those that these conflict with."""
        numbered = list(enumerate(self.without(defect).splitlines(), 1))
        named, against = ([line for line, own in numbered if own.endswith(_PLACES[how])] for how in "!?")
        return named, against

    def _text(self, body: str) -> str:
        return text(".param .u64 source, .param .u64 target", body, self.target, directives=self.directives)


def _marks(line: str) -> Iterator[re.Match[str]]:
    """The marks of a line."""
    for part in re.split(r"(?=//[-~+!?] )", line)[1:]:
        found = _MARK.match(part.strip())
        assert found is not None, part
        yield found


def _planted(body: str, defect: str) -> str:
    lines = []
    for line in body.splitlines():
        kept = re.split(r"//[-~+!?] ", line)[0]
        for mark in _marks(line):
            if mark["rule"] == defect:
                change = {"-": "", "~": mark["text"] or "", "+": f"{kept}\n{mark['text']}"}
                kept = change.get(mark["how"], f"{kept} {_PLACES.get(mark['how'])}")
        lines.append(kept)
    return "\n".join(lines)


OWN = "shl.b32 %r3, %r0, 2; mov.u32 %r1, smem; add.u32 %r3, %r3, %r1;"
"""%r1: the array; %r3: the word of each thread."""
OTHER = "xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;"
"""%r4: the word of a thread of the other warp."""
FIRST = "setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 1;"
PARAMS = "ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target];"

RACES = Kernel(
    "races",
    f"""
    {OWN} {OTHER}
    st.shared.u32 [%r3], %r0;
    bar.sync 0;                         //- SMEM_RACE_RAW
    ld.shared.u32 %r5, [%r4];
    bar.sync 0;                         //- SMEM_RACE_WAR
    st.shared.u32 [%r3], %r5;
    bar.sync 0;                         //- SMEM_RACE_WAW   //~ SMEM_RACE_WAW.2: bar.warp.sync -1;
    st.shared.u32 [%r4], %r5;
    """,
    target="sm_80",
)
STORE = Kernel(
    "store",
    f"""
    {PARAMS} {OWN} {FIRST}
    st.shared.u32 [%r3], %r0;
    fence.proxy.async.shared::cta;      //- PROXY_FENCE_MISSING
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256;
    @%p1 cp.async.bulk.commit_group;                                            //- BULK_GROUP_UNCOMMITTED
    @%p1 cp.async.bulk.wait_group.read 0;   //- TMA_STORE_SRC_REUSED   //~ TMA_STORE_SRC_REUSED.2: @%p1 cp.async.bulk.wait_group.read 1;   //~ BULK_WAIT_WRONG_THREAD: @%p2 cp.async.bulk.wait_group.read 0;
    bar.sync 0;                         //- SMEM_RACE_WAR
    st.shared.u32 [%r3], %r1;
                                        //~ PROXY_FENCE_MISSING.2: @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2+512], [%r1], 256;
    fence.proxy.async;
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2+256], [%r1], 256;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;                                       //- ASYNC_AT_EXIT
    """,
)
LOAD = Kernel(
    "load",
    f"""
    {PARAMS} {OWN} {FIRST}
    add.u32 %r2, %r1, 1024;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;                                //- MBAR_USED_BEFORE_INIT
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;                         //- MBAR_USED_BEFORE_INIT_VISIBLE
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r2];
                                        //+ ASYNC_DST_WRITTEN: st.shared.u32 [%r3], 1;
                                        //+ ASYNC_DST_READ: ld.shared.u32 %r5, [%r3];
    {wait("FULL", "%r2", "0")}
    ld.shared.u32 %r5, [%r3];
                                        //+ MBAR_OVERWRITTEN: st.shared.u32 [%r2], 1;
    bar.sync 0;
    @%p1 mbarrier.inval.shared::cta.b64 [%r2];                                  //- MBAR_REINIT
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 2;
    """,
)
MATRICES = Kernel(
    "matrices",
    f"""
    {PARAMS} {OWN} {FIRST} shl.b32 %r5, %r0, 4; add.u32 %r5, %r5, %r1; xor.b32 %r6, %r5, 512;
    stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%r5], {{%r0, %r0, %r0, %r0}};
    fence.proxy.async.shared::cta;      //- PROXY_FENCE_MISSING
    bar.sync 0;                         //- SMEM_RACE_RAW
    ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {{%r7, %r8, %r9, %r10}}, [%r6];
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 1024;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    bar.sync 0;                         //- SMEM_RACE_WAR
    stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%r5], {{%r7, %r8, %r9, %r10}};
    """,
)
GROUPS = Kernel(
    "groups",
    f"""
    {PARAMS} {OWN} {OTHER}
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1;
    cp.async.ca.shared.global [%r3], [%rd3], 4;
    cp.async.commit_group;              //- CP_ASYNC_UNCOMMITTED
    cp.async.wait_group 0;              //- CP_ASYNC_WAIT_MISSING   //~ CP_ASYNC_WAIT_MISSING.2: cp.async.wait_group 1;
    bar.sync 0;                         //- SMEM_RACE_RAW
    ld.shared.u32 %r5, [%r4];
    bar.sync 0;
    cp.async.ca.shared.global [%r3], [%rd3], 4;
    cp.async.wait_all;                  //- CP_ASYNC_WAW
    cp.async.ca.shared.global [%r3], [%rd3], 4;
    cp.async.wait_all;
    """,
    target="sm_80",
)
_A = tcsim.MatrixDescriptor.for_tile(64, 16, "f16", swizzle="NONE", start_address=1024).descriptor.encode()
_B = tcsim.MatrixDescriptor.for_tile(8, 16, "f16", swizzle="NONE", start_address=4096).descriptor.encode()
WARPGROUPS = Kernel(
    "warpgroups",
    f"""
    {OWN} mov.u64 %rd3, {_A}; mov.u64 %rd4, {_B}; setp.ge.u32 %p1, %r0, 128; and.b32 %r5, %r0, 63; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, 4096;
    mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    st.shared.u32 [%r3], 0; st.shared.u32 [%r3+1024], 0; st.shared.u32 [%r5], 0;
    fence.proxy.async;                  //- PROXY_FENCE_MISSING
    bar.sync 0;                         //- SMEM_RACE_RAW   //- WGMMA_WARPS_APART
    @%p1 bra OTHER;
    wgmma.fence.sync.aligned;           //- WGMMA_MISSING_FENCE   //+ WGMMA_MISSING_FENCE.2: mov.f32 %f1, %f2;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %rd3, %rd4, 1, 1, 1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f5, %f6, %f7, %f8}}, {{%r6, %r7, %r8, %r9}}, %rd4, 1, 1, 1, 0;
    wgmma.commit_group.sync.aligned;    //+ WGMMA_ACC_READ_IN_FLIGHT: add.f32 %f9, %f1, %f1;   //+ WGMMA_ACC_WRITE_IN_FLIGHT: mov.f32 %f6, 0f00000000;   //+ WGMMA_A_REG_HAZARD: mov.u32 %r8, 1;
    wgmma.wait_group.sync.aligned 0;    //- WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE   //~ WGMMA_WAIT_DEPTH: wgmma.wait_group.sync.aligned 1;
    OTHER:
    bar.sync 0;                         //- WGMMA_WAIT_OTHER_WARPGROUP
    @%p1 st.shared.u32 [%r5], 1;
    """.replace("st.shared.u32 [%r5], 0;", "@!%p1 st.shared.u32 [%r5], 0;"),
    threads=256,
)
CLUSTER = Kernel(
    "cluster",
    f"""
    {OWN} {FIRST}
    mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r4, %r3, %r2;
    st.shared.u32 [%r3], %r0;
    barrier.cluster.arrive;             //- CLUSTER_LATE_START   //~ CLUSTER_BARRIER_RELAXED: barrier.cluster.arrive.relaxed;
    barrier.cluster.wait;               //- CLUSTER_LATE_START
    ld.shared::cluster.u32 %r5, [%r4];
    barrier.cluster.arrive;             //- CLUSTER_EARLY_EXIT
    barrier.cluster.wait;               //- CLUSTER_EARLY_EXIT
    st.shared.u32 [%r3], %r5;           //~ CLUSTER_EARLY_EXIT: st.shared.u32 [%r3+512], %r5;
    """,
    blocks=2,
)
BETWEEN = Kernel(
    "between",
    f"""
    {OWN} {FIRST}
    add.u32 %r6, %r1, 1024; mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r4, %r1, %r2; mapa.shared::cluster.u32 %r7, %r6, %r2;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p1 fence.mbarrier_init.release.cluster;   //- MBAR_USED_BEFORE_INIT_VISIBLE
    st.shared.u32 [%r3], %r0;
    fence.proxy.async;
    bar.sync 0;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 256;
    @%p1 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r7], 0;
    add.u32 %r8, %r4, 512;
    @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8], [%r1], 256, [%r7];
                                        //+ ASYNC_SRC_MODIFIED: st.shared.u32 [%r3], 1;
    {wait("FULL", "%r6", "0")}
    barrier.cluster.arrive; barrier.cluster.wait;
    """,
    blocks=2,
)
TILE_A = tcsim.MatrixDescriptor.for_tile(
    64, 16, "f16", swizzle="NONE", start_address=1024, arch="sm_100"
).descriptor.encode()
TILE_B = tcsim.MatrixDescriptor.for_tile(
    8, 16, "f16", swizzle="NONE", start_address=4096, arch="sm_100"
).descriptor.encode()
IDESC = tcsim.InstructionDescriptor("f16", 64, 8, "f32", "f16", "f16").encode()
TENSOR_MEMORY = Kernel(
    "tensor_memory",
    f"""
    {OWN} {FIRST} mov.u64 %rd3, {TILE_A}; mov.u64 %rd4, {TILE_B}; setp.lt.u32 %p3, %r0, 32; setp.ge.u32 %p4, %r0, 32;
    and.b32 %r5, %r0, 63; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, 4096; add.u32 %r6, %r1, 8192; add.u32 %r7, %r1, 8200; setp.lt.u32 %p5, %r0, 64;
    st.shared.u32 [%r3], 0; st.shared.u32 [%r3+512], 0; st.shared.u32 [%r3+1024], 0; st.shared.u32 [%r3+1536], 0; @%p5 st.shared.u32 [%r5], 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p4 bra TAKEN;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 32;          //~ TMEM_UNALLOCATED: st.shared.u32 [%r7], 64;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;                  //+ TMEM_AFTER_RELINQUISH: tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7+8], 32;
    TAKEN:
    fence.proxy.async;                  //- PROXY_FENCE_MISSING
    bar.sync 0;                         //- TMEM_ADDR_NOT_PUBLISHED
    ld.shared.u32 %r8, [%r7];
    mov.u32 %r9, 1; shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {{%r9, %r9, %r9, %r9, %r9, %r9, %r9, %r9}};
    tcgen05.wait::st.sync.aligned;      //- TMEM_WAIT_ST_MISSING
    tcgen05.fence::before_thread_sync;
    bar.sync 0;                         //- TCGEN05_UNORDERED
    tcgen05.fence::after_thread_sync;
    setp.eq.u32 %p6, %r0, 0;
    @!%p1 bra ISSUED;
    tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, {IDESC}, %p6;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6]; //~ TCGEN05_COMMIT_MISSING: mbarrier.arrive.shared::cta.b64 _, [%r6];
    ISSUED:
    {wait("DONE", "%r6", "0")}
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r11, %r12, %r13, %r14, %r15, %r16, %r17, %r18}}, [%r10];
    tcgen05.wait::ld.sync.aligned;      //- TMEM_WAIT_LD_MISSING
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;                 //- TMEM_LEAK   //- TMEM_UNALLOCATED
    """,
    threads=128,
    target="sm_100a",
)
POOL = Kernel(
    "pool",
    """
    setp.ge.u32 %p1, %r0, 128;
    @%p1 bra MORE;
                                        //+ SETMAXNREG_DIVERGED: setp.lt.u32 %p2, %r0, 32; @%p2 bra.uni DONE;
    setmaxnreg.dec.sync.aligned.u32 40; //~ SETMAXNREG_OVERSUBSCRIBED: setmaxnreg.dec.sync.aligned.u32 208;   //~ SETMAXNREG_DIRECTION: setmaxnreg.inc.sync.aligned.u32 40;
                                        //+ SETMAXNREG_UNORDERED: setmaxnreg.dec.sync.aligned.u32 32;
    bra.uni DONE;
    MORE:
    setmaxnreg.inc.sync.aligned.u32 240;
    DONE:
    """,
    threads=256,
    directives=".maxntid 256 .minnctapersm 1 .maxnreg 216",
)
COLUMNS = Kernel(
    "columns",
    """
    mov.u32 %r1, smem; add.u32 %r2, %r1, 4;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 512;
    ld.shared.u32 %r3, [%r1];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;                     //- TMEM_DEADLOCK
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;
    ld.shared.u32 %r4, [%r2];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;
    """,
    threads=32,
    target="sm_100a",
)
COPIED = Kernel(
    "copied",
    f"""
    {PARAMS} {OWN} {FIRST}
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1;
    cp.async.ca.shared.global [%r3], [%rd3], 4;
    cp.async.wait_all;
    fence.proxy.async.shared::cta;      //- PROXY_FENCE_CP_ASYNC
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    """,
)
KERNELS = (RACES, STORE, LOAD, MATRICES, GROUPS, COPIED, WARPGROUPS, CLUSTER, BETWEEN, TENSOR_MEMORY, POOL, COLUMNS)
