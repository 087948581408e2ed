"""What asynchronous copies have in common: the facts of their rows, and bytes found and put at checked places.

Memories are `uint8 (..., bytes)` whose index is the address. Addresses are ints, or arrays `(..., copies)`. Nothing that goes in is
changed. Groups, and the order of a copy with other accesses, are not modelled: what comes back is what is there after the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.reduction import Reduction
from tcsim.core.addresses import ContestedRowError, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import OperandError
from tcsim.model.formed import FormedInstruction
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


GROUPS = ("commit", "wait")
"""The operations of groups, which copy nothing."""


@dataclass(frozen=True)
class CopyFacts:
    """What a row copies from where to where."""

    operation: str  # "copy", "reduce", "arrive", "commit", "wait" or "prefetch"
    destination: (
        str  # state space: ".shared", ".shared::cta", ".shared::cluster", ".global"; empty if nothing is written
    )
    source: str  # ".global" or ".shared::cta"
    forms: tuple[OperandForm, ...]
    sizes: tuple[int, ...] = ()  # bytes of one copy, where the spelling takes only these
    multicast: bool = False  # to several blocks of the cluster, those of a mask
    ignores: bool = False  # .ignore_oob: bytes at the ends are not read
    masked: bool = False  # .cp_mask: only some bytes of every sixteen are written
    reports: bool = False  # .mbarrier::report::validity: the barrier gets a report of what was copied
    increments: bool = True  # of cp.async.mbarrier.arrive: without .noinc
    reduction: Reduction | None = None
    grouped: bool = False  # .bulk_group: it completes through a group, which is committed and waited for
    bypasses: bool = False  # .cg: not through the cache of the SM
    opcode: str = ""  # the machine instruction of a bulk copy
    alignment: int = 16  # of the addresses of a bulk copy, in bytes
    mask_bits: int = 16  # of the mask of a multicast


def copy_facts(row: Row) -> CopyFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, CopyFacts):
        raise TypeError(f"{row.mnemonic} is no asynchronous copy")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class CopyInstruction(FormedInstruction):
    """An instruction of asynchronous copies."""

    @cached_property
    def facts(self) -> CopyFacts:
        """What the spelling says."""
        return copy_facts(self.row)

    def _memory(self, name: str, given: Any) -> Bytes:
        array = np.asarray(given)
        if array.dtype != np.uint8 or array.ndim == 0:
            raise OperandError(f"{self._call}: {name} is {array.dtype} {array.shape}; valid: uint8 (..., bytes)")
        return array

    def _integers(self, name: str, given: Any) -> Places:
        array = np.asarray(given)
        if array.dtype.kind not in "iu":
            raise OperandError(f"{self._call}: {name} is {array.dtype}; valid: an int, or integers (..., copies)")
        return np.atleast_1d(array.astype(np.int64))

    def _aligned(self, name: str, address: Places, unit: int) -> None:
        wrong = address[address % unit != 0]
        if wrong.size:
            raise MisalignedAddressError(
                f"{self._call}: {name}={int(wrong[0]):#x}: a copy of {self._what} needs multiples of {unit} bytes"
            )

    @property
    def _what(self) -> str:
        return "cp.async" if self.facts.sizes else "cp.async.bulk"

    def _inside(self, name: str, first: Places, count: Places | int, memory: int) -> None:
        """Raise unless `count` bytes at every place lie in the memory; a place with no bytes may be anywhere."""
        wrong = np.argwhere(((first < 0) | (first + count > memory)) & (np.asarray(count) > 0))
        if wrong.size:
            at = tuple(wrong[0])
            number = int(np.broadcast_to(count, first.shape)[at])
            raise OutsideMemoryError(
                f"{self._call}: {name}={int(first[at]):#x}: its {number} bytes do not lie in the {memory} bytes of memory"
            )

    def _bytes_at(self, image: Bytes, places: Places, there: npt.NDArray[np.bool_]) -> Bytes:
        """The bytes at places (..., copies, size); zero where `there` is false."""
        flat = np.where(there, places, 0).reshape(*places.shape[:-2], -1)
        found = np.take_along_axis(image, flat, axis=-1).reshape(places.shape)
        return np.where(there, found, np.uint8(0))

    def _put(self, image: Bytes, places: Places, data: Bytes, there: npt.NDArray[np.bool_] | None = None) -> Bytes:
        """A copy of the memory with the bytes (..., copies, size) at their places, where `there` is true."""
        out = image.copy()
        keep = np.ones(places.shape, bool) if there is None else np.broadcast_to(there, places.shape)
        for index in np.ndindex(*places.shape[:-2]):
            at, values = places[index][keep[index]], data[index][keep[index]]
            out[index][at] = values
            if (out[index][at] != values).any():
                first = int(at[out[index][at] != values][0])
                raise ContestedRowError(
                    f"{self._call}: two copies write different bytes to {first:#x}: which of them stays is not defined; valid: "
                    "destinations that do not overlap"
                )
        return out


@dataclass(frozen=True, eq=False, repr=False)
class CopyGroup(CopyInstruction):
    """commit_group and wait_group: they order, and change nothing that is modelled."""

    def execute(self, groups: int = 0) -> None:
        """Nothing: every `execute` of a copy gives what is there after the wait.

        groups: how many of the latest groups wait_group leaves pending. Raises OperandError for a negative number.

        >>> tcsim.instruction("cp.async.wait_group", arch="sm_80").execute(groups=1)
        """
        if groups < 0:
            raise OperandError(f"{self._call}: groups={groups}: valid: 0 and more")
