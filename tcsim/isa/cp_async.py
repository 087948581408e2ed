"""cp.async: what a thread copies from global to shared memory, its groups, and the arrival that follows.

`memory` is global memory, `smem` the block's shared memory (`tcsim.isa.copies`).

Sources: PTX ISA 7.0 to 9.4, sections cp.async, cp.async.commit_group, cp.async.wait_group, cp.async.mbarrier.arrive;
ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, byte_memory, require_alignment, require_inside
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL, latest
from tcsim.isa.copies import CACHE_POLICY, PENDING_GROUPS, WAITS, CopyGroup, CopyInstruction, CopyRow
from tcsim.isa.mbarrier.semantics import barrier_operand, signalled
from tcsim.memory.mbarrier import MBarrier
from tcsim.model.effects import (
    Access,
    Array,
    Effects,
    GroupOp,
    Memories,
    Outcome,
    Pending,
    Signal,
    View,
    Write,
    completed,
)
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Space
from tcsim.model.row import present


@dataclass(frozen=True, eq=False, repr=False)
class AsyncCopy(CopyInstruction):
    """cp.async.ca and cp.async.cg: 4, 8 or 16 bytes of global memory to shared memory, by each thread."""

    batched = True

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A copy that goes on after the instruction: it reads at `fetch`, and writes what it read and zeros at `finish`.

        Raises MisalignedAddressError unless both addresses are multiples of the size, OperandError for a source size beyond it.
        """
        (size,) = form["size"].values
        for name in ("source", "destination"):
            require_alignment(operands[name], size, "a copy of cp.async", self._call, name, "thread")
        taken = None
        if "source_size" in form:
            reads = operands["source_size"]
            if ((reads < 0) | (reads > size)).any():
                bad = int(reads[(reads < 0) | (reads > size)][0])
                raise OperandError(f"{self._call}: source_size={bad}: valid: 0 to size, {size}")
            taken = np.arange(size) < reads[..., None]
        elif "ignore" in form:
            taken = np.repeat(~operands["ignore"][..., None], size, axis=-1)
        source = Access("global", operands["source"], size, taken)
        destination = Access("shared", operands["destination"], size)

        def fetch(view: View) -> Bytes:
            return view.read(source)

        def finish(data: Bytes) -> Outcome:
            return Outcome(writes=(Write(destination, data),))

        return Effects(pending=(Pending((source,), (destination,), fetch, finish, self.row.group),))

    def execute(
        self,
        memory: Any,
        smem: Any,
        source: Any,
        destination: Any,
        size: int,
        source_size: Any = None,
        ignore: Any = None,
    ) -> Bytes:
        """The new shared memory: memory uint8 (..., bytes), smem uint8 (..., bytes) -> uint8 (..., bytes).

        source, destination: ints, or one for each thread (..., threads). size: 4, 8 or 16 (of .cg: 16). source_size: bytes
        that are read, an int or one for each thread; the rest of the size is zeros. ignore: a bool or one for each thread;
        where it is true nothing is read and zeros are written. Leading dimensions broadcast.

        Raises OperandError for other operands, MisalignedAddressError unless both addresses are multiples of the size,
        OutsideMemoryError, ContestedRowError for different bytes at one address.

        >>> copy = tcsim.instruction("cp.async.ca.shared.global", arch="sm_80")
        >>> memory, smem = np.arange(64, dtype=np.uint8), np.full(16, 255, np.uint8)
        >>> copy.execute(memory=memory, smem=smem, source=[8, 40], destination=[0, 8], size=8, source_size=[8, 3]).tolist()
        [8, 9, 10, 11, 12, 13, 14, 15, 40, 41, 42, 0, 0, 0, 0, 0]
        """
        call, places = self._call, {"source": source, "destination": destination}
        operands: dict[str, Array] = {name: self._integers(name, given) for name, given in places.items()}
        if source_size is not None and ignore is not None:
            raise OperandError(f"{call}: source_size and ignore: an instruction has one of them at most")
        if source_size is not None:
            operands["source_size"] = self._integers("source_size", source_size)
        if ignore is not None:
            operands["ignore"] = np.atleast_1d(np.asarray(ignore))
            if operands["ignore"].dtype != bool:
                raise OperandError(
                    f"{call}: ignore is {operands['ignore'].dtype}; valid: a bool, or bools (..., threads)"
                )
        taking = {
            form["size"].values: form for form in self.forms if set(form.names) - _GIVEN == operands.keys() - _GIVEN
        }
        if (size,) not in taking:
            raise OperandError(f"{call}: size={size}: valid: {', '.join(str(only) for (only,) in taking)} bytes")
        image, old = byte_memory(memory, call, "memory"), byte_memory(smem, call)
        shape = broadcast([array.shape for array in operands.values()], call)
        operands = {name: np.broadcast_to(array, shape) for name, array in operands.items()}
        broadcast([image.shape[:-1], old.shape[:-1], shape[:-1]], call)
        view = Memories({"global": image, "shared": old}, call)
        effects = self.effects(taking[size,], operands, view)
        for name, access in zip(places, (effects.pending[0].reads[0], effects.pending[0].writes[0]), strict=True):
            count = size if access.mask is None else access.mask.sum(axis=-1)
            held = view.images[access.space].shape[-1]
            require_inside(access.address, count, held, "a copy", call, name, "thread", "memory")
        return view.after(completed(effects, view))["shared"]


