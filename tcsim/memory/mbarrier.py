"""mbarrier: the barrier in shared memory that counts arrivals and bytes, phase by phase.

Source: PTX ISA, sections Parallel Synchronization and Communication Instructions: mbarrier (counts, phases, ranges,
layouts), compared with what mbarriers of an NVIDIA H200 do (conformance/recordings/sm_90). The bits of the 64-bit object are in `tcsim.memory.mbarrier_bits`, the instructions that act on it in
`tcsim.isa.mbarrier.semantics`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType

from tcsim.core.arguments import integer, is_name
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing
from tcsim.memory import mbarrier_bits

MOST_ARRIVALS = (1 << 20) - 1
"""The largest expected arrival count of layout v0; the smallest is 1."""
LAYOUTS = MappingProxyType({"v0": MOST_ARRIVALS, "v1": (1 << 9) - 1})
"""The layouts of an mbarrier object, and the largest expected arrival count of each (table Mbarrier counts)."""
MOST_BYTES = (1 << 20) - 1
"""The largest magnitude of the transaction count, and the most bytes that it changes by at once."""


class BarrierError(OperandError):
    """A use of an mbarrier whose outcome the manual leaves undefined."""


class BarrierCountError(BarrierError):
    """A number of arrivals that no barrier of the layout can expect."""


class TransactionError(BarrierError):
    """A transaction count, or a number of bytes, beyond its range."""


@dataclass(frozen=True)
class BarrierState:
    """What an arrive returns: the phase that it arrived in, and the arrivals that were pending just before."""

    phase: int
    pending: int  # what mbarrier.pending_count gives
    counted: bool = field(
        default=False, compare=False, repr=False
    )  # of .noComplete: only then pending_count is defined


class MBarrier(Shown):
    """One barrier, as after `mbarrier.init`. Its methods change it; `copy` keeps what it was.

    A phase ends when no arrival is pending and the transaction count is zero; the next one begins at once, with the
    expected arrivals pending again. Here phases are counted from 0; the hardware keeps the lowest bit, the parity. In layout
    v1 the conditional phase stays behind if an operation reports (report-on). No operation that is modelled does, so here
    it is always the primary phase.

    Raises BarrierError for a layout that does not exist or a count that it does not hold: 1 to 2**20 - 1 in v0, to 511 in v1.

    >>> full = tcsim.MBarrier(1)
    >>> full.test_wait_parity(1)  # the phase before the first counts as complete: how a producer's first wait passes
    True
    >>> state = full.arrive_expect_tx(4096)
    >>> full.complete_tx(4096)
    >>> full.test_wait(state), full.phase
    (True, 1)
    >>> empty = tcsim.MBarrier(4)
    >>> before, last = empty.arrive(2), empty.copy()
    >>> state = last.arrive_drop(2)  # the next phase expects two arrivals
    >>> empty, last
    (MBarrier(phase=0, pending=2 of 4, tx_count=0), MBarrier(phase=1, pending=2 of 2, tx_count=0))
    >>> empty.increment()
    >>> empty
    MBarrier(phase=0, pending=3 of 4, tx_count=0)
    >>> last.expect_tx(16)
    >>> state = last.arrive_drop_expect_tx(48)
    >>> last
    MBarrier(phase=1, pending=1 of 1, tx_count=64)
    >>> last.inval()
    """

    def __init__(self, count: int, layout: str = "v0") -> None:
        count = integer(count, "MBarrier: count", BarrierError)
        if not is_name(layout, LAYOUTS):
            raise BarrierError(f"MBarrier({count}, {layout!r}): no such layout; valid: {listing(LAYOUTS)}")
        if not 1 <= count <= LAYOUTS[layout]:
            raise BarrierCountError(
                f"MBarrier({count}): valid are expected arrivals from 1 to {LAYOUTS[layout]} (layout {layout})"
            )
        self._layout = layout
        self._phase = 0
        self._expected = count
        self._pending = count
        self._bytes = 0
        self._valid = True

    def __repr__(self) -> str:
        if not self._valid:
            return "MBarrier(invalidated)"
        return f"MBarrier(phase={self._phase}, pending={self._pending} of {self._expected}, tx_count={self._bytes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MBarrier) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> MBarrier:
        """A barrier in the same state, which changes on its own."""
        return copy(self)

    @classmethod
    def decode(cls, value: int, *, arch: str) -> MBarrier:
        """The barrier that the 64 bits of an object (or of a state that an arrive returned) hold on an arch.

        They hold only the parity of the phase, so `phase` is 0 or 1. Which bits and how they are known:
        `tcsim.memory.mbarrier_bits.FIELDS`.

        Raises BarrierError for bits that no barrier has, NotModelledError for those of layout v1 on sm_107.

        >>> MBarrier.decode(0x7FFF_F000_001F_FFFC, arch="sm_90")
        MBarrier(phase=0, pending=2 of 2, tx_count=0)
        """
        value = integer(value, "MBarrier.decode: value", BarrierError)
        fields = mbarrier_bits.unpack(value, arch)
        call = f'MBarrier.decode({value:#018x}, arch="{arch}")'
        if fields.get("error"):
            raise BarrierError(f"{call}: the error bit is set: more arrivals came than were pending")
        layout, expected, pending = f"v{fields.get('layout', 0)}", fields["expected"], fields["pending"]
        if max(expected, pending) > LAYOUTS[layout]:
            raise BarrierError(
                f"{call}: {pending} arrivals pending, {expected} expected: no barrier of layout {layout}"
            )
        barrier = cls(1, layout)
        barrier._expected = expected
        barrier._phase, barrier._pending, barrier._bytes = fields["phase"], pending, fields.get("tx_count", 0)
        return barrier

    def encode(self, *, arch: str) -> int:
        """The 64 bits of the object on an arch: the inverse of `decode`, except that they hold only the parity of the phase.

        Raises OperandError for a barrier that the arch cannot have, BarrierError after inval, NotModelledError as `decode`.

        Post-conditions:
            MBarrier.decode(result, arch=arch).parity == self.parity
            MBarrier.decode(result, arch=arch).encode(arch=arch) == result
            (MBarrier.decode(result, arch=arch) == self) == (self.phase < 2)

        >>> hex(MBarrier(5).encode(arch="sm_90")), hex(MBarrier(5).encode(arch="sm_80"))
        ('0x7fffd800001ffff6', '0x7ffffffb3ffffffb')
        """
        self._alive("encode")
        values = {
            "phase": self.parity,
            "pending": self._pending,
            "expected": self._expected,
            "tx_count": self._bytes,
            "layout": int(self._layout.removeprefix("v")),
        }
        return mbarrier_bits.pack(values, arch)

    @property
    def layout(self) -> str:
        """The layout of the object: "v0" or "v1"."""
        return self._layout

    @property
    def phase(self) -> int:
        """Phases completed since init."""
        return self._phase

    @property
    def parity(self) -> int:
        """Parity of the phase that is under way."""
        return self._phase & 1

    @property
    def expected(self) -> int:
        """Arrivals that the next phase will wait for."""
        return self._expected

    @property
    def pending(self) -> int:
        """Arrivals that the phase under way still waits for."""
        return self._pending

    @property
    def tx_count(self) -> int:
        """Bytes that were expected and are not complete; negative if they completed before they were expected.

        Post-conditions:
            -MOST_BYTES <= result <= MOST_BYTES
        """
        return self._bytes

    def arrive(self, count: int = 1, no_complete: bool = False) -> BarrierState:
        """mbarrier.arrive: `count` arrivals; with `no_complete` they must not end the phase.

        Raises BarrierError for more arrivals than are pending, for a phase that `.noComplete` would end, and after inval.

        Pre-conditions:
            1 <= count <= before.pending
            not no_complete or count < before.pending or before.tx_count != 0
        Post-conditions:
            (result.phase, result.pending) == (before.phase, before.pending)
            self.phase - before.phase == (before.pending == count and before.tx_count == 0)
            self.pending == (before.pending - count if self.phase == before.phase else self.expected)
            self.expected == before.expected
        """
        return self._arrive(count, 0, no_complete, "arrive")

    def arrive_drop(self, count: int = 1, no_complete: bool = False) -> BarrierState:
        """mbarrier.arrive_drop: arrivals that later phases no longer expect.

        Raises BarrierError as `arrive` does.

        Pre-conditions:
            1 <= count <= before.pending
            not no_complete or count < before.pending or before.tx_count != 0
        Post-conditions:
            self.expected == before.expected - count
            self.pending == (before.pending - count if self.phase == before.phase else self.expected)
        """
        return self._arrive(count, count, no_complete, "arrive_drop")

    def increment(self, count: int = 1) -> None:
        """More arrivals that this phase waits for: what cp.async.mbarrier.arrive without .noinc does at once.

        Raises BarrierError for a count beyond what the layout holds, after inval, and where every arrival was dropped.
        """
        self._wanted(f"increment({count})")
        if self._pending + count > LAYOUTS[self._layout]:
            raise BarrierError(f"{self!r}: the pending count would be beyond {LAYOUTS[self._layout]}")
        self._pending += count

    def expect_tx(self, bytes: int) -> None:
        """mbarrier.expect_tx: wait for this many bytes more in this phase.

        Raises BarrierError for a negative number, 2**20 bytes or more, a transaction count beyond 2**20 - 1, and after inval;
        also where no arrival is pending and the count comes to zero, since the manual does not say whether that ends the phase.

        Pre-conditions:
            0 <= bytes <= MOST_BYTES
            before.tx_count + bytes <= MOST_BYTES
            before.pending > 0 or before.tx_count + bytes != 0
        Post-conditions:
            self.tx_count == before.tx_count + bytes
            (self.phase, self.pending, self.expected) == (before.phase, before.pending, before.expected)
        """
        bytes = integer(bytes, f"{self!r}.expect_tx: bytes", BarrierError)
        call = f"expect_tx({bytes})"
        if self._valid and self._pending == 0 and self._bytes + bytes == 0:
            raise BarrierError(
                f"{self!r}.{call}: no arrival is pending, and whether expect_tx ends the phase is not known; valid: expect_tx "
                "before the last arrival"
            )
        self._add(bytes, 1, call)

    def complete_tx(self, bytes: int) -> None:
        """mbarrier.complete_tx, which bulk copies do as their bytes arrive; it may end the phase.

        Raises BarrierError for a negative number, 2**20 bytes or more, a transaction count below -(2**20 - 1), and after inval.

        Pre-conditions:
            0 <= bytes <= MOST_BYTES
            before.tx_count - bytes >= -MOST_BYTES
        Post-conditions:
            self.tx_count == before.tx_count - bytes
            self.phase - before.phase == (before.pending == 0 and self.tx_count == 0)
            self.pending == (before.pending if self.phase == before.phase else before.expected)
        """
        self._add(bytes, -1, f"complete_tx({bytes})")
        self._end_phase()

    def arrive_expect_tx(self, bytes: int) -> BarrierState:
        """mbarrier.arrive.expect_tx: expect_tx, then one arrival.

        Raises BarrierError as the two do; then nothing has changed.

        Pre-conditions:
            0 <= bytes <= MOST_BYTES
            before.tx_count + bytes <= MOST_BYTES
            before.pending > 0
        Post-conditions:
            self.tx_count == before.tx_count + bytes
            self.phase - before.phase == (before.pending == 1 and self.tx_count == 0)
        """
        self._require(1, f"arrive_expect_tx({bytes})")
        self.expect_tx(bytes)
        return self.arrive()

    def arrive_drop_expect_tx(self, bytes: int) -> BarrierState:
        """mbarrier.arrive_drop.expect_tx: expect_tx, then one arrival that later phases no longer expect.

        Raises BarrierError as the two do; then nothing has changed.

        Pre-conditions:
            0 <= bytes <= MOST_BYTES
            before.tx_count + bytes <= MOST_BYTES
            before.pending > 0
        Post-conditions:
            self.tx_count == before.tx_count + bytes
            self.expected == before.expected - 1
        """
        self._require(1, f"arrive_drop_expect_tx({bytes})")
        self.expect_tx(bytes)
        return self.arrive_drop()

    def test_wait(self, state: BarrierState) -> bool:
        """mbarrier.test_wait (and what try_wait ends with): whether the phase of `state` has completed.

        Raises BarrierError for a state that is neither of the phase under way nor of the one before, and after inval.

        Pre-conditions:
            self.phase - 1 <= state.phase <= self.phase
        Post-conditions:
            result == (state.phase < self.phase)
            self == before
        """
        self._alive("test_wait")
        if not isinstance(state, BarrierState):
            raise BarrierError(
                f"{self!r}.test_wait({state!r}): valid: what an arrive returned; of a parity: test_wait_parity"
            )
        if not self._phase - 1 <= state.phase <= self._phase:
            raise BarrierError(
                f"{self!r}.test_wait: the state is of phase {state.phase}; valid: of phase {self._phase} or the one before"
            )
        return state.phase != self._phase

    def test_wait_parity(self, parity: int) -> bool:
        """mbarrier.test_wait.parity: whether the latest phase of this parity has completed.

        True unless it is the phase under way. For the phase before the first, parity 1, the answer is true.

        Raises BarrierError for a parity that is not 0 or 1, and after inval.

        Pre-conditions:
            parity in (0, 1)
        Post-conditions:
            result == (self.phase % 2 != parity)
            self == before
        """
        self._alive("test_wait_parity")
        if integer(parity, f"{self!r}.test_wait_parity: parity", BarrierError) not in (0, 1):
            raise BarrierError(f"{self!r}.test_wait_parity({parity}): valid: 0, 1")
        return parity != self.parity

    def inval(self) -> None:
        """mbarrier.inval: the memory may be used otherwise; only init makes it a barrier again.

        Raises BarrierError if it is invalid already.
        """
        self._alive("inval")
        self._valid = False

    def _alive(self, call: str) -> None:
        if not self._valid:
            raise BarrierError(f"{self!r}.{call}: the barrier was invalidated; valid: a new MBarrier (mbarrier.init)")

    def _wanted(self, call: str) -> None:
        self._alive(call)
        if self._expected == 0 and self._pending == 0 and self._bytes == 0:
            raise BarrierError(f"{self!r}.{call}: every arrival was dropped, none is expected any more; valid: inval")

    def _require(self, count: int, call: str) -> None:
        self._wanted(call)
        if self._pending == 0:
            raise BarrierError(
                f"{self!r}.{call}: all arrivals of this phase have come, and it waits for bytes; valid: complete_tx"
            )
        if not 1 <= count <= self._pending:
            raise BarrierError(
                f"{self!r}.{call}: {self._pending} arrivals are pending; valid counts: 1 to {self._pending}"
            )

    def _arrive(self, count: int, dropped: int, no_complete: bool, name: str) -> BarrierState:
        count = integer(count, f"{self!r}.{name}: count", BarrierError)
        call = f"{name}({count})"
        self._require(count, call)
        if no_complete and count == self._pending and self._bytes == 0:
            raise BarrierError(f"{self!r}.{call}: .noComplete promises not to end the phase, and this arrival would")
        state = BarrierState(self._phase, self._pending, counted=no_complete)
        self._pending -= count
        self._expected -= dropped
        self._end_phase()
        return state

    def _add(self, bytes: int, sign: int, call: str) -> None:
        self._alive(call)
        bytes = integer(bytes, f"{self!r}.{call.partition('(')[0]}: bytes", BarrierError)
        total = self._bytes + sign * bytes
        if not 0 <= bytes <= MOST_BYTES or not -MOST_BYTES <= total <= MOST_BYTES:
            lenient = bytes <= MOST_BYTES and total == MOST_BYTES + 1
            chip = " (beyond the manual's range, though an H200 does not fault there)" if lenient else ""
            raise TransactionError(
                f"{self!r}.{call}: {bytes} bytes at once, the transaction count would be {total}{chip}; valid: numbers of "
                f"bytes from 0 to {MOST_BYTES} that bring it to -{MOST_BYTES} to {MOST_BYTES}"
            )
        self._bytes = total

    def _end_phase(self) -> None:
        if self._pending == 0 and self._bytes == 0:
            self._phase += 1
            self._pending = self._expected
