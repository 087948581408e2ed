"""Single rules of the check and of what it knows of layouts, each on the few numbers that decide it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.model.effects import Access
from tcsim.numbers.formats import FORMATS
from tcsim.ptx import Memory
from tcsim.ptx.check.layout import fragments, origins, tensor_memory
from tcsim.ptx.check.layout.descriptors import Through
from tcsim.ptx.check.layout.mends import Trials, _written_as
from tcsim.ptx.check.layout.origins import Copies, Origins
from tcsim.ptx.check.layout.tags import Tags
from tcsim.ptx.check.layout.tensor_memory import Scales, Shapes
from tcsim.ptx.check.layout.tiles import FILL, Source, View, irregular
from tcsim.ptx.check.order import Ordering
from tcsim.ptx.check.rules import deadlocks, tmem
from tcsim.ptx.check.rules.dependents import Ledger
from tcsim.ptx.check.rules.global_memory import GlobalMemory
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.rules.races import Party
from tcsim.ptx.check.rules.unused import _computes
from tcsim.ptx.compile.carried import Move


def view(found: Any, name: str = "A") -> View:
    """An operand of rows of single elements along k."""
    own = np.asarray(found, np.int64)
    return View(name, own, np.arange(own.shape[1]), 1, "k", 0, 0, 0, Source())


# --- rules


@pytest.mark.parametrize(
    ("lanes", "apart", "joins"), [(32, True, True), (128, True, True), (1, True, False), (32, False, False)]
)
def test_lanes_that_did_something_apart_are_joined(lanes: int, apart: bool, joins: bool) -> None:
    """By an instruction that a warp executes as one."""
    joined: list[Any] = []
    state: Any = SimpleNamespace(
        activity=Counter[int](),
        lanes=SimpleNamespace(is_apart=lambda: apart, join=lambda *own: joined.append(own)),
        bits=lambda *own: own,
    )
    own: Any = SimpleNamespace(state=state)
    bound: Any = SimpleNamespace(lanes=lanes)
    Ordering.performing(own, SimpleNamespace(rank=0), bound, None, np.arange(32), np.ones(32, bool))  # type: ignore[arg-type]
    assert bool(joined) is joins


@pytest.mark.parametrize("left", [4, -4])
def test_an_mbarrier_of_the_second_block_that_lacks_bytes(left: int) -> None:
    """What its copies bring is looked at in the block in whose shared memory it lies."""
    key, found = 1 << 24 | 0x400, SimpleNamespace(passes={}, ended=0, now=SimpleNamespace(expected=8))
    looked: list[Any] = []
    state = SimpleNamespace(mbarriers={key: found}, blocks=["first", "second"])
    own: Any = SimpleNamespace(
        state=state, mbarriers=SimpleNamespace(boxes=lambda *given: looked.append(given)), _object=lambda own: "",
        _fields=lambda key: {"pending": 0, "tx_count": left, "expected": 1}, _facts=lambda found, count: {},
    )  # fmt: skip
    block: Any = SimpleNamespace()
    said = deadlocks.Deadlocks._mbarrier(own, block, key, np.array([0]))
    assert said is not None and said[0] == ("MBAR_TX_OVER" if left > 0 else "MBAR_TX_UNDER")
    assert [given[3].block for given in looked] == ["second"]


def test_a_byte_that_an_earlier_grid_wrote() -> None:
    """A word is touched whatever part of it is: its first byte, or its last one."""
    memory, ledger = Memory(), Ledger()
    at = np.array([memory.allocate(64)], np.uint64)
    for offset, size in ((0, 1), (11, 1), (20, 8)):
        ledger.note(memory, at + np.uint64(offset), size, True)
    touched = [place for place in range(8) if ledger.meets(at + np.uint64(4 * place), False)]
    assert touched == [0, 2, 5, 6]
    assert ledger.meets(at, True, 1) and not ledger.meets(at + np.uint64(4), True, 1)


def test_shared_memory_is_not_global_memory() -> None:
    """Accesses to the shared memory of a block, of rank 0 and more, are judged elsewhere."""
    seen: list[int] = []
    own: Any = SimpleNamespace(active=True, _accessed=lambda touch: seen.append(touch.rank))
    for rank in (-1, 0, 1):
        GlobalMemory.accessed(own, SimpleNamespace(rank=rank))  # type: ignore[arg-type]
    assert seen == [-1]


@pytest.mark.parametrize(("who", "late"), [(0, False), (3, True), (9, False)])
def test_maps_that_somebody_wrote(who: int, late: bool) -> None:
    """A warp that has not released what it wrote since; not nobody, whatever was there before, and not a copy."""
    said: list[Any] = []
    state: Any = SimpleNamespace(
        clocks=SimpleNamespace(warps=4), warps=lambda block, threads: np.array([1]), opcode=str, report=lambda *given: said.append(given)
    )  # fmt: skip
    own: Any = SimpleNamespace(state=state, _released=np.zeros(4, np.int64), _acquired=np.zeros((4, 6), np.int64))
    words: Any = SimpleNamespace(who=np.array([who]), when=np.array([5]), what=np.array([0]))
    GlobalMemory._used(own, None, words, np.array([0]), np.array([32]), 1)  # type: ignore[arg-type]
    assert [given[0] for given in said] == ["TENSORMAP_FENCE"] * late


@pytest.mark.parametrize(("kind", "flies"), [("", True), ("tcgen05", False)])
def test_copies_that_will_tell_an_mbarrier(kind: str, flies: bool) -> None:
    """They are in flight until its phase ends; products are not said to be."""
    found: Any = SimpleNamespace(ended=3, fenced=True, arriving=set(), flying=[])
    operation: Any = SimpleNamespace(tells=(), proxy="async", line=1, warps=np.array([2]), kind=kind)
    Mbarriers.tells(SimpleNamespace(live={8: found}), operation, (8, 16), None)  # type: ignore[arg-type]
    assert operation.tells == ((8, 3),) and found.arriving == {2}
    assert found.flying == [operation] * flies


def test_the_last_that_orders_memory_nearby() -> None:
    """Of any block, or of one block and for that block alone."""
    near, wide = SimpleNamespace(opcode="fence.acq_rel.cta"), SimpleNamespace(opcode="fence.acq_rel.cluster")
    own: Any = SimpleNamespace(near={0: (5, near), 4: (7, wide)}, _rank=lambda warp: warp // 4)
    assert Party.narrowed(own) is wide and Party.narrowed(own, 8) is None
    assert Party.narrowed(own, 0, 0) is near and Party.narrowed(own, 6, 0) is None
    assert Party.narrowed(own, 0, 1) is None


def test_the_words_of_columns() -> None:
    """Of each lane, from the first one on."""
    found = tmem._words(4, 3).reshape(128, 3)
    assert found[0].tolist() == [4, 5, 6] and (np.diff(found, axis=0) == 512).all()


@pytest.mark.parametrize(
    ("opcodes", "computes"),
    [
        ("add.f32 mov.b32 ld.global.u32 cvta.to.global.u64 cvt.rn.f16.f32 selp.b32 isspacep.global", True),
        ("shfl.sync.bfly.b32 vote.sync.ballot.b32 redux.sync.add.s32 elect.sync activemask.b32", True),
        ("st.global.u32 atom.global.add.u32 red.global.add.u32 prefetch.global.L1 bra ret alloca.u32", False),
        ("bar.sync bar.red.popc.u32 barrier.cta.red.popc.u32 membar.gl cp.async.ca.shared.global", False),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", False),
    ],
)  # fmt: skip
def test_what_gives_registers_and_does_nothing_else(opcodes: str, computes: bool) -> None:
    """Of ordinary instructions, of scalar ones and of those of a member mask; the lanes of a barrier's reduction wait for each other."""
    assert {own: _computes(own) for own in opcodes.split()} == dict.fromkeys(opcodes.split(), computes)


