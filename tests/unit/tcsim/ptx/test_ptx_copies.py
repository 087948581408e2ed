"""Kernels of barriers and copies on the machine, under every schedule: what they leave in memory is what NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tests.support.ptx_copies import SCHEDULES, run, text, wait

SOURCE, TARGET, MAP = 0x10000, 0x80000, 0x40000
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def completed(found: Any) -> None:
    """The kernel ran to its end, and nothing was wrong."""
    assert found.completed, [hazard.as_dict() for hazard in found.hazards]
    assert [hazard.name for hazard in found.hazards if hazard.severity == "error"] == []


# --- a pipeline

PIPELINE = text(
    ".param .u64 source, .param .u64 target, .param .u32 tiles",
    f"""
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target]; ld.param.u32 %r1, [tiles];
    mov.u32 %r2, smem;                       // two stages of 512 bytes
    add.u32 %r3, %r2, 4096;                  // full barriers; 16 bytes further the empty ones
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra MADE;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    mbarrier.init.shared::cta.b64 [%r3+8], 1;
    mbarrier.init.shared::cta.b64 [%r3+16], 32;
    mbarrier.init.shared::cta.b64 [%r3+24], 32;
    fence.mbarrier_init.release.cluster;
    MADE:
    bar.sync 0;
    mov.u32 %r4, 0;                          // tile
    setp.ge.u32 %p2, %r0, 32;
    @%p2 bra CONSUMER;
    elect.sync %r5|%p3, 0xffffffff;
    @!%p3 bra DONE;
    PRODUCER:
    setp.ge.u32 %p4, %r4, %r1; @%p4 bra DONE;
    and.b32 %r6, %r4, 1; shr.u32 %r7, %r4, 1; and.b32 %r7, %r7, 1; xor.b32 %r7, %r7, 1;
    shl.b32 %r8, %r6, 3; add.u32 %r8, %r8, %r3;
    add.u32 %r9, %r8, 16;
    {wait("EMPTY", "%r9", "%r7")}
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 512;
    shl.b32 %r10, %r6, 9; add.u32 %r10, %r10, %r2;
    mul.wide.u32 %rd3, %r4, 512; add.u64 %rd3, %rd3, %rd1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd3], 512, [%r8];
    add.u32 %r4, %r4, 1;
    bra PRODUCER;
    CONSUMER:
    sub.u32 %r11, %r0, 32; mov.u32 %r12, 0;
    NEXT:
    setp.ge.u32 %p4, %r4, %r1; @%p4 bra WRITE;
    and.b32 %r6, %r4, 1; shr.u32 %r7, %r4, 1; and.b32 %r7, %r7, 1;
    shl.b32 %r8, %r6, 3; add.u32 %r8, %r8, %r3;
    {wait("FULL", "%r8", "%r7")}
    shl.b32 %r10, %r6, 9; add.u32 %r10, %r10, %r2;
    shl.b32 %r13, %r11, 4; add.u32 %r10, %r10, %r13;
    ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%r10];
    mul.lo.u32 %r12, %r12, 3;
    add.u32 %r12, %r12, %r14; xor.b32 %r12, %r12, %r15; add.u32 %r12, %r12, %r16; xor.b32 %r12, %r12, %r17;
    mbarrier.arrive.shared::cta.b64 _, [%r8+16];
    add.u32 %r4, %r4, 1;
    bra NEXT;
    WRITE:
    mul.wide.u32 %rd4, %r11, 4; add.u64 %rd4, %rd4, %rd2;
    st.global.u32 [%rd4], %r12;
    DONE:
    """,
)


@schedules
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_pipeline(schedule: str | int, tiles: int) -> None:
    """A warp fills two stages, another empties them: full and empty barriers, parities of many phases."""
    words = np.random.default_rng(tiles).integers(0, 1 << 32, (tiles, 32, 4), np.uint32)
    found, after = run(
        PIPELINE, {SOURCE: words, TARGET: np.zeros(32, np.uint32)}, (SOURCE, TARGET, tiles), schedule, 64
    )
    completed(found)
    want = np.zeros(32, np.uint32)
    for tile in words:
        want = (((want * np.uint32(3) + tile[:, 0]) ^ tile[:, 1]) + tile[:, 2]) ^ tile[:, 3]
    assert np.array_equal(after[TARGET].view(np.uint32), want)


# --- clusters

MULTICAST = text(
    ".param .align 64 .b8 map[128], .param .u64 target",
    f"""
    ld.param.u64 %rd2, [target];
    mov.u32 %r1, smem; add.u32 %r2, %r1, 8192; mov.u32 %r3, %cluster_ctarank;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
    shl.b32 %r4, %r3, 3; shl.b32 %r5, %r3, 10; add.u32 %r5, %r5, %r1; mov.u32 %r6, 0;
    mov.u16 %h1, 3;                          // each CTA loads one half of the tile for both
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
        [%r5], [%rd1, {{%r6, %r4}}], [%r2], %h1;
    {wait("FULL", "%r2", "0")}
    mul.wide.u32 %rd3, %r3, 2048; add.u64 %rd2, %rd2, %rd3;
    shl.b32 %r7, %r0, 6; add.u32 %r8, %r7, %r1; cvt.u64.u32 %rd4, %r7; add.u64 %rd2, %rd2, %rd4;
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r8];    st.global.v4.u32 [%rd2], {{%r10, %r11, %r12, %r13}};
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r8+16]; st.global.v4.u32 [%rd2+16], {{%r10, %r11, %r12, %r13}};
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r8+32]; st.global.v4.u32 [%rd2+32], {{%r10, %r11, %r12, %r13}};
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r8+48]; st.global.v4.u32 [%rd2+48], {{%r10, %r11, %r12, %r13}};
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    """,
)


def swizzled_128(rows: Any) -> Any:
    """Rows of 128 bytes as the 128-byte swizzle puts them: 16-byte chunk c of row r at place c ^ (r % 8)."""
    chunks = rows.reshape(len(rows), 8, 16)
    return np.stack([chunks[row, np.arange(8) ^ row % 8] for row in range(len(rows))]).reshape(len(rows), 128)


@schedules
def test_a_multicast_in_a_cluster(schedule: str | int) -> None:
    """Each of two CTAs loads half a tile into both; each barrier gets the bytes of both halves."""
    matrix = np.random.default_rng(3).integers(0, 256, (16, 128), np.uint8)
    tmap = tcsim.TensorMap("FLOAT16", (64, 16), (128,), (64, 8), swizzle="128B")
    memory = {SOURCE: matrix, TARGET: np.zeros(4096, np.uint8)}
    found, after = run(MULTICAST, memory, ((tmap, SOURCE), TARGET), schedule, 32, 2, 2)
    completed(found)
    assert np.array_equal(after[TARGET].reshape(2, 16, 128), np.stack([swizzled_128(matrix)] * 2))


REMOTE = text(
    ".param .u64 source, .param .u64 target",
    f"""
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target];
    mov.u32 %r1, smem; add.u32 %r2, %r1, 4096; mov.u32 %r3, %cluster_ctarank; xor.b32 %r4, %r3, 1;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    // own data, counters and a copy that is to come: 128 bytes, 128 bytes, 128 bytes, 256 bytes
    mul.wide.u32 %rd3, %r3, 128; add.u64 %rd3, %rd3, %rd1; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd3, %rd3, %rd4;
    ld.global.u32 %r5, [%rd3];
    shl.b32 %r6, %r0, 2; add.u32 %r6, %r6, %r1;
    st.shared.u32 [%r6], %r5; st.shared.u32 [%r6+128], 100;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
    fence.proxy.async.shared::cta;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mapa.shared::cluster.u32 %r7, %r1, %r4;  // the other CTA's window
    mapa.shared::cluster.u32 %r8, %r2, %r4;
    and.b32 %r9, %r0, 3; shl.b32 %r9, %r9, 2; add.u32 %r9, %r9, %r7;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r9+128], %r5, [%r8];
    shl.b32 %r10, %r0, 3; add.u32 %r10, %r10, %r7; add.u32 %r11, %r5, %r3;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r10+512], {{%r5, %r11}}, [%r8];
    add.u32 %r12, %r7, 256;
    @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r12], [%r1], 128, [%r8];
    {wait("FULL", "%r2", "0")}
    mul.wide.u32 %rd5, %r3, 768; add.u64 %rd5, %rd5, %rd2; add.u64 %rd5, %rd5, %rd4;
    ld.shared.u32 %r20, [%r6];     st.global.u32 [%rd5], %r20;
    ld.shared.u32 %r20, [%r6+128]; st.global.u32 [%rd5+128], %r20;
    ld.shared.u32 %r20, [%r6+256]; st.global.u32 [%rd5+256], %r20;
    ld.shared.u32 %r20, [%r6+512]; st.global.u32 [%rd5+512], %r20;
    ld.shared.u32 %r20, [%r6+640]; st.global.u32 [%rd5+640], %r20;
    getctarank.shared::cluster.u32 %r21, %r8;
    st.global.u32 [%rd5+384], %r21;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    """,
)


@schedules
def test_the_other_block_of_a_cluster(schedule: str | int) -> None:
    """red.async of 32 lanes to four counters, st.async of pairs, a bulk copy from one CTA's memory to the other's."""
    words = np.random.default_rng(4).integers(0, 1 << 32, (2, 32), np.uint32)
    memory = {SOURCE: words, TARGET: np.zeros((2, 192), np.uint32)}
    found, after = run(REMOTE, memory, (SOURCE, TARGET), schedule, 32, 2, 2)
    completed(found)
    out = after[TARGET].view(np.uint32).reshape(2, 6, 32)
    for rank in (0, 1):
        other = words[1 - rank]
        counters = np.full(32, 100, np.uint32)
        counters[:4] += other.reshape(8, 4).sum(0, dtype=np.uint32)
        pairs = np.stack([other, other + np.uint32(1 - rank)], -1).reshape(2, 32)
        want = [words[rank], counters, other, np.full(32, 1 - rank, np.uint32), *pairs]
        assert np.array_equal(out[rank], np.stack(want)), rank


# --- stores

STORES = text(
    ".param .align 64 .b8 map[128], .param .u64 target, .param .u64 sums",
    """
    ld.param.u64 %rd2, [target]; ld.param.u64 %rd3, [sums];
    mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
    mov.u32 %r1, smem; shl.b32 %r2, %r0, 4; add.u32 %r2, %r2, %r1;   // 16 bytes of each thread: 4 rows of 32 words
    mul.lo.u32 %r3, %r0, 4; add.u32 %r4, %r3, 1; add.u32 %r5, %r3, 2; add.u32 %r6, %r3, 3;
    st.shared.v4.u32 [%r2], {%r3, %r4, %r5, %r6};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra WAITED;
    mov.u32 %r10, 0; mov.u32 %r11, 2;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r10, %r11}], [%r1];
    cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3], [%r1], 512;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%rd3+512], [%r1], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    WAITED:
    bar.sync 0;
    st.shared.v4.u32 [%r2], {%r0, %r0, %r0, %r0};                    // the source may be used again
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p1 bra DONE;
    cp.async.bulk.wait_group 0;                                      // the sums go where the first copy wrote
    mov.u32 %r11, 4;
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd1, {%r10, %r11}], [%r1];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    DONE:
    """,
)


@schedules
def test_stores_and_reductions(schedule: str | int) -> None:
    """Tensor and bulk stores and reductions: what is read before wait_group.read is what lands, though shared memory has changed."""
    random = np.random.default_rng(5)
    matrix, flat = (random.integers(0, 1 << 32, shape, np.uint32) for shape in ((7, 36), 64))
    sums = random.integers(0, 1 << 32, 192, np.uint32)
    tmap = tcsim.TensorMap("UINT32", (30, 7), (144,), (32, 4), swizzle="NONE")
    found, after = run(STORES, {SOURCE: matrix, TARGET: flat, MAP: sums}, ((tmap, SOURCE), TARGET, MAP), schedule, 32)
    completed(found)
    first, second = np.arange(128, dtype=np.uint32), np.repeat(np.arange(32, dtype=np.uint32), 4)
    want = matrix.copy()
    want[2:6, :32] = first.reshape(4, 32)  # rows end at a multiple of 16 bytes: 30 words are 32
    want[4:7, :32] += second.reshape(4, 32)[:3]
    assert np.array_equal(after[SOURCE].view(np.uint32).reshape(7, 36), want)
    assert np.array_equal(after[TARGET].view(np.uint32), first[:64])
    highest = np.maximum(sums[128:].view(np.int32), first[:64].view(np.int32)).view(np.uint32)
    assert np.array_equal(after[MAP].view(np.uint32), np.concatenate([sums[:128] + first, highest]))


# --- maps

REPLACED = text(
    ".param .u64 made, .param .u64 tensor, .param .u64 target, .param .u32 rows",
    f"""
    ld.param.u64 %rd1, [made]; ld.param.u64 %rd2, [tensor]; ld.param.u64 %rd3, [target]; ld.param.u32 %r1, [rows];
    mov.u32 %r2, smem; add.u32 %r3, %r2, 2048; add.u32 %r4, %r2, 1024;   // box, barrier, map
    shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r4;
    st.shared.u32 [%r5], 0;
    setp.ne.u32 %p1, %r0, 0;
    bar.warp.sync 0xffffffff;
    @%p1 bra MADE;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4], %rd2;
    tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r4], 1;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r4], 0, 32;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r4], 1, 4;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4], 0, 40;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4], 1, %r1;
    mov.u64 %rd5, 80;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r4], 0, %rd5;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r4], 0, 1;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r4], 1, 1;
    tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r4], 6;
    tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r4], 0;
    tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r4], 0;
    tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r4], 1;
    MADE:
    bar.warp.sync 0xffffffff;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r4], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    @%p1 bra ISSUED;
    mov.u32 %r6, 16; mov.u32 %r7, 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r6, %r7}}], [%r3];
    ISSUED:
    bar.warp.sync 0xffffffff;
    {wait("FULL", "%r3", "0")}
    shl.b32 %r8, %r0, 3; cvt.u64.u32 %rd6, %r8; add.u64 %rd6, %rd6, %rd3; add.u32 %r8, %r8, %r2;
    ld.shared.v2.u32 {{%r9, %r10}}, [%r8]; st.global.v2.u32 [%rd6], {{%r9, %r10}};
    // the map in global memory again, changed there, released and acquired
    @%p1 tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, 2;
    setp.eq.u32 %p2, %r0, 0;
    bar.warp.sync 0xffffffff;
    @%p2 tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, 2;
    @%p2 fence.proxy.tensormap::generic.release.gpu;
    @%p2 fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256;
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r6, %r7}}], [%r3];
    {wait("AGAIN", "%r3", "1")}
    ld.shared.v2.u32 {{%r9, %r10}}, [%r8]; st.global.v2.u32 [%rd6+256], {{%r9, %r10}};
    """,
)


@schedules
def test_a_map_that_the_kernel_makes(schedule: str | int) -> None:
    """tensormap.replace of every field on zeros, the copy to global memory, loads, a change in place; NaN beyond the edges."""
    matrix = np.random.default_rng(6).integers(0, 1 << 16, (5, 40), np.uint16)
    memory = {SOURCE: matrix, TARGET: np.zeros(256, np.uint16), MAP: np.full(128, 0xAA, np.uint8)}
    found, after = run(REPLACED, memory, (MAP, SOURCE, TARGET, 5), schedule)
    completed(found)
    for place, rows in ((0, 5), (1, 2)):
        want = np.full((4, 32), 0x7FF7, np.uint16)
        want[: rows - 1, :24] = matrix[1 : min(rows, 5), 16:]
        assert np.array_equal(after[TARGET].view(np.uint16).reshape(2, 4, 32)[place], want), rows
    assert tcsim.TensorMap.decode(after[MAP], strict=False).global_dim == (40, 2)


COLUMN = text(
    ".param .align 64 .b8 map[128], .param .u64 target",
    f"""
    ld.param.u64 %rd2, [target]; mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
    mov.u32 %r1, smem; add.u32 %r2, %r1, 2048; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
    bar.sync 0;
    mov.u32 %r3, 0; mov.u32 %r4, -1; mov.u32 %r5, 0; mov.u16 %h1, 1; mov.u16 %h2, 2;
    @%p1 cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes
        [%r1], [%rd1, {{%r3, %r4, %r4, %r5}}], [%r2], {{%h1, %h2}};
    {wait("FULL", "%r2", "0")}
    shl.b32 %r8, %r0, 4; cvt.u64.u32 %rd6, %r8; add.u64 %rd6, %rd6, %rd2; add.u32 %r8, %r8, %r1;
    ld.shared.v4.u32 {{%r9, %r10, %r11, %r12}}, [%r8]; st.global.v4.u32 [%rd6], {{%r9, %r10, %r11, %r12}};
    """,
)


@schedules
def test_an_im2col_load(schedule: str | int) -> None:
    """A column of 32 pixels of 16 bytes, of a 3 x 3 filter's tap (1, 2) over two images with a border."""
    images = np.random.default_rng(8).integers(1, 256, (2, 5, 6, 16), np.uint8)  # N, H, W, C
    tmap = tcsim.TensorMap.im2col("UINT8", (16, 6, 5, 2), (16, 96, 480), (-1, -1), (-1, -1), 16, 32, swizzle="NONE")
    found, after = run(COLUMN, {SOURCE: images, TARGET: np.zeros(512, np.uint8)}, ((tmap, SOURCE), TARGET), schedule)
    completed(found)
    padded = np.zeros((2, 7, 8, 16), np.uint8)
    padded[:, 1:6, 1:7] = images
    walk = [(n, h, w) for n in range(2) for h in range(5) for w in range(6)][:32]  # outputs: corners leave 6 x 5 places
    want = np.stack([padded[n, h + 2, w + 1] for n, h, w in walk])
    assert np.array_equal(after[TARGET].reshape(32, 16), want)


