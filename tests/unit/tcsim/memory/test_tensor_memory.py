"""TensorMemory: allocation against a slow allocator, the rules as named errors, reads and writes of cells."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tcsim
from tcsim import OperandError, TensorMemory
from tcsim.memory.tensor_memory import (
    AllocationError,
    TensorMemoryError,
    UnallocatedError,
    UnwrittenError,
    tmem_address,
    tmem_lane_column,
)
from tests.exact.tensor_memory import Allocator


def refused(text: str, error: type[Exception] = AllocationError) -> pytest.RaisesExc[Exception]:
    """The named error, whose text has all of these words."""
    return pytest.raises(error, match=text)


def test_errors_are_of_one_family() -> None:
    """A caller may catch them all, or one."""
    for error in (AllocationError, UnallocatedError, UnwrittenError, tcsim.memory.tensor_memory.LaneAccessError):
        assert issubclass(error, TensorMemoryError)
    assert issubclass(TensorMemoryError, OperandError)
    assert issubclass(TensorMemoryError, ValueError)


def test_a_new_memory_owns_nothing() -> None:
    """128 lanes x 512 columns of each CTA, none allocated, none written."""
    memory = TensorMemory((3,), ctas=2)
    assert (memory.batch, memory.ctas, memory.columns) == ((3,), 2, 512)
    assert memory.words.shape == memory.written.shape == (3, 2, 128, 512)
    assert memory.owned.shape == (2, 512)
    assert not memory.owned.any()
    assert not memory.written.any()
    assert TensorMemory.allocated((3,), ctas=2).owned.all()


@pytest.mark.parametrize("arguments", [{"ctas": 3}, {"ctas": 0}, {"columns": 256}])
def test_other_memories_do_not_exist(arguments: dict[str, int]) -> None:
    """One CTA or a pair; 512 columns, or the 576 of sm_107."""
    with refused("valid: ctas 1, 2; columns 512, 576"):
        TensorMemory(**arguments)


# ---- allocation


@pytest.mark.parametrize("cta_group", [1, 2])
def test_allocations_are_those_of_the_slow_model(cta_group: int) -> None:
    """Random allocs that never grow, and deallocs, until nothing fits: the same addresses."""
    compared = 0
    for seed in range(40):
        choose = random.Random(seed)
        memory, slow = TensorMemory(ctas=cta_group), Allocator()
        size = 512
        for _ in range(60):
            if slow.live and choose.random() < 0.45:
                start = choose.choice(sorted(slow.live))
                memory.dealloc(start, slow.live[start], cta_group=cta_group)
                slow.dealloc(start)
            else:
                size = choose.choice([s for s in (512, 256, 128, 64, 32) if s <= size and s >= size // 2])
                try:
                    wanted = slow.alloc(size)
                except LookupError:
                    with refused("blocks forever"):
                        memory.alloc(size, cta_group=cta_group)
                else:
                    assert memory.alloc(size, cta_group=cta_group) == wanted
                    compared += 1
            for cta in range(cta_group):
                assert set(np.flatnonzero(memory.owned[cta]).tolist()) == slow.taken
        for start in sorted(slow.live):
            memory.dealloc(start, slow.live[start], cta_group=cta_group)
        memory.check_exit()
    assert compared > 800


@pytest.mark.parametrize("columns", [0, 16, 31, 33, 48, 96, 384, 513, 1024, -32])
def test_columns_are_a_power_of_two(columns: int) -> None:
    """From 32 to 512."""
    with refused(rf"alloc\({columns}, cta_group=1, cta=0\): {columns} columns; valid: 32, 64, 128, 256, 512"):
        TensorMemory().alloc(columns)


@pytest.mark.parametrize(
    ("columns", "valid"), [(576, True), (544, True), (96, True), (48, False), (608, False), (0, False)]
)
def test_exclusive_columns_are_a_multiple_of_32(columns: int, valid: bool) -> None:
    """Up to all there are: 576 on sm_107."""
    memory = TensorMemory(columns=576)
    if valid:
        assert memory.alloc(columns, exclusive=True) == 0
        assert memory.owned.sum() == columns
    else:
        with refused(f"{columns} columns; valid: multiples of 32 from 32 to 576"):
            memory.alloc(columns, exclusive=True)
    if columns > 512:
        with refused("to 512"):
            TensorMemory().alloc(columns, exclusive=True)


def test_a_full_memory_blocks() -> None:
    """The instruction would wait; here nobody else would free anything."""
    memory = TensorMemory()
    for _ in range(4):
        memory.alloc(128)
    with refused(r"blocks forever: 0 of 512 columns are free.*dealloc one of 0x0 \(128 columns\), 0x80"):
        memory.alloc(32)
    memory.dealloc(0x80, 128)
    assert memory.alloc(128) == 0x80


def test_free_columns_must_lie_together() -> None:
    """Two free halves of 128 are no 256."""
    memory = TensorMemory()
    memory.alloc(256)
    memory.alloc(128)
    memory.alloc(32)
    memory.dealloc(0, 256)
    memory.dealloc(256, 128)
    memory.alloc(32)
    with refused("a later one must not have more"):
        memory.alloc(64)


def test_later_allocations_must_not_have_more_columns() -> None:
    """The number of columns should not increase, whatever was freed between."""
    memory = TensorMemory()
    memory.dealloc(memory.alloc(64), 64)
    with refused("an earlier alloc of CTA 0 had 64 columns, and a later one must not have more"):
        memory.alloc(128)


def test_no_alloc_after_the_permit() -> None:
    """relinquish_alloc_permit is for good; dealloc goes on."""
    memory = TensorMemory()
    address = memory.alloc(64)
    memory.relinquish_alloc_permit()
    with refused("CTA 0 has executed relinquish_alloc_permit"):
        memory.alloc(32)
    memory.dealloc(address, 64)
    memory.check_exit()


def test_the_permit_is_a_ctas_own() -> None:
    """With .cta_group::1 the other CTA may still allocate, with ::2 neither may."""
    memory = TensorMemory(ctas=2)
    memory.relinquish_alloc_permit(cta=1)
    assert memory.alloc(32) == 0
    with refused("CTA 1 has executed"):
        memory.alloc(32, cta=1)
    pair = TensorMemory(ctas=2)
    pair.relinquish_alloc_permit(cta_group=2)
    with refused("CTA 0 has executed"):
        pair.alloc(32, cta_group=2)


def test_only_what_alloc_returned_is_freed() -> None:
    """Another address, another size, twice, another CTA."""
    memory = TensorMemory(ctas=2)
    address = memory.alloc(64)
    for wrong in (32, 0x10000, 500):
        with refused(rf"dealloc\({wrong:#x}, 64, .*no alloc of CTA 0 returned that address.*valid: 0x0 \(64 columns\)"):
            memory.dealloc(wrong, 64)
    with refused("that alloc of CTA 0 had 64 columns"):
        memory.dealloc(address, 32)
    with refused("no alloc of CTA 1 returned that address, or it is freed; valid: none"):
        memory.dealloc(address, 64, cta=1)
    memory.dealloc(address, 64)
    with refused("or it is freed; valid: none"):
        memory.dealloc(address, 64)


def test_everything_is_freed_at_the_end() -> None:
    """All of it, of every CTA."""
    memory = TensorMemory(ctas=2)
    memory.alloc(64, cta=1)
    memory.alloc(32, cta=0)
    with refused(r"not freed: CTA 0: 0x0 \(32 columns\); CTA 1: 0x0 \(64 columns\)"):
        memory.check_exit()


def test_one_cta_group_in_a_kernel() -> None:
    """All tcgen05 instructions must name the same."""
    memory = TensorMemory(ctas=2)
    memory.alloc(32, cta_group=2)
    with refused(r"\.cta_group::1 after \.cta_group::2"):
        memory.alloc(32)
    with refused(r"cta_group 2 of a memory with 1 CTA; valid: 1"):
        TensorMemory().alloc(32, cta_group=2)
    with refused("cta_group 3"):
        TensorMemory().alloc(32, cta_group=3)
    with refused("CTA 1; valid: 0"):
        TensorMemory().alloc(32, cta=1)


def test_an_exclusive_allocation_is_alone() -> None:
    """Nothing beside it, either way round; freed as it was allocated."""
    memory = TensorMemory()
    memory.alloc(64, exclusive=True)
    for exclusive in (False, True):
        with refused("no other allocation may live beside an exclusive one"):
            memory.alloc(32, exclusive=exclusive)
    with refused(r"the alloc was \.exclusive"):
        memory.dealloc(0, 64)
    memory.dealloc(0, 64, exclusive=True)
    memory.alloc(32)
    with refused("blocks forever: no other allocation"):
        memory.alloc(32, exclusive=True)
    with refused(r"the alloc was not \.exclusive"):
        memory.dealloc(0, 32, exclusive=True)


# ---- cells


def test_addresses_both_ways() -> None:
    """Lane in the upper half, column in the lower; every cell."""
    checked = 0
    for lane in range(0, 128, 3):
        for column in range(0, 576, 7):
            assert tmem_lane_column(tmem_address(lane, column)) == (lane, column)
            checked += 1
    assert checked > 3000
    for lane, column in ((128, 0), (-1, 0), (0, 576), (0, -1)):
        with refused("valid lanes are 0 to 127", UnallocatedError):
            tmem_address(lane, column)
    for address in (-1, 1 << 32, 128 << 16, 576):
        with refused("valid: lane << 16", UnallocatedError):
            tmem_lane_column(address)


def test_reading_what_was_written() -> None:
    """Batches, broadcasts, both CTAs."""
    rng = np.random.Generator(np.random.PCG64(5))
    memory = TensorMemory.allocated((4,), ctas=2)
    lanes, columns = np.arange(128)[:, None], np.arange(512)
    for cta in (0, 1):
        words = rng.integers(0, 1 << 32, (4, 128, 512), np.uint32)
        memory.write(lanes, columns, words, cta=cta)
        assert (memory.read(lanes, columns, cta=cta) == words).all()
        assert (memory.read(lanes[::7], columns[3], cta=cta) == words[:, ::7, 3, None]).all()
    assert int(memory.read(5, 6)[2]) == int(memory.words[2, 0, 5, 6])


def test_where_leaves_the_rest() -> None:
    """Masked cells stay, and stay unwritten if they were."""
    memory = TensorMemory.allocated()
    memory.write(np.arange(4), 0, np.arange(4, dtype=np.uint32))
    memory.write(np.arange(6), 0, np.full(6, 9, np.uint32), where=np.arange(6) % 2 == 1)
    assert memory.read(np.arange(4), 0).tolist() == [0, 9, 2, 9]
    assert int(memory.read(5, 0)) == 9
    with refused("lane 4, column 0: nothing has written", UnwrittenError):
        memory.read(np.arange(6), 0)


def test_wrong_accesses_are_named() -> None:
    """Cells that do not exist, are not allocated, were never written; words of another dtype or shape."""
    memory = TensorMemory(ctas=2)
    memory.alloc(32, cta=1)
    for lane, column in ((128, 0), (0, 512), (-1, 0)):
        with refused(f"lane {lane}, column {column} of CTA 1: out of bounds", UnallocatedError):
            memory.read(lane, column, cta=1)
    with refused(
        r"read of lane 3, column 32 of CTA 1: that column is not allocated; allocated are 0x0 \(32", UnallocatedError
    ):
        memory.read(3, [31, 32], cta=1)
    with refused("column 0 of CTA 0: that column is not allocated; allocated are none", UnallocatedError):
        memory.write(0, 0, np.uint32(1))
    with refused("CTA 2; valid: 0, 1", UnallocatedError):
        memory.read(0, 0, cta=2)
    with refused("my load of lane 0, column 7 of CTA 1: nothing has written that cell", UnwrittenError):
        memory.read(0, 7, cta=1, what="my load")
    for words in (np.zeros(2, np.int32), np.zeros(3, np.uint32)):
        with refused("write: ", OperandError):
            memory.write([0, 1], 0, words, cta=1)


def test_what_is_freed_is_forgotten() -> None:
    """A new allocation of the same columns holds nothing."""
    memory = TensorMemory()
    memory.write(0, 0, np.uint32(7)) if memory.alloc(32) == 0 else None
    memory.dealloc(0, 32)
    memory.alloc(32)
    with refused("nothing has written", UnwrittenError):
        memory.read(0, 0)


def test_copies_are_independent() -> None:
    """Of words, allocations and permits; and a copy may have more leading dimensions."""
    memory = TensorMemory()
    memory.alloc(64)
    memory.write(0, 0, np.uint32(7))
    other = memory.copy((2, 3))
    assert other.batch == (2, 3)
    other.write(0, 0, np.uint32(8))
    other.relinquish_alloc_permit()
    other.dealloc(0, 64)
    assert int(memory.read(0, 0)) == 7
    assert memory.alloc(32) == 64
    assert repr(memory) == "TensorMemory(batch=(), ctas=1, allocations=[{'0x0': 64, '0x40': 32}])"
    with refused(r"batch \(2, 3\) does not broadcast to \(5,\)", OperandError):
        other.copy((5,))
