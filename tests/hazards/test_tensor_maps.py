"""Tensor maps that kernels change and hand on: each warp and each block its own, as grouped GEMM kernels do; and maps in places that have none."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim.ptx import Memory, Run, parse
from tests.support.ptx_copies import text, wait

SCHEDULES = ("late", "early", 1, 2, 3)
PARAMS = ".param .align 64 .b8 map[128], .param .u64 tensor, .param .u64 slots, .param .u64 target"

TILES = f"""
    ld.param.u64 %rd1, [tensor]; ld.param.u64 %rd2, [slots]; ld.param.u64 %rd3, [target];
    shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; setp.eq.u32 %p1, %r2, 0;
    mov.u32 %r3, smem; mad.lo.u32 %r4, %r1, 128, %r3;
    mov.u32 %r5, %ctaid.x; mov.u32 %r6, %nctaid.x; mad.lo.u32 %r7, %r5, WARPS, %r1; mul.wide.u32 %rd4, %r7, 128; add.u64 %rd4, %rd4, %rd2;
    add.u32 %r8, %r4, 2048; mad.lo.u32 %r9, %r1, 8, %r3; add.u32 %r9, %r9, 4096;
    mov.u64 %rd5, map; mul.wide.u32 %rd6, %r2, 4; add.u64 %rd5, %rd5, %rd6; ld.param.u32 %r10, [%rd5];
    shl.b32 %r11, %r2, 2; add.u32 %r12, %r11, %r4; st.shared.u32 [%r12], %r10;
    @%p1 mbarrier.init.shared::cta.b64 [%r9], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.warp.sync -1;
    mov.u32 %r13, 0; mov.u32 %r14, 0;
    TILE:
    mad.lo.u32 %r15, %r13, WARPS, %r1; mad.lo.u32 %r15, %r15, %r6, %r5; mul.wide.u32 %rd7, %r15, 128; add.u64 %rd8, %rd7, %rd1;
    @%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4], %rd8;
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd4], [%r4], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 128;
    @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r8], [%rd4, {{%r14}}], [%r9];
    and.b32 %r16, %r13, 1;
    {wait("LOADED", "%r9", "%r16")}
    add.u32 %r17, %r11, %r8; ld.shared.u32 %r18, [%r17]; add.u64 %rd9, %rd7, %rd3; add.u64 %rd9, %rd9, %rd6; st.global.u32 [%rd9], %r18;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    add.u32 %r13, %r13, 1; setp.lt.u32 %p2, %r13, 3;
    @%p2 bra TILE;
"""
"""Each warp keeps a map in shared memory, points it to its next tile of 32 words, copies it to a slot of its own in global memory, and loads through that."""
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;"
COPY = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd4], [%r4], 128;"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"


def tiles(body: str, schedule: str | int, warps: int = 3, blocks: int = 2, cluster: int = 1) -> tuple[Run, bool]:
    """A launch, and whether the tiles are where they should be."""
    memory, count = Memory(), 32 * 3 * warps * blocks
    data = np.arange(count, dtype=np.uint32)
    tensor, slots, target = (
        memory.allocate(data.view(np.uint8)),
        memory.allocate(128 * warps * blocks),
        memory.allocate(4 * count),
    )
    box = tcsim.TensorMap("UINT32", (32,), (), (32,), swizzle="NONE")
    run = parse(text(PARAMS, body.replace("WARPS", str(warps)))).kernel().launch(
        memory, [(box, tensor), tensor, slots, target], grid=(blocks, 1, 1), block=(32 * warps, 1, 1), cluster=(cluster, 1, 1),
        schedule=schedule,
    )  # fmt: skip
    return run, bool((memory.read(target, 4 * count).view(np.uint32) == data).all())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("warps", "blocks", "cluster"), [(1, 1, 1), (2, 1, 1), (5, 1, 1), (3, 2, 1), (2, 2, 2)])
def test_each_warp_changes_and_uses_a_map_of_its_own(
    warps: int, blocks: int, cluster: int, schedule: str | int
) -> None:
    run, right = tiles(TILES, schedule, warps, blocks, cluster)
    assert run.completed and right and not run.hazards, [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warp", [0, 1, 2])
@pytest.mark.parametrize("missing", ["acquire", "release"])
def test_one_warp_of_several_leaves_out_half_of_the_fence(missing: str, warp: int, schedule: str | int) -> None:
    """That warp is named, whichever it is."""
    without = f"setp.ne.u32 %p3, %r1, {warp};"
    if missing == "acquire":
        body = TILES.replace(ACQUIRE, f"{without} @%p3 {ACQUIRE}")
    else:
        stores = " ".join(
            f"@%p1 ld.shared.u64 %rd10, [%r4+{at}]; @%p1 st.global.u64 [%rd4+{at}], %rd10;" for at in range(0, 128, 8)
        )
        body = TILES.replace(COPY, f"{stores} {without} @%p3 {RELEASE} bar.warp.sync -1;")
        assert not tiles(body.replace(f"@%p3 {RELEASE}", RELEASE), schedule)[0].hazards
    run, _ = tiles(body, schedule)
    assert {own.name for own in run.hazards} == {"TENSORMAP_FENCE"}, [str(own) for own in run.hazards]
    assert {own.thread for own in run.hazards if own.thread is not None} == {32 * warp}


STORES = """
    ld.param.u64 %rd1, [tensor]; ld.param.u64 %rd2, [slots]; ld.param.u64 %rd3, [target];
    shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p3, %r1, 0;
    mov.u32 %r3, smem; mul.wide.u32 %rd4, %r1, 128; add.u64 %rd7, %rd4, %rd3; add.u64 %rd4, %rd4, %rd2;
    mov.u64 %rd5, map; mul.wide.u32 %rd6, %r2, 4; add.u64 %rd5, %rd5, %rd6; ld.param.u32 %r10, [%rd5]; add.u64 %rd8, %rd4, %rd6; st.global.u32 [%rd8], %r10;
    bar.warp.sync -1;
    @%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%rd4], %rd7;
    @%p1 fence.proxy.tensormap::generic.release.gpu;
    shl.b32 %r11, %r0, 2; add.u32 %r12, %r11, %r3; st.shared.u32 [%r12], %r0;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.u32 %r13, 0;
    @!%p1 bra DONE;
    fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;
    mad.lo.u32 %r14, %r1, 128, %r3;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd4, {%r13}], [%r14];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    DONE:
