"""Races of a load whose value nothing depends on: no branch, no address, and nothing that its warp stores.

Triton gives threads copies of an element where a block has fewer elements than threads. All of them load it, and one stores: what a copy loads may
be old or new, which is a race of the model of memory consistency, and no result depends on it. That is so if no value that is computed from the loaded one
goes to a branch, a guard, an address or an instruction with another effect, and the warp executes none of the stores that take one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tcsim.isa.ordinary.table import space_in
from tcsim.isa.scalar.catalog import scalar
from tcsim.model.statement import Address, Instruction, Register, leaves
from tcsim.ptx.check.state import Findings, Key, State
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.ordinary import ordinary, row_of
from tcsim.ptx.machine.block import Block

_STORED = ("global", "shared", "shared::cta")
"""Where a store may put it: a thread may store it for others."""
RULE = "GMEM_RACE_UNUSED"


def _computes(opcode: str) -> bool:
    """Whether an instruction gives registers from registers or memory and does nothing else."""
    row = ordinary(opcode)
    alone = row.instead or row.path == "warp" or scalar(opcode) is not None or row_of(opcode) is None
    return alone and row.writes and not row.heard and row.waits is None


def stores_of(body: Sequence[Instruction], load: Instruction) -> frozenset[int] | None:
    """The stores of what is computed from a loaded value, by `id`; None: something else depends on it, or may."""
    if ordinary(load.opcode).path != "load" or all(own is not load for own in body):
        return None
    reached, stores, before = set(leaves(load.operands[:1])), set[int](), -1
    while before != len(reached):
        before = len(reached)
        for own in body:
            guarded = own.predicate in reached
            first, rest = leaves(own.operands[:1]), leaves(own.operands[1:])
            computes, path = _computes(own.opcode), ordinary(own.opcode).path
            if computes and (guarded or reached.intersection(rest)):
                if path == "load":
                    return None
                reached.update(leaf for leaf in first if isinstance(leaf, Register))
            elif not computes and (guarded or reached.intersection(first) or reached.intersection(rest)):
                if guarded or reached.intersection(first) or path != "store" or space_in(own.opcode) not in _STORED:
                    return None
                stores.add(id(own))
    return frozenset(stores)


def needed_in(body: Sequence[Instruction]) -> frozenset[Register]:
    """The registers that something depends on: a guard, an instruction that does more than compute, or one whose result is needed.

    What a wait or another instruction of the catalog gives is not needed by itself.
    """
    parts: list[tuple[bool, list[Any], list[Any]]] = []  # whether it only computes, what it gives, what it reads
    for own in reversed(body):
        first, row, computes = leaves(own.operands[:1]), row_of(own.opcode), _computes(own.opcode)
        destination = row is not None and row.forms[0].operands[:1] and row.forms[0].operands[0].role == "destination"
        result = ordinary(own.opcode).writes and not any(isinstance(each, Address) for each in own.operands[:1])
        gives = computes or result or destination
        parts.append((computes, first, [own.predicate, *leaves(own.operands[1:]), *(() if gives else first)]))
    found, before = set[Any](), -1
    while before != len(found):
        before = len(found)
        for computes, first, read in parts:
            if not computes or not found.isdisjoint(first):
                found.update(read)
    return frozenset(own for own in found if isinstance(own, Register))


@lru_cache(32)
def _unneeded(program: Compiled) -> frozenset[int]:
    """The instructions, by `id`, on whose first operand nothing depends."""
    body = program.function.body
    needed = needed_in(body) | {own.predicate for own in body}
    return frozenset(id(own) for own in body if needed.isdisjoint(leaves(own.operands[:1])))


def is_needed(block: Block, item: Instruction) -> bool:
    """Whether anything depends on what a wait, or an access that is not weak, answers: if not, it may as well have been another answer."""
    return id(item) not in _unneeded(block.program)


@dataclass
class Unused:
    """The races of one cluster of which a load may be for nothing."""

    state: State
    stored: set[tuple[int, int]] = field(default_factory=set)  # stores, by `id`, and the warps that executed them
    _stores: dict[int, frozenset[int] | None] = field(default_factory=dict)
    _loads: dict[Key, list[tuple[int, frozenset[int]]]] = field(default_factory=dict)
    _used: set[Key] = field(default_factory=set)

    def note(self, key: Key, load: Instruction | None, warp: int) -> None:
        """A race was found; load: what reads in it, in a block in which the other access is, by a warp."""
        if load is not None and key not in self._used:
            if id(load) not in self._stores:
                self._stores[id(load)] = stores_of(self.state.blocks[0].program.function.body, load)
            stores = self._stores[id(load)]
            if stores is not None:
                self._loads.setdefault(key, []).append((warp, stores))
                return
        self._used.add(key)

    def tell(self, findings: Findings) -> None:
        """All threads have ended: name the races in which every load was for nothing."""
        for key, loads in self._loads.items():
            stored = any((own, warp) in self.stored for warp, stores in loads for own in stores)
            if key not in self._used and not stored:
                findings.rename(key, RULE, "nothing orders them, and nothing depends on the value that is read")
