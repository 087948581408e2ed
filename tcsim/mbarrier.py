"""mbarrier: the barrier in shared memory that counts arrivals and bytes, phase by phase.

Source: PTX ISA, sections Parallel Synchronization and Communication Instructions: mbarrier (counts, phases, ranges). Not
measured yet; the bits of the 64-bit object in shared memory are opaque and are not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcsim.errors import OperandError

MOST_ARRIVALS = (1 << 20) - 1
"""The largest expected arrival count; the smallest is 1."""
MOST_BYTES = (1 << 20) - 1
"""The largest magnitude of the transaction count."""


class BarrierError(OperandError):
    """A use of an mbarrier whose outcome the manual leaves undefined."""


@dataclass(frozen=True)
class BarrierState:
    """What an arrive returns: the phase that it arrived in, and the arrivals that were pending just before."""

    phase: int
    pending: int  # what mbarrier.pending_count gives


class MBarrier:
    """One barrier, as after `mbarrier.init`.

    A phase ends when no arrival is pending and the transaction count is zero; the next one begins at once, with the
    expected arrivals pending again. Here phases are counted from 0; the hardware keeps the lowest bit, the parity.

    Raises BarrierError for a count that is not 1 to 2**20 - 1.

    >>> full = tcsim.MBarrier(1)
    >>> full.test_wait_parity(1)  # the phase before the first counts as complete: how a producer's first wait passes
    True
    >>> state = full.arrive_expect_tx(4096)
    >>> full.complete_tx(4096)
    >>> full.test_wait(state), full.phase
    (True, 1)
    """

    def __init__(self, count: int) -> None:
        if not 1 <= count <= MOST_ARRIVALS:
            raise BarrierError(f"MBarrier({count}): valid are expected arrivals from 1 to {MOST_ARRIVALS}")
        self._phase = 0
        self._expected = count
        self._pending = count
        self._bytes = 0
        self._valid = True

    def __repr__(self) -> str:
        if not self._valid:
            return "MBarrier(invalidated)"
        return f"MBarrier(phase={self._phase}, pending={self._pending} of {self._expected}, tx_count={self._bytes})"

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
        """Bytes that were expected and are not complete; negative if they completed before they were expected."""
        return self._bytes

    def arrive(self, count: int = 1, no_complete: bool = False) -> BarrierState:
        """mbarrier.arrive: `count` arrivals; with `no_complete` they must not end the phase.

        Raises BarrierError for more arrivals than are pending, for a phase that `.noComplete` would end, and after inval.
        """
        return self._arrive(count, 0, no_complete, "arrive")

    def arrive_drop(self, count: int = 1, no_complete: bool = False) -> BarrierState:
        """mbarrier.arrive_drop: arrivals that later phases no longer expect.

        Raises BarrierError as `arrive` does.
        """
        return self._arrive(count, count, no_complete, "arrive_drop")

    def expect_tx(self, bytes: int) -> None:
        """mbarrier.expect_tx: wait for so many bytes more in this phase.

        Raises BarrierError for a negative number, a transaction count beyond 2**20 - 1, and after inval.
        """
        self._add(bytes, 1, f"expect_tx({bytes})")

    def complete_tx(self, bytes: int) -> None:
        """mbarrier.complete_tx, which bulk copies do as their bytes arrive; it may end the phase.

        Raises BarrierError for a negative number, a transaction count below -(2**20 - 1), and after inval.
        """
        self._add(bytes, -1, f"complete_tx({bytes})")
        self._end_phase()

    def arrive_expect_tx(self, bytes: int) -> BarrierState:
        """mbarrier.arrive.expect_tx: expect_tx, then one arrival.

        Raises BarrierError as the two do; then nothing has changed.
        """
        self._require(1, f"arrive_expect_tx({bytes})")
        self.expect_tx(bytes)
        return self.arrive()

    def test_wait(self, state: BarrierState) -> bool:
        """mbarrier.test_wait (and what try_wait ends with): whether the phase of `state` has completed.

        Raises BarrierError for a state that is neither of the phase under way nor of the one before, and after inval.
        """
        self._alive("test_wait")
        if not self._phase - 1 <= state.phase <= self._phase:
            raise BarrierError(
                f"{self!r}.test_wait: the state is of phase {state.phase}; valid: of phase {self._phase} or the one before"
            )
        return state.phase != self._phase

    def test_wait_parity(self, parity: int) -> bool:
        """mbarrier.test_wait.parity: whether the latest phase of this parity has completed.

        True unless it is the phase under way. Of the phase before the first, parity 1, the answer is true.

        Raises BarrierError for another parity than 0 and 1, and after inval.
        """
        self._alive("test_wait_parity")
        if parity not in (0, 1):
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

    def _require(self, count: int, call: str) -> None:
        self._alive(call)
        if self._pending == 0:
            raise BarrierError(
                f"{self!r}.{call}: all arrivals of this phase have come, and it waits for bytes; valid: complete_tx"
            )
        if not 1 <= count <= self._pending:
            raise BarrierError(
                f"{self!r}.{call}: {self._pending} arrivals are pending; valid counts: 1 to {self._pending}"
            )

    def _arrive(self, count: int, dropped: int, no_complete: bool, name: str) -> BarrierState:
        call = f"{name}({count})"
        self._require(count, call)
        if no_complete and count == self._pending and self._bytes == 0:
            raise BarrierError(f"{self!r}.{call}: .noComplete promises not to end the phase, and this arrival would")
        state = BarrierState(self._phase, self._pending)
        self._pending -= count
        self._expected -= dropped
        self._end_phase()
        return state

    def _add(self, bytes: int, sign: int, call: str) -> None:
        self._alive(call)
        total = self._bytes + sign * bytes
        if bytes < 0 or not -MOST_BYTES <= total <= MOST_BYTES:
            raise BarrierError(
                f"{self!r}.{call}: the transaction count would be {total}; valid: numbers of bytes from 0 on that bring it to "
                f"-{MOST_BYTES} to {MOST_BYTES}"
            )
        self._bytes = total

    def _end_phase(self) -> None:
        if self._pending == 0 and self._bytes == 0:
            self._phase += 1
            self._pending = self._expected