# --- layouts


def test_places_that_are_tried_lie_on_both_sides() -> None:
    """Columns before and behind, each step once; patterns of a swizzle once each."""
    for steps in (origins._STEPS, tensor_memory._STEPS):
        assert sorted(steps) == sorted(-own for own in steps) and len(set(steps)) == len(steps) and 0 not in steps
    assert len(set(fragments._SWIZZLES)) == len(fragments._SWIZZLES) and set(fragments._PATTERNS) <= set(
        fragments._SWIZZLES
    )


@pytest.mark.parametrize(
    ("space", "units", "called"),
    [("tmem", False, ["bytes"]), ("shared", True, ["units"]), ("shared", False, ["units", "bytes"])],
)
def test_work_that_lands(space: str, units: bool, called: list[str]) -> None:
    """In Tensor Memory its bytes have origins; in shared memory whole units of them, if it copies such."""
    seen: list[str] = []
    own: Any = SimpleNamespace(
        _units=lambda *given: seen.append("units") or units,
        _bytes=lambda *given: seen.append("bytes") or True,
        _put=lambda *given: seen.append("put"),
    )
    flight: Any = SimpleNamespace(pending=SimpleNamespace(writes=[Access(space, np.array([0]), 4)]))  # type: ignore[arg-type]
    Copies.landing(own, flight, 7)
    assert seen == called


def test_distances_at_which_the_next_elements_lie() -> None:
    """A descriptor's offsets may be those at which 16, 32, 64 or 128 bytes further on of the tensor lie in shared memory."""
    at = np.zeros(1 << 14, np.int64)
    for bytes, place in ((0, 0), (16, 1040), (32, 2096), (64, 4112), (128, 8208)):
        at[place] = 1000 + bytes
    tile: Any = SimpleNamespace(format=FORMATS["f16"], major="K", arch="sm_90")
    through: Any = SimpleNamespace(tile=tile, found=np.array([[1000]]), pitch=0, at=at, unit=1)
    own = MatrixDescriptor(0, leading_byte_offset=16, stride_byte_offset=32)
    tried = {other.leading_byte_offset for rule, other in Through._candidates(through, own) if rule == "DESC_LBO_SBO"}
    assert {1040, 2096, 4112, 8208} <= tried


