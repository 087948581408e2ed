"""createpolicy: the 64 bits of a cache policy, made of eviction priorities and of a fraction, or a range, of the addresses.

Sources: PTX ISA, section createpolicy (what it is for; the bits are not documented). What the bits are is what the machine code
of ptxas 13.5.37 computes, the same on every arch from sm_80 on; it holds nothing but ordinary instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array, Effects, Outcome, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row, present

Policies = npt.NDArray[np.uint64]

VALID, RANGE, FIRST = 1 << 60, 1 << 59, 1 << 56
"""Set in every policy; set in one of a range; the secondary priority is evict_first."""
PRIMARY, FRACTION, BLOCK, START, COUNT = 57, 52, 52, 44, 37
"""Lowest bits of the fields: the primary priority (2 bits), the fraction (4), of a range the size of its blocks (4), the number of
its first block (7, above one bit that is zero), how many blocks it has (7)."""
PRIORITIES = {"evict_unchanged": 0, "evict_first": 1, "evict_last": 2, "evict_normal": 3}
SIXTEENTHS = np.float32(15.99)
"""A fraction is stored as its product with this, cut to an integer."""
SMALLEST_BLOCK, MOST_BLOCKS = 12, 127
"""A range has blocks of 2**12 bytes or more, so large that the total size has 128 of them at most; 127 can be primary."""


@dataclass(frozen=True, kw_only=True)
class PolicyRow(Row):
    """A spelling of createpolicy."""

    primary: str = "evict_unchanged"
    secondary: str = "evict_unchanged"


@dataclass(frozen=True, eq=False, repr=False)
class CreatePolicy(Instruction):
    """What the three have in common."""

    heard = False
    row: PolicyRow

    @property
    def rules(self) -> tuple[str, ...]:
        """Where its operands come from."""
        return ("from sm_90 on ptxas makes one policy for a warp: its operands have to be the same in all lanes",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The policy."""
        return Effects(Outcome({"policy": np.asarray(self.execute(**operands))}))

    @property
    def _priorities(self) -> int:
        return VALID | PRIORITIES[self.row.primary] << PRIMARY | (FIRST if self.row.secondary == "evict_first" else 0)


@dataclass(frozen=True, eq=False, repr=False)
class CreateFractionalPolicy(CreatePolicy):
    """createpolicy.fractional."""

    def execute(self, fraction: Any = 1.0) -> Policies:
        """The policies (...), uint64: this fraction of the accesses has the primary priority.

        fraction: f32 (...), or its bits as uint32, above 0 and up to 1. Raises OperandError for another.

        >>> policy = tcsim.instruction("createpolicy.fractional.L2::evict_last.b64", arch="sm_90")
        >>> hex(int(policy.execute()))
        '0x14f0000000000000'
        """
        given = np.asarray(fraction)
        values = given.view(np.float32) if given.dtype == np.uint32 else given.astype(np.float32)
        if given.dtype.kind not in "fiu" or not ((values > 0) & (values <= 1)).all():
            raise OperandError(f"{self._call}: fraction={fraction!r}; valid: f32 above 0 and up to 1")
        cut = (values * SIXTEENTHS).astype(np.uint64)
        return np.asarray(np.uint64(self._priorities) | cut << np.uint64(FRACTION))


