"""What asynchronous copies have in common: what their rows say, their operands, and groups.

Memories are `uint8 (..., bytes)` whose index is the address. Addresses are ints, or arrays `(..., copies)`. Nothing that goes in is
changed. What `execute` gives is what is there after the wait; groups, and when a copy reads and writes, are in `effects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcsim.arithmetic.reduction import Reduction
from tcsim.core.addresses import Places, integer_addresses
from tcsim.core.errors import OperandError
from tcsim.model.effects import Access, Array, Effects, GroupKind, GroupOp, Memories, Signal, View, Write
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Space
from tcsim.model.row import Row

GROUPS = ("commit", "wait")
"""The operations of groups, which copy nothing."""
WAITS = {"N=0": 0, "N=1": 1, "N=7": 7}
"""Forms of wait_group by name: numbers of groups that it was assembled with. Any number is taken."""
CACHE_POLICY = Operand("cache_policy", type=".b64")
PENDING_GROUPS = Operand("groups", kind="immediate")
MAP_SPACES: tuple[Space, ...] = ("param", "const", "global")
"""Where copies find tensor maps (PTX ISA, section Tensor-map). From local and shared memory an H200 faults. The fence that acquires a map is
for global memory alone in the manual; on an H200 it changes nothing for a parameter."""
MAP_BOUNDARY = 64
"""Of which a tensor map's address is a multiple (CUDA Driver API 13, cuTensorMapEncodeTiled). An H200 faults, in prefetch.tensormap and in the fence too; tensormap.replace
needs none."""


def space_of(operand: Operand) -> Space:
    """The state space of accesses through an address operand: "shared" for all windows of shared memory.

    >>> space_of(Operand("address", kind="address", space="shared::cluster"))
    'shared'
    """
    return "shared" if operand.space.startswith("shared") else operand.space


def ranks_of(cta_mask: int, bits: int, call: str) -> Places:
    """The ranks in the cluster of the CTAs that a mask names.

    Raises OperandError for a mask that names none or has more bits.

    >>> ranks_of(0b101, 16, "copy").tolist()
    [0, 2]
    """
    if not 0 < cta_mask < 1 << bits:
        raise OperandError(f"{call}: cta_mask={cta_mask:#x}; valid: 0x1 to {(1 << bits) - 1:#x}")
    return np.flatnonzero(cta_mask >> np.arange(bits) & 1)


def in_each(at: Access, ranks: Places | None) -> Access:
    """The same places in the shared memory of every CTA of a multicast; the access itself if there is none."""
    if ranks is None:
        return at
    count = at.address.shape[-1]
    thread = None if at.thread is None else np.tile(at.thread, len(ranks))
    mask = None if at.mask is None else np.tile(at.mask, (len(ranks), 1))
    return replace(at, address=np.tile(at.address, len(ranks)), cta=np.repeat(ranks, count), thread=thread, mask=mask)


def written(at: Access, data: Array, ranks: Places | None = None) -> Write:
    """A write of bytes (accesses, size), in every CTA of a multicast."""
    return Write(in_each(at, ranks), data if ranks is None else np.tile(data, (len(ranks), 1)))


def completion(barrier: Access, count: int, ranks: Places | None = None) -> Signal:
    """`count` bytes complete at each barrier of an access, in every CTA of a multicast."""
    at = in_each(barrier, ranks)
    return Signal("complete_tx", at, np.full(at.address.shape, count, np.int64), copied=True)


def barrier_access(operand: Operand, address: Array, thread: Array | None = None) -> Access:
    """The barriers at addresses, which even asynchronous copies reach through the generic proxy (PTX ISA)."""
    return Access(space_of(operand), np.asarray(address).astype(np.int64), 8, thread=thread)


def object_at(operand: Operand, address: Array, size: int) -> Access:
    """The object at an address operand: its extent, without reading or writing it."""
    at = np.asarray(address).astype(np.int64)
    mask = np.zeros((*at.shape, size), bool)
    return Access(space_of(operand), at, size, mask, operand.proxy, operand=operand.name)


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
    def combines(self) -> bool:
        """Reductions."""
        return self.reduction is not None

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

    batched = True

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
