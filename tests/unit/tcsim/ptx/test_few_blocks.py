"""Grids of two or three blocks: those whose basic blocks are long run as a batch; and a batch that writes what it has read does not begin again."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.ptx import Memory, Run, parse
from tcsim.ptx.launch.grid import Grid
from tests.support.ptx_copies import text

PARAMS = ".param .u64 data"
PLACE = "ld.param.u64 %rd1, [data]; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %r0; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;"
LONG = " ".join(["xor.b32 %r5, %r5, 1;"] * 6)
INCREMENT = "ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;"
BRANCHES = " ".join(
    f"add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r0, {own}; @%p1 bra L{own}; add.u32 %r4, %r4, 2; L{own}:"
    for own in range(1, 20)
)
"""As many basic blocks, of one to three instructions."""


def launched(body: str, blocks: int, check: bool) -> tuple[Run, list[int]]:
    """The run, and what each thread's word is afterwards."""
    memory = Memory()
    data = memory.allocate(np.arange(64 * blocks, dtype=np.uint32).view(np.uint8))
    run = parse(text(PARAMS, body)).kernel().launch(memory, [data], grid=(blocks, 1, 1), block=(64, 1, 1), check=check)
    return run, memory.read(data, 256 * blocks).view(np.uint32).tolist()


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("blocks", [2, 3])
def test_few_blocks_run_as_a_batch_where_basic_blocks_are_long(blocks: int, check: bool) -> None:
    run, words = launched(PLACE + LONG + INCREMENT, blocks, check)
    assert run.batch == blocks and not run.alone and words == list(range(1, 64 * blocks + 1))
    run, again = launched(PLACE + BRANCHES + INCREMENT, blocks, check)
    assert run.batch == 1 and run.alone == "too few blocks, or no room for more" and again == words
    assert launched(PLACE + BRANCHES + INCREMENT, 4, check)[0].batch == 4


@pytest.mark.parametrize(("reads", "times"), [(1, 1), (32, 1), (33, 2)])
def test_a_batch_that_writes_what_it_has_read(reads: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 reads are remembered; after more of them the batch begins again."""
    begun, batched = list[int](), Grid._batched

    def counted(grid: Grid, clusters: list[list[tuple[int, int, int]]], *rest: object) -> None:
        begun.append(len(clusters))
        batched(grid, clusters, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Grid, "_batched", counted)
    run, words = launched(f"{PLACE} {'ld.volatile.global.u32 %r3, [%rd1]; ' * (reads - 1)} {INCREMENT}", 4, False)
    assert begun == [4] * times and run.batch == 4 and words == list(range(1, 257))


def test_a_batch_that_writes_what_another_block_has_read_is_undone() -> None:
    """Block 0 writes what block 3 reads, which comes later: with one read, that is remembered."""
    beside = "add.u32 %r6, %r2, 64; and.b32 %r6, %r6, 255; ld.param.u64 %rd3, [data]; mul.wide.u32 %rd4, %r6, 4; add.u64 %rd3, %rd3, %rd4;"
    run, words = launched(
        f"{PLACE} {beside} ld.global.u32 %r3, [%rd3]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;", 4, False
    )
    assert run.batch == 1 and run.alone == "a block writes what another one reads or writes"
    assert words == [*range(65, 257), *range(66, 130)]
