"""cp.async: what a thread copies from global to shared memory, as it is once complete, and the arrival that follows.

`memory` is global memory, `smem` the block's shared memory (`tcsim.isa.copies`).

cp.async: the rows the assembler accepts, and what each becomes.

Sources: PTX ISA 7.0 to 9.4, sections cp.async, cp.async.commit_group, cp.async.wait_group, cp.async.mbarrier.arrive;
ptxas 13.5.37 (targets, versions, SASS). What they do is the manual's word; nothing is measured yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.isa.copies import Bytes, CopyFacts, CopyGroup, CopyInstruction, copy_facts
from tcsim.memory.mbarrier import LAYOUTS, BarrierError, MBarrier
from tcsim.model.family import Family
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row


@dataclass(frozen=True, eq=False, repr=False)
class AsyncCopy(CopyInstruction):
    """cp.async.ca and cp.async.cg: 4, 8 or 16 bytes of global memory to shared memory, by each thread."""

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
        if size not in self.facts.sizes:
            raise OperandError(
                f"{self._call}: size={size}: valid: {', '.join(str(number) for number in self.facts.sizes)} bytes"
            )
        if source_size is not None and ignore is not None:
            raise OperandError(f"{self._call}: source_size and ignore: an instruction has one of them at most")
        reads = self._integers("source_size", size if source_size is None else source_size)
        if ((reads < 0) | (reads > size)).any():
            bad = int(reads[(reads < 0) | (reads > size)][0])
            raise OperandError(f"{self._call}: source_size={bad}: valid: 0 to size, {size}")
        if ignore is not None:
            skip = np.atleast_1d(np.asarray(ignore))
            if skip.dtype != bool:
                raise OperandError(f"{self._call}: ignore is {skip.dtype}; valid: a bool, or bools (..., threads)")
            reads = np.where(skip, 0, reads)
        image, old = self._memory("memory", memory), self._memory("smem", smem)
        sources, destinations = self._integers("source", source), self._integers("destination", destination)
        for name, places in (("source", sources), ("destination", destinations)):
            self._aligned(name, places, size)
        shape = broadcast([sources.shape, destinations.shape, reads.shape], self._call)
        sources, destinations, reads = (np.broadcast_to(a, shape) for a in (sources, destinations, reads))
        self._inside("source", sources, reads, image.shape[-1])
        self._inside("destination", destinations, size, old.shape[-1])
        batch = broadcast([image.shape[:-1], old.shape[:-1], shape[:-1]], self._call)
        each = np.arange(size)
        there = np.broadcast_to(each < reads[..., None], (*batch, shape[-1], size))
        froms = np.broadcast_to(sources[..., None] + each, there.shape)
        places = np.broadcast_to(destinations[..., None] + each, there.shape)
        data = self._bytes_at(np.broadcast_to(image, (*batch, image.shape[-1])), froms, there)
        return self._put(np.broadcast_to(old, (*batch, old.shape[-1])), places, data)


@dataclass(frozen=True, eq=False, repr=False)
class AsyncArrive(CopyInstruction):
    """cp.async.mbarrier.arrive: an arrival when the thread's earlier cp.async are complete."""

    def execute(self, barrier: MBarrier) -> MBarrier:
        """The barrier after that arrival.

        Without .noinc the pending count goes up by one first, so that nothing changes in the end; with it, it is one arrival.

        Raises BarrierError if the arrival is not pending, or the count beyond its limit.

        >>> barrier = tcsim.MBarrier(2)
        >>> tcsim.instruction("cp.async.mbarrier.arrive.noinc.shared.b64", arch="sm_80").execute(barrier=barrier)
        MBarrier(phase=0, pending=1 of 2, tx_count=0)
        """
        if not isinstance(barrier, MBarrier):
            raise OperandError(f"{self._call}: barrier is a {type(barrier).__name__}; valid: an MBarrier")
        found = barrier.copy()
        if not self.facts.increments:
            found.arrive()
            return found
        found.test_wait_parity(0)  # raises if the barrier is invalid
        if found.pending == LAYOUTS[found.layout]:
            raise BarrierError(f"{self._call}: {found!r}: the pending count would be beyond {LAYOUTS[found.layout]}")
        return found


_CLASSES: dict[str, type[CopyInstruction]] = {
    "copy": AsyncCopy,
    "arrive": AsyncArrive,
    "commit": CopyGroup,
    "wait": CopyGroup,
}


