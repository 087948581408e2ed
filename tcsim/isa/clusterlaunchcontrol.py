"""clusterlaunchcontrol: asking for the work of a cluster that has not started, and reading the answer's 128 bits.

Source: PTX ISA 9.4, sections clusterlaunchcontrol.try_cancel and .query_cancel. The answer is opaque there; but ptxas reads it with
ordinary instructions, the same on every arch from sm_100 on: bit 64 says whether a cluster was cancelled, bits 0 to 31, 32 to 47
and 48 to 63 are x, y and z of its first block. Whether a cluster is left to cancel is the scheduler's to say: the caller tells.

clusterlaunchcontrol: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 9.4, sections clusterlaunchcontrol.try_cancel and .query_cancel; ptxas 13.5.37 (targets, version, SASS).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, MisalignedAddressError, OutsideMemoryError
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.isa.plain_rows import plain_row
from tcsim.memory.mbarrier import MBarrier
from tcsim.model.family import Family
from tcsim.model.formed import FormedInstruction
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

RESPONSE_BYTES = 16
CANCELED_BIT = 64
DIMENSIONS = MappingProxyType({"x": (0, 32), "y": (32, 16), "z": (48, 16)})
"""The lowest bit and the number of bits of each coordinate."""


@dataclass(frozen=True)
class CancelFacts:
    """What a row does."""

    operation: str  # "try_cancel", "is_canceled" or "get_first_ctaid"
    space: str  # of try_cancel: ".shared::cta", or "" for generic addresses
    multicast: bool  # of try_cancel: the answer goes to every block of the cluster
    dimension: str  # of get_first_ctaid: "x", "y", "z", or "" for all three
    forms: tuple[OperandForm, ...]


def cancel_facts(row: Row) -> CancelFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, CancelFacts):
        raise TypeError(f"{row.mnemonic} cancels no launch")
    return row.facts


def encode_response(first_ctaid: Sequence[int] | None) -> int:
    """The 128 bits of an answer: of a cluster whose first block is (x, y, z), or of a failure. Bits that nothing reads are zero.

    Raises OperandError for coordinates that have no room.

    >>> hex(encode_response((5, 2, 1)))
    '0x10001000200000005'
    """
    if first_ctaid is None:
        return 0
    if len(first_ctaid) != len(DIMENSIONS):
        raise OperandError(f"first_ctaid={tuple(first_ctaid)}: valid: (x, y, z), or None")
    total = 1 << CANCELED_BIT
    for number, (name, (low, bits)) in zip(first_ctaid, DIMENSIONS.items(), strict=True):
        if not 0 <= number < 1 << bits:
            raise OperandError(f"first_ctaid: {name}={number}: valid: 0 to {(1 << bits) - 1}")
        total |= number << low
    return total


@dataclass(frozen=True, eq=False, repr=False)
class CancelInstruction(FormedInstruction):
    """An instruction of clusterlaunchcontrol."""

    @cached_property
    def facts(self) -> CancelFacts:
        """What the spelling says."""
        return cancel_facts(self.row)


@dataclass(frozen=True, eq=False, repr=False)
class TryCancel(CancelInstruction):
    """clusterlaunchcontrol.try_cancel."""

    def execute(
        self, smem: Any, address: int, barrier: Any, first_ctaid: Sequence[int] | None = None
    ) -> tuple[Bytes, Any]:
        """The shared memory with the answer, and the barrier, which got its 16 bytes.

        smem: uint8 (..., bytes); with .multicast::cluster::all (..., blocks, bytes), and `barrier` a list, the one of each
        block by %cluster_ctarank. first_ctaid: x, y, z of the first block of the cluster that was cancelled; None if none was.

        Raises OperandError for other operands, MisalignedAddressError unless the address is a multiple of 16,
        OutsideMemoryError, BarrierError as `MBarrier.complete_tx`.

        >>> ask = tcsim.instruction(
        ...     "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128", arch="sm_100"
        ... )
        >>> barrier = tcsim.MBarrier(1)
        >>> state = barrier.arrive_expect_tx(16)
        >>> smem, after = ask.execute(np.zeros(16, np.uint8), 0, barrier, first_ctaid=(7, 0, 0))
        >>> after.test_wait(state), smem.view(np.uint32).tolist()
        (True, [7, 0, 1, 0])
        """
        image, many = np.asarray(smem), self.facts.multicast
        shape = "(..., blocks, bytes)" if many else "(..., bytes)"
        if image.dtype != np.uint8 or image.ndim < 1 + many:
            raise OperandError(f"{self._call}: smem is {image.dtype} {image.shape}; valid: uint8 {shape}")
        if address % RESPONSE_BYTES:
            raise MisalignedAddressError(f"{self._call}: address={address:#x}: valid: multiples of {RESPONSE_BYTES}")
        if not 0 <= address <= image.shape[-1] - RESPONSE_BYTES:
            raise OutsideMemoryError(
                f"{self._call}: address={address:#x}: its {RESPONSE_BYTES} bytes do not lie in the {image.shape[-1]} bytes of memory"
            )
        barriers = list(barrier) if many and isinstance(barrier, Sequence) else [] if many else [barrier]
        blocks = image.shape[-2] if many else 1
        if len(barriers) != blocks or not all(isinstance(item, MBarrier) for item in barriers):
            want = f"a list of {blocks} MBarrier, one of each block" if many else "an MBarrier"
            raise OperandError(f"{self._call}: barrier is a {type(barrier).__name__}; valid: {want}")
        found = [item.copy() for item in barriers]
        for item in found:
            item.complete_tx(RESPONSE_BYTES)
        out = image.copy()
        out[..., address : address + RESPONSE_BYTES] = np.frombuffer(
            encode_response(first_ctaid).to_bytes(RESPONSE_BYTES, "little"), np.uint8
        )
        return out, found if many else found[0]


@dataclass(frozen=True, eq=False, repr=False)
class QueryCancel(CancelInstruction):
    """clusterlaunchcontrol.query_cancel."""

    def execute(self, response: Any) -> npt.NDArray[np.bool_] | npt.NDArray[np.uint32]:
        """What the answer says: of is_canceled a bool (...), of get_first_ctaid uint32 (..., 3), of one dimension (...).

        response: uint32 (..., 4), the lowest word first.

        Raises OperandError for another array, and if get_first_ctaid is asked of an answer that says no: that is undefined.

        >>> where = tcsim.instruction("clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128", arch="sm_100")
        >>> where.execute(np.array([7, 0x0002_0001, 1, 0], np.uint32)).tolist()
        [7, 1, 2]
        """
        words = np.asarray(response)
        if words.dtype != np.uint32 or words.shape[-1:] != (4,):
            raise OperandError(f"{self._call}: response is {words.dtype} {words.shape}; valid: uint32 (..., 4)")
        canceled = _field(words, CANCELED_BIT, 1).astype(bool)
        if self.facts.operation == "is_canceled":
            return canceled
        if not canceled.all():
            raise OperandError(
                f"{self._call}: no cluster was cancelled, and what this gives is undefined; valid: after is_canceled"
            )
        if self.facts.dimension:
            return _field(words, *DIMENSIONS[self.facts.dimension])
        return np.stack([_field(words, low, bits) for low, bits in DIMENSIONS.values()], axis=-1)


def _field(words: npt.NDArray[np.uint32], low: int, bits: int) -> npt.NDArray[np.uint32]:
    """Some bits of 128, all in one word."""
    return words[..., low // 32] >> np.uint32(low % 32) & np.uint32((1 << bits) - 1)


_CLASSES: dict[str, type[CancelInstruction]] = {
    "try_cancel": TryCancel,
    "is_canceled": QueryCancel,
    "get_first_ctaid": QueryCancel,
}


def bind(row: Row, *rest: Any) -> CancelInstruction:
    """The instruction of a row."""
    return _CLASSES[cancel_facts(row).operation](row, *rest)


NAME = "clusterlaunchcontrol"

_BLACKWELL, _OWN = since("sm_100"), suffixed_since("sm_100")
_VERSION = "8.6"


def _row(tail: str, facts: tuple[str, str, bool, str], form: tuple[tuple[str, ...], tuple[str, ...]]) -> Row:
    operation, space, multicast, dimension = facts
    targets = _OWN if multicast else _BLACKWELL
    own = CancelFacts(operation, space, multicast, dimension, (OperandForm("", *form, targets, _VERSION),))
    return plain_row(NAME, f"{NAME}.{tail}", targets, _VERSION, operation, own, {"space": space})


def _rows() -> Iterator[Row]:
    for space, many in product(("", ".shared::cta"), ("", ".multicast::cluster::all")):
        tail = f"try_cancel.async{space}.mbarrier::complete_tx::bytes{many}.b128"
        yield _row(tail, ("try_cancel", space, bool(many), ""), ((), ("barrier",)))
    told = ("response",)
    yield _row("query_cancel.is_canceled.pred.b128", ("is_canceled", "", False, ""), (("canceled",), told))
    every = (*DIMENSIONS, "_")
    yield _row("query_cancel.get_first_ctaid.v4.b32.b128", ("get_first_ctaid", "", False, ""), (every, told))
    for name in DIMENSIONS:
        yield _row(
            f"query_cancel.get_first_ctaid::{name}.b32.b128", ("get_first_ctaid", "", False, name), ((name,), told)
        )


def rows() -> tuple[Row, ...]:
    """try_cancel and query_cancel."""
    return tuple(_rows())


def lowering(row: Row, arch: Arch) -> Lowering:
    """try_cancel is one machine instruction; query_cancel takes bits of the answer with ordinary ones."""
    facts = cancel_facts(row)
    if facts.operation == "try_cancel":
        return Lowering("native", (), (("UGETNEXTWORKID." + ("BROADCAST" if facts.multicast else "SELFCAST"), 1),))
    return Lowering("native", (), (), "plain instructions: shifts and masks")


_ASK = Evidence(
    "literature", "PTX ISA 9.4, section clusterlaunchcontrol.try_cancel; the bits of the answer are query_cancel's"
)
_READ = Evidence(
    "literature",
    "the machine code of clusterlaunchcontrol.query_cancel, ptxas 13.5; PTX ISA 9.4, section clusterlaunchcontrol, calls the answer opaque",
)


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual's word, and the machine code's for the bits."""
    return _ASK if cancel_facts(row).operation == "try_cancel" else _READ


FAMILY = Family(NAME, rows, lowering, evidence, bind)
