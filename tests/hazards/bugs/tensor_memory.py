"""tcgen05: loads of Tensor Memory in flight, addresses that are not published, columns that nobody took, pairs of blocks."""

from __future__ import annotations

import tcsim
from tests.hazards.bugs.pieces import PEER, SET, TOGETHER, A, B, tile, until
from tests.hazards.kernels import Kernel

_IDESC = tcsim.InstructionDescriptor("f16", 64, 8, "f32", "f16", "f16").encode()
_TILES = f"mov.u64 %rd3, {tile(64, 16, A, 'sm_100')}; mov.u64 %rd4, {tile(8, 16, B, 'sm_100')};"
_FILL = """and.b32 %r5, %r0, 63; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, 4096; setp.lt.u32 %p5, %r0, 64;
    st.shared.u32 [%r3], 0; st.shared.u32 [%r3+512], 0; st.shared.u32 [%r3+1024], 0; st.shared.u32 [%r3+1536], 0; @%p5 st.shared.u32 [%r5], 0;"""
_ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 64;"
_FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;"
_BEFORE, _AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
_MMA = f"tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd3, %rd4, {_IDESC}, %p6;"
_LD = "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r11, %r12, %r13, %r14, %r15, %r16, %r17, %r18}, [%r10];"
_COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"

STAGES = Kernel(
    "stages",
    f"""
    {SET} {_TILES} add.u32 %r6, %r2, 8; add.u32 %r7, %r2, 16; add.u32 %r4, %r2, 24; setp.lt.u32 %p3, %r0, 32; mov.u32 %r19, 0; setp.ne.u32 %p6, %r0, %r0;
    {_FILL}                             //? B8
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 128;
    @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;
    @!%p3 bra TAKEN;
    {_ALLOC}                            //~ B20: st.shared.u32 [%r7], 0;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;   //- B20
    TAKEN:
    fence.proxy.async;                  //- B8
    bar.sync 0;
    ld.shared.u32 %r8, [%r7];
    shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    STEP:
    @!%p1 bra ISSUED;
    and.b32 %r20, %r19, 1; xor.b32 %r20, %r20, 1;
    {until("FREE", "%r6", "%r20")}
    {_AFTER}
    {_MMA}                              //! B8   //! B15   //! B17   //! B20
    {_COMMIT} [%r2];
    ISSUED:
    bar.warp.sync -1;
    and.b32 %r20, %r19, 1;
    {until("DONE", "%r2", "%r20")}
    {_AFTER}
    {_LD}                               //? B15   //? B17
    tcgen05.wait::ld.sync.aligned;      //- B15   //- B17
    {_BEFORE}
    mbarrier.arrive.shared::cta.b64 _, [%r6];
                                        //+ B17: tcgen05.wait::ld.sync.aligned;
    add.u32 %r19, %r19, 1; setp.lt.u32 %p7, %r19, 3;
    @%p7 bra STEP;
    tcgen05.wait::ld.sync.aligned;
    {_BEFORE}
    bar.sync 0;
    {_AFTER}
    @%p3 {_FREE}                        //- B20
    """,
    threads=128,
    target="sm_100a",
)
"""One accumulator is filled and read three times; the reader gives it back through an mbarrier."""

LAST = Kernel(
    "last",
    f"""
    {SET} add.u32 %r7, %r2, 16; add.u32 %r6, %r2, 24; setp.lt.u32 %p3, %r0, 32; and.b32 %r4, %r0, 31; setp.lt.u32 %p4, %r4, 16;
    @%p1 mbarrier.init.shared::cta.b64 [%r6], 64;
    @%p3 {_ALLOC}                       //? B19
    bar.sync 0;                         //- B19
    ld.shared.u32 %r8, [%r7];           //! B19
    shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    mov.u32 %r9, 1;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {{%r9, %r9, %r9, %r9, %r9, %r9, %r9, %r9}};
    tcgen05.wait::st.sync.aligned;
    {_LD}                               //? B16
    @%p4 st.shared.u32 [%r3], %r11;
    tcgen05.wait::ld.sync.aligned;      //- B16
    {_BEFORE}
    mbarrier.arrive.shared::cta.b64 _, [%r6];
    @!%p3 bra DONE;
    {until("READ", "%r6", "0")}
    {_AFTER}
    {_FREE}                             //! B16
    DONE:
    """,
    threads=64,
    target="sm_100a",
)
"""Two warps read Tensor Memory, and half of their lanes use what they read; then the first warp gives it back."""

SCALES = Kernel(
    "scales",
    f"""
    {SET} {_TILES} add.u32 %r7, %r2, 16; add.u32 %r6, %r2, 24; setp.lt.u32 %p3, %r0, 32; setp.ne.u32 %p6, %r0, %r0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    {_FILL}
    @%p3 {_ALLOC}                       //? B18.1
    fence.proxy.async;
    bar.sync 0;                         //- B18.1
    ld.shared.u32 %r8, [%r7];           //! B18.1
    shr.u32 %r10, %r0, 5; shl.b32 %r10, %r10, 21; add.u32 %r10, %r10, %r8;
    @!%p1 bra ISSUED;
    {_MMA}                              //? B18.2
    {_COMMIT} [%r2];
    ISSUED:
    bar.warp.sync -1;
    {until("DONE", "%r2", "0")}          //- B18.2
    {_AFTER}
    mov.u32 %r9, 1;
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r10], {{%r9, %r9, %r9, %r9, %r9, %r9, %r9, %r9}};   //! B18.2
    tcgen05.wait::st.sync.aligned;
    {_BEFORE}
    bar.sync 0;
    {_AFTER}
    @%p3 {_FREE}
    """,
    threads=128,
    target="sm_100a",
)
"""Columns that a product uses are written again."""

PAIR = Kernel(
    "pair",
    f"""
    {SET} {PEER}
    {TOGETHER}
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r2], 64;   //? B21
    ld.shared.u32 %r8, [%r2];
    {TOGETHER}                          //- B21
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 64;   //! B21
    {TOGETHER}
    """,
    threads=32,
    blocks=2,
    target="sm_100a",
)
"""A pair of blocks takes Tensor Memory and gives it back."""
