"""tcgen05.alloc, dealloc, relinquish_alloc_permit, commit, fence and wait: who owns Tensor Memory, and when work is done.

Sources: PTX ISA, sections Tensor Memory Allocation and Management Instructions, TensorCore 5th Generation Specialized
Synchronization Operations, and Async Synchronization Operations; ptxas 13.5.37 (targets, versions, SASS). The model runs
instructions one after another, so that everything is complete when the next one begins: fence and wait change nothing in it.
An alloc or dealloc is a short routine around one or two instructions on the SM's allocation mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import integer_addresses, require_alignment, require_inside
from tcsim.core.errors import OperandError, listing
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.tcgen05.cells import WORD_BYTES, TensorMemoryView, columns_of
from tcsim.isa.tcgen05.shared_matrices import shared_bytes
from tcsim.isa.tcgen05.targets import FAMILY_TARGETS, SM_107, known
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.tensor_memory import GRANULE, MOST_COLUMNS, AllocationError, TensorMemory, require_columns
from tcsim.model.effects import (
    Access,
    Array,
    Effects,
    GroupKind,
    GroupOp,
    Order,
    Outcome,
    Resource,
    Signal,
    View,
    Write,
)
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Space
from tcsim.model.row import Row

BARRIER_BYTES = 8
COLUMNS_TAKEN, PERMIT = "tmem", "tmem.permit"
"""Resources: columns of Tensor Memory, and the right to take some."""


@dataclass(frozen=True, kw_only=True)
class AllocationRow(Row):
    """A spelling of alloc, dealloc or relinquish_alloc_permit."""

    cta_group: int
    exclusive: bool


@dataclass(frozen=True, kw_only=True)
class CommitRow(Row):
    """A spelling of commit."""

    cta_group: int
    mask_bits: int  # of ctaMask: the barriers of several CTAs get an arrival; 0 without `.multicast`
    restricted: bool  # .sync_restrict: waits for A to be read only


@dataclass(frozen=True, eq=False, repr=False)
class _Managed(Instruction):
    """An instruction that changes who owns Tensor Memory."""

    row: AllocationRow

    def _require_columns(self, columns: int, call: str) -> None:
        most = columns_of(self.arch)
        if columns > most:
            raise AllocationError(f"{call}: {columns} columns; {self.arch.name} has {most}")
        require_columns(columns, self.row.exclusive, most, call)

    def _columns(self, form: Form, operands: Mapping[str, Array], call: str) -> list[int]:
        """The columns that each warp asks for or gives back."""
        given = operands["columns"]
        each = given[..., 0] if form["columns"].kind == "register" else given
        found = np.broadcast_to(each, operands["address"].shape[:-1]).reshape(-1).tolist()
        for columns in found:
            self._require_columns(columns, call)
        return found

    def _resource(self, kind: str, delta: int, rank: int, address: int = 0) -> Resource:
        """What one warp takes or gives back."""
        return Resource(kind, rank, delta, address, pair=self.row.cta_group == 2, exclusive=self.row.exclusive)


@dataclass(frozen=True, eq=False, repr=False)
class AllocateTensorMemory(_Managed):
    """tcgen05.alloc: columns of Tensor Memory, whose address goes to shared memory."""

    RESULTS = ("tmem", "smem")

    def execute(
        self, tmem: TensorMemory, columns: int, smem: Any, address: int, *, cta: int = 0
    ) -> tuple[TensorMemory, npt.NDArray[np.uint8]]:
        """Allocate: the new Tensor Memory, and the new smem with the 32-bit Tensor Memory address at `address`.

        smem is uint8 (..., bytes), for a CTA pair (..., 2, bytes), where both CTAs get the address.

        Raises AllocationError as `TensorMemory.alloc` does, OperandError or AddressError for what is not a place in smem.

        >>> alloc = tcsim.instruction("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", arch="sm_100")
        >>> tmem, smem = alloc.execute(tcsim.TensorMemory(), 64, np.zeros(16, np.uint8), 4)
        >>> tmem, _ = alloc.execute(tmem, 32, smem, 8)
        >>> tmem
        TensorMemory(batch=(), ctas=1, allocations=[{'0x0': 64, '0x40': 32}])
        """
        call, row = f"{self!r}.execute", self.row
        memory = shared_bytes(smem, row.cta_group, call)
        place = integer_addresses(address, call).reshape(1)
        require_alignment(place, WORD_BYTES, "the word for the address", call)
        require_inside(place, WORD_BYTES, memory.shape[-1], "the word for the address", call)
        self._require_columns(columns, call)
        new = tmem.copy()
        taken = new.alloc(columns, cta_group=row.cta_group, cta=cta, exclusive=row.exclusive)
        return new, TensorMemoryView(new, columns_of(self.arch), memory).after((_told("shared", place, taken),))

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Columns are taken once they are free; then their address is written. Of a pair each CTA's warp says where."""
        call, space = f"{self!r}.effects", form["address"].space
        places = operands["address"][..., 0].reshape(-1, 1)
        require_alignment(places, WORD_BYTES, "the word for the address", call)
        taken = [
            replace(
                self._resource(COLUMNS_TAKEN, columns, view.rank),
                then=partial(_told, "shared" if space == "shared::cta" else space, place),
            )
            for columns, place in zip(self._columns(form, operands, call), places, strict=True)
        ]
        return Effects(resources=tuple(taken))


