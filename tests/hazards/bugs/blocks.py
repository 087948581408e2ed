"""Barriers, clusters, launches and register pools."""

from __future__ import annotations

from tests.hazards.bugs.pieces import OTHER, PEER, SET, TOGETHER, until
from tests.hazards.kernels import Kernel
from tests.support.ptx_copies import text

ATTENTION = Kernel(
    "attention",
    f"""
    {SET} {OTHER} setp.ge.u32 %p3, %r0, 32;
    st.shared.u32 [%r3], %r0;           //? B32.1
    bar.sync 0;                         //- B32.1   //~ B32.2: @%p3 bra UPPER;
                                        //+ B32.2: bar.sync 0; //! B32.2
                                        //~ B32.2: bra MET;
                                        //~ B32.2: UPPER:
                                        //+ B32.2: bar.sync 0; //? B32.2
                                        //~ B32.2: MET:
    ld.shared.u32 %r5, [%r4];           //! B32.1
    """,
    target="sm_80",
)
"""Two warps exchange words."""

REDUCTION = Kernel(
    "reduction",
    f"""
    {SET} shr.u32 %r5, %r0, 5; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r1; mov.u32 %r8, 0;
    ROW:
    redux.sync.max.u32 %r6, %r0, -1;
    @%p2 st.shared.u32 [%r5], %r6;      //! B33
    bar.sync 0;
    ld.shared.v2.u32 {{%r9, %r10}}, [%r1];   //? B33
    max.u32 %r11, %r9, %r10;
    bar.sync 0;                         //- B33
    add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 2;
    @%p3 bra ROW;
    """,
    target="sm_80",
)
"""The largest of a row, through a scratch array, row after row."""

MAILBOX = Kernel(
    "mailbox",
    f"""
    {SET} setp.ge.u32 %p3, %r0, 32; mov.u32 %r5, 0;
    TILE:
    @%p3 bra WORKER;
    @%p1 st.shared.u32 [%r1], %r5;      //! B35.1
    barrier.sync 1, 64;
    bra.uni NEXT;
    WORKER:
    barrier.sync 1, 64;
    ld.shared.u32 %r7, [%r1];           //? B35.1
    NEXT:
    barrier.sync 2, 64;                 //- B35.1
    add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 2;
    @%p4 bra TILE;
    """,
)
"""A scheduler sends two tiles through one word of shared memory."""

CANCEL = Kernel(
    "cancel",
    f"""
    {SET} setp.ge.u32 %p3, %r0, 32; mov.u32 %r5, 0; .reg .b128 %q;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    ASK:
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];   //! B35.2
    and.b32 %r6, %r5, 1;
    {until("ANSWER", "%r2", "%r6")}
    ld.shared.b128 %q, [%r1];           //? B35.2
    fence.proxy.async.shared::cta;
    bar.sync 0;                         //- B35.2
    add.u32 %r5, %r5, 1;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q;    //~ B35.2: setp.lt.u32 %p4, %r5, 2;
    @%p4 bra ASK;
    """,
    target="sm_100a",
)
"""A block asks for the work of others until there is none, into one buffer."""

EXIT = Kernel(
    "exit",
    f"""
    {SET} {PEER} mapa.shared::cluster.u32 %r4, %r3, %r6;
    st.shared.u32 [%r3], %r0;
    {TOGETHER}
    ld.shared::cluster.u32 %r7, [%r4];  //! B23
    {TOGETHER}                          //- B23
    """,
    blocks=2,
)
"""Each block of a cluster reads the other's shared memory, and ends."""

MULTICAST = Kernel(
    "multicast",
    f"""
    {SET} {PEER} setp.eq.u32 %p3, %r5, 0; and.pred %p4, %p1, %p3; mov.b16 %h1, 3;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    st.shared.u32 [%r3], %r0;
    {TOGETHER}
    ld.shared.u32 %r7, [%r3];           //? B24
    fence.proxy.async;
    bar.sync 0;
    {TOGETHER}                          //~ B24: barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1], 256, [%r2], %h1;   //! B24
    {until("FULL", "%r2", "0")}
    {TOGETHER}
    """,
    blocks=2,
)
"""What the epilogues of two blocks read is then filled by one of them, by multicast."""

REMOTE = Kernel(
    "remote",
    f"""
    {SET} {PEER} mapa.shared::cluster.u32 %r4, %r2, %r6;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;        //? B26
    @%p1 fence.mbarrier_init.release.cluster;           //- B26   //+ B26: setp.eq.u32 %p5, %r0, 32; @%p5 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];   //~ B31: @%p1 mbarrier.arrive.shared::cta.b64 _, [%r4];   //! B26   //! B31
    {until("COME", "%r2", "0")}
    {TOGETHER}
    """,
    blocks=2,
)
"""Each block arrives at the other's mbarrier."""

POOL = Kernel(
    "pool",
    """
    setp.ge.u32 %p1, %r0, 128; setp.ge.u32 %p2, %r0, 384;
    @%p1 bra MORE;
    setmaxnreg.dec.sync.aligned.u32 24;
    bra.uni DONE;
    MORE:
    setmaxnreg.inc.sync.aligned.u32 160;    //~ B30: setmaxnreg.inc.sync.aligned.u32 240;   //! B30
    DONE:
    """,
    threads=512,
    directives=".maxntid 512 .minnctapersm 1 .maxnreg 128",
)
"""One warpgroup gives registers to three others."""

FIRST = text(
    ".param .u64 source, .param .u64 target",
    """
    griddepcontrol.launch_dependents;
    ld.param.u64 %rd1, [source]; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r0;
    """,
)
"""The launch before that of DEPENDENT."""
DEPENDENT = Kernel(
    "dependent",
    f"""
    {SET} mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd1, %rd3;
    griddepcontrol.wait;                //- B22
    ld.global.u32 %r5, [%rd4];          //! B22
                                        //+ B22: griddepcontrol.wait;
    add.u64 %rd5, %rd2, %rd3; st.global.u32 [%rd5], %r5;
    """,
)
"""Reads what the launch before it wrote."""
