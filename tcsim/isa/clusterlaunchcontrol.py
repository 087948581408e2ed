"""clusterlaunchcontrol: asking for the work of a cluster that has not started, and reading the answer's 128 bits.

Sources: PTX ISA, sections clusterlaunchcontrol.try_cancel and .query_cancel; ptxas 13.5.37 (targets, version, SASS). The manual
calls the answer opaque; but ptxas reads it with ordinary instructions, the same on every arch from sm_100 on: bit 64 says whether
a cluster was cancelled, bits 0 to 31, 32 to 47 and 48 to 63 are x, y and z of its first block. Whether a cluster is left to cancel
is for the scheduler to say: here the caller does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, byte_memory, integer_addresses, require_alignment, require_inside
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.copies import barrier_access, completion, in_each, space_of
from tcsim.isa.mbarrier.semantics import signalled
from tcsim.memory.mbarrier import MBarrier
from tcsim.model.effects import EVERY_CTA, Access, Array, Effects, Memories, Outcome, Resource, Signal, View, Write
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Space
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import Row, present

RESPONSE_BYTES = 16
CANCELED_BIT = 64
DIMENSIONS = MappingProxyType({"x": (0, 32), "y": (32, 16), "z": (48, 16)})
"""The lowest bit and the number of bits of each coordinate."""


@dataclass(frozen=True, kw_only=True)
class CancelRow(Row):
    """A spelling of clusterlaunchcontrol; its operation is "try_cancel", "is_canceled" or "get_first_ctaid"."""

    multicast: bool = False  # of try_cancel: the answer goes to every block of the cluster
    dimension: str = ""  # of get_first_ctaid: "x", "y", "z", or "" for all three


def encode_response(first_ctaid: Sequence[int] | None) -> int:
    """The 128 bits of an answer: of a cluster whose first block is (x, y, z), or of a failure. Bits that nothing reads are zero.

    Raises OperandError for coordinates that do not fit their bits.

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


def _answered(at: Access, told: Signal, response: int) -> Outcome:
    """What an answer writes, and whom it tells."""
    data = np.frombuffer(response.to_bytes(RESPONSE_BYTES, "little"), np.uint8)
    return Outcome(writes=(Write(at, data[None]),), signals=(told,))


