"""What ldmatrix, stmatrix and movmatrix do, one lane, register and element at a time, written next to the PTX manual.

Memory is a list of bytes, a warp's registers 32 lists of 32-bit integers. Nothing here is fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Registers = list[list[int]]

# Source type -> (bits of an element, elements of a row, bytes that a row occupies, the element is signed).
SOURCES = {
    "b16": (16, 8, 16, False),
    "b8": (8, 16, 16, False),
    "b8x16.b6x16_p32": (6, 16, 16, False),  # 96 bits and 32 of padding
    "b8x16.b4x16_p64": (4, 16, 16, False),  # 64 bits and 64 of padding
    "s8.s4": (4, 16, 8, True),
}

MNEMONIC = re.compile(
    r"(?P<name>ldmatrix|stmatrix)\.sync\.aligned\.(?P<shape>m8n8|m8n16|m16n16|m16n8)\.x(?P<count>[124])"
    r"(?P<trans>\.trans)?(?:\.shared(?:::cta)?)?\.(?P<type>b16|b8x16\.b6x16_p32|b8x16\.b4x16_p64|b8|s8\.s4)"
)


@dataclass(frozen=True)
class Spelling:
    """What a mnemonic says."""

    shape: str
    count: int  # matrices
    trans: bool
    type: str

    @property
    def row_bytes(self) -> int:
        """Bytes behind one address."""
        return SOURCES[self.type][2]

    @property
    def registers(self) -> int:
        """Registers of a lane."""
        return self.count * (2 if self.shape == "m16n16" else 1)

    @property
    def addresses(self) -> int:
        """Lanes whose addresses count."""
        return self.count * (16 if self.shape == "m16n16" else 8)


def parse(mnemonic: str) -> Spelling:
    """The parts of a mnemonic; ValueError if it is none of ldmatrix or stmatrix."""
    match = MNEMONIC.fullmatch(mnemonic)
    if match is None:
        raise ValueError(f"{mnemonic!r} is neither ldmatrix nor stmatrix")
    return Spelling(match["shape"], int(match["count"]), match["trans"] is not None, match["type"])


def fields(spelling: Spelling, lane: int, register: int) -> list[tuple[int, int, int, int]]:
    """What a register of a lane holds: (bit in the register, bits, lane that gives the address, element of that row)."""
    group, within = lane >> 2, lane % 4
    if spelling.shape == "m8n8":  # Figure 104: one matrix a register; row group, columns 2 * within and the next
        pairs = [(group, 2 * within + half) for half in (0, 1)]
        # .trans: the matrix is column-major in memory, so that its column's address is wanted and its row's element
        return [
            (16 * half, 16, 8 * register + (column if spelling.trans else row), row if spelling.trans else column)
            for half, (row, column) in enumerate(pairs)
        ]
    if spelling.shape == "m8n16":  # Figure 106: four neighbouring columns of row group
        return [(8 * i, 8, 8 * register + group, 4 * within + i) for i in range(4)]
    if spelling.shape == "m16n16":  # Figure 105: as before, and in the next register the same of row group + 8
        matrix, lower = divmod(register, 2)
        return [(8 * i, 8, 16 * matrix + 4 * within + i, group + 8 * lower) for i in range(4)]
    # m16n8, Figure 108: two neighbouring columns of row group, then of row group + 8; column-major in memory
    return [(8 * i, 8, 8 * register + 2 * within + i % 2, group + 8 * (i // 2)) for i in range(4)]


def element(memory: Sequence[int], address: int, spelling: Spelling, index: int) -> int:
    """An element of the row at an address, as it appears in a register."""
    bits, elements, row_bytes, signed = SOURCES[spelling.type]
    assert 0 <= index < elements
    row = int.from_bytes(bytes(memory[address : address + row_bytes]), "little")
    value = row >> (index * bits) & ((1 << bits) - 1)
    if signed and value >= 1 << (bits - 1):
        return value - (1 << bits) & 0xFF
    return value


def ldmatrix(mnemonic: str, memory: Sequence[int], addresses: Sequence[int]) -> Registers:
    """The registers of the 32 lanes."""
    spelling = parse(mnemonic)
    out = [[0] * spelling.registers for _ in range(32)]
    for lane in range(32):
        for register in range(spelling.registers):
            for bit, _, provider, index in fields(spelling, lane, register):
                out[lane][register] |= element(memory, addresses[provider], spelling, index) << bit
    return out


def stmatrix(mnemonic: str, memory: Sequence[int], addresses: Sequence[int], registers: Registers) -> list[int]:
    """The memory afterwards."""
    spelling = parse(mnemonic)
    out = list(memory)
    for lane in range(32):
        for register in range(spelling.registers):
            for bit, width, provider, index in fields(spelling, lane, register):
                for byte in range(width // 8):
                    place = addresses[provider] + index * width // 8 + byte
                    out[place] = registers[lane][register] >> (bit + 8 * byte) & 0xFF
    return out


def movmatrix(registers: Registers) -> Registers:
    """Lane l wants elements 2 * (l mod 4) and the next of column l div 4: two shuffles and a byte permutation."""
    out = []
    for lane in range(32):
        column = lane // 4
        halves = [registers[4 * (2 * (lane % 4) + k) + column // 2][0] >> 16 * (column % 2) & 0xFFFF for k in (0, 1)]
        out.append([halves[0] | halves[1] << 16])
    return out


def bank_degrees(addresses: Sequence[int | None], width: int, access: str = "load") -> list[int]:
    """For each phase (128 bytes of lanes), the most words that one bank has to deliver; None: lane inactive. Of "turns" equal words count again."""
    lanes = min(32, 128 // width)
    whole = [*addresses, *[None] * (32 - len(addresses))]
    alike = [
        all(
            whole[lane] is None or whole[lane ^ step] is None or whole[lane] == whole[lane ^ step] for lane in range(32)
        )
        for step in (1, 2)
    ]
    merged = access == "load" and width >= 8 and any(alike)
    phases: dict[int, list[int]] = {start: [] for start in range(0, len(addresses), lanes)}
    for lane, address in enumerate(addresses):
        if address is not None:
            start = lane // lanes * lanes
            wanted = sorted({byte // 4 for byte in range(address, address + width)})
            phases[start - start % (2 * lanes) if merged else start] += wanted
    return [
        max(sum(word % 32 == bank for word in (words if access == "turns" else set(words))) for bank in range(32))
        for words in phases.values()
    ]
