"""redux.sync: the sum, the minimum, the maximum or the bits of one word of each lane of a member mask, in every member.

Sources: PTX ISA, section redux.sync; ptxas 13.5.37 (targets, versions, SASS). Integers are exact in any order. Of f32: a NaN
counts only if all are NaN, or with .NaN; -0 is below +0; subnormal numbers are kept. Nothing of f32 is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import TARGETS, Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import Row, present

LANES = 32
SIGN, INFINITY, NAN = 0x8000_0000, 0x7F80_0000, 0x7FFF_FFFF
"""Of f32: the sign, the code of infinity, the NaN that a result has."""
_IDENTITY = {"add": 0, "or": 0, "xor": 0, "and": 0xFFFF_FFFF, "max": 0, "min": 0xFFFF_FFFF}
"""What a lane that is no member contributes, as an unsigned word that orders as its value does."""


@dataclass(frozen=True, kw_only=True)
class ReductionRow(Row):
    """A spelling of redux.sync."""

    op: str
    type: str  # "u32", "s32", "b32", "f32"
    absolute: bool = False
    nan: bool = False  # a NaN of any member is the result


@dataclass(frozen=True, eq=False, repr=False)
class ReduceLanes(RegisterInstruction):
    """redux.sync."""

    row: ReductionRow

    @property
    def executed_by(self) -> tuple[str, ...]:
        """The members."""
        return ("the lanes of membermask together, and no other",)

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """d (..., 32) of a and membermask (..., 32): lanes that are not members have it too, for the machine to leave out."""
        result = self.execute(operands["a"], np.asarray(operands["membermask"])[..., 0])
        return {"d": np.repeat(result[..., None], LANES, axis=-1)}

    def execute(self, a: Any, membermask: Any = 0xFFFF_FFFF) -> npt.NDArray[np.uint32]:
        """The word (...) that every member gets: a uint32 (..., 32), the lanes' words (of f32, their bits).

        membermask: 32 bits (...), bit i for lane i. Raises OperandError for other words, a mask that is not 32 bits or empty.

        >>> add = tcsim.instruction("redux.sync.add.u32", arch="sm_80")
        >>> int(add.execute(a=np.arange(32, dtype=np.uint32), membermask=0b1110))
        6
        """
        words, members = self._words(a), self._members(membermask)
        broadcast([words.shape[:-1], members.shape[:-1]], self._call)
        if self.row.type == "f32":
            return self._floats(words, members)
        flip = np.uint32(SIGN if self.row.type == "s32" and self.row.op in ("min", "max") else 0)
        taken = np.where(members, words ^ flip, np.uint32(_IDENTITY[self.row.op]))
        return np.asarray(_OPERATIONS[self.row.op].reduce(taken, axis=-1, dtype=np.uint32)) ^ flip

    def _floats(self, words: npt.NDArray[np.uint32], members: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
        if self.row.absolute:
            words = words & np.uint32(SIGN - 1)
        nan = (words & np.uint32(SIGN - 1)) > INFINITY
        order = np.where(
            words & np.uint32(SIGN), ~words, words | np.uint32(SIGN)
        )  # unsigned words in the order of the values
        taken = np.where(members & ~nan, order, np.uint32(_IDENTITY[self.row.op]))
        found = np.asarray(_OPERATIONS[self.row.op].reduce(taken, axis=-1, dtype=np.uint32))
        value = np.where(found & np.uint32(SIGN), found ^ np.uint32(SIGN), ~found)
        lost = (members & nan).any(axis=-1) if self.row.nan else ~(members & ~nan).any(axis=-1)
        return np.where(lost, np.uint32(NAN), value).astype(np.uint32)

    def _words(self, a: Any) -> npt.NDArray[np.uint32]:
        words = np.asarray(a)
        if words.dtype != np.uint32 or words.shape[-1:] != (LANES,):
            raise OperandError(f"{self._call}: a is {words.dtype} {words.shape}; valid: uint32 (..., {LANES})")
        return words

    def _members(self, membermask: Any) -> npt.NDArray[np.bool_]:
        mask = np.asarray(membermask)
        if mask.dtype.kind not in "iu" or ((mask < 1) | (mask > 0xFFFF_FFFF)).any():
            raise OperandError(f"{self._call}: membermask is {membermask!r}; valid: integers, 0x1 to 0xffffffff")
        return (mask.astype(np.uint64)[..., None] >> np.arange(LANES, dtype=np.uint64) & np.uint64(1)).astype(bool)


_OPERATIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip

NAME = "redux.sync"

_FLOAT_TARGETS = tuple(name for name in since("sm_100") if TARGETS[name].suffix and TARGETS[name].number < 110)


def _row(op: str, type: str, targets: tuple[str, ...], version: str, absolute: str = "", nan: str = "") -> ReductionRow:
    register = ".f32" if type == "f32" else ".b32"
    operands = (
        Operand("d", "destination", type=register),
        Operand("a", type=register),
        Operand("membermask", per="member_mask"),
    )
    return ReductionRow(
        f"{NAME}.{op}{absolute}{nan}.{type}", NAME, arithmetic=op, op=op, type=type, absolute=bool(absolute), nan=bool(nan),
        forms=(Form(operands, targets, version, together="member_mask"),),
        modifiers=present(op=f".{op}", absolute=absolute, nan=nan),
    )  # fmt: skip


def rows() -> tuple[ReductionRow, ...]:
    """Integers from sm_80 on, f32 where ptxas takes it."""
    numbers = (_row(op, type, since("sm_80"), "7.0") for op, type in product(("add", "min", "max"), ("u32", "s32")))
    bits = (_row(op, "b32", since("sm_80"), "7.0") for op in ("and", "or", "xor"))
    floats = (
        _row(op, "f32", _FLOAT_TARGETS, "8.6", absolute, nan)
        for op, absolute, nan in product(("min", "max"), ("", ".abs"), ("", ".NaN"))
    )
    return (*numbers, *bits, *floats)


def lowering(row: ReductionRow, arch: Arch) -> Lowering:
    """One machine instruction; from sm_100 to sm_107 another one finds minima and maxima. All bits set is its plainest form."""
    coupled = row.op in ("min", "max") and 100 <= arch.number < 110
    word = {"add": ".SUM", "and": ""}.get(row.op, f".{row.op.upper()}") + "ABS" * row.absolute
    kind = {"s32": ".S32", "f32": ".F32"}.get(row.type, "") + ".NAN" * row.nan
    return Lowering("native", (), (("CREDUX" * coupled + "REDUX" * (not coupled) + word + kind, 1),))


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section redux.sync")


def evidence(row: ReductionRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, ReduceLanes)