@dataclass(frozen=True, eq=False, repr=False)
class TryCancel(Instruction):
    """clusterlaunchcontrol.try_cancel."""

    row: CancelRow

    @property
    def rules(self) -> tuple[str, ...]:
        """The address, and what the barrier gets."""
        return (f"address: a multiple of {RESPONSE_BYTES}; {RESPONSE_BYTES} bytes complete on the barrier",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A question to whoever launches blocks, for each lane; its answer, `encode_response` of what was cancelled, lands with 16 bytes.

        With .multicast in every CTA of the cluster: `cta` is EVERY_CTA.

        Raises MisalignedAddressError unless the addresses are multiples of 16.
        """
        address = operands["address"].astype(np.int64)
        require_alignment(address, RESPONSE_BYTES, "an answer", self._call)
        ranks = np.array([EVERY_CTA]) if self.row.multicast else None
        asked = []
        for lane in range(len(address)):
            thread = np.array([lane])
            at = Access(
                space_of(form["address"]), address[lane : lane + 1], RESPONSE_BYTES, None, "async", thread=thread
            )
            barrier = barrier_access(form["barrier"], operands["barrier"][lane : lane + 1], thread)
            told = completion(barrier, RESPONSE_BYTES, ranks)
            asked.append(Resource("launch", view.rank, 1, then=partial(_answered, in_each(at, ranks), told)))
        return Effects(resources=tuple(asked))

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
        many = self.row.multicast
        image = (
            byte_memory(smem, self._call, "smem", 0, "(..., blocks, bytes)") if many else byte_memory(smem, self._call)
        )
        place = integer_addresses(address, self._call)
        require_alignment(place, RESPONSE_BYTES, "an answer", self._call)
        require_inside(place, RESPONSE_BYTES, image.shape[-1], "an answer", self._call)
        barriers = list(barrier) if many and isinstance(barrier, Sequence) else [] if many else [barrier]
        blocks = image.shape[-2] if many else 1
        if len(barriers) != blocks or not all(isinstance(item, MBarrier) for item in barriers):
            want = f"a list of {blocks} MBarrier, one of each block" if many else "an MBarrier"
            raise OperandError(f"{self._call}: barrier is a {type(barrier).__name__}; valid: {want}")
        form = self.forms[0]
        operands = {"address": place.reshape(1), "barrier": np.zeros(1, np.int64)}
        space, view = space_of(form["address"]), Memories({}, self._call)
        (asked,) = self.effects(form, operands, view).resources
        outcome = asked.then(encode_response(first_ctaid)) if asked.then else Outcome()
        found = [signalled(item, (outcome,), self._call) for item in barriers]
        out = replace(view, images={space: image}).after((outcome,))[space]
        return out, found if many else found[0]


@dataclass(frozen=True, eq=False, repr=False)
class QueryCancel(RegisterInstruction):
    """clusterlaunchcontrol.query_cancel."""

    row: CancelRow

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """What each lane's answer says: `response` has 128 bits a lane, as one item or as words, the lowest first.

        Of three coordinates the fourth register, which PTX leaves undefined, is zero.
        """
        response = np.ascontiguousarray(operands["response"])
        lanes = response.shape if response.itemsize == RESPONSE_BYTES else response.shape[:-1]
        words = response.view(np.uint32).reshape(*lanes, RESPONSE_BYTES // 4)
        if self.row.operation == "is_canceled":
            return {"canceled": np.asarray(self.execute(words))}
        found = np.asarray(self.execute(words))
        if not self.row.dimension:
            found = np.concatenate([found, np.zeros((*found.shape[:-1], 1), np.uint32)], axis=-1)
        return {"first_ctaid": found}

    @property
    def rules(self) -> tuple[str, ...]:
        """What the bits of an answer say."""
        places = ", ".join(f"{name} bits {low} to {low + bits - 1}" for name, (low, bits) in DIMENSIONS.items())
        return (f"bit {CANCELED_BIT} of the answer: cancelled; {places}",)

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
        if self.row.operation == "is_canceled":
            return canceled
        if not canceled.all():
            raise OperandError(
                f"{self._call}: no cluster was cancelled, and what this gives is undefined; valid: after is_canceled"
            )
        if self.row.dimension:
            return _field(words, *DIMENSIONS[self.row.dimension])
        return np.stack([_field(words, low, bits) for low, bits in DIMENSIONS.values()], axis=-1)


def _field(words: npt.NDArray[np.uint32], low: int, bits: int) -> npt.NDArray[np.uint32]:
    """Some bits of 128, all in one word."""
    return words[..., low // 32] >> np.uint32(low % 32) & np.uint32((1 << bits) - 1)


NAME = "clusterlaunchcontrol"

_BLACKWELL, _OWN = since("sm_100"), suffixed_since("sm_100")
_VERSION = "8.6"


_SPACES: dict[str, Space] = {"": "generic", ".shared::cta": "shared::cta"}
_RESPONSE = Operand("response", type=".b128")
_CANCELED = Operand("canceled", "destination", "predicate", type=".pred")
_CTAID = Operand("first_ctaid", "destination")
_CTAIDS = Operand("first_ctaid", "destination", "vector", count=len(DIMENSIONS) + 1)  # the last one is not written


def _rows() -> Iterator[CancelRow]:
    for (space, where), many in product(_SPACES.items(), (False, True)):
        tail = f"async{space}.mbarrier::complete_tx::bytes{'.multicast::cluster::all' * many}.b128"
        address = Operand("address", "destination", "address", space=where, proxy="async")
        barrier = Operand("barrier", "both", "address", space=where, proxy="async")
        form = Form((address, barrier), _OWN if many else _BLACKWELL, _VERSION, together="thread")
        yield CancelRow(
            f"{NAME}.try_cancel.{tail}", NAME, arithmetic="try_cancel", operation="try_cancel", forms=(form,),
            modifiers=present(space=space), may_wait=True, multicast=many,
        )  # fmt: skip
    for operation, tail, result, dimension in (
        ("is_canceled", ".pred", _CANCELED, ""),
        ("get_first_ctaid", ".v4.b32", _CTAIDS, ""),
        *(("get_first_ctaid", f"::{name}.b32", _CTAID, name) for name in DIMENSIONS),
    ):
        form = Form((result, _RESPONSE), _BLACKWELL, _VERSION, together="thread")
        yield CancelRow(
            f"{NAME}.query_cancel.{operation}{tail}.b128", NAME, arithmetic=operation, operation=operation, forms=(form,),
            dimension=dimension,
        )  # fmt: skip


def rows() -> tuple[CancelRow, ...]:
    """try_cancel and query_cancel."""
    return tuple(_rows())


def lowering(row: CancelRow, arch: Arch) -> Lowering:
    """try_cancel is one machine instruction; query_cancel takes bits of the answer with ordinary ones."""
    if row.operation == "try_cancel":
        return Lowering("native", (), (("UGETNEXTWORKID." + ("BROADCAST" if row.multicast else "SELFCAST"), 1),))
    return Lowering("native", (), (), "plain instructions: shifts and masks")


_ASK = Evidence(
    "literature", f"{PTX_MANUAL}, section clusterlaunchcontrol.try_cancel; the bits of the answer are query_cancel's"
)
_READ = Evidence(
    "literature",
    f"the machine code of clusterlaunchcontrol.query_cancel, ptxas 13.5; {PTX_MANUAL}, section clusterlaunchcontrol, calls the answer opaque",
)


def evidence(row: CancelRow, arch: Arch) -> Evidence:
    """The manual's word, and the machine code's for the bits."""
    return _ASK if row.operation == "try_cancel" else _READ


_CLASSES = {"try_cancel": TryCancel, "is_canceled": QueryCancel, "get_first_ctaid": QueryCancel}
FAMILY = Family(NAME, rows, lowering, evidence, _CLASSES)
