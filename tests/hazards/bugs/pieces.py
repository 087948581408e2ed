"""What the kernels of bugs are made of: registers that all of them set, descriptors of tiles, loops that wait."""

from __future__ import annotations

import tcsim

SET = """ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target]; mov.u32 %r1, smem; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r1;
    setp.eq.u32 %p1, %r0, 0; and.b32 %r2, %r0, 31; setp.eq.u32 %p2, %r2, 0; add.u32 %r2, %r1, 8192;"""
"""%rd1, %rd2: source and target; %r1: the array; %r2: the mbarriers behind it; %r3: the word of a thread; %p1: thread 0; %p2: the first of a warp."""
OTHER = "xor.b32 %r4, %r0, 32; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r1;"
"""%r4: the word of a thread of the other warp."""
PEER = "mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1;"
"""%r5: the rank of the block in its cluster of two; %r6: that of the other one."""
TOGETHER = "barrier.cluster.arrive; barrier.cluster.wait;"


def tile(rows: int, columns: int, start: int, arch: str = "sm_90") -> int:
    """The descriptor of a tile of f16 without swizzle at a shared address."""
    return tcsim.MatrixDescriptor.for_tile(
        rows, columns, "f16", swizzle="NONE", start_address=start, arch=arch
    ).descriptor.encode()


A, B = 1024, 4096
"""Shared addresses of the tiles: the array begins at 1024."""
TILES = f"mov.u64 %rd3, {tile(64, 16, A)}; mov.u64 %rd4, {tile(8, 16, B)};"
"""%rd3, %rd4: A (64 x 16) at the array, and B (16 x 8) 3072 bytes behind."""
ZEROS = "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd3, %rd4, 1, 1, 1, 0, 0;"


def until(name: str, barrier: str, parity: str) -> str:
    """A loop, in one line, that waits for a phase of an mbarrier."""
    return f"{name}: mbarrier.try_wait.parity.shared::cta.b64 %p15, [{barrier}], {parity}; @!%p15 bra {name};"