def test_the_pitch_of_a_swizzled_tile() -> None:
    """Eight rows further on pieces lie as in the first row: an eighth of that way is a row."""
    row, column = np.indices((16, 64))
    place = 128 * row + ((2 * column) ^ (row % 8 * 16))
    assert fragments._pitch(place) == [128, 144]
    assert fragments._pitch(128 * row + 2 * column) == [128]


@pytest.mark.parametrize("rows", range(8))
def test_a_tile_off_the_pattern_of_its_swizzle(rows: int) -> None:
    """The rows that are missing to the next place where the pattern begins."""
    row, column = np.indices((8, 64))
    assert fragments._off(1024 * 5 + 128 * rows + 128 * row + 2 * column, 3, 3) == -rows % 8


def test_an_operand_of_one_line() -> None:
    """No step from line to line is known: what was read is said by its address."""
    assert _written_as(view([[64, 66, 68]]), np.array([[64, 66, 68]]), 66).endswith("written as A[0, 1]")
    assert _written_as(view([[64, 66, 68]]), np.array([[64, 66, 68]]), 80).endswith("written from 0x50")


def test_elements_that_are_overwritten() -> None:
    """All that a write touches has no origin any more, aligned or not; nothing else loses it."""
    for offset, size, left in (
        (2, 2, [1, 0, 3, 4]),
        (1, 2, [0, 0, 3, 4]),
        (1, 1, [0, 2, 3, 4]),
        (2, 4, [1, 0, 0, 4]),
        (3, 4, [1, 0, 0, 0]),
    ):
        own = Origins(None, 2)  # type: ignore[arg-type]
        own.at[1] = np.array([1, 2, 3, 4])
        own.forget(1, np.array([offset]), size)
        assert own.at[1].tolist() == left


def test_where_elements_lie_in_another_block() -> None:
    """An address of shared memory: the rank above bit 24."""
    own = Origins(None, 2)  # type: ignore[arg-type]
    own.at[3] = np.array([50, 40, 50, 0])
    found = own.where(np.array([40, 50]), 3)
    assert found is not None and found.tolist() == [3 << 24 | 2, 3 << 24 | 4]
    assert own.where(np.array([40, 41]), 3) is None and own.where(np.array([0]), 3) is None


@pytest.mark.parametrize(
    ("a", "b", "apart"), [(None, None, False), ([[1]], None, False), (None, [[2]], False), ([[1]], [[2]], True), ([[1]], [[1]], False)]
)  # fmt: skip
def test_factors_of_operands_of_two_arrays(a: Any, b: Any, apart: bool) -> None:
    """Only of two operands it can be said that they do not come from one array."""
    asked: list[bool] = []
    own: Any = SimpleNamespace(
        _one_array=lambda one, other: np.array_equal(one, other), factors=lambda *given: "factors",
        _wrong=lambda one, other, apart, rank: asked.append(apart),
    )  # fmt: skip
    flight: Any = SimpleNamespace(block=SimpleNamespace(rank=0))
    views = {name: view(found, name) for name, found in (("A", a), ("B", b)) if found is not None}
    Scales.judge(own, flight, dict.fromkeys(tensor_memory.NAMES, ()), views, 1)
    assert asked == [apart] * 2


def test_nothing_goes_on_where_nothing_was_copied() -> None:
    own: Any = SimpleNamespace(origins=SimpleNamespace(at={}))
    assert Shapes._goes_on(own, 0, None, 64) is False  # type: ignore[arg-type]


def test_a_register_of_a_lane_that_does_not_execute() -> None:
    """A shuffle brings origins from lanes that execute it; of others nothing is known."""
    own = Tags({5: (2, 1), 6: (3, 1)}, 4)
    own.origin[2], own.place[2] = [100, 200, 300, 400], [1, 2, 3, 4]
    threads, partners = np.arange(4), np.array([1, 0, 3, 2])
    own.move(Move(np.array([3]), np.array([2]), np.array([1])), threads, partners, np.array([True, True, False, True]))
    assert own.origin[3].tolist() == [201, 101, 401, 0] and own.place[3].tolist() == [2, 1, 4, 0]


@pytest.mark.parametrize(
    ("value", "said"), [(0, "bytes that no copy wrote"), (FILL, "bytes that were filled in"), (1, "")]
)
def test_elements_of_nowhere(value: int, said: str) -> None:
    """They are named before what else is wrong; an element at the tensor's first byte is one."""
    found = irregular(view([[1, 3, 5], [11, value, 15]]), None)
    assert found.startswith(f"reads A[1, 1] from {said}") if said else "not rows and columns of one matrix" in found


def test_mends_give_the_same_rows_or_others() -> None:
    """Rows are known by their first elements: two operands that share some have to share all."""
    for rows, lost in (([[10, 12], [20, 22]], False), ([[30, 10], [40, 20]], False), ([[10, 12], [30, 32]], True)):
        trials = Trials()
        trials.rows(view([[10, 11], [20, 21]]))
        trials.rows(view(rows))
        assert trials.lost is lost
    one = Trials()
    one.rows(view([[10], [20]]))
    assert not one.lost
