"""A slow model of what surrounds a kernel, from the PTX manual alone: elections, registers, a cluster's barrier, remote stores.

Plain integers and loops. Which member elect.sync elects the manual does not say: `members` gives all, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.exact.copies import element


def members(mask: int) -> list[int]:
    """The lanes of a mask, lowest first."""
    return [int(place) for place, digit in enumerate(reversed(format(mask, "032b"))) if digit == "1"]


def address_in_block(address: int, rank: int) -> int:
    """A shared address whose second hexadecimal digits from the left (of 32 bits) are replaced by the rank; higher bits stay."""
    digits = format(address, "016x")
    return int(digits[:8] + format(rank, "02x") + digits[10:], 16)


def response(first: tuple[int, int, int] | None) -> list[int]:
    """The four words of an answer of clusterlaunchcontrol.try_cancel, lowest first."""
    if first is None:
        return [0, 0, 0, 0]
    x, y, z = first
    return [x, z * 65536 + y, 1, 0]


def store(memory: list[int], address: int, codes: list[int], bits: int) -> None:
    """st.async of one thread, byte by byte."""
    for code in codes:
        for _ in range(bits // 8):
            memory[address], code, address = code % 256, code // 256, address + 1


def reduce(memory: list[int], address: int, code: int, operation: str, type: str) -> None:
    """red.async of one thread."""
    size = int(type.lstrip("subf")) // 8
    old = sum(memory[address + place] * 256**place for place in range(size))
    store(memory, address, [element(operation, type, old, code)], 8 * size)


@dataclass
class Registers:
    """The registers of a block, thread by thread: 128 threads a warpgroup."""

    owned: list[int]
    pool: int = 0  # registers, not per thread

    def ask(self, warpgroup: int, count: int) -> bool:
        """setmaxnreg of a warpgroup's 128 threads; False if it waits."""
        needed = 128 * (count - self.owned[warpgroup])
        if needed > self.pool:
            return False
        self.pool -= needed
        self.owned[warpgroup] = count
        return True


@dataclass
class Meetings:
    """The barrier of a cluster as a diary of who arrived and who exited; every answer is read from its beginning."""

    warps: list[tuple[int, int]]
    events: list[tuple[str, tuple[int, int]]] = field(default_factory=list)

    def read(self) -> tuple[int, set[tuple[int, int]], set[tuple[int, int]], dict[tuple[int, int], int]]:
        """Phases that are over; of the one under way who has arrived; who is there; in which phase each last arrived."""
        over, there, here, last = 0, set(self.warps), set[tuple[int, int]](), dict[tuple[int, int], int]()
        for kind, who in self.events:
            if kind == "exit":
                there.discard(who)
                here.discard(who)
            else:
                here.add(who)
                last[who] = over
            if there and here == there:
                over, here = over + 1, set()
        return over, here, there, last
