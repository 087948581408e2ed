"""Instructions that order memory accesses and change nothing: fences, and the groups of wgmma. What each orders, in words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tcsim.errors import OperandError
from tcsim.instruction import Instruction
from tcsim.operand_form import OperandForm
from tcsim.registry import Row


@dataclass(frozen=True)
class OrderFacts:
    """What a row orders."""

    orders: str  # a sentence
    forms: tuple[OperandForm, ...]
    commits: bool = False  # it makes a group, which something must wait for
    hopper_version: str = ""  # the lowest PTX ISA version from sm_90 on, if not the row's


def order_facts(row: Row) -> OrderFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, OrderFacts):
        raise TypeError(f"{row.mnemonic} is no fence")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class OrderInstruction(Instruction):
    """A fence, or a wait or commit of a group.

    >>> tcsim.instruction("fence.proxy.async.shared::cta", arch="sm_90").orders
    'accesses to shared memory of the block by ordinary instructions, and those by asynchronous copies and wgmma'
    """

    @cached_property
    def orders(self) -> str:
        """Which accesses come before which."""
        return order_facts(self.row).orders

    def execute(self, groups: int = 0) -> None:
        """Nothing: no `execute` here leaves an access outstanding.

        groups: of wait_group, how many of the latest may be pending. Raises OperandError for a negative number.

        >>> tcsim.instruction("wgmma.wait_group.sync.aligned", arch="sm_90a").execute(groups=1)
        """
        if groups < 0:
            raise OperandError(f"{self!r}.execute: groups={groups}: valid: 0 and more")


def bind(row: Row, *rest: Any) -> OrderInstruction:
    """The instruction of a row."""
    return OrderInstruction(row, *rest)