def bind(row: Row, *rest: Any) -> CopyInstruction:
    """The instruction of a row."""
    return _CLASSES[copy_facts(row).operation](row, *rest)


NAME = "cp.async"

_TARGETS = since("sm_80")
_SIZES = MappingProxyType({".ca": (4, 8, 16), ".cg": (16,)})
_CACHE = ("", ".L2::cache_hint")
_PREFETCH = ("", ".L2::64B", ".L2::128B", ".L2::256B")
WAITS = (0, 1, 7)
"""Numbers of groups that wait_group was assembled with; any number is taken."""


def _row(mnemonic: str, version: str, arithmetic: str, facts: CopyFacts, **modifiers: str) -> Row:
    return Row(
        mnemonic,
        NAME,
        (0, 0, 0),
        MappingProxyType({}),
        _TARGETS,
        version,
        arithmetic,
        modifiers=MappingProxyType({name: text for name, text in modifiers.items() if text}),
        facts=facts,
    )


def _copies() -> Iterator[Row]:
    for (cache, sizes), space, hint, prefetch in product(
        _SIZES.items(), (".shared", ".shared::cta"), _CACHE, _PREFETCH
    ):
        version = "7.4" if hint or prefetch else "7.0"
        policy = ("cache_policy",) if hint else ()
        forms = tuple(
            OperandForm(f"size={size}{name}", (), (*operands, *policy), _TARGETS, max(version, first))
            for size in sizes
            for name, operands, first in (
                ("", (), "7.0"),
                (";srcsize", ("source_size",), "7.0"),
                (";ignore", ("ignore",), "7.5"),
            )
        )
        yield _row(
            f"cp.async{cache}{space}.global{hint}{prefetch}",
            version,
            f"copy{cache}",
            CopyFacts("copy", space, ".global", forms, sizes, bypasses=cache == ".cg"),
            space=space,
            hint=hint,
            prefetch=prefetch,
        )


def rows() -> tuple[Row, ...]:
    """Every cp.async spelling."""

    def group(operation: str, mnemonic: str, names: tuple[str, ...]) -> Row:
        forms = tuple(OperandForm(name, (), ("groups",) if name else (), _TARGETS, "7.0") for name in names)
        return _row(mnemonic, "7.0", mnemonic.removeprefix("cp.async."), CopyFacts(operation, "", "", forms))

    found = [*_copies(), group("commit", "cp.async.commit_group", ("",)), group("wait", "cp.async.wait_all", ("",))]
    found.append(group("wait", "cp.async.wait_group", tuple(f"N={number}" for number in WAITS)))
    for count, (space, name, version) in product(
        ("", ".noinc"), (("", "generic", "7.0"), (".shared", "shared", "7.0"), (".shared::cta", "shared::cta", "7.8"))
    ):
        form = OperandForm(name, (), (), _TARGETS, version)
        facts = CopyFacts("arrive", space, "", (form,), increments=not count)
        stem = f"mbarrier.arrive{count}"
        found.append(_row(f"cp.async.{stem}{space}.b64", version, stem, facts, space=space))
    return tuple(found)


def opcodes(row: Row, form: OperandForm, arch: Arch) -> tuple[tuple[str, int], ...]:
    """The machine instructions that a spelling becomes with one of its lists of operands."""
    facts = copy_facts(row)
    if facts.operation == "copy":
        size = int(form.name.removeprefix("size=").partition(";")[0])
        prefetch = row.modifiers.get("prefetch", "").replace(".L2::", ".LTC")
        words = ["LDGSTS.E", ".BYPASS" if facts.bypasses else "", prefetch, "" if size == 4 else f".{8 * size}"]
        return (("".join([*words, ".ZFILL" if "source_size" in form.operands else ""]), 1),)
    if facts.operation == "arrive":
        mode = "" if arch.number < 90 else ".TRANSCNT" if facts.increments else ".ARVCNT"
        return (("ARRIVES.LDGSTSBAR.64" + mode, 1),)
    return () if "groups" in form.operands else (("LDGDEPBAR", 1),)  # wait_all is a commit and a wait


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction; of the shortest list of operands."""
    found = opcodes(row, copy_facts(row).forms[0], arch)
    return Lowering("native", (), found, "" if found else "DEPBAR.LE")


_MANUAL = Evidence("literature", "PTX ISA 9.4, sections cp.async and cp.async.mbarrier.arrive")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, bind)
