"""Rings of TMA copies: what is stored before it is fenced, and slots that are used again too early."""

from __future__ import annotations

from tests.hazards.bugs.pieces import SET, TILES, WGMMA, ZEROS, until
from tests.hazards.kernels import Kernel

STORE = Kernel(
    "store",
    f"""
    {SET} mov.u32 %r5, 0;
    STEP:
    st.shared.u32 [%r3], %r5;           //? B7   //! B12   //! B13   //? B14
    fence.proxy.async.shared::cta;      //- B7   //- B14
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256;   //! B7   //? B12   //? B13   //! B14
                                        //+ B14: @%p1 fence.proxy.async.shared::cta;
    @%p1 cp.async.bulk.commit_group;    //- B13
    @%p1 cp.async.bulk.wait_group.read 0;   //- B13   //~ B12: @%p1 cp.async.bulk.wait_group.read 1;
    bar.sync 0;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3; add.u64 %rd2, %rd2, 256;
    @%p3 bra STEP;
                                        //+ B13: @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    atom.shared.add.u32 %r6, [%r3+1024], 1;   //? B11
    fence.proxy.async;                  //- B11
    bar.sync 0;
    add.u32 %r7, %r1, 1024;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2+256], [%r7], 256;   //! B11
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;
    """,
)
"""Three tiles are stored from one slot, then sums are added to global memory."""

RING = Kernel(
    "ring",
    f"""
    {SET} {TILES} {ZEROS} setp.ge.u32 %p4, %r0, 128; setp.eq.u32 %p5, %r0, 128; add.u32 %r4, %r2, 8; add.u32 %r6, %r1, 3072; add.u32 %r7, %r1, 3584;
    mov.u32 %r5, 0;
    @%p5 mbarrier.init.shared::cta.b64 [%r2], 1;        //- B28   //? B27   //! B7.2   //+ B27: @%p5 mbarrier.init.shared::cta.b64 [%r2], 1; //! B27
    @%p5 mbarrier.init.shared::cta.b64 [%r4], 4;        //~ B29: @%p5 mbarrier.init.shared::cta.b64 [%r4], 0;   //! B29
    @%p5 fence.mbarrier_init.release.cluster;   //- B7.2
    bar.sync 0;
    @%p4 bra PRODUCER;
    CONSUME:
    and.b32 %r8, %r5, 1;                //~ B25: shr.u32 %r8, %r5, 1;
    {until("FULL", "%r2", "%r8")}   //! B25
    ld.shared.u32 %r9, [%r7];           //? B10
    wgmma.fence.sync.aligned;
    {WGMMA}                             //? B1   //? B5
    wgmma.commit_group.sync.aligned;    //- B1
    wgmma.wait_group.sync.aligned 0;    //- B1   //~ B5: wgmma.wait_group.sync.aligned 1;
    fence.proxy.async.shared::cta;      //- B10
    bar.warp.sync -1;
    @%p2 mbarrier.arrive.shared::cta.b64 _, [%r4];
    add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3;
    @%p3 bra CONSUME;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    bra.uni DONE;
    PRODUCER:
    @!%p5 bra DONE;
    FILL:
    and.b32 %r8, %r5, 1; xor.b32 %r8, %r8, 1;
    {until("EMPTY", "%r4", "%r8")}
    @%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2816;   //! B28
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 2048, [%r2];   //! B1   //! B5   //? B7.2
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd1], 256, [%r2];
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd1], 512, [%r2];    //! B10
    add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3;
    @%p3 bra FILL;
    DONE:
    """,
    threads=160,
)
"""A fifth warp fills a slot three times; a warpgroup multiplies what is in it, and reads scales behind the tiles."""

POLLED = Kernel(
    "polled",
    f"""
    {SET} setp.ge.u32 %p3, %r0, 32;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p3 bra READER;
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd1;
    st.global.u32 [%rd3], %r0;          //? B9
    bar.warp.sync -1;
    @%p1 st.release.gpu.global.u32 [%rd2], 1;
    bra.uni DONE;
    READER:
    @!%p2 bra DONE;
    POLL:
    ld.acquire.gpu.global.u32 %r5, [%rd2];
    setp.ne.u32 %p4, %r5, 1;
    @%p4 bra POLL;
    fence.proxy.async;                  //- B9
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 128, [%r2];   //! B9
    {until("FULL", "%r2", "0")}
    DONE:
    """,
)
"""A warp writes global memory and raises a flag; another one polls the flag and copies what was written."""
