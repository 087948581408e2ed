"""Elections, registers, cluster barriers and addresses, remote stores, cancelled launches: against slow models; wrong use by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import tcsim
from tcsim import catalog
from tcsim.core.addresses import ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import OperandError
from tcsim.isa.barrier_cluster import ClusterBarrier, ClusterBarrierError
from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.isa.mapa import rank_of
from tcsim.isa.setmaxnreg import FEWEST, MOST, STEP, RegisterPool
from tcsim.isa.st_async import RemoteRow
from tcsim.memory.mbarrier import BarrierError, MBarrier
from tcsim.model.row import Row
from tests.exact import cluster as exact
from tests.support.extent import examples

STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes"
REDUCE = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
TRY_CANCEL = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
QUERY = "clusterlaunchcontrol.query_cancel"


def rows(family: str) -> list[Any]:
    """The rows of a family."""
    return [row for row in catalog.rows().values() if row.family == family]


def on(mnemonic: str, arch: str = "sm_90") -> Any:
    """An instruction."""
    return tcsim.instruction(mnemonic, arch=arch)


# ---- elect.sync


@given(masks=st.lists(st.integers(1, 0xFFFF_FFFF), min_size=1, max_size=4))
def test_one_member_is_elected(masks: list[int]) -> None:
    """A member, the lowest; its predicate alone is true; a batch is as each mask alone."""
    elect = on("elect.sync")
    lanes, elected = elect.execute(membermask=np.array(masks, np.uint32))
    for mask, lane, predicates in zip(masks, lanes.tolist(), elected, strict=True):
        own = exact.members(mask)
        assert lane == own[0]
        assert np.flatnonzero(predicates).tolist() == [lane]
        assert np.flatnonzero(elect.allowed(mask)).tolist() == own
        assert int(elect.execute(mask, executing=mask)[0]) == lane


def test_wrong_elections_are_named() -> None:
    """Empty masks, lanes outside, lanes that do not come, numbers that are no mask."""
    elect = on("elect.sync")
    for mask, executing, words in [
        (0, None, "membermask=0x0 names no lane"),
        (1 << 32, None, "valid: 32 bits"),
        (-1, None, "valid: 32 bits"),
        (0.5, None, "membermask is float64"),
        (0b0110, 0b0111, "lane 0 executes it and is not in membermask: the behaviour is undefined"),
        (0b0110, 0b0010, "lane 2 is in membermask and does not execute it: the others wait"),
    ]:
        with pytest.raises(OperandError, match=words):
            elect.execute(mask, executing)
    assert elect.evidence.level == "measured"  # the manual does not say which lane
    assert on("elect.sync", "sm_100").evidence.level == "inferred"


# ---- setmaxnreg


@pytest.mark.parametrize("word", ["inc", "dec"])
def test_the_counts_of_setmaxnreg(word: str) -> None:
    """24 to 256 in steps of 8."""
    (form,) = on(f"setmaxnreg.{word}.sync.aligned.u32").row.forms
    assert form["count"].values == tuple(8 * number for number in range(3, 33))


class Pools(RuleBasedStateMachine):
    """Any sequence of moves that the manual defines: both models agree on who goes on, and no register is lost."""

    @initialize(warpgroups=st.integers(1, 4), registers=st.integers(3, 32))
    def begin(self, warpgroups: int, registers: int) -> None:
        """A launch."""
        self.pool = RegisterPool.at_launch(warpgroups, STEP * registers)
        self.slow = exact.Registers([STEP * registers] * warpgroups)
        self.total = self.pool.total

    @rule(data=st.data(), word=st.sampled_from(["inc", "dec"]))
    def move(self, data: Any, word: str) -> None:
        """Up or down from what a warpgroup owns; from the end of the range there is one way."""
        warpgroup = data.draw(st.integers(0, len(self.pool.owned) - 1))
        now = self.pool.owned[warpgroup]
        low, high = (now, MOST) if word == "inc" else (FEWEST, now)
        count = STEP * data.draw(st.integers(low // STEP, high // STEP))
        before = self.pool
        goes_on, self.pool = on(f"setmaxnreg.{word}.sync.aligned.u32").execute(before, warpgroup, count)
        assert goes_on is self.slow.ask(warpgroup, count)
        assert goes_on or self.pool == before
        assert list(self.pool.owned) == self.slow.owned
        assert 128 * self.pool.free == self.slow.pool
        assert self.pool.total == self.total


TestPools = Pools.TestCase
TestPools.settings = examples(40, stateful_step_count=15)


@pytest.mark.parametrize(
    ("word", "warpgroup", "count", "words"),
    [
        ("inc", 0, 16, "count=16: valid: multiples of 8 from 24 to 256"),
        ("inc", 0, 264, "count=264: valid: multiples of 8"),
        ("dec", 0, 36, "count=36: valid: multiples of 8"),
        ("dec", 3, 40, "warpgroup=3: valid: 0 to 1"),
        (
            "dec",
            0,
            240,
            r"count=240: warpgroup 0 owns 168, and the behaviour is undefined; valid: 168 or less, or setmaxnreg.inc",
        ),
        (
            "inc",
            1,
            160,
            r"count=160: warpgroup 1 owns 168, and the behaviour is undefined; valid: 168 or more, or setmaxnreg.dec",
        ),
    ],
)
def test_wrong_moves_of_registers_are_named(word: str, warpgroup: int, count: int, words: str) -> None:
    """The manual's range, and where it leaves the behaviour undefined."""
    with pytest.raises(OperandError, match=words):
        on(f"setmaxnreg.{word}.sync.aligned.u32").execute(RegisterPool.at_launch(2, 168), warpgroup, count)


