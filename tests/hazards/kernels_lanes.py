"""Kernels whose lanes pass data to each other within a warp, or wait and arrive for each other."""

from __future__ import annotations

from tests.hazards.kernels import FIRST, OTHER, OWN, PARAMS, Kernel
from tests.support.ptx_copies import wait

NEIGHBOUR = "xor.b32 %r4, %r0, 1; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;"
"""%r4: the word of the next lane."""
TOGETHER = "vote.sync.any.pred %p6, %p1, -1;"
"""Brings the lanes together, and orders no memory."""

EXCHANGE = Kernel(
    "exchange",
    f"""
    {OWN} {NEIGHBOUR} {FIRST}
    st.shared.u32 [%r3], %r0;                                                   //? WARP_SYNC_MISSING //? WARP_SYNC_COLLECTIVE
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING   //~ WARP_SYNC_COLLECTIVE: {TOGETHER}
    ld.shared.u32 %r5, [%r4];                                                   //! WARP_SYNC_MISSING //! WARP_SYNC_COLLECTIVE   //? WARP_SYNC_MISSING.2
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING.2
    st.shared.u32 [%r3], %r5;                                                   //! WARP_SYNC_MISSING.2   //? WARP_SYNC_MISSING.3
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING.3
    st.shared.u32 [%r4], %r5;                                                   //! WARP_SYNC_MISSING.3
    """,
    target="sm_80",
)
HALVES = Kernel(
    "halves",
    f"""
    {OWN} {NEIGHBOUR} and.b32 %r6, %r0, 16; setp.eq.u32 %p1, %r6, 0; mov.u32 %r7, 0xffff; @!%p1 mov.u32 %r7, 0xffff0000;
    xor.b32 %r8, %r0, 16; shl.b32 %r8, %r8, 2; add.u32 %r8, %r8, %r1;
    st.shared.u32 [%r3], %r0;
    bar.warp.sync %r7;
    ld.shared.u32 %r5, [%r4];           //~ WARP_SYNC_MISSING: ld.shared.u32 %r5, [%r8];
    """,
    target="sm_80",
)
GATHER = Kernel(
    "gather",
    f"""
    {PARAMS} {OWN} {NEIGHBOUR}
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1;
    cp.async.ca.shared.global [%r3], [%rd3], 4;
    cp.async.wait_all;
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING
    ld.shared.u32 %r5, [%r4];
    """,
    target="sm_80",
)
MATRIX = Kernel(
    "matrix",
    f"""
    {OWN} {NEIGHBOUR}
    and.b32 %r5, %r0, 7; shl.b32 %r5, %r5, 4; and.b32 %r6, %r0, 32; shl.b32 %r6, %r6, 2; add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r1;
    st.shared.u32 [%r3], %r0;
    bar.warp.sync -1;                   //- WARP_SYNC_COLLECTIVE
                                        //+ WARP_INCOMPLETE: setp.eq.u32 %p1, %r0, 9; @%p1 exit;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r7}}, [%r5];
    bar.warp.sync -1;                   //- WARP_SYNC_COLLECTIVE.2
    st.shared.u32 [%r3], %r7;
    """,
    target="sm_80",
)
ELECTED = Kernel(
    "elected",
    f"""
    {PARAMS} {OWN} {OTHER} and.b32 %r10, %r0, 31; setp.eq.u32 %p1, %r10, 0; setp.eq.u32 %p2, %r0, 0; setp.lt.u32 %p3, %r0, 32; add.u32 %r6, %r1, 1024; add.u32 %r7, %r1, 1032;
    @%p2 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p2 mbarrier.init.shared::cta.b64 [%r7], 1;
    bar.sync 0;
    @!%p3 bra SECOND;
    st.shared.u32 [%r3], %r0;
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r6];
    @!%p1 bra FIRST_DONE;
    {wait("EMPTY", "%r7", "0")}
    FIRST_DONE:
    bar.warp.sync -1;                   //~ WARP_SYNC_COLLECTIVE: vote.sync.any.pred %p6, %p1, -1;
    st.shared.u32 [%r3], %r1;
    bra ALL_DONE;
    SECOND:
    {wait("FULL", "%r6", "0")}
    ld.shared.u32 %r5, [%r4];
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING.2
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r7];
    ALL_DONE:
    bar.sync 0;
    """,
)
COPIED_OUT = Kernel(
    "copied_out",
    f"""
    {PARAMS} {OWN} {FIRST}
    st.shared.u32 [%r3], %r0;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 128;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING.2
    st.shared.u32 [%r3], %r1;
    """,
    threads=32,
)
READERS = Kernel(
    "readers",
    f"""
    {OWN} {NEIGHBOUR} and.b32 %r7, %r0, 31; setp.eq.u32 %p1, %r7, 31; and.b32 %r7, %r0, 32; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %r1;
    st.shared.u32 [%r3], %r0;
    bar.warp.sync -1;
    ld.shared.u32 %r5, [%r4];
    ld.shared.u32 %r6, [%r3];
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING
    st.shared.u32 [%r3], %r5;
    bar.warp.sync -1;
    ld.shared.u32 %r6, [%r7];
    bar.warp.sync -1;                   //- WARP_SYNC_MISSING.2
    @%p1 st.shared.u32 [%r7], %r6;
    """,
    target="sm_80",
)
"""The lane that writes has read the word last itself, after another one, or with all."""
KERNELS = (EXCHANGE, HALVES, GATHER, MATRIX, ELECTED, COPIED_OUT, READERS)
