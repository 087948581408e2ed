"""Kernels in which one thread's work, wait or signal stands for that of others, and whose copies meet in global memory."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.hazards.bugs.pieces import until
from tests.hazards.kernels import CLUSTER, FIRST, IDESC, OWN, PARAMS, Kernel
from tests.hazards.kernels_lanes import HALVES, NEIGHBOUR
from tests.hazards.kernels_mbarriers import FLAG
from tests.hazards.kernels_tensor import ACCUMULATED

_MADE = """add.u32 %r2, %r1, 1024;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1; @%p1 mbarrier.init.shared::cta.b64 [%r2+8], 64; @%p1 mbarrier.init.shared::cta.b64 [%r2+16], 32;
    @%p1 fence.mbarrier_init.release.cluster;"""
_LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_STORE = "cp.async.bulk.global.shared::cta.bulk_group"
_REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"

IN_PLACE = Kernel(
    "in_place",
    f"""
    {PARAMS} {OWN} {FIRST} {_MADE}
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    @%p1 {_LOAD} [%r1], [%rd1], 256, [%r2];
                                        //+ ASYNC_SRC_MODIFIED: @%p1 st.global.u32 [%rd1+252], %r0;
    {until("FULL", "%r2", "0")}          //~ ASYNC_DST_READ: mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r2], 0; selp.u32 %r9, 1, 0, %p9;
    @%p1 st.global.u32 [%rd1+252], %r0;
    ld.shared.u32 %r5, [%r3];
    fence.proxy.async;
    bar.sync 0;
    @!%p1 bra STORED;
    {_STORE} [%rd2], [%r1], 256;
    {_STORE} [%rd2+256], [%r1], 256;    //~ TMA_STORE_NOT_VISIBLE: {_STORE} [%rd2+240], [%r1], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;         //~ TMA_STORE_NOT_VISIBLE.2: cp.async.bulk.wait_group.read 0;
    st.global.u32 [%rd2+508], %r0;
    st.shared.u32 [%r1], 5;             // by the thread that has waited
    fence.proxy.async;
    {_REDUCE} [%rd2+512], [%r1], 256;
    {_REDUCE} [%rd2+512], [%r1], 256;   //~ TMA_STORE_NOT_VISIBLE.3: {_STORE} [%rd2+512], [%r1], 256;
    red.global.add.u32 [%rd2+512], 1;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    STORED:
    """,
)
"""What is stored where copies read, and what copies and threads store to one place."""
ENDING = Kernel(
    "ending",
    f"""
    {PARAMS} {OWN} {FIRST} {_MADE}
    bar.warp.sync -1;                   //- MBAR_USED_BEFORE_INIT_VISIBLE
    @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
    bar.sync 0;
    @%p1 {_LOAD} [%r1], [%rd1], 128, [%r2];
    @!%p1 bra WAITED;                   //- MBAR_INVAL_IN_USE.2   //- ASYNC_AT_EXIT
    {until("FULL", "%r2", "0")}          //- MBAR_INVAL_IN_USE.2   //- ASYNC_AT_EXIT
    WAITED:
    mbarrier.arrive.shared::cta.b64 _, [%r2+8];
    bar.sync 0;                         //- MBAR_INVAL_IN_USE
    @%p1 mbarrier.inval.shared::cta.b64 [%r2];                  //- ASYNC_AT_EXIT
    @%p1 mbarrier.inval.shared::cta.b64 [%r2+8];
    """,
)
"""How mbarriers begin and end."""
PROXIES = Kernel(
    "proxies",
    f"""
    {PARAMS} {OWN} {FIRST} {_MADE} setp.lt.u32 %p3, %r0, 32; mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1; and.b32 %r8, %r0, 31; setp.eq.u32 %p4, %r8, 0;
    @%p1 st.shared.u32 [%r1+512], 0;
    bar.sync 0;
    @!%p3 bra READS;
    cp.async.ca.shared.global [%r3], [%rd3], 4;
    cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2+16];    //~ CP_ASYNC_UNCOMMITTED: @%p1 mbarrier.init.shared::cta.b64 [%r2+24], 1; @%p1 cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2+24]; mbarrier.arrive.shared::cta.b64 _, [%r2+16];
    bra DONE;
    READS:
    {until("FULL", "%r2+16", "0")}
    ld.shared.u32 %r5, [%r3+-128];
    DONE:
    bar.sync 0;
    @%p1 cp.async.ca.shared.global [%r1], [%rd1], 16; @%p1 cp.async.wait_all;
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING
    @%p2 cp.async.ca.shared.global [%r1], [%rd1], 16; @%p2 cp.async.wait_all;
    bar.sync 0;
    @!%p3 bra TAKES;
    st.shared.u32 [%r3], %r0;
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING.2
    @%p4 st.release.cta.shared::cta.u32 [%r1+512], 1;
    bra END;
    TAKES:
    AGAIN: ld.acquire.cta.shared::cta.u32 %r5, [%r1+512]; setp.ne.u32 %p5, %r5, 1; @%p5 bra AGAIN;
    ld.shared.u32 %r5, [%r3+-128];
    END:
    """,
)
"""Lanes that wait, copy and release for each other."""
ROWS = Kernel(
    "rows",
    f"""
    {PARAMS} {OWN} shl.b32 %r5, %r0, 4; add.u32 %r5, %r5, %r1; xor.b32 %r6, %r5, 16; mul.wide.u32 %rd3, %r0, 16; add.u64 %rd3, %rd3, %rd2;
    st.shared.v4.u32 [%r5], {{%r0, %r0, %r0, %r0}};
    fence.proxy.async;
    {_STORE} [%rd3], [%r5], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    st.shared.u32 [%r5], %r1;           //~ WARP_SYNC_MISSING: st.shared.u32 [%r6], %r1;
    """,
    threads=32,
)
"""Each lane copies out its own row, and waits for that alone."""
PEER = Kernel(
    "peer",
    f"""
    {OWN} mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r4, %r3, %r2;
    st.shared.u32 [%r3], %r0;
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared::cluster.u32 %r5, [%r4];  //~ SMEM_REMOTE_FORM: ld.shared.u32 %r5, [%r4];
    barrier.cluster.arrive; barrier.cluster.wait;
    """,
    blocks=2,
)
GUARDED = Kernel(
    "guarded",
    f"""
    {OWN} {FIRST} mov.u32 %r5, 7;
    @%p1 set.lt.u32.s32 %r5, %r0, %r1;  //~ GUARD_IGNORED: @%p1 set.lt.f32.s32 %r5, %r0, %r1;
    st.shared.u32 [%r3], %r5;
    """,
    target="sm_80",
)
ACCUMULATORS = Kernel(
    "accumulators",
    f"""
    {OWN} {FIRST} mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u32 %r8, 0; mov.u32 %r9, 0x38383838; mov.u32 %r10, 0;
    mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {{%r5, %r6, %r7, %r8}}, {{%r9, %r9, %r9, %r9}}, {{%r9, %r9}}, {{%r5, %r6, %r7, %r8}};  //~ ACCUMULATOR_OVERWRITTEN: mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {{%r5, %r6, %r7, %r8}}, {{%r9, %r9, %r9, %r9}}, {{%r9, %r9}}, {{%r10, %r5, %r7, %r8}};
    st.shared.u32 [%r3], %r5;
    """,
    target="sm_90",
)
VOLATILE = Kernel(
    "volatile",
    f"""
    {OWN} {NEIGHBOUR}
    st.volatile.shared.u32 [%r3], %r0;
    bar.warp.sync -1;                   //- WARP_SYNC_VOLATILE
    ld.volatile.shared.u32 %r5, [%r4];
    bar.warp.sync -1;
    red.shared.add.u32 [%r4], %r5;
    ld.acquire.cta.shared.u32 %r5, [%r4];
    """,
    target="sm_80",
)
TOGETHER = Kernel(
    "at_once",
    f"""
    {PARAMS} {OWN} {FIRST} {_MADE}
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1; mul.wide.u32 %rd4, %r0, 16; add.u64 %rd4, %rd4, %rd1; setp.lt.u32 %p3, %r0, 2;
    and.b32 %r4, %r0, 7; shl.b32 %r4, %r4, 4; add.u32 %r4, %r4, %r1; and.b32 %r5, %r0, 32; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r4;
    cp.async.ca.shared.global [%r3], [%rd3], 4;                     //~ SMEM_RACE_WAW: cp.async.ca.shared.global [%r1], [%rd3], 4; st.shared.u32 [%r3+512], 0;
    cp.async.wait_all;
    bar.sync 0;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {{%r0}};         //~ SMEM_RACE_WAW.2: stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {{%r0}};
    fence.proxy.async;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 32;
    @%p3 {_LOAD} [%r4], [%rd4], 16, [%r2];                          //~ SMEM_RACE_WAW.3: @%p3 {_LOAD} [%r1], [%rd4], 16, [%r2];
    FULL: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p9, [%r2], 0;
    @!%p9 bra FULL;
    fence.acq_rel.cta;                  //- MBAR_RELAXED
    ld.shared.u32 %r6, [%r3];
    """,
)
"""Each of several warps or lanes writes a place of its own."""


def _with(kernel: Kernel, name: str, line: str, defect: str) -> Kernel:
    """A kernel with another defect, at a line."""
    body = re.sub(r" *//[-~+!?] .*", "", kernel.body)
    assert line in body
    return replace(kernel, name=name, body=body.replace(line, f"{line}   {defect}"))


_ACQUIRE = "atom.acquire.cta.shared.add.u32 %r5, [%r2], 0;"
FLAGS = _with(FLAG, "flags", _ACQUIRE, f"//~ CLUSTER_BARRIER_RELAXED: {_ACQUIRE.replace('[%r2]', '[%r2+4]')}")
_PRODUCT = f"tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, {IDESC}, %p6;"
PRODUCTS = _with(
    ACCUMULATED, "products", _PRODUCT, f"//+ TCGEN05_NOT_PIPELINED: {_PRODUCT.replace('[%r8]', '[%r8+4]')}"
)
"""Columns of two accumulators overlap."""
_MET = "bar.warp.sync %r7;"
MASKS = _with(
    HALVES, "masks", _MET,
    f"//~ WARP_SYNC_MASK: bar.warp.sync 0xffff;   //~ WARP_SYNC_MASK.2: {_MET} shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xffff;",
)  # fmt: skip
FENCED = _with(
    CLUSTER, "fenced", "[%r3], %r0;\n    barrier.cluster.arrive;",
    "//~ CLUSTER_BARRIER_RELAXED: fence.acq_rel.cta; barrier.cluster.arrive.relaxed;",
)  # fmt: skip
ADDING = Kernel(
    "adding",
    f"""
    {OWN} {FIRST}
    add.u32 %r2, %r1, 1024; add.u32 %r7, %r3, 512; mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; mapa.shared::cluster.u32 %r5, %r2, %r4;
    mapa.shared::cluster.u32 %r6, %r3, %r4; mapa.shared::cluster.u32 %r8, %r1, %r4;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
    st.shared.u32 [%r3], 0; st.shared.u32 [%r7], %r0;
    fence.proxy.async;
    barrier.cluster.arrive; barrier.cluster.wait;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6], %r0, [%r5];   //~ ASYNC_DST_WRITTEN: st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r0, [%r5];
    @%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r8], [%r1+512], 256, [%r5];
    {until("FULL", "%r2", "0")}
    barrier.cluster.arrive;             //- ASYNC_AT_EXIT
    barrier.cluster.wait;               //- ASYNC_AT_EXIT
    """,
    blocks=2,
)
"""Two reductions into one array, in any order, one of them out of shared memory."""
_RELAXED = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
COUNTED = Kernel(
    "counted",
    f"""
    {OWN} {FIRST} setp.lt.u32 %p3, %r0, 32;
    @%p1 st.shared.u32 [%r1], 0;
    bar.sync 0;                         //- CLUSTER_BARRIER_RELAXED
    @%p3 red.shared.add.u32 [%r1], 1; {_RELAXED} @!%p3 red.shared.add.u32 [%r1], 1;
    bar.sync 0;
    @%p3 ld.shared.u32 %r5, [%r1];
    bar.sync 0;                         //- CLUSTER_BARRIER_RELAXED.2
    @%p3 red.shared.add.u32 [%r1], 1; {_RELAXED} @!%p3 red.shared.add.u32 [%r1], 1;
    """,
)
"""What a warp stores or reads does not order the atomics of another, and its own atomics do not hide that."""
LAST = Kernel(
    "last",
    f"""
    {OWN} {FIRST} setp.ge.u32 %p3, %r0, 32; setp.eq.u32 %p4, %r0, 64; and.b32 %r5, %r0, 31; setp.eq.u32 %p5, %r5, 0; setp.eq.u32 %p6, %r0, 32; add.u32 %r6, %r1, 8;
    @%p1 st.shared.v2.u32 [%r1], {{0, 0}}; @%p1 st.shared.u32 [%r6], 0;
    bar.sync 0;
    @%p5 red.shared.add.u32 [%r1], 1;
    bar.sync 0;                                                     //~ SMEM_RACE_RAW: @%p3 bar.sync 1, 64;
    @%p4 ld.shared.u32 %r7, [%r1];
    mov.u32 %r8, 0; @%p5 atom.relaxed.cta.shared.add.u32 %r8, [%r1+4], 1;
    setp.eq.u32 %p2, %r8, 2;                                        //~ SMEM_RACE_WAW: mov.pred %p2, %p4;
    @%p2 st.shared.u32 [%r1+4], 0;
    @%p4 bra READS;
    @%p1 st.shared.u32 [%r1+12], 7;
    @%p1 st.release.cta.shared.u32 [%r6], 1;                        //~ SMEM_RACE_RAW.2: @%p1 st.relaxed.cta.shared.u32 [%r6], 1;
    @%p1 st.relaxed.cta.shared.u32 [%r6], 2;
    @!%p6 bra END;
    ONE: ld.relaxed.cta.shared.u32 %r7, [%r6]; setp.ne.u32 %p7, %r7, 2; @%p7 bra ONE;
    red.relaxed.cta.shared.add.u32 [%r6], 1;                        //~ SMEM_RACE_RAW.3: st.relaxed.cta.shared.u32 [%r6], 3;
    READS: @!%p4 bra END;
    TWO: ld.relaxed.cta.shared.u32 %r7, [%r6]; setp.ne.u32 %p7, %r7, 3; @%p7 bra TWO;
    ld.acquire.cta.shared.u32 %r7, [%r6];
    ld.shared.u32 %r7, [%r1+12];
    END:
    """,
    threads=96,
)
"""The last of several atomics does not hide the others from what only it is ordered with, but for who saw what they left; atomics hand on a release, stores do not."""
KERNELS = (
    IN_PLACE,
    ENDING,
    PROXIES,
    ROWS,
    PEER,
    GUARDED,
    ACCUMULATORS,
    VOLATILE,
    TOGETHER,
    FLAGS,
    PRODUCTS,
    MASKS,
    FENCED,
    ADDING,
    COUNTED,
    LAST,
)
