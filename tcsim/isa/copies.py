"""What asynchronous copies have in common: what their rows say, their operands, and groups.

Memories are `uint8 (..., bytes)` whose index is the address. Addresses are ints, or arrays `(..., copies)`. Nothing that goes in is
changed. What `execute` gives is what is there after the wait; groups, and when a copy reads and writes, are in `effects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.arithmetic.reduction import Reduction
from tcsim.core.addresses import Places, integer_addresses
from tcsim.core.errors import OperandError
from tcsim.model.effects import Array, Effects, GroupKind, GroupOp, Memories, View
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row

GROUPS = ("commit", "wait")
"""The operations of groups, which copy nothing."""
WAITS = {"N=0": 0, "N=1": 1, "N=7": 7}
"""Forms of wait_group by name: numbers of groups that it was assembled with. Any number is taken."""
CACHE_POLICY = Operand("cache_policy", type=".b64")
PENDING_GROUPS = Operand("groups", kind="immediate")


@dataclass(frozen=True, kw_only=True)
class CopyRow(Row):
    """A row of asynchronous copies: "copy", "reduce", "arrive", "commit", "wait" or "prefetch"."""

    opcode: str = ""  # the machine instruction; of cp.async without what its form adds
    group: GroupKind | None = None  # it completes through groups of this kind, which are committed and waited for
    reads_only: bool = False  # of a wait: for reads of the source alone
    increments: bool = True  # of cp.async.mbarrier.arrive: without .noinc
    reports: bool = False  # .mbarrier::report::validity: the barrier gets a report of what was copied
    reduction: Reduction | None = None
    alignment: int = 16  # of the addresses of a bulk copy, in bytes

    @property
    def outward(self) -> bool:
        """Whether it reads shared memory."""
        return self.has("source") and self.forms[0]["source"].space.startswith("shared")


@dataclass(frozen=True, eq=False, repr=False)
class CopyInstruction(Instruction):
    """An instruction of asynchronous copies."""

    row: CopyRow

    def _integers(self, name: str, given: Any) -> Places:
        """Integers (..., copies)."""
        return np.atleast_1d(integer_addresses(given, self._call, name, "an int, or integers (..., copies)"))


@dataclass(frozen=True, eq=False, repr=False)
class CopyGroup(CopyInstruction):
    """commit_group and wait_group: they order, and change nothing."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A commit, or a wait for all groups but the latest `groups`; wait_all is both.

        Raises OperandError for a negative number.
        """
        kind, groups = self.row.group or "cp.async", int(operands.get("groups", 0))
        if groups < 0:
            raise OperandError(f"{self._call}: groups={groups}: valid: 0 and more")
        commit, wait = GroupOp(kind, "commit"), GroupOp(kind, "wait", groups, self.row.reads_only)
        if self.row.operation == "commit":
            return Effects(groups=(commit,))
        return Effects(groups=(wait,) if "groups" in form else (commit, wait))

    def execute(self, groups: int = 0) -> None:
        """Nothing: every `execute` of a copy gives what is there after the wait.

        groups: how many of the latest groups wait_group leaves pending. Raises OperandError for a negative number.

        >>> tcsim.instruction("cp.async.wait_group", arch="sm_80").execute(groups=1)
        """
        self.effects(self.forms[0], {"groups": np.asarray(groups)}, Memories({}))