@dataclass(frozen=True, eq=False, repr=False)
class DeallocateTensorMemory(_Managed):
    """tcgen05.dealloc: the columns of an allocation back."""

    def execute(self, tmem: TensorMemory, address: int, columns: int, *, cta: int = 0) -> TensorMemory:
        """Free: the new Tensor Memory.

        Raises AllocationError as `TensorMemory.dealloc` does.

        >>> tmem = tcsim.TensorMemory()
        >>> address = tmem.alloc(32)
        >>> free = tcsim.instruction("tcgen05.dealloc.cta_group::1.sync.aligned.b32", arch="sm_100")
        >>> free.execute(tmem, address, 32).check_exit()
        """
        self._require_columns(columns, f"{self!r}.execute")
        new = tmem.copy()
        new.dealloc(address, columns, cta_group=self.row.cta_group, cta=cta, exclusive=self.row.exclusive)
        return new

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Columns are given back; whether an alloc returned the address is for the machine to say."""
        addresses = operands["address"][..., 0].reshape(-1).tolist()
        given = zip(self._columns(form, operands, f"{self!r}.effects"), addresses, strict=True)
        return Effects(
            resources=tuple(self._resource(COLUMNS_TAKEN, -columns, view.rank, address) for columns, address in given)
        )


@dataclass(frozen=True, eq=False, repr=False)
class RelinquishPermit(_Managed):
    """tcgen05.relinquish_alloc_permit: the CTA will not allocate again."""

    def execute(self, tmem: TensorMemory, *, cta: int = 0) -> TensorMemory:
        """The new Tensor Memory, in which an alloc of the CTA is an error.

        Raises AllocationError for another cta_group than before.

        >>> name = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned"
        >>> after = tcsim.instruction(name, arch="sm_100").execute(tmem=tcsim.TensorMemory())
        """
        new = tmem.copy()
        new.relinquish_alloc_permit(cta_group=self.row.cta_group, cta=cta)
        return new

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The right to allocate is given back."""
        return Effects(resources=(self._resource(PERMIT, -1, view.rank),))


