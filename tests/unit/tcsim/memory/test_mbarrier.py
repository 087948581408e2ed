"""mbarrier: phases, arrivals and bytes against a model that keeps every event, and each misuse by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tcsim
from tcsim.memory.mbarrier import MOST_ARRIVALS, MOST_BYTES, BarrierError, BarrierState, MBarrier


@dataclass
class Ledger:
    """The slow model: a list of events of the phase under way; all counts are sums over it."""

    expected: int
    events: list[tuple[str, int]] = field(default_factory=list)
    phases: int = 0

    def total(self, kind: str) -> int:
        """The sum of the phase's events of one kind."""
        return sum(number for what, number in self.events if what == kind)

    @property
    def pending(self) -> int:
        """Arrivals still to come."""
        return self.expected - self.total("arrive") - self.total("drop")

    def note(self, kind: str, number: int) -> None:
        """Write an event down; begin a new page if it ends the phase."""
        self.events.append((kind, number))
        if kind != "expect" and self.pending == 0 and self.total("expect") == self.total("complete"):
            self.expected -= self.total("drop")
            self.events.clear()
            self.phases += 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["arrive", "drop", "expect", "complete", "both"]), st.integers(0, 6)), max_size=60
)


@given(count=st.integers(1, 12), steps=STEPS)
@example(count=1, steps=[("complete", 1), ("both", 0), ("expect", 1), ("expect", 2), ("complete", 1)])
def test_any_sequence_of_operations(count: int, steps: list[tuple[str, int]]) -> None:
    """Phase, pending arrivals, transaction count, states and parity waits after every step that is allowed."""
    barrier, ledger = tcsim.MBarrier(count), Ledger(count)
    latest: BarrierState | None = None
    for kind, number in steps:
        if kind in ("arrive", "drop", "both") and not 1 <= (1 if kind == "both" else number) <= ledger.pending:
            with pytest.raises(BarrierError):
                {"arrive": barrier.arrive, "drop": barrier.arrive_drop, "both": barrier.arrive_expect_tx}[kind](number)
            continue
        waiting = ledger.total("expect") - ledger.total("complete")
        if (
            kind == "expect" and ledger.pending == 0 and waiting + number == 0
        ):  # whether that ends the phase is not known
            with pytest.raises(BarrierError, match="no arrival is pending"):
                barrier.expect_tx(number)
            continue
        before = ledger.phases, ledger.pending
        if kind == "arrive":
            latest = barrier.arrive(number)
            ledger.note(kind, number)
        elif kind == "drop":
            latest = barrier.arrive_drop(number)
            ledger.note(kind, number)
        elif kind == "both":
            latest = barrier.arrive_expect_tx(number)
            ledger.note("expect", number)
            ledger.note("arrive", 1)
        else:
            {"expect": barrier.expect_tx, "complete": barrier.complete_tx}[kind](number)
            ledger.note(kind, number)
        if kind in ("arrive", "drop", "both"):
            assert latest == BarrierState(*before)
        seen = (barrier.phase, barrier.pending, barrier.expected, barrier.tx_count)
        left = ledger.expected - ledger.total("drop")
        assert seen == (ledger.phases, ledger.pending, left, ledger.total("expect") - ledger.total("complete"))
        assert barrier.parity == ledger.phases % 2
        assert barrier.test_wait_parity(ledger.phases % 2) is False
        assert barrier.test_wait_parity(1 - ledger.phases % 2) is True
        if latest is not None and latest.phase >= ledger.phases - 1:
            assert barrier.test_wait(latest) is (latest.phase < ledger.phases)


def test_bytes_may_arrive_before_they_are_expected() -> None:
    barrier = tcsim.MBarrier(1)
    barrier.complete_tx(128)
    assert (barrier.tx_count, barrier.phase) == (-128, 0)
    barrier.arrive_expect_tx(128)
    assert (barrier.tx_count, barrier.phase) == (0, 1)


def test_misuse_is_named() -> None:
    for count in (0, -1, MOST_ARRIVALS + 1):
        with pytest.raises(BarrierError, match=f"valid are expected arrivals from 1 to {MOST_ARRIVALS}"):
            tcsim.MBarrier(count)
    barrier = tcsim.MBarrier(2)
    state = barrier.arrive()
    with pytest.raises(BarrierError, match="1 arrivals are pending; valid counts: 1 to 1"):
        barrier.arrive(2)
    with pytest.raises(BarrierError, match="noComplete promises not to end the phase"):
        barrier.arrive(no_complete=True)
    for call in (barrier.expect_tx, barrier.complete_tx):
        with pytest.raises(BarrierError, match=f"-{MOST_BYTES} to {MOST_BYTES}"):
            call(MOST_BYTES + 1)
        with pytest.raises(BarrierError, match="numbers of bytes from 0 to"):
            call(-1)
    barrier.expect_tx(16)
    assert barrier.arrive(no_complete=True).pending == 1  # the bytes hold the phase open
    with pytest.raises(BarrierError, match="waits for bytes; valid: complete_tx"):
        barrier.arrive()
    barrier.complete_tx(16)
    barrier.arrive(2)
    with pytest.raises(BarrierError, match=re.escape("the state is of phase 0; valid: of phase 2 or the one before")):
        barrier.test_wait(state)
    with pytest.raises(BarrierError, match="valid: 0, 1"):
        barrier.test_wait_parity(2)
    last = tcsim.MBarrier(1)
    last.arrive_drop_expect_tx(16)
    for call in (last.arrive_expect_tx, last.arrive_drop_expect_tx):
        before = last.copy()
        with pytest.raises(BarrierError, match="waits for bytes"):
            call(16)
        assert last == before  # no bytes are expected by an arrival that cannot be
    with pytest.raises(BarrierError, match="waits for bytes; valid: complete_tx"):  # it is not over: bytes are to come
        last.arrive()
    last.complete_tx(16)
    with pytest.raises(BarrierError, match="every arrival was dropped"):
        last.arrive()
    barrier.inval()
    with pytest.raises(BarrierError, match="was invalidated"):
        barrier.arrive()
    with pytest.raises(BarrierError, match="was invalidated"):
        barrier.inval()


def test_the_largest_counts() -> None:
    barrier = tcsim.MBarrier(MOST_ARRIVALS)
    barrier.expect_tx(MOST_BYTES)
    assert barrier.arrive(MOST_ARRIVALS).pending == MOST_ARRIVALS
    assert barrier.phase == 0
    barrier.complete_tx(MOST_BYTES)
    assert (barrier.phase, barrier.pending) == (1, MOST_ARRIVALS)


def test_bytes_at_once_and_in_all() -> None:
    """2**20 bytes at once are refused wherever they lead; in all, with a word where an H200 does not fault."""
    for first, then in ((MBarrier.complete_tx, MBarrier.expect_tx), (MBarrier.expect_tx, MBarrier.complete_tx)):
        barrier = MBarrier(1)
        first(barrier, 1000)
        before = barrier.copy()
        with pytest.raises(
            BarrierError, match=r"1048576 bytes at once, the transaction count would be -?1047576; valid"
        ):
            then(barrier, MOST_BYTES + 1)
        assert barrier == before
        then(barrier, MOST_BYTES)
    for call, lenient in ((MBarrier.expect_tx, True), (MBarrier.complete_tx, False)):
        barrier = MBarrier(1)
        call(barrier, MOST_BYTES)
        for more in (1, 2):
            with pytest.raises(BarrierError) as refused:
                call(barrier, more)
            assert ("an H200 does not fault there" in str(refused.value)) == (lenient and more == 1)
