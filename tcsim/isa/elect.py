"""elect.sync: which lane of a warp is elected, what the manual promises of it, and what is only taken to be so.

Sources: PTX ISA, section elect.sync: one thread of the member mask, the same one for the same mask every time. It does not
say which one. Here it is the lowest member: CuTe's stand-in for archs without the instruction takes lane 0 of a full warp
(`elect_one_sync`). `allowed` says what the manual's word alone leaves open. ptxas 13.5.37: targets, version, SASS (ELECT, which
is not given the mask).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import Row

LANES = 32


@dataclass(frozen=True, eq=False, repr=False)
class ElectLane(RegisterInstruction):
    """elect.sync."""

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The lane and the predicate of each lane (..., 32), of membermask (..., 32): lanes that are not members have them, too."""
        lane, elected = self.execute(np.asarray(operands["membermask"])[..., 0])
        return {"lane": np.repeat(np.asarray(lane)[..., None], LANES, axis=-1), "elected": elected}

    @property
    def executed_by(self) -> tuple[str, ...]:
        """The members."""
        return ("the lanes of membermask together, and no other",)

    @property
    def rules(self) -> tuple[str, ...]:
        """What is promised of the lane."""
        return ("one member is elected, for one mask always the same; that it is the lowest is not promised",)

    def execute(self, membermask: Any, executing: Any = None) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """The elected lane (...), uint32, and the predicate of each lane (..., 32): true for that lane alone.

        membermask: 32 bits (...), bit i for lane i; the predicates of other lanes are false here, they take no part.
        executing: the lanes that execute the instruction, (...); the members if it is not given.

        Raises OperandError for a mask that is not 32 bits or names no lane; and if the executing lanes are not the members:
        outside the mask the behaviour is undefined, and a member that does not come is waited for.

        >>> lane, elected = tcsim.instruction("elect.sync", arch="sm_90").execute(membermask=0x00F0)
        >>> int(lane), np.flatnonzero(elected).tolist()
        (4, [4])
        """
        call = self._call
        members = _bits(membermask, f"{call}: membermask")
        if not members.any(axis=-1).all():
            raise OperandError(f"{call}: membermask=0x0 names no lane; valid: 0x1 to 0xffffffff")
        if executing is not None:
            come = _bits(executing, f"{call}: executing")
            if (come & ~members).any():
                lane = int(np.argwhere(come & ~members)[0][-1])
                raise OperandError(
                    f"{call}: lane {lane} executes it and is not in membermask: the behaviour is undefined"
                )
            if (members & ~come).any():
                lane = int(np.argwhere(members & ~come)[0][-1])
                raise OperandError(
                    f"{call}: lane {lane} is in membermask and does not execute it: the others wait for it"
                )
        lane = members.argmax(axis=-1)
        return lane.astype(np.uint32), np.arange(LANES) == lane[..., None]

    def allowed(self, membermask: Any) -> npt.NDArray[np.bool_]:
        """The lanes (..., 32) that could be elected by the manual's word alone: all members.

        Raises OperandError for a mask that is not 32 bits.
        """
        return _bits(membermask, f"{self!r}.allowed: membermask")


def _bits(mask: Any, what: str) -> npt.NDArray[np.bool_]:
    """The bits (..., 32) of masks (...), lowest first."""
    array = np.asarray(mask)
    if array.dtype.kind not in "iu" or ((array < 0) | (array > 0xFFFF_FFFF)).any():
        raise OperandError(f"{what} is {array.dtype} {array.shape}; valid: 32 bits, an int or integers (...)")
    return (array.astype(np.uint64)[..., None] >> np.arange(LANES, dtype=np.uint64) & np.uint64(1)).astype(bool)


NAME = "elect.sync"

_TARGETS = since("sm_90")
_ELECTED = Operand("elected", "destination", "predicate", type=".pred", joined=True)
_MEMBERS = Operand("membermask", per="member_mask")
_LANE = Operand("lane", "destination")


def rows() -> tuple[Row, ...]:
    """One spelling, whose lane may go to a sink."""
    forms = tuple(
        Form((lane, _ELECTED, _MEMBERS), _TARGETS, "8.0", together="member_mask", name=name)
        for name, lane in (("", _LANE), ("sink", replace(_LANE, kind="sink")))
    )
    return (Row(NAME, NAME, arithmetic="elect", forms=forms),)


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, which elects among the active lanes."""
    return Lowering("native", (), (("ELECT", 1),))


_LOWEST = Evidence(
    "inferred",
    f"CuTe's elect_one_sync, which takes lane 0 where there is no elect.sync: {PTX_MANUAL} promises one member of the mask, always "
    "the same, and does not say which",
)


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording; elsewhere the manual's word for one lane, and that it is the lowest is inferred."""
    return RECORDED.get(arch.name, _LOWEST)


FAMILY = Family(NAME, rows, lowering, evidence, ElectLane)
