"""Descriptors that read other elements than a copy put into their tile: named with the descriptor that would read them, and no right one is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcsim
from tcsim.descriptors.tile_bytes import tile_bytes
from tcsim.numbers.formats import FORMATS
from tcsim.ptx import Memory, Run, parse
from tcsim.ptx.check.layout import mends, tiles
from tests.support.ptx_copies import text, wait

F16 = FORMATS["f16"]
SPANS = {"32B": 32, "64B": 64, "128B": 128}
A, B = 1024, 1024 + 64 * 128


def body(a: int, b: int) -> str:
    """TMA fills a tile of A, 64 rows, and one of B, 8 rows; wgmma reads them through two descriptors."""
    return f"""
    mov.b64 %rd1, map_a; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, map_b; cvta.param.u64 %rd2, %rd2; mov.u32 %r1, smem; add.u32 %r2, %r1, {B - A}; add.u32 %r3, %r1, 15360; setp.eq.u32 %p1, %r0, 0;
    mov.u32 %r4, 0; ld.param.u32 %r5, [bytes]; ld.param.u32 %r6, [row];
    @%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], %r5;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {{%r4, %r6}}], [%r3];
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd2, {{%r4, %r4}}], [%r3];
    {wait("FULL", "%r3", "0")}
    mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    mov.u64 %rd4, {a}; mov.u64 %rd5, {b};
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1, %f2, %f3, %f4}}, %rd4, %rd5, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    """


def ran(swizzle: str, a: int, b: int, row: int = 0, rows: int = 128) -> Run:
    """A launch; `rows` of the tensor of A, of which the tile begins at `row`."""
    depth = SPANS[swizzle] // 2
    memory = Memory()
    values = np.arange(128 * 64, dtype=np.uint16).view(np.uint8)
    maps = [
        (tcsim.TensorMap("FLOAT16", (64, height), (128,), (depth, box), swizzle=swizzle), memory.allocate(values))
        for height, box in ((rows, 64), (8, 8))
    ]
    params = ".param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u32 bytes, .param .u32 row"
    kernel = parse(text(params, body(a, b))).kernel()
    return kernel.launch(memory, [*maps, (64 + 8) * depth * 2, row], block=(128, 1, 1))


def descriptor(swizzle: str, start: int, step: int = 0) -> tcsim.MatrixDescriptor:
    """The right one, of a step of 16 along K."""
    return tcsim.MatrixDescriptor(start + 32 * step, 0, 8 * SPANS[swizzle], swizzle=swizzle)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The verdicts of tiles."""
    found: list[bool] = []
    judge = tiles.is_matrix

    def noted(*given: object) -> bool:
        found.append(judge(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(mends, "is_matrix", noted)
    return found


@pytest.mark.parametrize("swizzle", SPANS)
def test_right_descriptors_are_silent(swizzle: str, judged: list[bool]) -> None:
    """Every K step of every swizzle; rows beyond the tensor; both tiles are judged."""
    runs = 0
    for step in range(SPANS[swizzle] // 32):
        for row, rows in ((0, 128), (32, 128), (96, 128), (100, 101)):
            run = ran(swizzle, descriptor(swizzle, A, step).encode(), descriptor(swizzle, B, step).encode(), row, rows)
            assert run.completed and not run.hazards, [str(own) for own in run.hazards]
            runs += 1
    assert judged == [True] * 2 * runs


@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize("operand", ["a", "b"])
def test_wrong_descriptors_are_named_with_the_right_one(swizzle: str, operand: str) -> None:
    """One field wrong, or the two that belong to a swizzle: the mend says what was changed, and the element is read from elsewhere."""
    right = {"a": descriptor(swizzle, A), "b": descriptor(swizzle, B)}
    own, rows = right[operand], {"a": 64, "b": 8}[operand]
    where = {key: tile_bytes(value.encode(), rows, 16, F16, "K").address for key, value in right.items()}
    changes = [{"swizzle": other} for other in SPANS if other != swizzle]
    if operand == "a":  # of 8 rows SBO says nothing
        changes += [{"stride_byte_offset": own.stride_byte_offset * factor // 16} for factor in (1, 8, 32)]
        changes += [{"swizzle": other, "stride_byte_offset": 8 * SPANS[other]} for other in SPANS if other != swizzle]
    named = 0
    for change in changes:
        wrong = replace(own, **change)
        if (tile_bytes(wrong.encode(), rows, 16, F16, "K").address == where[operand]).all():
            continue
        run = ran(swizzle, *(value.encode() for value in (right | {operand: wrong}).values()))
        (hazard,) = [item for item in run.hazards if item.name.startswith("DESC_")]
        assert hazard.detail["operand"] == operand and hazard.severity == "error"
        for name, said in (("stride_byte_offset", "SBO"), ("swizzle", "swizzle")):
            if name in change:
                assert f"{said} {getattr(own, name)} instead of {change[name]}" in hazard.message
        units = 16 * change.get("stride_byte_offset", 0) == own.stride_byte_offset  # divided by 16 twice
        rule = "DESC_SWIZZLE_MODE" if "swizzle" in change else "DESC_UNITS" if units else "DESC_LBO_SBO"
        assert hazard.name == rule and hazard.other_line is not None
        named += 1
    assert named >= 2


def test_the_message_names_both_elements() -> None:
    """Row 1 of a swizzle of 64 bytes begins in the middle of row 0 of one of 128."""
    wrong = replace(descriptor("128B", A), swizzle="64B", stride_byte_offset=512)
    run = ran("128B", wrong.encode(), descriptor("128B", B).encode())
    message = next(own.message for own in run.hazards if own.name == "DESC_SWIZZLE_MODE")
    assert "reads A[1, 0] from the bytes that were written as A[0, 32]" in message
    assert "right with SBO 1024 instead of 512 and swizzle 128B instead of 64B" in message


def test_what_is_a_matrix() -> None:
    """Rows and columns in any order, gathered or strided, are; what is there twice, or shifted in some rows, is not; fills may be anything."""
    rows, runs = np.arange(8)[:, None], np.arange(2) * 16
    plain = 4096 + rows * 128 + runs
    right = [plain, plain[::-1], plain[:, ::-1], plain[[3, 1, 0, 2, 7, 5, 4, 6]], 4096 + rows * 384 + runs * 3]
    edge = plain.copy()
    edge[5:] = tiles.FILL
    for found in (*right, edge):
        assert tiles.is_matrix(found, 128) and tiles.is_matrix(found, 0)
    twice, shifted, missing = plain.copy(), plain.copy(), plain.copy()
    twice[4:] = twice[:4]
    shifted[3] = shifted[3, ::-1]
    missing[2, 1] = 0
    for found in (twice, shifted, missing):
        assert not tiles.is_matrix(found, 128)
    half = 4096 + rows * 64 + runs
    assert tiles.is_matrix(half, 0) and not tiles.is_matrix(half, 128)
