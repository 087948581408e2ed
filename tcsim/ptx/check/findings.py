"""Hazards as they are found: one for each name and pair of lines, with the first place and the number of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tcsim.model.statement import Instruction
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.text.syntax import line_in_words

Key = tuple[str, int, int]
"""Of a finding: its name, and the numbers of the two instructions."""
FIRST = "K_ADVANCE"
"""What comes before everything else: an operand that has left its tile reads what is not there yet, or in no order."""


class Findings:
    """The hazards of a cluster, and the instructions that they are about."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._numbers: dict[int, int] = {}
        self._found: dict[Key, Hazard] = {}

    def number(self, item: Instruction | None) -> int:
        """The number of an instruction, from 1; 0 for none."""
        if item is None:
            return 0
        found = self._numbers.get(id(item))
        if found is None:
            self.instructions.append(item)
            found = self._numbers[id(item)] = len(self.instructions)
        return found

    def instruction(self, number: int) -> Instruction | None:
        """An instruction by its number."""
        return self.instructions[number - 1] if number else None

    def opcode(self, number: int) -> str:
        """What an instruction is called, and where it stands: "st.shared.u32 (line 12)", with .loc "st.shared.u32 (line 12, k.cu:3)"."""
        item = self.instruction(number)
        return f"{item.opcode} ({line_in_words(item)})" if item is not None else "an instruction"

    def report(
        self, name: str, message: str, line: int, other: int = 0, block: Sequence[int] | None = None, thread: int | None = None, **detail: Any
    ) -> Key:  # fmt: skip
        """A hazard at one instruction, in conflict with another, by their numbers."""
        key = name, line, other
        before = self._found.get(key)
        if before is not None:
            self._found[key] = replace(before, count=before.count + 1)
            return key
        at, conflict = self.instruction(line), self.instruction(other)
        here, there = (own.source.places if own and own.source else () for own in (at, conflict))
        self._found[key] = Hazard(
            name, message, at.line if at else None, conflict.line if conflict else None,
            here[0] if here else None, there[0] if there else None,
            (block[0], block[1], block[2]) if block is not None else None, thread, detail, inlined=here[1:], other_inlined=there[1:],
        )  # fmt: skip
        return key

    def mended(self, key: Key, said: str, mend: str, change: Mapping[str, Any]) -> None:
        """What mends a finding is known; the message without it stays in the detail (`tcsim.ptx.hazards.hazard.without_mend`)."""
        own = self._found[key]
        detail = {**own.detail, "mend": mend, "found": own.detail.get("found", own.message)}
        self._found[key] = replace(own, message=said, detail=detail | ({"change": dict(change)} if change else {}))

    def rename(self, key: Key, name: str, missing: str) -> None:
        """Another rule is what is broken; missing: what its message ends with."""
        own = self._found.pop(key)
        message = f"{own.message.rpartition(': ')[0]}: {missing}"
        self._found[name, key[1], key[2]] = replace(own, name=name, message=message)

    def hazards(self) -> list[Hazard]:
        """All, in the order in which they were found; what the others may follow from first."""
        return sorted(self._found.values(), key=lambda own: own.name != FIRST)