@dataclass(frozen=True, eq=False, repr=False)
class Commit(Instruction):
    """tcgen05.commit: an arrival at mbarriers once all earlier tcgen05 work of the thread is complete."""

    row: CommitRow

    def execute(self, barriers: Sequence[MBarrier], *, cta: int = 0, mask: int | None = None) -> list[MBarrier]:
        """Commit: the barriers of the cluster's CTAs, at one offset in each one's shared memory, after the arrival.

        Without `.multicast` the barrier of `cta` gets it; with it those of the CTAs whose bit is set in `mask`.

        Raises OperandError for anything but a list of barriers, a CTA outside the cluster, a mask without `.multicast` or
        `.multicast` without a mask, and BarrierError where no arrival is pending.

        >>> name = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
        >>> commit = tcsim.instruction(name, arch="sm_100")
        >>> [barrier.phase for barrier in commit.execute([tcsim.MBarrier(1), tcsim.MBarrier(1)], mask=0b11)]
        [1, 1]
        """
        call, row = f"{self!r}.execute", self.row
        if not isinstance(barriers, Sequence) or not all(isinstance(barrier, MBarrier) for barrier in barriers):
            raise OperandError(
                f"{call}: barriers is a {type(barriers).__name__}; valid: an MBarrier for each CTA, in a list"
            )
        ranks = range(len(barriers))
        if bool(row.mask_bits) != (mask is not None):
            need = "an integer, one bit for each CTA" if row.mask_bits else "None, without .multicast"
            raise OperandError(f"{call}: mask={mask}; valid: {need}")
        if mask is None:
            wanted = [cta]
        else:
            if not 0 <= mask < 1 << row.mask_bits:
                raise OperandError(f"{call}: mask={mask:#x}; valid: {row.mask_bits} bits")
            wanted = [rank for rank in range(row.mask_bits) if mask >> rank & 1]
        if any(rank not in ranks for rank in wanted):
            raise OperandError(
                f"{call}: CTAs {listing(wanted)}; valid, of a cluster with {len(barriers)}: {listing(ranks)}"
            )
        after = [copy(barrier) for barrier in barriers]
        for rank in wanted:
            after[rank].arrive()
        return after

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """One arrival at each barrier, when the earlier work of the thread is complete.

        With a mask the barriers lie at one offset in the CTAs whose bits are set; the others' access has the address as it is.
        """
        row, space = self.row, form["mbar"].space
        groups = []
        for thread, address in enumerate(operands["mbar"].tolist()):
            ranks = None
            if row.mask_bits:
                mask = int(operands["mask"][thread])
                ranks = np.array([rank for rank in range(row.mask_bits) if mask >> rank & 1], np.int64)
            count = np.ones(1 if ranks is None else len(ranks), np.int64)
            at = Access(
                "shared" if space == "shared::cluster" else space, address * count, BARRIER_BYTES, proxy="async",
                cta=ranks, thread=thread * count,
            )  # fmt: skip
            groups.append(GroupOp("tcgen05", "track", reads_only=row.restricted, then=(Signal("arrive", at, count),)))
        return Effects(groups=tuple(groups))


@dataclass(frozen=True, eq=False, repr=False)
class Ordering(Instruction):
    """tcgen05.fence and tcgen05.wait: order and completion, which hold in the model anyway."""

    def execute(self, tmem: TensorMemory) -> TensorMemory:
        """The same Tensor Memory, a copy: the model's instructions are complete and in order.

        >>> wait = tcsim.instruction("tcgen05.wait::ld.sync.aligned", arch="sm_100")
        >>> wait.execute(tmem=tcsim.TensorMemory()).columns
        512
        """
        return tmem.copy()


@dataclass(frozen=True, eq=False, repr=False)
class Fence(Ordering):
    """tcgen05.fence: asynchronous tcgen05 work of the thread, before or after what it and others are ordered by."""

    changes_nothing = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """An order of tcgen05 work."""
        kind = f"{FENCE}::{self.row.operation}_thread_sync"
        return Effects(orders=(Order(kind, ("generic", "async"), ("tmem", "shared")),))


_LOADS_AND_STORES: Mapping[str, GroupKind] = MappingProxyType({"ld": "tcgen05.ld", "st": "tcgen05.st"})


@dataclass(frozen=True, eq=False, repr=False)
class Wait(Ordering):
    """tcgen05.wait: all earlier tcgen05.ld or tcgen05.st of the thread are complete."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A wait for all loads or stores."""
        return Effects(groups=(GroupOp(_LOADS_AND_STORES[self.row.operation], "wait"),))


