"""Small kernels that use global memory through two proxies, and launches that follow each other (`tests.hazards.kernels`)."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.hazards.kernels import FIRST, OWN, PARAMS, SOURCE, Kernel
from tests.support.ptx_copies import text, wait

THERE = Kernel(
    "there",
    f"""
    {PARAMS} {OWN} {FIRST}
    add.u32 %r2, %r1, 1024; mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd3, %rd2;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    st.global.u32 [%rd4], %r0;
    fence.proxy.async.global;           //- PROXY_FENCE_GLOBAL   //~ PROXY_FENCE_GLOBAL.2: fence.proxy.async.shared::cta;
    bar.sync 0;                         //- GMEM_RACE
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2], 256, [%r2];
    bar.sync 0;
    {wait("FULL", "%r2", "0")}
    ld.shared.u32 %r5, [%r3];
    st.shared.u32 [%r3], %r5;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;    //~ TMA_STORE_NOT_VISIBLE: @%p1 cp.async.bulk.wait_group.read 0;
    bar.sync 0;
    add.u64 %rd4, %rd3, %rd1;
    ld.global.u32 %r5, [%rd4];
    """,
)
_WORDS = np.frombuffer(tcsim.TensorMap("UINT32", (64,), (), (32,), swizzle="NONE").encode(SOURCE), np.uint64)
_STORED = " ".join(f"@%p1 st.global.u64 [%rd2+{8 * place}], {word};" for place, word in enumerate(_WORDS.tolist()))
MAP = Kernel(
    "map",
    f"""
    {PARAMS} {OWN} {FIRST}
    add.u32 %r2, %r1, 1024; mov.u32 %r4, 48; setp.eq.u32 %p3, %r0, 32;
    @%p3 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p3 fence.mbarrier_init.release.cluster;
                                        //+ TENSORMAP_SPACE: mov.b64 %rd3, smem; cvta.shared.u64 %rd3, %rd3; prefetch.tensormap [%rd3];
    {_STORED}
    @%p1 fence.proxy.tensormap::generic.release.gpu;                            //- TENSORMAP_FENCE
    bar.sync 0;
    @%p3 fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;                //- TENSORMAP_FENCE.2
    @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;               //~ TMA_BOX_BYTES: @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;   //~ TMA_BOX_BYTES.2: @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    @%p3 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd2, {{%r4}}], [%r2];
                                        //+ TENSORMAP_MODIFIED: @%p3 st.global.u64 [%rd2+120], 0;
    {wait("FULL", "%r2", "0")}
    """,
)
DEPENDENT = Kernel(
    "dependent",
    f"""
    {PARAMS} mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd3, %rd1; add.u64 %rd5, %rd3, %rd2;
    griddepcontrol.wait;                //- PDL_WAIT_MISSING   //- PDL_WRITE_BEFORE_WAIT
    ld.global.u32 %r5, [%rd5];
    st.global.u32 [%rd4], %r5;
    """,
    before=text(
        ".param .u64 source, .param .u64 target",
        f"""
        griddepcontrol.launch_dependents;
        {PARAMS} mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd3, %rd1; add.u64 %rd5, %rd3, %rd2;
        ld.global.u32 %r5, [%rd4];
        st.global.u32 [%rd5], %r5;
        """,
    ),
)
CANCEL = Kernel(
    "cancel",
    f"""
    {OWN} {FIRST}
    add.u32 %r2, %r1, 1024; mov.u32 %r5, 0; .reg .b128 %q;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    ASK:
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];
    and.b32 %r6, %r5, 1;
    {wait("ANSWER", "%r2", "%r6")}
    ld.shared.b128 %q, [%r1];
    fence.proxy.async.shared::cta;
    bar.sync 0;                         //- CLC_RESPONSE_REUSED
    add.u32 %r5, %r5, 1;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q;    //~ CLC_AFTER_NO: setp.lt.u32 %p4, %r5, 2;   //~ CLC_RESPONSE_REUSED: setp.lt.u32 %p4, %r5, 2;
    @%p4 bra ASK;
    """,
    target="sm_100a",
)
MASKED = Kernel(
    "masked",
    f"""
    {PARAMS} {OWN} {FIRST}
    and.b32 %r5, %r0, 2; setp.eq.u32 %p3, %r5, 0; mul.wide.u32 %rd3, %r0, 4; add.u64 %rd4, %rd3, %rd1;
    @%p3 st.shared.u32 [%r3], %r0;
    fence.proxy.async.shared::cta;      //- PROXY_FENCE_MISSING
    bar.sync 0;
    mov.b16 %h1, 0x00ff;                //~ SMEM_UNINITIALISED: mov.b16 %h1, 0x01ff;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r1], 256, %h1;
    @%p1 cp.async.bulk.commit_group;    //- ASYNC_AT_EXIT
    @!%p3 st.global.u32 [%rd4], %r0;
    @!%p3 ld.global.u32 %r6, [%rd4];    //+ TMA_STORE_NOT_VISIBLE: ld.global.u32 %r6, [%rd4];
    @%p1 cp.async.bulk.wait_group 0;    //~ TMA_STORE_NOT_VISIBLE.2: @%p1 cp.async.bulk.wait_group.read 0;
    bar.sync 0;
    ld.global.u32 %r6, [%rd4];
    """,
    target="sm_100a",
)
"""The first 8 of every 16 bytes are stored by a copy; the others nobody puts into shared memory, and threads write them to global memory while it is under way."""
KERNELS = (THERE, MAP, DEPENDENT, CANCEL, MASKED)
