"""What is wrong with one block of many is found where blocks run as one batch too, and with no other: as if each ran alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import tcsim
from tcsim.model.effects import Access, GroupOp, Outcome, Resource, Signal
from tcsim.ptx import Limits, Memory, Run, parse
from tcsim.ptx.check.digest import Digest, code_of
from tcsim.ptx.check.traces import Traces
from tcsim.ptx.launch.grid import Grid
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.events import EVENTS, Events
from tcsim.ptx.machine.faults import Unbatchable
from tcsim.ptx.machine.flights import Tracker
from tests.hazards import (
    kernels,
    kernels_global,
    kernels_lanes,
    kernels_mbarriers,
    kernels_tensor,
    kernels_tiles,
    kernels_work,
)
from tests.hazards.bugs.table import BUGS
from tests.hazards.kernels import SOURCE, Kernel

CLUSTERS, ROOM = 11, 4096
"""Of each launch, and the bytes that each has in both arrays."""
WHICH = {
    "one": "setp.eq.u32 %only, %which0, 7;",
    "the first": "setp.eq.u32 %only, %which0, 0;",
    "all but one": "setp.ne.u32 %only, %which0, 3;",
    "some": "and.b32 %which1, %which0, 3; setp.eq.u32 %only, %which1, 2;",
}
"""The clusters that a mistake is in."""
CONTENT = np.tile(np.arange(ROOM // 4, dtype=np.uint32), CLUSTERS)
WATCHED: list[Sequence[tuple[int, int, int]]] = []
"""The clusters that were watched in place of others."""


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Grid._watched
    WATCHED.clear()

    def noted(grid: Grid, indices: Sequence[tuple[int, int, int]]) -> Any:
        WATCHED.append(indices)
        return watched(grid, indices)

    monkeypatch.setattr(Grid, "_watched", noted)


def told(module: Any, size: int, schedule: str, kernel: Kernel, content: Any = CONTENT) -> tuple[Run, dict[str, Any]]:
    """A launch, and all that it tells."""
    memory = Memory()
    pointers = [memory.allocate(content.view(np.uint8).copy()) for _ in range(2)]
    assert pointers[0] == SOURCE
    run = module.kernel().launch(
        memory, pointers, grid=(CLUSTERS * kernel.blocks, 1, 1), block=(kernel.threads, 1, 1), cluster=(kernel.blocks, 1, 1),
        schedule=schedule, check=True, limits=Limits(batch=size),
    )  # fmt: skip
    bytes_ = [memory.read(own, CLUSTERS * ROOM).tobytes() for own in pointers]
    return run, {"bytes": bytes_, "instructions": run.instructions, "inexact": run.inexact, "hazards": run.hazards}


def compare(
    kernel: Kernel,
    source: str,
    schedules: Sequence[str] = ("late", "early"),
    content: Any = CONTENT,
    alone: bool = False,
) -> Run:
    """A launch in batches, which tells what it tells block by block; alone: one of which no batch counts."""
    module = parse(source)
    for schedule in schedules:
        _, expected = told(module, 1, schedule, kernel, content)
        WATCHED.clear()
        run, found = told(module, 64, schedule, kernel, content)
        assert found == expected, [str(own) for own in (*expected["hazards"], *found["hazards"])]
        assert alone or (run.batch > 1 and len(WATCHED) < CLUSTERS)
        assert run.batch == 1 or not alone
    return run


# --- mistakes that are planted


def blended(right: str, wrong: str, which: str) -> str:
    """A kernel that is wrong in some clusters, each of which has its own part of the arrays."""
    before, after, found = right.splitlines(), wrong.splitlines(), list[str]()
    for place, (tag, i, j, k, last) in enumerate(SequenceMatcher(None, before, after, autojunk=False).get_opcodes()):
        if tag == "equal":
            found += before[i:j]
            continue
        found += [f"@%only bra WRONG{place};", *before[i:j], f"bra NEXT{place};"]
        found += [f"WRONG{place}:", *after[k:last], f"NEXT{place}:"]
    body = "\n".join(found)
    begin = body.index("\n", body.index("smem["))
    head = f".reg .pred %only; .reg .b32 %which<2>; .reg .b64 %apart; mov.u32 %which0, %clusterid.x; mul.wide.u32 %apart, %which0, {ROOM}; {which}"
    body = f"{body[:begin]}\n{head}{body[begin:]}"
    return re.sub(r"(ld\.param\.u64 (%rd\d+), \[(?:source|target)\];)", r"\1 add.s64 \2, \2, %apart;", body)


KERNELS = (
    *kernels.KERNELS,
    *kernels_lanes.KERNELS,
    *kernels_mbarriers.KERNELS,
    *kernels_tensor.KERNELS,
    *kernels_global.KERNELS,
    *kernels_tiles.KERNELS,
    *kernels_work.KERNELS,
)
PLANTED = [(own, defect) for own in KERNELS if own not in kernels_work.KERNELS for defect in own.defects]
PLANTED = [*PLANTED, *((bug.kernel, bug.mark) for bug in BUGS)][::4]
PLANTED += [(own, defect) for own in kernels_work.KERNELS for defect in own.defects[::2]]
ALONE = frozenset((
    "adding-ASYNC_DST_WRITTEN", "columns-TMEM_DEADLOCK", "peer-SMEM_REMOTE_FORM", "roles-BARRIER_PHASE_ALIAS", "places-TMA_MISALIGNED.2", "store-B12",
    *(f"in_place-{defect}" for defect in kernels_work.IN_PLACE.defects),
))  # fmt: skip
"""Mistakes of which no batch counts: a deadlock or a fault, atomics whose order may show, blocks that depend on each other."""
AGAIN = ("B25",)
"""Whose mistake is in lines with a label."""
SHARE = [
    (kernel, defect, tuple(WHICH)[place % len(WHICH)])
    for place, (kernel, defect) in enumerate(PLANTED)
    if not kernel.before and defect not in AGAIN
]


@pytest.mark.parametrize(
    ("kernel", "defect", "which"), SHARE, ids=[f"{own.name}-{defect}-{which}" for own, defect, which in SHARE]
)
def test_a_mistake_of_some_clusters(kernel: Kernel, defect: str, which: str) -> None:
    source = blended(kernel.source, kernel.without(defect), WHICH[which])
    run = compare(kernel, source, (("late", "early")[len(defect) % 2],), alone=f"{kernel.name}-{defect}" in ALONE)
    assert run.hazards


@pytest.mark.parametrize("kernel", [own for own in KERNELS if not own.before], ids=lambda own: own.name)
def test_clusters_that_do_the_same(kernel: Kernel) -> None:
    """One of them is watched, or none."""
    run, found = told(parse(blended(kernel.source, kernel.source, WHICH["one"])), 64, "late", kernel)
    assert (
        not found["hazards"]
        and len(WATCHED) <= 1
        and (run.batch > 1 or run.alone in ("blocks cancel others", "atomics whose order may show"))
    )


# --- what one block does otherwise

HEAD = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 target)
{
    .reg .pred %p<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<80>; .shared .align 1024 .b8 smem[16384];
    ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [target]; mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r30, %ctaid.x; mov.u32 %r31, %cluster_ctarank;
    mov.u32 %r32, %clusterid.x; mul.wide.u32 %rd3, %r32, 4096; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3; setp.eq.u32 %p9, %r32, 7;
    setp.eq.u32 %p1, %r0, 0; mad.lo.u32 %r3, %r0, 4, %r1; xor.b32 %r4, %r3, 128;
"""
"""%r0: the thread; %r1: shared memory; %r3: the thread's word, %r4: that of a thread of the other warp; %rd1, %rd2: what the cluster has; %p9: it is the one."""
MADE = "@%p1 mbarrier.init.shared::cta.b64 [%r1], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;"
WAITED = "L: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1], 0; @!%p5 bra L;"
LOADED = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+1024],"
SPUN = "mov.u32 %r6, 0; NAME: add.u32 %r6, %r6, 1; setp.lt.u32 %p6, %r6, 100; @%p6 bra NAME;"
PIECE = "shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r1; mul.wide.u32 %rd5, %r0, 16; add.s64 %rd5, %rd5, %rd1;"
GENERIC = "mov.u64 %rd5, smem; cvta.shared.u64 %rd5, %rd5; mul.wide.u32 %rd6, %r0, 4; add.s64 %rd5, %rd5, %rd6; add.s64 %rd7, %rd2, %rd6;"
CASES: dict[str, tuple[str, int]] = {
    "which block touches global memory, where nothing else is noted": (f"bar.sync 0; {SPUN.replace('NAME', 'A')} setp.eq.u32 %p2, %r31, 0; @%p9 setp.eq.u32 %p2, %r31, 1; @%p2 ld.global.u32 %r5, [%rd1]; {SPUN.replace('NAME', 'B')} setp.eq.u32 %p2, %r31, 0; @%p2 bra F;\n bar.sync 0; bra E;\n F: bar.sync 0;\n E: barrier.cluster.arrive; barrier.cluster.wait;", 2),
    "what the block itself changes behind it": ("ld.global.u32 %r5, [%rd2+64]; bar.sync 0; st.global.u32 [%rd2+64], 7; setp.ne.u32 %p3, %r5, 7; @%p3 bra F; st.shared.u32 [%r3], %r0; ld.shared.u32 %r6, [%r4]; F:", 1),
    "a membar of nobody": ("st.shared.u32 [%r3], %r0; bar.sync 0; @%p9 membar.cta; bar.sync 0;", 1),
    "an arrival of nobody": ("st.shared.u32 [%r3], %r0; @%p9 barrier.cluster.arrive; bar.sync 0;", 1),
    "a tensor map that lies wrong": ("mov.u64 %rd5, %rd1; @%p9 add.s64 %rd5, %rd1, 32; @%p1 prefetch.tensormap [%rd5];", 1),
    "tensor maps that lie wrong": ("and.b32 %r5, %r30, 3; mul.wide.u32 %rd5, %r5, 16; add.s64 %rd5, %rd1, %rd5; @%p1 prefetch.tensormap [%rd5];", 1),
    "a store where a copy reads": (f"{MADE} mov.u64 %rd5, %rd2; @!%p9 add.s64 %rd5, %rd2, 512; @%p1 st.global.u32 [%rd5], %r0; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16; @%p1 {LOADED} [%rd2], 16, [%r1]; {WAITED}", 1),
    "alignment in global memory": (f"{MADE} and.b32 %r5, %r30, 3; cvt.u64.u32 %rd5, %r5; add.s64 %rd5, %rd5, %rd2; @%p1 st.global.u8 [%rd5+14], %r0; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16; @%p1 {LOADED} [%rd2+16], 16, [%r1]; {WAITED}", 1),
    "a store where another copy stores": ("st.shared.u32 [%r3], %r0; fence.proxy.async; bar.sync 0; mov.u64 %rd5, %rd2; @!%p9 add.s64 %rd5, %rd2, 256; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r1], 256; @%p1 cp.async.bulk.commit_group; @%p1 ld.global.u32 %r6, [%rd2]; @%p1 cp.async.bulk.wait_group 0;", 1),
    "generic addresses": (f"{GENERIC} @!%p9 mov.u64 %rd5, %rd7; st.u32 [%rd5], %r0; bar.sync 0; @%p9 ld.shared.u32 %r5, [%r4]; @%p9 st.u32 [%rd5], %r0;", 1),
    "generic addresses of lanes": (f"{GENERIC} and.b32 %r5, %r0, 1; shr.u32 %r6, %r30, 2; and.b32 %r6, %r6, 1; setp.eq.u32 %p4, %r5, %r6; @%p4 mov.u64 %rd5, %rd7; st.u32 [%rd5], %r0; @!%p4 ld.shared.u32 %r5, [%r4];", 1),
    "a count of a barrier": ("mov.u32 %r5, 64; @%p9 mov.u32 %r5, 32; st.shared.u32 [%r3], %r0; bar.sync 1, %r5; ld.shared.u32 %r6, [%r4];", 1),
    "a number of a barrier": ("mov.u32 %r5, 1; setp.ge.u32 %p3, %r0, 32; and.pred %p9, %p9, %p3; @%p9 mov.u32 %r5, 2; st.shared.u32 [%r3], %r0; bar.sync %r5, 32; ld.shared.u32 %r6, [%r4];", 1),
    "a member mask": ("mov.u32 %r5, -1; @%p9 mov.u32 %r5, 0xffff; and.b32 %r6, %r0, 16; setp.ne.u32 %p4, %r6, 0; and.pred %p4, %p4, %p9; @%p4 mov.u32 %r5, 0xffff0000; st.shared.u32 [%r3], %r0; bar.warp.sync %r5; xor.b32 %r7, %r3, 64; ld.shared.u32 %r6, [%r7];", 1),
    "the source size of copies": (f"mov.u32 %r5, 16; @%p9 mov.u32 %r5, 0; {PIECE} cp.async.cg.shared.global [%r7], [%rd5], 16, %r5; cp.async.commit_group; @!%p9 cp.async.wait_group 0; ld.shared.u32 %r6, [%r7];", 1),
    "the number of groups": (f"mov.u32 %r5, 2; @%p9 mov.u32 %r5, 3; {PIECE} mov.u32 %r6, 0; cp.async.cg.shared.global [%r7], [%rd5], 16; G: cp.async.commit_group; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, %r5; @%p3 bra G; cp.async.wait_group 2; ld.shared.u32 %r6, [%r7];", 1),
    "the thread that waits": ("st.shared.u32 [%r3], %r0; fence.proxy.async; bar.sync 0; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 256; @%p1 cp.async.bulk.commit_group; setp.eq.u32 %p4, %r0, 0; @%p9 setp.eq.u32 %p4, %r0, 1; @%p4 cp.async.bulk.wait_group.read 0; bar.sync 0; st.shared.u32 [%r3], 1;", 1),
    "the size of a copy": ("st.shared.u32 [%r3], %r0; fence.proxy.async; bar.sync 0; mov.u32 %r5, 256; @%p9 mov.u32 %r5, 272; @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], %r5; @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;", 1),
    "bytes that are expected": (f"{MADE} mov.u32 %r5, 32; @%p9 mov.u32 %r5, 16; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r5; @%p1 {LOADED} [%rd1], 16, [%r1]; @%p1 {LOADED.replace('1024', '2048')} [%rd1], 16, [%r1]; {WAITED} ld.shared.u32 %r6, [%r1+2048];", 1),
    "a parity": (f"{MADE} mov.u32 %r5, 0; @%p9 mov.u32 %r5, 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16; @%p1 {LOADED} [%rd1], 16, [%r1]; {WAITED.replace(', 0;', ', %r5;')} ld.shared.u32 %r6, [%r1+1024];", 1),
    "the count of an mbarrier": ("mov.u32 %r5, 1; @%p9 mov.u32 %r5, 2; @%p1 mbarrier.init.shared::cta.b64 [%r1], %r5; bar.sync 0; @%p1 st.shared.u32 [%r1+64], 1; @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1]; setp.ge.u32 %p4, %r0, 32; @%p4 mbarrier.test_wait.parity.shared::cta.b64 %p5, [%r1], 0; @%p4 ld.shared.u32 %r6, [%r1+64];", 1),
    "the order of two": ("@%p9 bra A; st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r5, [%r4]; bra E; A: st.shared.u32 [%r3], %r0; ld.shared.u32 %r5, [%r4]; bar.sync 0; E:", 1),
    "an address": ("mov.u32 %r5, %r3; @%p9 add.u32 %r5, %r5, 128; st.shared.u32 [%r3], %r0; ld.shared.u32 %r6, [%r5];", 1),
    "a flag in global memory": ("setp.eq.u32 %p3, %r0, 32; mov.u64 %rd5, %rd2; add.s64 %rd6, %rd2, 16; @%p9 mov.u64 %rd5, %rd6; @%p9 mov.u64 %rd6, %rd2; @%p1 st.shared.u32 [%r1], 1; @%p1 st.release.cta.global.u32 [%rd5], -1; @%p1 st.relaxed.cta.global.u32 [%rd6], -1; @!%p3 bra E; P: ld.acquire.cta.global.u32 %r5, [%rd2]; setp.ne.s32 %p4, %r5, -1; @%p4 bra P; ld.shared.u32 %r6, [%r1]; E:", 1),
    "a byte of a word": ("st.shared.u8 [%r3], %r0; mov.u32 %r5, %r3; @%p9 add.u32 %r5, %r5, 1; ld.shared.u8 %r6, [%r5];", 1),
    "rows of a matrix": ("shl.b32 %r7, %r0, 4; add.u32 %r7, %r7, %r1; st.shared.v4.u32 [%r7], {%r0,%r0,%r0,%r0}; bar.warp.sync -1; @%p9 xor.b32 %r7, %r7, 512; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5,%r6,%r8,%r9}, [%r7];", 1),
    "a lane": ("@%p9 setp.eq.u32 %p1, %r0, 9; @%p1 st.shared.u32 [%r1], 1; bar.warp.sync -1; setp.eq.u32 %p4, %r0, 0; @%p4 st.shared.u32 [%r1], 2; @%p1 st.shared.u32 [%r1], 2;", 1),
    "a block that is reached": ("xor.b32 %r5, %r31, 1; @!%p9 mov.u32 %r5, %r31; mapa.shared::cluster.u32 %r6, %r3, %r5; st.shared::cluster.u32 [%r6], %r0; barrier.cluster.arrive; barrier.cluster.wait;", 2),
    "a block that has ended": ("setp.eq.u32 %p3, %r31, 0; and.pred %p4, %p3, %p9; barrier.cluster.arrive; barrier.cluster.wait; @%p4 exit; xor.b32 %r5, %r31, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; @!%p9 mov.u32 %r6, %r3; st.shared::cluster.u32 [%r6], %r0;", 2),
}  # fmt: skip
"""By what one cluster does otherwise: the kernel behind `HEAD`, and the blocks of a cluster."""
ONE = Kernel("one", "")


