"""Small kernels with mbarriers and barriers, with the defects that can be planted in them (`tests.hazards.kernels`)."""

from __future__ import annotations

from tests.hazards.kernels import FIRST, OTHER, OWN, PARAMS, Kernel
from tests.support.ptx_copies import wait

_HALVES = """
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 128, [%r2];
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 128, [%r2];
"""
PIPELINE = Kernel(
    "pipeline",
    f"""
    {PARAMS} {OWN} {FIRST}
    add.u32 %r2, %r1, 1024; add.u32 %r6, %r1, 1032; add.u32 %r4, %r1, 128; add.u32 %r3, %r3, -128; setp.ge.u32 %p3, %r0, 32;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;                                //~ MBAR_COUNT: @%p1 mbarrier.init.shared::cta.b64 [%r2], 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 32;                               //~ MBAR_ARRIVE_MISSING: @%p1 mbarrier.init.shared::cta.b64 [%r6], 33;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p3 bra CONSUMER;
    {wait("EMPTY0", "%r6", "1")}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;               //~ MBAR_TX_UNDER: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;   //~ MBAR_TX_UNDER.2: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 240;   //~ MBAR_TX_OVER: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 272;   //~ MBAR_TX_RANGE: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2097152;
    {_HALVES}
    {wait("EMPTY1", "%r6", "0")}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    {_HALVES}
    bra DONE;
    CONSUMER:
    {wait("FULL0", "%r2", "0")}
    ld.shared.u32 %r5, [%r3]; ld.shared.u32 %r7, [%r3+128];
    fence.proxy.async;                                                          //- PROXY_FENCE_WAR
    mbarrier.arrive.shared::cta.b64 _, [%r6];
    mov.u32 %r8, 1;                                                             //~ MBAR_PARITY: mov.u32 %r8, 0;
    {wait("FULL1", "%r2", "%r8")}
    ld.shared.u32 %r5, [%r3]; ld.shared.u32 %r7, [%r3+128];                     //+ SMEM_UNINITIALISED: ld.shared.u32 %r5, [%r3+256];
    DONE:
    """,
)
TURNS = Kernel(
    "turns",
    f"""
    {OWN} {FIRST}
    add.u32 %r2, %r1, 1024;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    bar.sync 0;
    @%p1 st.shared.u32 [%r1], 1;
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];                              //~ MBAR_RELAXED: @%p1 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r2];   //+ MBAR_PHASE_ALIAS: @%p1 mbarrier.arrive.shared::cta.b64 _, [%r2];
    bar.warp.sync -1;                                                           //~ MBAR_PHASE_ALIAS: bar.sync 0;
    setp.ge.u32 %p3, %r0, 32; setp.eq.u32 %p4, %r0, 32;                         //~ MBAR_PHASE_ALIAS.2: setp.ge.u32 %p3, %r0, 0; setp.eq.u32 %p4, %r0, 32;
    @!%p3 bra WRITER;
    {wait("FIRST", "%r2", "0")}
    ld.shared.u32 %r5, [%r1];
    WRITER:
    @%p4 st.shared.u32 [%r1+4], %r5;
    @%p4 mbarrier.arrive.shared::cta.b64 _, [%r2];
    {wait("SECOND", "%r2", "1")}
    ld.shared.u32 %r5, [%r1+4];
    """,
)
UNOBSERVED = Kernel(
    "unobserved",
    f"""
    {OWN} {FIRST}
    @%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
    bar.sync 0;
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];
    mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 0;                    //- MBAR_PHASE_UNOBSERVED
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];
    """,
    threads=32,
)
REMOTE = Kernel(
    "remote",
    f"""
    {OWN} {FIRST}
    mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mapa.shared::cluster.u32 %r4, %r1, %r2;
    @%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];          //~ MBAR_SCOPE: @%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4];   //~ MBAR_REMOTE_FORM: @%p1 mbarrier.arrive.shared::cta.b64 _, [%r4];
    mov.u32 %r5, %r1;                                                           //~ MBAR_REMOTE_FORM.2: mov.u32 %r5, %r4;
    {wait("DONE", "%r5", "0")}
    barrier.cluster.arrive; barrier.cluster.wait;                               //+ CLUSTER_BARRIER_TWICE: barrier.cluster.arrive; barrier.cluster.arrive;
    """,
    blocks=2,
)
REUSED = Kernel(
    "reused",
    f"""
    {OWN} {FIRST}
    add.u32 %r6, %r1, 1024; mov.u32 %r9, %cluster_ctarank; xor.b32 %r2, %r9, 1; mapa.shared::cluster.u32 %r4, %r1, %r2; mapa.shared::cluster.u32 %r7, %r6, %r2;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    st.shared.u32 [%r3], %r0; st.shared.u32 [%r3+256], %r0;
    fence.proxy.async;
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared.u32 %r5, [%r3];
    fence.proxy.async;
    barrier.cluster.arrive;                                                     //- CLUSTER_SMEM_REUSED
    barrier.cluster.wait;                                                       //- CLUSTER_SMEM_REUSED
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 256;
    add.u32 %r8, %r1, 256;
    @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%r8], 256, [%r7];
    {wait("FULL", "%r6", "0")}
    barrier.cluster.arrive; barrier.cluster.wait;
    """,
    blocks=2,
)
TOGETHER = Kernel(
    "together",
    f"""
    {OWN}
    setp.ge.u32 %p1, %r0, 32; setp.lt.u32 %p2, %r0, 16;
    st.shared.u32 [%r3], 1;
    bar.sync 0, 128;                    //~ BARRIER_COUNT: @%p1 bar.sync 0, 128; @!%p1 bar.sync 0, 160;   //~ BARRIER_COUNT.2: bar.sync 0, 33;   //~ BARRIER_COUNT.3: bar.sync 0, 160;
                                        //+ BARRIER_WARP_DIVERGENCE: @%p2 bra HALF;   //+ BARRIER_ROLE_DIVERGENCE: @%p1 bra UPPER; bar.sync 2; bra MET; UPPER: bar.sync 2; MET: st.shared.u32 [%r3], 1;
    st.shared.u32 [%r3], 2;
    bar.sync 1, 128;                    //~ BARRIER_ROLE_DIVERGENCE.2: @%p1 bar.sync 1, 128; @!%p1 bar.sync 2, 128;
                                        //+ BARRIER_WARP_DIVERGENCE: bra JOINED; HALF: bar.sync 1, 128; JOINED:
                                        //+ WARP_SYNC_MASK: @%p2 bar.sync 3;
    shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;
                                        //+ WGMMA_WARPGROUP_DIVERGED: @!%p1 bar.sync 4, 64;
    FENCE:
    wgmma.fence.sync.aligned;
    st.shared.u32 [%r3], 3;
    bar.sync 0;                         //+ BARRIER_ORDERS_NOTHING: bar.sync 0;
    """,
    threads=128,
)
ROLES = Kernel(
    "roles",
    f"""
    {OWN} setp.lt.u32 %p1, %r0, 32; xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;
    @!%p1 bra CONSUMER;
    st.shared.u32 [%r3], 1;
    bar.arrive 1, 64;
    bar.sync 2, 64;                     //- BARRIER_PHASE_ALIAS
    st.shared.u32 [%r3], 2;
    bar.arrive 1, 64;
    bra DONE;
    CONSUMER:
    bar.sync 1, 64;
    ld.shared.u32 %r5, [%r4];
    bar.arrive 2, 64;                   //- BARRIER_PHASE_ALIAS
    bar.sync 1, 64;
    ld.shared.u32 %r5, [%r4];
    DONE:
    """,
    target="sm_80",
)
PLACES = Kernel(
    "places",
    f"""
    {PARAMS} {OWN} {FIRST}
    add.u32 %r2, %r1, 1024;                                                     //~ MBAR_MISALIGNED: add.u32 %r2, %r1, 1028;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;                                //! MBAR_MISALIGNED   //! MBAR_INIT_NOT_FENCED
    @%p1 fence.proxy.async.shared::cta;                                         //- MBAR_INIT_NOT_FENCED
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 240;
                                                                                //~ TMA_MISALIGNED: add.u32 %r1, %r1, 8;   //~ TMA_MISALIGNED.2: add.u64 %rd1, %rd1, 4;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 240, [%r2];   //! TMA_MISALIGNED   //? MBAR_INIT_NOT_FENCED
    {wait("FULL", "%r2", "0")}
    """,
)
SENT = Kernel(
    "sent",
    f"""
    {OWN} {FIRST}
    add.u32 %r2, %r1, 1024; mov.u32 %r4, %cluster_ctarank; xor.b32 %r4, %r4, 1; mapa.shared::cluster.u32 %r5, %r2, %r4; mapa.shared::cluster.u32 %r6, %r3, %r4;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;               //~ MBAR_TX_UNDER: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 240;   //~ MBAR_TX_UNDER.2: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;   //~ MBAR_TX_UNDER.3: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 0;
    barrier.cluster.arrive; barrier.cluster.wait;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r0, [%r5];
    {wait("FULL", "%r2", "0")}
    barrier.cluster.arrive; barrier.cluster.wait;
    """,
    blocks=2,
)
FLAG = Kernel(
    "flag",
    f"""
    {OWN} {OTHER} add.u32 %r2, %r1, 1024; setp.lt.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r0, 0;
    @%p2 st.shared.u32 [%r2], 0;
    bar.sync 0;
    @%p1 st.shared.u32 [%r3], %r0;
    bar.warp.sync -1;
    @%p1 red.release.cta.shared.add.u32 [%r2], 1;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    atom.acquire.cta.shared.add.u32 %r5, [%r2], 0;                              //~ RED_NOT_ACQUIRE: red.relaxed.cta.shared.add.u32 [%r2], 0; fence.acq_rel.cta;
    @!%p1 ld.shared.u32 %r6, [%r4];                                             //! RED_NOT_ACQUIRE
    """,
)
KERNELS = (PIPELINE, TURNS, UNOBSERVED, REMOTE, REUSED, TOGETHER, ROLES, PLACES, SENT, FLAG)
