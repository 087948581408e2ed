"""Which loops a kernel's machine code has, and what one turn of each costs in instructions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from hwkernels.device.sass import listing_of

_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")


@dataclass(frozen=True)
class SassLoop:
    """From a label to the branch back to it."""

    opcodes: tuple[str, ...]  # in address order, the branch back last

    def __len__(self) -> int:
        return len(self.opcodes)

    def count(self, opcode: str) -> int:
        """Instructions whose opcode begins so."""
        return sum(item.startswith(opcode) for item in self.opcodes)

    @property
    def kinds(self) -> Counter[str]:
        """By opcode without modifiers."""
        return Counter(item.split(".")[0] for item in self.opcodes)


def loops_in(listing: str) -> list[SassLoop]:
    """The loops in a listing of one kernel: each branch to a label before it; the shortest of each label.

    >>> text = [".L_x_1:", "/*0010*/ HMMA.16816.F32 R0, R4, R6, R0 ;", "/*0020*/ @!P0 BRA `(.L_x_1) ;"]
    >>> loops_in("\\n".join(text))[0].opcodes
    ('HMMA.16816.F32', 'BRA')
    """
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    found: dict[str, SassLoop] = {}
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif match := _INSTRUCTION.search(line):
            opcodes.append(match[1])
            target = re.search(r"\.L_x_\d+", match[2]) if match[1].startswith("BRA") else None
            if target and target[0] in labels:
                found.setdefault(target[0], SassLoop(tuple(opcodes[labels[target[0]] :])))
    return list(found.values())


def innermost(cubin: bytes, opcode: str) -> SassLoop:
    """The shortest loop of a cubin that contains an opcode that begins so.

    Raises ValueError if no loop does; else as `listing_of`.
    """
    loops = [loop for loop in loops_in(listing_of(cubin)) if loop.count(opcode)]
    if not loops:
        raise ValueError(f"no loop contains {opcode}")
    return min(loops, key=len)