def _told(space: Space, place: Array, taken: int) -> Outcome:
    """The address of columns that were taken, where alloc leaves it."""
    return Outcome(writes=(Write(Access(space, place, WORD_BYTES), np.array([taken], "<u4").view(np.uint8)[None]),))


ALLOC, COMMIT, FENCE, WAIT = "tcgen05.alloc", "tcgen05.commit", "tcgen05.fence", "tcgen05.wait"
REGISTER, IMMEDIATE = "register", "columns"
"""Forms of alloc and dealloc: where the number of columns is."""
_SIZES = {False: tuple(GRANULE << i for i in range(5)), True: tuple(range(GRANULE, MOST_COLUMNS + 1, GRANULE))}
"""By `.exclusive`: the columns that an allocation may have."""


def _allocation(
    operation: str, group: int, exclusive: bool, end: str, place: Operand | None = None, space: str = ""
) -> AllocationRow:
    word, cta_group, version = ".exclusive" * exclusive, f".cta_group::{group}", "9.4" if exclusive else "8.6"
    columns = {REGISTER: Operand("columns"), IMMEDIATE: Operand("columns", kind="immediate", values=_SIZES[exclusive])}
    lists = {name: (place, own) for name, own in columns.items()} if place else {"": ()}
    return AllocationRow(
        f"tcgen05.{operation}{word}{cta_group}.sync.aligned{end}", ALLOC, arithmetic=operation, operation=operation,
        modifiers=MappingProxyType({"cta_group": cta_group, "exclusive": word, "space": space}),
        forms=tuple(Form(own, FAMILY_TARGETS, version, agent="warp", name=name) for name, own in lists.items()),
        cta_group=group, exclusive=exclusive, may_wait=place is not None,
    )  # fmt: skip


def _allocations() -> Iterator[AllocationRow]:
    for group, exclusive in product((1, 2), (False, True)):
        spaces: dict[str, Space] = {"": "generic", ".shared::cta": "shared::cta"}
        for word, space in spaces.items():
            place = Operand("address", "destination", "address", space=space)
            yield _allocation("alloc", group, exclusive, f"{word}.b32", place, word)
        yield _allocation("dealloc", group, exclusive, ".b32", Operand("address"))
        if not exclusive:
            yield _allocation("relinquish_alloc_permit", group, exclusive, "")


def allocation_rows() -> tuple[AllocationRow, ...]:
    """tcgen05.alloc, tcgen05.dealloc and tcgen05.relinquish_alloc_permit."""
    return tuple(_allocations())


def allocation_opcodes(row: AllocationRow, operation: str) -> tuple[tuple[str, int], ...]:
    """The instructions on the SM's allocation mask that an operation with the modifiers of a row contains."""
    pair = ".2CTA" if row.cta_group == 2 else ""
    align = "" if row.exclusive else ".ALIGN"
    opcodes = {
        "alloc": (f"UTCATOMSWS{pair}.FIND_AND_SET{align}", 2),  # tried at once, and again in the loop that waits
        "dealloc": ("UTCATOMSWS.AND", 1),
        "relinquish_alloc_permit": ("UVIRTCOUNT.DEALLOC.SMPOOL", 1),
    }
    return (opcodes[operation],)


def allocation_lowering(row: AllocationRow, arch: Arch) -> Lowering:
    """What touches the allocation mask; the rest of the routine keeps a copy of it in shared memory."""
    return Lowering("split", (), allocation_opcodes(row, row.operation), "with its copy of the mask in shared memory")


def allocation_evidence(row: AllocationRow, arch: Arch) -> Evidence:
    """The rules are the manual's; which columns an alloc finds is not."""
    if row.operation == "alloc":
        return Evidence("inferred", "the opcode FIND_AND_SET.ALIGN: the lowest free columns aligned to their number")
    section = f"{PTX_MANUAL}, section tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"
    return known(arch, Evidence("literature", section))


