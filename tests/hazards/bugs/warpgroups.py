"""wgmma: accumulators that are read in flight, tiles that two warpgroups read, and descriptors."""

from __future__ import annotations

import tcsim
from tests.hazards.bugs.pieces import SET, TILES, WGMMA, ZEROS, A, B, tile
from tests.hazards.kernels import Kernel

_FILL = "st.shared.u32 [%r3], %r0; st.shared.u32 [%r3+1024], %r0; @%p3 st.shared.u32 [%r5], %r0;"
_PLACES = "setp.lt.u32 %p3, %r0, 64; setp.ge.u32 %p4, %r0, 128; and.b32 %r5, %r0, 63; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, 4096;"

REGISTERS = Kernel(
    "registers",
    f"""
    {SET} {TILES} {ZEROS} {_PLACES} mov.u32 %r6, %r0; mov.u32 %r7, %r0; mov.u32 %r8, %r0; mov.u32 %r9, %r0;
    @%p3 st.shared.u32 [%r5], %r0;
    fence.proxy.async; bar.sync 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, {{%r6, %r7, %r8, %r9}}, %rd4, 1, 1, 1, 0;   //? B2
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;    //- B2
    cvt.rn.f16x2.f32 %r10, %f2, %f1;    //! B2
                                        //+ B2: wgmma.wait_group.sync.aligned 0;
    """,
    threads=128,
)
"""A product whose A is in registers, and its epilogue."""

SHARED = Kernel(
    "shared",
    f"""
    {SET} {TILES} {ZEROS} {_PLACES}
    {_FILL}
    fence.proxy.async; bar.sync 0;
    wgmma.fence.sync.aligned;
    {WGMMA}                             //? B3
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    bar.sync 0;                         //- B3
    @%p4 st.shared.u32 [%r5], 1;        //! B3
    """,
    threads=256,
)
"""Two warpgroups multiply by one B; then one of them fills it again."""

LOOP = Kernel(
    "loop",
    f"""
    {SET} {TILES} {ZEROS} {_PLACES} mov.u32 %r6, 0;
    @%p3 st.shared.u32 [%r5], %r0;
    STEP:
    st.shared.u32 [%r3], %r6; st.shared.u32 [%r3+1024], %r6;   //! B4
    fence.proxy.async; bar.sync 0;
    @%p4 bra SECOND;
    wgmma.fence.sync.aligned;
    {WGMMA}                             //? B4
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    bra.uni NEXT;
    SECOND:
    wgmma.fence.sync.aligned;
    {WGMMA}                             //? B4
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    NEXT:
    bar.sync 0;                         //- B4
    add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 2;
    @%p5 bra STEP;
    """,
    threads=256,
)
"""All threads fill A, two warpgroups multiply by it, each in code of its own."""

SPARSE = Kernel(
    "sparse",
    f"""
    {SET} {TILES} {ZEROS} {_PLACES} mov.u32 %r6, 0x44444444; mov.u64 %rd5, {tile(8, 32, B)};
    st.shared.u32 [%r3], %r0; st.shared.u32 [%r3+512], %r0; st.shared.u32 [%r3+1024], %r0; st.shared.u32 [%r3+1536], %r0;   //? B6
    st.shared.u32 [%r3+3072], %r0;
    fence.proxy.async;                  //- B6
    bar.sync 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %rd3, %rd5, %r6, 0, 1, 1, 1, 0, 0;   //! B6
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    """,
    threads=128,
)
"""A sparse product of tiles that threads have stored."""


def wide_descriptor(stride: int, swizzle: str = "NONE") -> int:
    """That of B of `wide`: right with 256."""
    return tcsim.MatrixDescriptor(B, leading_byte_offset=128, stride_byte_offset=stride, swizzle=swizzle).encode()


def wide(wrong: str, named: str = "", against: str = "") -> str:
    """A product with N = 24, in which the stride between B's core matrices matters. The marks of a defect of B's descriptor; where it is named, and against what."""
    return f"""
    {SET} {ZEROS} {_PLACES} mov.u64 %rd3, {tile(64, 16, A)};
    mov.u64 %rd4, {wide_descriptor(256)};   {wrong}
    st.shared.u32 [%r3], %r0; st.shared.u32 [%r3+512], %r0; st.shared.u32 [%r3+1024], %r0; st.shared.u32 [%r3+1536], %r0;
    setp.lt.u32 %p5, %r0, 48; shr.u32 %r5, %r0, 1; and.b32 %r6, %r0, 1; mul.wide.u32 %rd5, %r0, 16; add.u64 %rd5, %rd5, %rd1;
    shr.u32 %r7, %r5, 3; shl.b32 %r7, %r7, 8; and.b32 %r8, %r5, 7; shl.b32 %r8, %r8, 4; add.u32 %r7, %r7, %r8; shl.b32 %r8, %r6, 7; add.u32 %r7, %r7, %r8; add.u32 %r7, %r7, 4096;
    @%p5 cp.async.cg.shared.global [%r7], [%rd5], 16;   {against}
    cp.async.wait_all;
    fence.proxy.async; bar.sync 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9, %f10, %f11, %f12}}, %rd3, %rd4, 0, 1, 1, 0, 0;   {named}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    """


WIDE = Kernel("wide", wide(f"//~ B34: mov.u64 %rd4, {wide_descriptor(128)};", "//! B34", "//? B34"), threads=128)
"""B is copied by cp.async, core matrix by core matrix."""