"""
"""Each warp writes a map of its own to global memory, and its first lane stores through it."""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("change", "names"), [
    ("", set()),
    ("@%p3 fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;", {"TENSORMAP_FENCE"}),
    ("@!%p3 fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;", {"TENSORMAP_FENCE"}),
])  # fmt: skip
def test_each_warp_stores_through_a_map_of_its_own(change: str, names: set[str], schedule: str | int) -> None:
    body = STORES.replace(ACQUIRE, change) if change else STORES
    memory = Memory()
    tensor, slots, target = (memory.allocate(1024) for _ in range(3))
    box = tcsim.TensorMap("UINT32", (32,), (), (32,), swizzle="NONE")
    run = parse(text(PARAMS, body)).kernel().launch(
        memory, [(box, tensor), tensor, slots, target], block=(128, 1, 1), schedule=schedule
    )  # fmt: skip
    assert run.completed and {own.name for own in run.hazards} == names, [str(own) for own in run.hazards]
    assert memory.read(target, 512).view(np.uint32).tolist() == list(range(128))


TENSOR = 0x7000_0000_0000
"""Where the first array of a launch lies."""
BOX = tcsim.TensorMap("UINT32", (32, 8), (128,), (32, 8), swizzle="NONE")
ROW = tcsim.TensorMap("UINT32", (32, 8), (128,), (32, 1), swizzle="NONE")
_HEAD = """
.const .align 64 .b64 kept[16] = WORDS;
.func (.reg .b64 %at) copied (.reg .b64 %from) {
    .local .align 64 .b8 stack[128]; .reg .b64 %d<2>;
    COPY
    mov.b64 %d1, stack; cvta.local.u64 %at, %d1;
    ret; }