def _commits() -> Iterator[CommitRow]:
    masks = {"": 0, ".multicast::cluster": 16, ".multicast::cluster::16b": 16, ".multicast::cluster::32b": 32}
    for group, restrict, space, (multicast, bits) in product(
        (1, 2), ("", ".sync_restrict::shared::read::mma::a"), ("", ".shared::cluster"), masks.items()
    ):
        new = restrict or multicast.endswith("b")
        place = Operand("mbar", "both", "address", space="shared::cluster" if space else "generic")
        mask = [Operand("mask", type=f".b{bits}")] if bits else []
        yield CommitRow(
            f"{COMMIT}.cta_group::{group}.mbarrier::arrive::one{restrict}{space}{multicast}.b64",
            COMMIT,
            arithmetic="arrive",
            modifiers=MappingProxyType(
                {"cta_group": f".cta_group::{group}", "restrict": restrict, "space": space, "multicast": multicast}
            ),
            forms=(
                Form(
                    (place, *mask), SM_107 if restrict or bits == 32 else FAMILY_TARGETS, "9.4" if new else "8.6", "thread"
                ),
            ),
            cta_group=group,
            mask_bits=bits,
            restricted=bool(restrict),
        )  # fmt: skip


def commit_rows() -> tuple[CommitRow, ...]:
    """tcgen05.commit."""
    return tuple(_commits())


def commit_lowering(row: CommitRow, arch: Arch) -> Lowering:
    """One machine instruction."""
    words = ["UTCBAR"] + ["2CTA"] * (row.cta_group == 2) + ["MULTICAST"] * bool(row.mask_bits)
    words += ["MMA_READ_SHM_A"] * row.restricted
    return Lowering("native", (), ((".".join(words), 1),))


def manual_evidence(row: Row, arch: Arch) -> Evidence:
    """The manual."""
    return known(arch, Evidence("literature", f"{PTX_MANUAL}, section {row.family}"))


def fence_rows() -> tuple[Row, ...]:
    """tcgen05.fence."""
    return tuple(
        Row(
            f"{FENCE}::{side}_thread_sync", FENCE, arithmetic="order", operation=side,
            modifiers=MappingProxyType({"side": side}), forms=(Form((), FAMILY_TARGETS, "8.6", "thread"),),
        )
        for side in ("before", "after")
    )  # fmt: skip


def fence_lowering(row: Row, arch: Arch) -> Lowering:
    """Nothing of its own: it keeps the assembler from moving tcgen05 instructions across it."""
    return Lowering("native", (), (), "no instruction of its own")


def wait_rows() -> tuple[Row, ...]:
    """tcgen05.wait."""
    return tuple(
        Row(
            f"{WAIT}::{what}.sync.aligned", WAIT, arithmetic="completion", operation=what,
            modifiers=MappingProxyType({"what": what}), forms=(Form((), FAMILY_TARGETS, "8.6"),),
        )
        for what in ("ld", "st")
    )  # fmt: skip


def wait_lowering(row: Row, arch: Arch) -> Lowering:
    """For stores a fence; for loads the scoreboard of their registers."""
    if row.operation == "st":
        return Lowering("native", (), (("FENCE.VIEW.ASYNC.T", 1),))
    return Lowering("native", (), (), "no instruction of its own: the registers' scoreboard")


ALLOC_FAMILY = Family(
    ALLOC,
    allocation_rows,
    allocation_lowering,
    allocation_evidence,
    {
        "alloc": AllocateTensorMemory,
        "dealloc": DeallocateTensorMemory,
        "relinquish_alloc_permit": RelinquishPermit,
    },
    "none: it manages Tensor Memory",
)
COMMIT_FAMILY = Family(COMMIT, commit_rows, commit_lowering, manual_evidence, Commit, "none: it arrives at mbarriers")
FENCE_FAMILY = Family(FENCE, fence_rows, fence_lowering, manual_evidence, Fence, "none: it orders")
WAIT_FAMILY = Family(WAIT, wait_rows, wait_lowering, manual_evidence, Wait, "none: it waits")
