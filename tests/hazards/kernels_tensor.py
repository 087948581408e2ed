"""Small kernels with Tensor Memory, with the defects that can be planted in them (`tests.hazards.kernels`)."""

from __future__ import annotations

from tests.hazards.kernels import FIRST, IDESC, OWN, TILE_A, TILE_B, Kernel
from tests.support.ptx_copies import wait

_ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
_FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
_EIGHT = "{%r11, %r12, %r13, %r14, %r15, %r16, %r17, %r18}"
_SAME = f"{{{', '.join(['%r9'] * 8)}}}"
_BEFORE, _AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
_FILLED = """
    and.b32 %r5, %r0, 63; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, 4096; setp.lt.u32 %p5, %r0, 64;
    st.shared.u32 [%r3], 0; st.shared.u32 [%r3+512], 0; st.shared.u32 [%r3+1024], 0; st.shared.u32 [%r3+1536], 0; @%p5 st.shared.u32 [%r5], 0;
"""
"""The tiles of A and B."""
ACCUMULATED = Kernel(
    "accumulated",
    f"""
    {OWN} {FIRST} mov.u64 %rd3, {TILE_A}; mov.u64 %rd4, {TILE_B}; setp.lt.u32 %p3, %r0, 32; setp.ge.u32 %p4, %r0, 32;
    add.u32 %r6, %r1, 8192; add.u32 %r7, %r1, 8200; mov.u32 %r20, 32;            //~ TMEM_ALLOC_SIZE: add.u32 %r6, %r1, 8192; add.u32 %r7, %r1, 8200; mov.u32 %r20, 48;
    {_FILLED}
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p4 bra TAKEN;
    {_ALLOC} [%r7], %r20;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;                  //~ CTA_GROUP_MISMATCH: tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
    TAKEN:
    fence.proxy.async;
    bar.sync 0;
    ld.shared.u32 %r8, [%r7];
    mov.u32 %r9, 1; shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {_SAME};                      //- TMEM_UNINITIALISED
    tcgen05.wait::st.sync.aligned;                                              //- TMEM_WAIT_ST_MISSING
    {_BEFORE}                                                                   //- TCGEN05_FENCE_MISSING
    bar.sync 0;                                                                 //- TCGEN05_UNORDERED
    {_AFTER}                                                                    //- TCGEN05_FENCE_MISSING.2
    setp.eq.u32 %p6, %r0, 0;
    @!%p1 bra ISSUED;
    tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, {IDESC}, %p6;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6]; //~ TCGEN05_COMMIT_MISSING: mbarrier.arrive.shared::cta.b64 _, [%r6];   //+ TCGEN05_NOT_PIPELINED: tcgen05.cp.cta_group::1.128x256b [%r8], %rd3;
    ISSUED:
    mov.u32 %r19, 0;                                                            //~ MBAR_PARITY: mov.u32 %r19, 1;
    {wait("DONE", "%r6", "%r19")}
    {_AFTER}                                                                    //- TCGEN05_FENCE_MISSING.3
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {_EIGHT}, [%r10];
    tcgen05.wait::ld.sync.aligned;                                              //~ TMEM_LD_NO_WAIT: add.u32 %r11, %r11, %r12;   //- TMEM_WAIT_LD_MISSING
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {_SAME};
    tcgen05.wait::st.sync.aligned;                                              //- TMEM_WAIT_ST_MISSING.2
    {_BEFORE}
    bar.sync 0;
    {_AFTER}
    @%p3 {_FREE} %r8, 32;                                                       //- TMEM_LEAK   //+ TMEM_UNALLOCATED: @%p3 {_FREE} %r8, 32;
    """,
    threads=128,
    target="sm_100a",
)
RELEASED = Kernel(
    "released",
    f"""
    {OWN} {FIRST} mov.u64 %rd3, {TILE_A}; mov.u64 %rd4, {TILE_B}; setp.lt.u32 %p3, %r0, 32; setp.ge.u32 %p4, %r0, 32; setp.eq.u32 %p7, %r0, 32;
    add.u32 %r6, %r1, 8192; add.u32 %r7, %r1, 8200; add.u32 %r19, %r1, 8216;
    {_FILLED}
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1; @%p1 mbarrier.init.shared::cta.b64 [%r19], 128;
    @%p4 bra TAKEN;
    {_ALLOC} [%r7], 32;
    TAKEN:
    fence.proxy.async;
    bar.sync 0;
    ld.shared.u32 %r8, [%r7];
    mov.u32 %r9, 1; shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {_SAME};                      //- TMEM_LD_UNINITIALISED
    tcgen05.wait::st.sync.aligned;                                              //- TMEM_LD_UNINITIALISED
    {_BEFORE}
    bar.sync 0;
    {_AFTER}
    setp.ne.u32 %p6, %r0, %r0;
    @!%p1 bra ISSUED;
    tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, {IDESC}, %p6;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
    ISSUED:
    {wait("DONE", "%r6", "0")}
    {_AFTER}
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {_EIGHT}, [%r10];
    tcgen05.wait::ld.sync.aligned;                                              //- TMEM_WAIT_LD_MISSING
    {_BEFORE}                                                                   //- TCGEN05_UNORDERED
    mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%r19];
    @!%p7 bra SECOND;
    {wait("FREE", "%r19", "0")}
    {_AFTER}                                                                    //- TCGEN05_UNORDERED.2
    tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, {IDESC}, %p6;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
    SECOND:
    {wait("AGAIN", "%r6", "1")}
    {_AFTER}
    bar.sync 0;
    @%p3 {_FREE} %r8, 32;
    """,
    threads=128,
    target="sm_100a",
)
PAIR = Kernel(
    "pair",
    f"""
    {OWN}
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 32;          //- TMEM_UNALLOCATED
    ld.shared.u32 %r8, [%r1];
    barrier.cluster.arrive;                                                     //- TMEM_PEER_ORDER
    barrier.cluster.wait;                                                       //- TMEM_PEER_ORDER
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 32;                      //- TMEM_LEAK
    tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;                  //+ TMEM_AFTER_RELINQUISH: tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 32;
    """,
    threads=32,
    blocks=2,
    target="sm_100a",
)
ENDED = Kernel(
    "ended",
    f"""
    {OWN} setp.ge.u32 %p4, %r0, 32; mov.u32 %r9, 1;
    @%p4 bra TAKEN;
    {_ALLOC} [%r1], 32;
    TAKEN:
    bar.sync 0;
    ld.shared.u32 %r8, [%r1]; shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {_SAME};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {_EIGHT}, [%r10];
    tcgen05.wait::ld.sync.aligned;                                              //- TMEM_WAIT_LD_MISSING
    {_BEFORE}
    barrier.cluster.arrive;             //~ TCGEN05_ORDERED_BY_EXIT: @!%p4 barrier.cluster.arrive;   //- TCGEN05_ORDERED_BY_EXIT.2   //~ TCGEN05_UNORDERED: @!%p4 barrier.cluster.arrive;
    @%p4 bra DONE;
    barrier.cluster.wait;               //~ TCGEN05_ORDERED_BY_EXIT.2: bar.sync 0;   //- TCGEN05_UNORDERED
    {_AFTER}
    {_FREE} %r8, 32;
    DONE:
    """,
    target="sm_100a",
)
KERNELS = (ACCUMULATED, RELEASED, PAIR, ENDED)