"""
"""A map in constant memory, and a function that copies a map to its own stack."""


def copied(where: str, source: str = "[map+{}]", register: str = "%rd2", space: str = ".param") -> str:
    """A map is copied, word by word; where: a state space, and an address without its offset."""
    to, at = where.split()
    return " ".join(
        f"ld{space}.b64 {register}, {source.format(8 * word)}; st.{to}.b64 {at.format(8 * word)}, {register};"
        for word in range(16)
    )


PLACES = {
    "param": ("mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;", ""),
    "const": ("mov.b64 %rd1, kept; cvta.const.u64 %rd1, %rd1;", ""),
    "global": ("ld.param.u64 %rd1, [slots];", ""),
    "global64": ("ld.param.u64 %rd1, [slots]; add.u64 %rd1, %rd1, 64;", ""),
    "global32": ("ld.param.u64 %rd1, [slots]; add.u64 %rd1, %rd1, 32;", "TMA_MISALIGNED"),
    "global16": ("ld.param.u64 %rd1, [slots]; add.u64 %rd1, %rd1, 16;", "TMA_MISALIGNED"),
    "local": (copied("local [stack+{}]") + "mov.b64 %rd1, stack; cvta.local.u64 %rd1, %rd1;", "TENSORMAP_SPACE"),
    "local16": (copied("local [%rd1+{}]").join(("mov.b64 %rd1, stack; add.u64 %rd1, %rd1, 16;", "cvta.local.u64 %rd1, %rd1;")), "TENSORMAP_SPACE"),
    "called": ("mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3; call (%rd1), copied, (%rd3);", "TENSORMAP_SPACE"),
    "shared": (copied("shared [smem+{}]") + "mov.b64 %rd1, smem; cvta.shared.u64 %rd1, %rd1;", "TENSORMAP_SPACE"),
}  # fmt: skip
"""Code that makes %rd1 the generic address of a map, and what is wrong with it."""
_TOLD = ".shared::cluster.global.{}.mbarrier::complete_tx::bytes [%r1], [%rd1, {{{}}}], [%r2];"
_GROUP = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
_OUT = ".global.shared::cta.{}bulk_group [%rd1, {{{}}}], [%r1]; " + _GROUP
_TWO, _FIVE = "%r3, %r3", "%r3, %r3, %r4, %r5, %r6"
USES = {
    "load": (BOX, "cp.async.bulk.tensor.2d" + _TOLD.format("tile", _TWO), "sm_90a"),
    "gather": (ROW, "cp.async.bulk.tensor.2d" + _TOLD.format("tile::gather4", _FIVE), "sm_100a"),
    "store": (BOX, "cp.async.bulk.tensor.2d" + _OUT.format("tile.", _TWO), "sm_90a"),
    "scatter": (ROW, "cp.async.bulk.tensor.2d" + _OUT.format("tile::scatter4.", _FIVE), "sm_100a"),
    "reduce": (BOX, "cp.reduce.async.bulk.tensor.2d" + _OUT.format("add.tile.", _TWO), "sm_90a"),
    "prefetch": (BOX, f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {{{_TWO}}}];", "sm_90a"),
    "prefetch_map": (BOX, "prefetch.tensormap [%rd1];", "sm_90a"),
    "acquire": (BOX, "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", "sm_90a"),
}  # fmt: skip


def used(place: str, action: str, tensor_map: tcsim.TensorMap, target: str, schedule: str | int) -> Run:
    """A launch that does something with a map in some place."""
    image = tensor_map.encode(TENSOR)
    words = ", ".join(map(str, np.frombuffer(image, "<u8").tolist()))
    head = _HEAD.replace("WORDS", f"{{{words}}}").replace("COPY", copied("local [stack+{}]", "[%from+{}]", "%d0", ""))
    body = f"""
    .local .align 64 .b8 stack[192];
    {PLACES[place][0]}
    mov.u32 %r1, smem; add.u32 %r1, %r1, 4096; add.u32 %r2, %r1, 4096; mov.u32 %r3, 0; mov.u32 %r4, 1; mov.u32 %r5, 2; mov.u32 %r6, 3; st.shared.u32 [%r1], %r3;
    mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
    {action}
    """
    memory, offset = Memory(), int(place.removeprefix("global") or 0) if place.startswith("global") else 0
    tensor = memory.allocate(1024)
    slots = memory.allocate(np.frombuffer(bytes(offset) + image + bytes(128), np.uint8))
    assert tensor == TENSOR
    return parse(text(PARAMS, body, target).replace(".visible", head + ".visible")).kernel().launch(
        memory, [(tensor_map, tensor), tensor, slots, slots], block=(1, 1, 1), schedule=schedule
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("use", USES)
def test_a_map_has_to_lie_where_copies_find_maps(use: str, place: str, schedule: str | int) -> None:
    tensor_map, action, target = USES[use]
    wanted = PLACES[place][1]
    run = used(place, action, tensor_map, target, schedule)
    found = {own.name for own in run.hazards} & {"TENSORMAP_SPACE", "TMA_MISALIGNED"}
    assert run.completed and found == ({wanted} if wanted else set()), [str(own) for own in run.hazards]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("place", "wanted"), [("global", ""), ("shared", ""), ("local", "TENSORMAP_SPACE"), ("called", "TENSORMAP_SPACE")]
)
def test_a_map_is_changed_in_shared_or_global_memory(place: str, wanted: str, schedule: str | int) -> None:
    run = used(place, "tensormap.replace.tile.global_dim.b1024.b32 [%rd1], 1, %r2;", BOX, "sm_90a", schedule)
    assert run.completed and {own.name for own in run.hazards} == ({wanted} if wanted else set())