@dataclass(frozen=True, eq=False, repr=False)
class AsyncArrive(CopyInstruction):
    """cp.async.mbarrier.arrive: an arrival when the thread's earlier cp.async are complete."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """An arrival once the thread's earlier copies are done; without .noinc the phase first waits for one more."""
        barrier = form["barrier"]
        at = Access("generic" if barrier.space == "generic" else "shared", operands["barrier"], 8)
        one = np.ones(at.address.shape, np.int64)
        now = Outcome(signals=(Signal("increment", at, one),) if self.row.increments else ())
        return Effects(now, groups=(GroupOp("cp.async", "track", then=(Signal("arrive", at, one),)),))

    def execute(self, barrier: MBarrier) -> MBarrier:
        """The barrier after that arrival.

        Without .noinc the pending count goes up by one first, so that nothing changes in the end; with it, it is one arrival.

        Raises BarrierError if the arrival is not pending, or the count beyond its limit.

        >>> barrier = tcsim.MBarrier(2)
        >>> tcsim.instruction("cp.async.mbarrier.arrive.noinc.shared.b64", arch="sm_80").execute(barrier=barrier)
        MBarrier(phase=0, pending=1 of 2, tx_count=0)
        """
        view = Memories({})
        return signalled(
            barrier, completed(self.effects(self.forms[0], {"barrier": np.zeros(1, np.int64)}, view), view), self._call
        )


NAME = "cp.async"

_TARGETS = since("sm_80")
_SIZES = {".ca": (4, 8, 16), ".cg": (16,)}
_SOURCE = Operand("source", kind="address", type=".b64", space="global")
_KINDS = (  # of sizes: the form's name, its operand, the first version that has it
    ("", (), "7.0"),
    (";srcsize", (Operand("source_size"),), "7.0"),
    (";ignore", (Operand("ignore", kind="predicate", type=".pred"),), "7.5"),
)
_GIVEN = {"source", "destination", "size", "cache_policy"}
"""The operands of a copy that every form has, and the one that changes no byte."""


def _copies() -> Iterator[CopyRow]:
    spaces: tuple[Space, ...] = ("shared", "shared::cta")
    hints, prefetches = ("", ".L2::cache_hint"), ("", ".L2::64B", ".L2::128B", ".L2::256B")
    for (cache, sizes), space, hint, prefetch in product(_SIZES.items(), spaces, hints, prefetches):
        addresses = (Operand("destination", "destination", "address", space=space), _SOURCE)
        policy = (CACHE_POLICY,) if hint else ()
        least = "7.4" if hint or prefetch else "7.0"
        forms = tuple(
            Form(
                (*addresses, Operand("size", kind="immediate", values=(size,)), *operand, *policy),
                _TARGETS,
                latest(least, first),
                "thread",
                name=f"size={size}{kind}",
            )
            for size, (kind, operand, first) in product(sizes, _KINDS)
        )
        yield CopyRow(
            f"cp.async{cache}.{space}.global{hint}{prefetch}",
            NAME,
            forms=forms,
            arithmetic=f"copy{cache}",
            modifiers=present(space=f".{space}", hint=hint, prefetch=prefetch),
            operation="copy",
            group="cp.async",
            opcode="LDGSTS.E" + ".BYPASS" * (cache == ".cg") + prefetch.replace(".L2::", ".LTC"),
        )


def _group(operation: str, opcode: str, name: str, *forms: Form) -> CopyRow:
    return CopyRow(
        f"cp.async.{name}", NAME, forms=forms, arithmetic=name, operation=operation, group="cp.async", opcode=opcode
    )


def _arrivals() -> Iterator[CopyRow]:
    spaces: tuple[tuple[Space, str], ...] = (("generic", "7.0"), ("shared", "7.0"), ("shared::cta", "7.8"))
    for count, (space, version) in product(("", ".noinc"), spaces):
        text = "" if space == "generic" else f".{space}"
        yield CopyRow(
            f"cp.async.mbarrier.arrive{count}{text}.b64",
            NAME,
            forms=(Form((barrier_operand(space),), _TARGETS, version, "thread", name=space),),
            arithmetic=f"mbarrier.arrive{count}",
            modifiers=present(space=text),
            operation="arrive",
            increments=not count,
            opcode="ARRIVES.LDGSTSBAR.64",
        )


def rows() -> tuple[CopyRow, ...]:
    """Every cp.async spelling."""
    plain = Form((), _TARGETS, "7.0", "thread")
    waits = (Form((PENDING_GROUPS,), _TARGETS, "7.0", "thread", name=name) for name in WAITS)
    return (
        *_copies(),
        _group("commit", "LDGDEPBAR", "commit_group", plain),
        _group("wait", "LDGDEPBAR", "wait_all", plain),  # a commit and a wait
        _group("wait", "", "wait_group", *waits),
        *_arrivals(),
    )


def opcodes(row: CopyRow, form: Form, arch: Arch) -> tuple[tuple[str, int], ...]:
    """The machine instructions that a spelling becomes with one of its lists of operands."""
    name = row.opcode
    if row.operation == "copy":
        (size,) = form["size"].values
        name += ("" if size == 4 else f".{8 * size}") + ".ZFILL" * ("source_size" in form)
    if row.operation == "arrive" and arch.number >= 90:
        name += ".TRANSCNT" if row.increments else ".ARVCNT"
    return ((name, 1),) if name else ()


def lowering(row: CopyRow, arch: Arch) -> Lowering:
    """One machine instruction; of the shortest list of operands."""
    found = opcodes(row, row.forms[0], arch)
    return Lowering("native", (), found, "" if found else "DEPBAR.LE")


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, sections cp.async and cp.async.mbarrier.arrive")


def evidence(row: CopyRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(
    NAME,
    rows,
    lowering,
    evidence,
    {"copy": AsyncCopy, "arrive": AsyncArrive, "commit": CopyGroup, "wait": CopyGroup},
)