def test_wrong_pools_are_named() -> None:
    """Numbers that no launch gives, and what is no pool."""
    for owned, free in (((20,), 0), ((), 0), ((168,), -8)):
        with pytest.raises(OperandError, match="RegisterPool"):
            RegisterPool(owned, free)
    with pytest.raises(OperandError, match="pool is a int; valid: a RegisterPool"):
        on("setmaxnreg.inc.sync.aligned.u32").execute(3, 0, 24)


# ---- barrier.cluster


class Meetings(RuleBasedStateMachine):
    """Any order of arrivals, waits and exits: the barrier and the diary agree; what is not allowed is refused by both."""

    @initialize(warps=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def begin(self, warps: list[int]) -> None:
        """A cluster."""
        self.barrier = ClusterBarrier(warps)
        self.diary = exact.Meetings([(block, warp) for block, number in enumerate(warps) for warp in range(number)])

    @property
    def there(self) -> list[tuple[int, int]]:
        """Warps that have not exited."""
        return sorted(self.diary.read()[2])

    @precondition(lambda self: self.there)
    @rule(data=st.data(), order=st.sampled_from(["", ".release", ".relaxed.aligned"]))
    def arrive(self, data: Any, order: str) -> None:
        """Once in a phase."""
        who = data.draw(st.sampled_from(self.there))
        arrive, before = on(f"barrier.cluster.arrive{order}"), self.barrier.copy()
        if who in self.diary.read()[1]:
            with pytest.raises(ClusterBarrierError, match="has arrived in phase"):
                arrive.execute(self.barrier, *who)
            return
        after = arrive.execute(self.barrier, *who)
        assert self.barrier == before
        self.barrier = after
        self.diary.events.append(("arrive", who))
        self.agree()

    @precondition(lambda self: len(self.there) > 1)
    @rule(data=st.data())
    def exit(self, data: Any) -> None:
        """A warp ends: nobody waits for it any more."""
        who = data.draw(st.sampled_from(self.there))
        self.barrier.exit(*who)
        self.diary.events.append(("exit", who))
        for use in (self.barrier.arrive, self.barrier.wait, self.barrier.exit):
            with pytest.raises(ClusterBarrierError, match="this warp has exited"):
                use(*who)
        self.agree()

    def agree(self) -> None:
        """Phase, counts, and the wait of every warp."""
        over, here, there, last = self.diary.read()
        assert (self.barrier.phase, self.barrier.expected) == (over, len(there))
        assert self.barrier.pending == len(there) - len(here)
        wait = on("barrier.cluster.wait.acquire")
        for who in there:
            if who in last:
                assert wait.execute(self.barrier, *who) is (last[who] < over)
            else:
                with pytest.raises(ClusterBarrierError, match="would wait for itself"):
                    wait.execute(self.barrier, *who)


TestMeetings = Meetings.TestCase
TestMeetings.settings = examples(40, stateful_step_count=20)


def test_cluster_barriers_in_words() -> None:
    """Each spelling says what it orders; the relaxed arrive nothing; wrong use is named."""
    told = {row.mnemonic: on(row.mnemonic).orders for row in rows("barrier.cluster")}
    assert len(told) == 10
    for name, text in told.items():
        assert ("nothing" in text) == ("relaxed" in name)
        assert ("before other threads" in text or "what other threads" in text) == ("relaxed" not in name)
    assert repr(ClusterBarrier([4, 4])) == "ClusterBarrier(phase=0, pending=8 of 8)"
    gone = ClusterBarrier([1])
    gone.exit(0, 0)
    assert (gone.phase, gone.expected, gone.pending) == (0, 0, 0)  # nobody is left to meet
    with pytest.raises(ClusterBarrierError, match="valid: a block or more"):
        ClusterBarrier([])
    with pytest.raises(ClusterBarrierError, match="there is no such warp; the blocks have 2, 1"):
        ClusterBarrier([2, 1]).arrive(1, 1)
    with pytest.raises(OperandError, match="valid: a ClusterBarrier"):
        on("barrier.cluster.arrive").execute(MBarrier(1), 0, 0)


# ---- mapa


@given(
    address=st.integers(0, (1 << 64) - 1),
    rank=st.integers(0, 31),
    name=st.sampled_from([row.mnemonic for row in rows("mapa")]),
)
def test_mapa(address: int, rank: int, name: str) -> None:
    """One byte of the address becomes the rank."""
    item = on(name)
    bits = item.row.bits
    address &= (1 << bits) - 1
    found = item.execute(np.uint64(address), rank)
    assert found.dtype == np.dtype(f"uint{bits}")
    assert int(found) == exact.address_in_block(address, rank)
    assert int(rank_of(found)) == rank


def test_wrong_addresses_are_named() -> None:
    """Wider than the spelling, ranks that no cluster has, shapes that do not fit."""
    item = on("mapa.shared::cluster.u32")
    for address, rank, words in [
        (1 << 32, 0, "address is out of range; valid: integers, 32 bits"),
        (1 << 70, 0, "address is out of range"),
        (0, 32, "rank is out of range; valid: integers, 0 to 31"),
        (0, 0.5, "rank is float64"),
        ([0, 1], [0, 1, 2], "do not broadcast"),
    ]:
        with pytest.raises(OperandError, match=words):
            item.execute(address, rank)
    assert item.execute([[0], [4]], [0, 1, 2]).shape == (2, 3)


# ---- st.async and red.async


def remote_case(row: RemoteRow, threads: int, seed: int) -> tuple[Any, Any, Any]:
    """An image of 256 bytes, addresses of the threads' own, and random codes."""
    generator = np.random.default_rng(seed)
    places = generator.permutation(256 // row.bytes)[:threads] * row.bytes
    words = generator.integers(0, 1 << 32, (threads, 4), np.uint32)
    codes = words[:, : row.bytes // 4].copy().view(f"<u{row.word_bits // 8}")
    return generator.integers(0, 256, 256, np.uint8), places, codes[:, 0] if row.words == 1 else codes


@pytest.mark.parametrize("family", ["st.async", "red.async"])
def test_every_remote_row_executes(family: str) -> None:
    """Each spelling writes what the slow model says, and its barrier gets the bytes of every thread; nothing given changes."""
    executed = 0
    for seed, row in enumerate(rows(family)):
        item = on(row.mnemonic)
        image, places, codes = remote_case(row, 7, seed)
        barrier = MBarrier(1)
        state = barrier.arrive_expect_tx(7 * row.bytes)
        before = image.copy(), barrier.copy()
        out, after = item.execute(image, places, codes, barrier)
        want = image.tolist()
        for place, code in zip(places.tolist(), codes.tolist(), strict=True):
            if row.reduction is None:
                exact.store(want, place, code if isinstance(code, list) else [code], row.word_bits)
            else:
                exact.reduce(want, place, code, row.reduction.operation, row.type)
        assert out.tolist() == want, row.mnemonic
        assert after.test_wait(state) and (after.phase, after.tx_count) == (1, 0)
        assert np.array_equal(image, before[0]) and barrier == before[1]
        executed += 1
    assert executed == {"st.async": 84, "red.async": 24}[family]


@given(data=st.data(), row=st.sampled_from(rows("red.async")))
def test_several_reductions_at_one_place(data: Any, row: RemoteRow) -> None:
    """In whatever order they come, of all operations: inc and dec with one operand; values at the ends of the type."""
    assert row.reduction is not None
    top = (1 << row.word_bits) - 1
    ends = st.sampled_from([0, 1, 2, 3, top, top - 1, top >> 1, (top >> 1) + 1]) | st.integers(0, top)
    places = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=8))
    codes = [data.draw(ends) for _ in places]
    if row.reduction.operation in ("inc", "dec"):
        codes = [codes[0]] * len(codes)
    image = np.array([data.draw(ends) for _ in range(3)], f"<u{row.bytes}").view(np.uint8)
    out, _ = on(row.mnemonic).execute(
        image, [place * row.bytes for place in places], np.array(codes, f"<u{row.bytes}"), MBarrier(1)
    )
    want = image.tolist()
    for place, code in data.draw(st.permutations(list(zip(places, codes, strict=True)))):
        exact.reduce(want, place * row.bytes, code, row.reduction.operation, row.type)
    assert out.tolist() == want


def test_remote_batches_and_floats() -> None:
    """Leading dimensions are as each alone; floats of the type's width are their codes; scalars will do for one thread."""
    item = on(f"{STORE}.v2.f32")
    images = np.arange(64, dtype=np.uint8).reshape(2, 32)
    values = np.array([[[1.0, -2.0]], [[0.5, 3.0]]], np.float32)
    out, _ = item.execute(images, [[8], [16]], values, MBarrier(1))
    for index in (0, 1):
        alone, _ = item.execute(images[index], [8 + 8 * index], values[index], MBarrier(1))
        assert np.array_equal(out[index], alone)
    assert out[0, 8:16].view(np.float32).tolist() == [1.0, -2.0]
    out, after = on(f"{STORE}.u64").execute(np.zeros(16, np.uint8), 8, 0x0102_0304_0506_0708, MBarrier(1))
    assert out[8:].tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert after.tx_count == -8  # bytes may come before they are expected


@pytest.mark.parametrize(
    ("name", "change", "error", "words"),
    [
        (f"{STORE}.v4.b32", {"address": 8}, MisalignedAddressError, "address = 0x8: what a thread writes starts at a multiple of 16 bytes"),
        (f"{STORE}.b32", {"address": 64}, OutsideMemoryError, "a value of 4 bytes does not lie in the 64 bytes of smem"),
        (f"{STORE}.b32", {"address": 0.5}, OperandError, "address is float64"),
        (f"{STORE}.b32", {"value": 1 << 32}, OperandError, "value is int64; valid: codes of 32 bits"),
        (f"{STORE}.u32", {"value": -1}, OperandError, "valid: codes of 32 bits"),
        (f"{STORE}.v2.u32", {"value": [1, 2, 3]}, OperandError, r"value is \(3,\); valid: \(..., threads, 2\)"),
        (f"{STORE}.u32", {"value": 1.0}, OperandError, "value is float64"),
        (f"{STORE}.b32", {"barrier": None}, OperandError, "valid: an MBarrier"),
        (f"{STORE}.b32", {"smem": np.zeros(4)}, OperandError, "smem is float64"),
        (f"{STORE}.b32", {"blocks": 1, "rank": 0}, OperandError, "blocks=1: the behaviour is undefined; valid: a cluster of 2 or more"),
        (f"{STORE}.b32", {"rank": 2}, OperandError, "rank=2: the cluster has 2 blocks"),
        (f"{REDUCE}.add.u32", {"rank": 0}, OperandError, "rank=0 is the thread's own block: the behaviour of red.async is undefined"),
        (f"{STORE}.b32", {"address": [0, 0], "value": [1, 2]}, ContestedRowError, "threads 0 and 1 store different bytes to 0x0"),
        (f"{REDUCE}.inc.u32", {"address": [4, 4], "value": [1, 2]}, ContestedRowError, "inc 0x4 with different operands"),
    ],
)  # fmt: skip
def test_wrong_remote_use_is_named(name: str, change: dict[str, Any], error: type[Exception], words: str) -> None:
    """The error quotes the call and says what would be valid."""
    call = {"smem": np.zeros(64, np.uint8), "address": 0, "value": 1, "barrier": MBarrier(1)} | change
    with pytest.raises(error, match=words) as caught:
        on(name).execute(**call)
    assert name in str(caught.value)


def test_what_the_manual_allows_between_blocks() -> None:
    """st.async may write to the own block of a cluster of two or more; the same value twice is no conflict."""
    out, _ = on(f"{STORE}.b32").execute(np.zeros(8, np.uint8), [4, 4], [7, 7], MBarrier(1), rank=0)
    assert out.tolist() == [0, 0, 0, 0, 7, 0, 0, 0]
    gone = MBarrier(1)
    gone.inval()
    with pytest.raises(BarrierError, match="invalidated"):
        on(f"{STORE}.b32").execute(np.zeros(8, np.uint8), 0, 1, gone)


# ---- st.bulk


@given(data=st.data(), row=st.sampled_from(rows("st.bulk")))
def test_st_bulk(data: Any, row: Row) -> None:
    """Zeros in the range, and nowhere else."""
    size = 8 * data.draw(st.integers(0, 8))
    address = 8 * data.draw(st.integers(0, (64 - size) // 8))
    image = np.arange(1, 65, dtype=np.uint8)
    out = on(row.mnemonic, "sm_100").execute(image, address, size)
    assert out.tolist() == [0 if address <= place < address + size else place + 1 for place in range(64)]
    assert image[0] == 1


def test_wrong_fills_are_named() -> None:
    """Sizes, addresses, memories."""
    item = on("st.bulk.weak.shared::cta", "sm_100")
    image = np.zeros(64, np.uint8)
    for call, error, words in [
        ((image, 0, 12), OperandError, "size=12: valid: multiples of 8 from 0 to 16777216"),
        ((image, 0, 16_777_224), OperandError, "size=16777224"),
        ((image, 4, 8), MisalignedAddressError, "address = 0x4: the range starts at a multiple of 8 bytes"),
        ((image, 64, 8), OutsideMemoryError, "a range of 8 bytes does not lie in the 64"),
        ((image.astype(int), 0, 8), OperandError, "smem is int64"),
    ]:
        with pytest.raises(error, match=words):
            item.execute(*call)
    assert item.execute(np.ones((2, 16), np.uint8), 8, 8).sum() == 16


# ---- clusterlaunchcontrol


@given(first=st.none() | st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)))
def test_answers(first: tuple[int, int, int] | None) -> None:
    """What try_cancel writes, query_cancel reads; the barrier gets 16 bytes in each block."""
    state = (barrier := MBarrier(1)).arrive_expect_tx(16)
    smem, after = on(f"{TRY_CANCEL}.b128", "sm_100").execute(np.full(48, 255, np.uint8), 16, barrier, first)
    assert after.test_wait(state)
    words = smem[16:32].view(np.uint32)
    assert words.tolist() == exact.response(first)
    assert (smem[:16] == 255).all() and (smem[32:] == 255).all()
    assert bool(on(f"{QUERY}.is_canceled.pred.b128", "sm_100").execute(words)) is (first is not None)
    places = [on(f"{QUERY}.get_first_ctaid{tail}.b32.b128", "sm_100") for tail in (".v4", "::x", "::y", "::z")]
    if first is None:
        for item in places:
            with pytest.raises(OperandError, match="no cluster was cancelled, and what this gives is undefined"):
                item.execute(words)
    else:
        assert places[0].execute(words).tolist() == list(first)
        assert tuple(int(item.execute(words)) for item in places[1:]) == first
    many = on(f"{TRY_CANCEL}.multicast::cluster::all.b128", "sm_100")
    both, barriers = many.execute(np.zeros((2, 16), np.uint8), 0, [MBarrier(1), MBarrier(1)], first)
    assert [words.tolist() for words in both.view(np.uint32)] == [exact.response(first)] * 2
    assert [item.tx_count for item in barriers] == [-16, -16]


def test_wrong_cancellations_are_named() -> None:
    """Addresses, memories, barriers, coordinates, answers of another shape."""
    item = on(f"{TRY_CANCEL}.b128", "sm_100")
    many = on(f"{TRY_CANCEL}.multicast::cluster::all.b128", "sm_100")
    image, barrier = np.zeros(32, np.uint8), MBarrier(1)
    for call, error, words in [
        (lambda: item.execute(image, 8, barrier), MisalignedAddressError, "address = 0x8: an answer starts at a multiple of 16 bytes"),
        (lambda: item.execute(image, 32, barrier), OutsideMemoryError, "an answer of 16 bytes does not lie in the 32"),
        (lambda: item.execute(image.astype(int), 0, barrier), OperandError, "smem is int64"),
        (lambda: item.execute(image, 0, [barrier]), OperandError, "valid: an MBarrier"),
        (lambda: many.execute(image, 0, [barrier]), OperandError, r"valid: uint8 \(..., blocks, bytes\)"),
        (lambda: many.execute(image[None], 0, barrier), OperandError, "valid: a list of 1 MBarrier, one of each block"),
        (lambda: item.execute(image, 0, barrier, (0, 1 << 16, 0)), OperandError, "y=65536: valid: 0 to 65535"),
        (lambda: encode_response((1, 2)), OperandError, r"valid: \(x, y, z\), or None"),
        (lambda: on(f"{QUERY}.is_canceled.pred.b128", "sm_100").execute([1, 2, 3, 4]), OperandError, r"valid: uint32 \(..., 4\)"),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            call()