ROWS = text(
    ".param .align 64 .b8 map[128], .param .align 64 .b8 to[128], .param .u64 target",
    f"""
    ld.param.u64 %rd2, [target]; mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; mov.b64 %rd3, to; cvta.param.u64 %rd3, %rd3;
    mov.u32 %r1, smem; add.u32 %r2, %r1, 2048; setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
    bar.sync 0;
    mov.u32 %r3, 16; mov.u32 %r4, 6; mov.u32 %r5, 0; mov.u32 %r6, 9; mov.u32 %r7, 3;
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
        [%r1], [%rd1, {{%r3, %r4, %r5, %r6, %r7}}], [%r2];
    {wait("FULL", "%r2", "0")}
    @!%p1 bra DONE;
    mov.u32 %r8, 0; mov.u32 %r9, 1;
    cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd3, {{%r8, %r7, %r9, %r6, %r8}}], [%r1];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    DONE:
    """,
    target="sm_100a",
)


@schedules
def test_gathered_and_scattered_rows(schedule: str | int) -> None:
    """Four rows of one tensor, one of them beyond it, to four rows of another, one of them beyond it."""
    matrix = np.random.default_rng(9).integers(1, 256, (8, 96), np.uint8)
    source = tcsim.TensorMap("UINT8", (96, 8), (96,), (64, 1), swizzle="NONE")
    target = tcsim.TensorMap("UINT8", (64, 4), (64,), (64, 1), swizzle="NONE")
    memory = {SOURCE: matrix, TARGET: np.full((4, 64), 7, np.uint8)}
    found, after = run(ROWS, memory, ((source, SOURCE), (target, TARGET), TARGET), schedule)
    completed(found)
    gathered = np.stack([matrix[6, 16:80], matrix[0, 16:80], np.zeros(64, np.uint8), matrix[3, 16:80]])
    want = np.full((4, 64), 7, np.uint8)
    want[3], want[1], want[0] = gathered[0], gathered[1], gathered[3]
    assert np.array_equal(after[TARGET].reshape(4, 64), want)
