"""A slow model of mbarrier, from the PTX manual alone: a diary of what happened, from which every answer is counted anew.

Nothing is kept but the list of events since init, as (kind, number). Phases are found by reading the diary from its
beginning: whenever as many arrivals came as are expected, and as many bytes completed as were expected, a phase is over
(section Phase Completion of the mbarrier object), and what follows belongs to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Diary:
    """One barrier since its init."""

    count: int  # that init was given
    events: list[tuple[str, int]] = field(default_factory=list)  # "arrive", "drop", "expect", "complete"

    def read(self) -> tuple[int, int, int, int]:
        """The phases that are over, and in the one under way: arrivals to come, arrivals of the next phase, bytes to come."""
        over, expected = 0, self.count
        came = dropped = wanted = done = 0
        for kind, number in self.events:
            if kind == "expect":
                wanted += number
            elif kind == "complete":
                done += number
            else:
                came += number
                dropped += number if kind == "drop" else 0
            if came == expected and wanted == done:
                over += 1
                expected -= dropped
                came = dropped = wanted = done = 0
        return over, expected - came, expected - dropped, wanted - done

    def arrive(self, number: int, kind: str = "arrive") -> tuple[int, int]:
        """Arrivals; what the state that comes back says: the phase, and the arrivals to come before these."""
        over, pending, _, _ = self.read()
        self.events.append((kind, number))
        return over, pending

    def note(self, kind: str, number: int) -> None:
        """Bytes that are expected or complete."""
        self.events.append((kind, number))

    def complete(self, phase: int) -> bool:
        """Whether a phase, counted from zero, is over."""
        return phase < self.read()[0]

    def parity_complete(self, parity: int) -> bool:
        """Whether the one of the two latest phases that has this parity is over."""
        over = self.read()[0]
        latest = over if over % 2 == parity else over - 1
        return latest < over


def object_bits(pending: int, expected: int, waiting: int, phase: int, hopper: bool) -> int:
    """The bits of the object, put together from a picture of it: fields from the highest bit down, as binary digits."""

    def negative(number: int, digits: int) -> str:
        return format((2**digits - number) % 2**digits, f"0{digits}b")

    parity = str(phase % 2)
    if hopper:
        return int(parity + negative(pending, 20) + "0" + negative(waiting, 21) + negative(expected, 20) + "0", 2)
    return int(parity + negative(pending, 31) + "00" + negative(expected, 30), 2)


def chip_faults(kind: str, numbers: tuple[int, ...], expected: int, waiting: int) -> bool:
    """Whether a chip faults where threads tell a fresh barrier numbers in one instruction, warp after warp; 0: a thread is silent.

    It adds up what a warp says, in 20 bits. The object has the negated count of bytes in 21 bits, so that it can be 2**20
    but not -2**20; arrivals count the pending ones up to zero and not beyond. Found from the answers of an H200.
    """
    pending = expected
    for first in range(0, len(numbers), 32):
        said = [number for number in numbers[first : first + 32] if number]
        if sum(said) >= 2**20:
            return True
        arrivals = {"arrive": sum(said), "arrive_drop": sum(said), "arrive.expect_tx": len(said)}.get(kind, 0)
        waiting += {"expect_tx": 1, "arrive.expect_tx": 1, "complete_tx": -1}.get(kind, 0) * sum(said)
        if not -(2**20) <= -waiting < 2**20 or arrivals > pending:
            return True
        pending -= arrivals
        expected -= arrivals if kind == "arrive_drop" else 0
        if pending == 0 and waiting == 0:
            pending = expected
    return False
