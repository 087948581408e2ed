"""discard and applypriority: 128 bytes of global memory that the L2 cache need not keep, or not keep longer than others.

Sources: PTX ISA, sections discard and applypriority; ptxas 13.5.37 (targets, version, SASS). discard writes values that are not
determined; applypriority changes no byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import byte_memory, byte_places, integer_addresses, require_alignment, require_inside
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Access, Array, Effects, Outcome, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row, present

SIZE = 128
"""Bytes of one; the address is a multiple of it."""


@dataclass(frozen=True, eq=False, repr=False)
class CacheHint(Instruction):
    """What the two have in common."""

    def _lines(self, memory: Any, address: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        image = byte_memory(memory, self._call, "memory")
        places = np.atleast_1d(integer_addresses(address, self._call, "address", "an int, or integers (threads,)"))
        require_alignment(places, SIZE, "a line", self._call, "address", "thread")
        require_inside(places, SIZE, image.shape[-1], "a line", self._call, "address", "thread", "memory")
        return image, places


@dataclass(frozen=True, eq=False, repr=False)
class Discard(CacheHint):
    """discard.L2."""

    @property
    def rules(self) -> tuple[str, ...]:
        """What is left."""
        return ("it is a weak write of values that are not determined: a read before the next write may give any",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Bytes that are no longer determined. Raises MisalignedAddressError unless addresses are multiples of 128."""
        require_alignment(operands["address"], SIZE, "a line", self._call, "address", "thread")
        lines = Access(form["address"].space, operands["address"].astype(np.int64), SIZE)
        return Effects(Outcome(undefined=(lines,)))

    def execute(self, memory: Any, address: Any) -> npt.NDArray[np.bool_]:
        """Which bytes of memory (..., bytes) are not determined afterwards: bool (..., bytes).

        Raises MisalignedAddressError unless addresses are multiples of 128, OutsideMemoryError.

        >>> discard = tcsim.instruction("discard.global.L2", arch="sm_80")
        >>> lost = discard.execute(memory=np.zeros(512, np.uint8), address=[128])
        >>> np.flatnonzero(lost)[[0, -1]].tolist()
        [128, 255]
        """
        image, places = self._lines(memory, address)
        lost = np.zeros(image.shape, bool)
        lost[..., byte_places(places, SIZE).reshape(-1)] = True
        return lost


@dataclass(frozen=True, eq=False, repr=False)
class ApplyPriority(CacheHint):
    """applypriority.L2::evict_normal."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """None. Raises MisalignedAddressError unless addresses are multiples of 128."""
        require_alignment(operands["address"], SIZE, "a line", self._call, "address", "thread")
        return Effects()

    def execute(self, memory: Any, address: Any) -> npt.NDArray[np.uint8]:
        """The memory as it is: uint8 (..., bytes).

        Raises MisalignedAddressError unless addresses are multiples of 128, OutsideMemoryError.

        >>> line = tcsim.instruction("applypriority.global.L2::evict_normal", arch="sm_80")
        >>> line.execute(memory=np.arange(256, dtype=np.uint8), address=[128])[129]
        np.uint8(129)
        """
        image, _ = self._lines(memory, address)
        return image.copy()


DISCARD, PRIORITY = "discard", "applypriority"


def _rows(name: str, level: str) -> tuple[Row, ...]:
    size = Operand("size", kind="immediate", values=(SIZE,))
    return tuple(
        Row(
            f"{name}{space}{level}", name, arithmetic=name, modifiers=present(space=space),
            forms=(
                Form(
                    (Operand("address", kind="address", type=".b64", space="global" if space else "generic"), size),
                    since("sm_80"), "7.4", together="thread",
                ),
            ),
        )
        for space in ("", ".global")
    )  # fmt: skip


def rows() -> tuple[Row, ...]:
    """Generic and global addresses."""
    return _rows(DISCARD, ".L2")


def priority_rows() -> tuple[Row, ...]:
    """Generic and global addresses."""
    return _rows(PRIORITY, ".L2::evict_normal")


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    return Lowering("native", (), (({DISCARD: "CCTL.E.RML2", PRIORITY: "CCTL.E.DML2"}[row.family], 1),))


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name) or Evidence("literature", f"{PTX_MANUAL}, section {row.family}")


FAMILY = Family(DISCARD, rows, lowering, evidence, Discard)
FAMILY_OF_PRIORITIES = Family(PRIORITY, priority_rows, lowering, evidence, ApplyPriority)
