"""A small machine that applies effects byte by byte and holds them to the contract: what is read and written was announced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.model.effects import Access, Effects, Outcome, Pending
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction

Array = npt.NDArray[Any]
SCRAMBLED = 0x5A


@dataclass
class ByteMachine:
    """A view of memories that are arrays of bytes: (bytes,), or (CTAs, bytes)."""

    memories: dict[str, npt.NDArray[np.uint8]]
    registers: Mapping[str, Array] = field(default_factory=dict)  # what pending work holds
    rank: int = 0
    warp: Array = field(default_factory=lambda: np.zeros((), np.int64))
    accesses: list[Access] = field(default_factory=list)

    def _places(self, access: Access) -> tuple[npt.NDArray[np.uint8], Array]:
        """The memory as one row of bytes, and where the bytes of the access are in it: (..., accesses, size)."""
        memory = self.memories[access.space]
        at = np.asarray(access.address, np.int64)
        assert access.size > 0 and (at >= 0).all() and (at + access.size <= memory.shape[-1]).all()
        if memory.ndim == 2:
            cta = np.asarray(self.rank if access.cta is None else access.cta)
            assert ((cta >= 0) & (cta < len(memory))).all() and (cta.ndim == 0 or cta.shape[-1] == at.shape[-1])
            at = at + cta * memory.shape[-1]
        return memory.reshape(-1), at[..., None] + np.arange(access.size)

    def read(self, access: Access) -> npt.NDArray[np.uint8]:
        """The bytes of an access."""
        self.accesses.append(access)
        memory, places = self._places(access)
        return memory[places]

    def held(self, name: str) -> Array:
        """The registers of an operand."""
        return self.registers[name]

    def apply(self, outcome: Outcome) -> dict[str, Array]:
        """Do the writes; the registers that were written."""
        for write in outcome.writes:
            memory, places = self._places(write.at)
            assert write.data.dtype == np.uint8 and write.data.shape == places.shape, (write.data.shape, places.shape)
            flat = places.reshape(-1)
            assert len(np.unique(flat)) == flat.size, "a byte is written twice"
            memory[flat] = write.data.reshape(-1)
        return dict(outcome.registers)

    def run(
        self, instruction: Instruction, form: Form, operands: Mapping[str, Array]
    ) -> tuple[Effects, dict[str, Array]]:
        """Ask, finish all work in order of issue, and check what was announced; also the registers that are written."""
        effects = instruction.effects(form, operands, self)
        announced = {id(access) for access in effects.reads}
        assert {id(access) for access in self.accesses} <= announced, "a read at issue that is not in `reads`"
        registers = self.apply(effects.now)
        for work in effects.pending:
            registers |= self._finished(work)
        assert set(registers) <= set(form.results) | {
            operand.name for operand in form.operands if operand.role == "both"
        }
        return effects, registers

    def _finished(self, work: Pending) -> dict[str, Array]:
        """Fetch and finish: fetching touches announced bytes only, and finishing reads nothing more."""
        self.accesses.clear()
        found = work.fetch(self)
        assert self._touched(tuple(self.accesses)) <= self._touched(work.reads), "a read that was not announced"
        self.accesses.clear()
        outcome = work.finish(found)
        assert not self.accesses, "finishing reads"
        written = tuple(write.at for write in outcome.writes)
        assert self._touched(written) <= self._touched(work.writes), "a write that was not announced"
        assert not outcome.registers or set(outcome.registers) <= {
            name for name, how in work.holds.items() if how == "write"
        }
        return self.apply(outcome)

    def _touched(self, accesses: tuple[Access, ...]) -> set[tuple[str, int]]:
        """The first bytes of all accesses, by space: enough to tell one run from another."""
        return {(access.space, int(at)) for access in accesses for at in self._places(access)[1][..., 0].reshape(-1)}