@dataclass(frozen=True, eq=False, repr=False)
class CreateRangePolicy(CreatePolicy):
    """createpolicy.range."""

    def execute(self, address: Any, primary_size: Any, total_size: Any) -> Policies:
        """The policies (...), uint64: primary_size bytes from the address on have the primary priority.

        The rest of total_size has the secondary one. All in blocks: a power of two of bytes. Without a total size it is the empty range with nothing changed.
        Raises OperandError for sizes that are not 32 bits, or a primary size beyond the total.

        >>> policy = tcsim.instruction("createpolicy.range.global.L2::evict_last.b64", arch="sm_90")
        >>> hex(int(policy.execute(address=0x7F0000003000, primary_size=0x2000, total_size=0x10000)))
        '0x1c00304000000000'
        """
        call, where = self._call, np.asarray(address).astype(np.uint64)
        primary, total = np.asarray(primary_size).astype(np.int64), np.asarray(total_size).astype(np.int64)
        broadcast([where.shape, primary.shape, total.shape], call)
        if ((primary < 0) | (total < primary) | (total >> 32 != 0)).any():
            raise OperandError(
                f"{call}: primary_size {primary_size!r}, total_size {total_size!r}; valid: 0 <= primary <= total < 2**32"
            )
        with np.errstate(divide="ignore"):
            exponent = np.ceil(np.log2(total.astype(np.float32).astype(np.float64)).astype(np.float32))
        bits = np.where(
            total == 0, SMALLEST_BLOCK, np.maximum(np.where(total == 0, 0, exponent) - 7, SMALLEST_BLOCK)
        ).astype(np.uint64)
        start = where >> bits
        last = (primary - 1 + (1 << bits.astype(np.int64)) & 0xFFFF_FFFF).astype(np.uint64)
        count = np.minimum(((where + last) >> bits) - start, np.uint64(MOST_BLOCKS))
        found = (
            np.uint64(self._priorities | RANGE)
            | (bits - np.uint64(SMALLEST_BLOCK)) << np.uint64(BLOCK)
            | (start & np.uint64(MOST_BLOCKS)) << np.uint64(START)
            | count << np.uint64(COUNT)
        )
        return np.where(total == 0, np.uint64(VALID | RANGE), found)


@dataclass(frozen=True, eq=False, repr=False)
class ConvertPolicy(CreatePolicy):
    """createpolicy.cvt.L2."""

    def execute(self, access_property: Any) -> Policies:
        """The policies (...), uint64: the bits of the access property of the CUDA API as they are.

        >>> cvt = tcsim.instruction("createpolicy.cvt.L2.b64", arch="sm_90")
        >>> hex(int(cvt.execute(0x14f0000000000000)))
        '0x14f0000000000000'
        """
        return np.asarray(access_property).astype(np.uint64)


NAME = "createpolicy"

_TARGETS = since("sm_80")
_POLICY = Operand("policy", "destination", type=".b64")
_SIZES = (Operand("primary_size", type=".u32"), Operand("total_size", type=".u32"))


def _rows() -> Iterator[PolicyRow]:
    for primary, secondary in product(PRIORITIES, ("", "evict_first", "evict_unchanged")):
        levels = f".L2::{primary}" + (f".L2::{secondary}" if secondary else "")
        other = secondary or "evict_unchanged"
        whole = Form((_POLICY,), _TARGETS, "7.4", together="thread")
        part = Form((_POLICY, Operand("fraction", type=".f32")), _TARGETS, "7.4", together="thread", name="fraction")
        yield PolicyRow(
            f"{NAME}.fractional{levels}.b64", NAME, arithmetic="fractional", operation="fractional", forms=(whole, part),
            modifiers=present(levels=levels), primary=primary, secondary=other,
        )  # fmt: skip
        for space in ("", ".global"):
            address = Operand("address", kind="address", type=".b64", space="global" if space else "generic")
            yield PolicyRow(
                f"{NAME}.range{space}{levels}.b64", NAME, arithmetic="range", operation="range",
                forms=(Form((_POLICY, address, *_SIZES), _TARGETS, "7.4", together="thread"),),
                modifiers=present(space=space, levels=levels), primary=primary, secondary=other,
            )  # fmt: skip
    given = Form((_POLICY, Operand("access_property", type=".b64")), _TARGETS, "7.4", together="thread")
    yield PolicyRow(f"{NAME}.cvt.L2.b64", NAME, arithmetic="cvt", operation="cvt", forms=(given,))


def rows() -> tuple[PolicyRow, ...]:
    """Fractions, ranges, and the conversion."""
    return tuple(_rows())


def lowering(row: PolicyRow, arch: Arch) -> Lowering:
    """Ordinary instructions that put fields together."""
    return Lowering("cuda cores", (), (), "ordinary instructions that put the fields of a policy together")


_CODE = Evidence(
    "literature", f"the machine code of createpolicy, ptxas 13.5; {PTX_MANUAL} does not say what the bits are"
)


def evidence(row: PolicyRow, arch: Arch) -> Evidence:
    """A recording, or what the machine code does."""
    return RECORDED.get(arch.name, _CODE)


FAMILY = Family(
    NAME,
    rows,
    lowering,
    evidence,
    {"fractional": CreateFractionalPolicy, "range": CreateRangePolicy, "cvt": ConvertPolicy},
    "none: it puts bits together",
)