@pytest.mark.parametrize("name", CASES)
def test_one_cluster_does_otherwise(name: str) -> None:
    body, blocks = CASES[name]
    schedules = ("late", "early") if "copy" in name or "cop" in name else ("late",)
    run = compare(replace(ONE, blocks=blocks), f"{HEAD}{body}\n    ret;\n}}\n", schedules)
    assert run.completed or not name.endswith("of nobody")


# --- what products read


@pytest.mark.parametrize(("one", "others"), [("32B", "NONE"), ("NONE", "32B")])
def test_the_swizzle_of_a_map(one: str, others: str) -> None:
    """Both maps read the same bytes, and write the same: what goes where is different, and a product reads some of it."""
    content = CONTENT.copy()
    for cluster in range(CLUSTERS):
        made = tcsim.TensorMap("FLOAT16", (16, 64), (32,), (16, 64), swizzle=cast(Any, one if cluster == 7 else others))
        place = SOURCE + ROOM * cluster + 2048
        content[cluster * ROOM // 4 : cluster * ROOM // 4 + 32] = np.frombuffer(made.encode(place), np.uint32)
    tile = tcsim.MatrixDescriptor(2048, leading_byte_offset=16, stride_byte_offset=256, swizzle="NONE").encode()
    sums = ",".join(f"%f{place}" for place in range(32))
    source = f"""{HEAD} {MADE} add.u32 %r2, %r1, 1024; mov.u32 %r5, 0; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 2048;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {{%r5, %r5}}], [%r1]; {WAITED} mov.u64 %rd10, {tile};
    wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{{sums}}}, %rd10, %rd10, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ret;
}}
"""
    run = compare(replace(ONE, threads=128), source, content=content)
    assert "DESC_SWIZZLE_MODE" in {own.name for own in run.hazards}


EDGES = {
    "nothing": ("", "", "", ""),
    "it stores where its box reads": ("@%p1 st.global.u16 [%rd1-20474], %r6;", "", "", ""),
    "it stores where no box reads": ("@%p1 st.global.u16 [%rd1+6], %r6;", "", "", ""),
    "a thread reads before the copy is there": (
        "",
        "setp.eq.u32 %p2, %r0, 70; @%p2 ld.shared.u32 %r6, [%r2+64];",
        "",
        "",
    ),
    "a thread reads a sum in flight": ("", "", "setp.eq.u32 %p2, %r0, 70; @%p2 mov.b32 %r6, %f3;", ""),
    "it waits for another phase": ("mov.u32 %r5, 1;", "", "", ""),
    "its box is elsewhere in shared memory": ("add.u32 %r2, %r2, 256;", "", "", ""),
    "a thread changes a sum, and no fence comes": ("", "", "", "setp.eq.u32 %p2, %r0, 70; @%p2 mov.b32 %f3, %r6;"),
}
"""What the cluster at the edge of a tensor does otherwise: before its copy, behind it, while it multiplies for the last time, and before."""


@pytest.mark.parametrize(
    ("edge", "swizzle"), [*((own, "NONE") for own in EDGES), ("nothing", "32B")]
)  # which the descriptor has not
def test_boxes_at_the_edge_of_a_tensor(edge: str, swizzle: str) -> None:
    """Of clusters with the same boxes one is watched, which is shown most: but where one does otherwise, or there is something wrong with it."""
    before, behind, flying, between = (f"@!%p9 bra B{place}; {own} B{place}:" for place, own in enumerate(EDGES[edge]))
    rows, content = 64 * CLUSTERS - 24, CONTENT.copy()
    made = tcsim.TensorMap("FLOAT16", (16, rows), (32,), (16, 64), swizzle=cast(Any, swizzle))
    content[-32:] = np.frombuffer(made.encode(SOURCE), np.uint32)
    tile = tcsim.MatrixDescriptor(2048, leading_byte_offset=16, stride_byte_offset=256, swizzle="NONE").encode()
    product = """wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd10, %rd10, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; FLYING wgmma.wait_group.sync.aligned 0;"""
    source = f"""{HEAD} {MADE} setp.eq.u32 %p9, %r32, {CLUSTERS - 1}; add.u32 %r2, %r1, 1024; mov.u32 %r5, 0; mul.lo.u32 %r7, %r32, 64; ld.param.u64 %rd20, [target]; add.s64 %rd20, %rd20, {ROOM * CLUSTERS - 128}; mov.u64 %rd10, {tile};
    {before} @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 2048;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd20, {{%r8, %r7}}], [%r1]; {behind}
    L: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1], %r5; @!%p5 bra L; {product.replace("FLYING", "")} {between}
    {product.replace("wgmma.fence.sync.aligned;", "").replace("FLYING wgmma.wait_group.sync.aligned 0;", flying)} ret;
}}
"""
    early = "sum" in edge  # late, a sum that is read lands then, which tells too
    run = compare(replace(ONE, threads=128), source, ("early" if early else "late",), content)
    layout = {own.name for own in run.hazards if own.name.startswith("DESC")}
    right = edge in ("nothing", "it stores where no box reads")
    assert edge != "nothing" or len(WATCHED) == (1 if swizzle == "NONE" else 2)
    assert bool(run.hazards) == (not right or swizzle != "NONE") and bool(layout) == (swizzle != "NONE")


@pytest.mark.parametrize("defect", kernels_tiles.TILES.defects)
@pytest.mark.parametrize("which", ["one", "all but one"])
def test_where_copies_for_a_product_come_from(defect: str, which: str) -> None:
    """cp.async of pieces of a tile, from one place in some blocks: only of the others is known what is wrong."""
    kernel = kernels_tiles.TILES
    source = blended(kernel.without(defect), kernel.without(defect), WHICH[which])
    said = "add.u64 %rd5, %rd5, %rd1;"
    assert said in source
    compare(kernel, source.replace(said, f"{said} @%only mov.b64 %rd5, %rd1;"), ("late",))


@pytest.mark.parametrize("defect", ["DESC_LBO_SBO", None])
def test_copies_of_no_bytes_from_behind_all_arrays(defect: str | None) -> None:
    """As loops make that fetch ahead: the address of a copy with a source size of 0 means nothing."""
    kernel = kernels_tiles.TILES
    source = blended(kernel.source, kernel.source if defect is None else kernel.without(defect), WHICH["one"])
    copy = "@%p5 cp.async.cg.shared.global [%r7], "
    nothing = f"add.u64 %rd11, %rd5, 0x1000000; {copy}[%rd11], 16, 0; cp.async.wait_all;"
    assert copy in source
    run = compare(kernel, source.replace(copy, f"{nothing} {copy}"), ("late",))
    assert bool(run.hazards) == (defect is not None)


@pytest.mark.parametrize("clusters", [7, 8])
def test_few_blocks_are_not_compared(clusters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the proof fails: each is watched by itself, which takes less than a batch and most of them beside it."""
    monkeypatch.setattr(f"{__name__}.CLUSTERS", clusters)
    kernel = kernels_tiles.TILES
    run = compare(
        kernel, blended(kernel.source, kernel.without("DESC_LBO_SBO"), WHICH["one"]), ("late",), alone=clusters < 8
    )
    assert run.alone == ("too few blocks to be compared by the check" if clusters < 8 else "")


# --- the digest


def test_each_thread_has_a_digest_of_its_own() -> None:
    """Of masks with one thread each, none is like another."""
    threads = 1024
    block = cast(Any, SimpleNamespace(program=SimpleNamespace(opcodes=()), threads=SimpleNamespace(width=threads)))
    masks = np.eye(threads, dtype=bool)
    digest = Digest(cast(Any, SimpleNamespace(blocks=[block], phase=np.zeros(threads))))
    digest.mask(code_of("mask"), block, masks.reshape(-1))
    assert len(set(digest.sums.tolist())) == threads


def heard(monkeypatch: pytest.MonkeyPatch) -> tuple[Batch, dict[str, set[str]]]:
    """A batch of blocks that is about to run; and the events that those who watch hear of, by their names."""
    found, names = list[Batch](), dict[str, set[str]]()
    subscribe = Events.subscribe

    def noted(events: Events, observer: Any) -> None:
        before = {name: len(vars(events)[name]) for name in EVENTS}
        subscribe(events, observer)
        names[type(observer).__name__] = {name for name in EVENTS if len(vars(events)[name]) > before[name]}

    def kept(batch: Batch, spend: Any) -> None:
        found.append(batch)
        raise Unbatchable("a test")

    monkeypatch.setattr(Events, "subscribe", noted)
    monkeypatch.setattr(Batch, "run", kept)
    told(parse(f"{HEAD} ret;\n}}\n"), 64, "late", ONE)
    return found[0], names


def test_each_event_changes_the_digest_of_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of everything that the check hears of, with anything that is different another number."""
    batch, names = heard(monkeypatch)
    (block,), width = batch.blocks, batch.blocks[0].threads.width
    block.barriers.counts[1] = np.zeros(len(batch.phase), np.int64)
    mask = np.arange(block.threads.count) // width == 1
    fewer, threads = mask & (np.arange(block.threads.count) % width > 0), np.flatnonzero(mask)
    fiber, two = np.full(len(mask), 3), frozenset({1, 2})
    at = Access("shared", np.array([64]), 8)
    signals = [Signal(cast(Any, kind), at, np.array([1])) for kind in ("arrive", "expect_tx")]
    flights = [SimpleNamespace(bound=bound, block=block, threads=threads, groups=threads * 0) for bound in (1, 2)]
    trackers = [Tracker((own,), block, threads, left) for own, left in zip(signals, (1, 2), strict=True)]
    resources = [Resource("tmem", 0, columns) for columns in (32, 64)]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "incomplete": [(block, 1, threads), (block, 1, threads[1:]), (block, 2, threads)],
        "outside": [(block, mask), (block, fewer)],
        "fetching": [(own,) for own in flights],
        "grouped": [(block, GroupOp("bulk", "wait", left), threads) for left in (0, 1)] + [(block, GroupOp("bulk", "commit"), threads)],
        "tracking": [(own, "bulk") for own in trackers] + [(trackers[0], "wgmma")],
        "following": [(trackers[0],), (replace(trackers[0], threads=threads[1:]),)],
        "needed": [(block, two, mask), (block, two, fewer), (block, frozenset({1}), mask)],
        "touched": [(block, two, two, mask), (block, two, two, fewer), (block, frozenset(), two, mask), (block, two, frozenset(), mask)],
        "signalled": [(block, own, key, 1, before, 9, threads) for own, key, before in ((signals[0], 64, 8), (signals[1], 64, 8), (signals[0], 72, 8), (signals[0], 64, 7))],
        "arrived": [(block, "cta", 1, mask), (block, "cta", 1, fewer), (block, "cluster", 0, mask)],
        "passed": [(block, "cta", 1, mask), (block, "cta", 1, fewer), (block, "cta", 2, mask)],
        "met": [(block, mask, fiber), (block, fewer, fiber), (block, mask, fiber + 1)],
        "exchanged": [(block, mask), (block, fewer)],
        "fenced": [(block, mask), (block, fewer)],
        "granted": [(block, own, None, threads) for own in resources] + [(block, resources[0], Outcome(signals=(signals[0],)), threads)],
        "exited": [(block, mask), (block, fewer)],
    }  # fmt: skip
    elsewhere = {"accessed", "performed", "issued", "landing"}  # compared above with the check itself
    closing = {"landed", "followed", "given", "ended"}  # each comes where its own beginning says
    assert names["Checker"] - closing <= names["Traces"] == rows.keys() | elsewhere
    sums = []
    for name, given in rows.items():
        for each in given:
            traces = Traces(batch)
            traces._loads = True
            with np.errstate(over="ignore"):  # as a grid runs
                getattr(traces, name)(*each)
                traces.digest.kept(np.arange(traces.digest.count))
            assert np.flatnonzero(traces.digest.sums).tolist() == [1], name
            sums.append(int(traces.digest.sums[1]))
    assert len(set(sums)) == len(sums) == 44
