"""Tiles that several threads of each block store, in a batch as few pieces of work: the bytes are those of blocks that run alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcsim
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorStore
from tcsim.ptx import Limits, Memory, parse
from tests.support.ptx_copies import text

BLOCKS, ROWS, COLUMNS = 6, 19, 52
PARAMS = ".param .align 64 .b8 map[128]"
BODY = """
    shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; mov.u32 %r3, smem; mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r5, %r1, 2048, %r3; and.b32 %r17, %r4, 1; mad.lo.u32 %r5, %r17, 4096, %r5; shl.b32 %r6, %r2, 4; add.u32 %r7, %r5, %r6;
    mad.lo.u32 %r8, %r4, 1000, %r0; add.u32 %r9, %r8, 100; add.u32 %r10, %r8, 200; add.u32 %r11, %r8, 300;
    st.shared.v4.u32 [%r7], {%r8, %r9, %r10, %r11};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %r2, 0; @%p1 bra DONE;
    shr.u32 %r12, %r4, 1; and.b32 %r13, %r4, 1; mad.lo.u32 %r14, %r13, 2, %r1;
    mul.lo.u32 %r15, %r14, 16; mul.lo.u32 %r16, %r12, 8;
    mov.u64 %rd2, map; cvta.param.u64 %rd1, %rd2;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r15, %r16}], [%r5];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    DONE:
"""
"""Two warps of each block store a tile of 8 x 16 words each: blocks in pairs beside each other; those at the edges stand out of the tensor."""
SWIZZLES = ["NONE", "64B"]


def stored(swizzle: str, batch: int, schedule: str, check: bool) -> tuple[list[int], int, list[str], int]:
    """The tensor, instructions, rules of hazards, and how many blocks ran as one."""
    memory = Memory()
    tensor = memory.allocate(np.full(ROWS * COLUMNS + 64, 0xFFFF, np.uint32).view(np.uint8))
    box = tcsim.TensorMap("UINT32", (COLUMNS, ROWS), (4 * COLUMNS,), (16, 8), swizzle=swizzle)
    run = (
        parse(text(PARAMS, BODY))
        .kernel()
        .launch(
            memory, [(box, tensor)], grid=(BLOCKS, 1, 1), block=(64, 1, 1), schedule=schedule, check=check,
            limits=replace(Limits(), batch=batch, processes=1),
        )
    )  # fmt: skip
    left = memory.read(tensor, 4 * (ROWS * COLUMNS + 64)).view(np.uint32).tolist()
    return left, run.instructions, [own.name for own in run.hazards], run.batch


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("schedule", ["late", "early"])
def test_tiles_are_stored_as_by_blocks_alone(swizzle: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = list[int]()
    joint = TensorStore.joint

    def counted(*given: object) -> object:
        work = joint(*given)  # type: ignore[arg-type]
        joined.append(len(work[0].threads) if work else 0)  # type: ignore[arg-type]
        return work

    monkeypatch.setattr(TensorStore, "joint", counted)
    *together, size = stored(swizzle, 64, schedule, False)
    assert size == BLOCKS
    assert sorted(joined) == [2, 4]  # of the first threads four tiles are inside, of the second two
    *alone, one = stored(swizzle, 1, schedule, False)
    assert one == 1
    assert together == alone
    assert sum(own != 0xFFFF for own in together[0]) == ROWS * COLUMNS
    assert stored(swizzle, 64, schedule, True)[:3] == (*alone,)
