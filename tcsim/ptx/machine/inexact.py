"""What a block executed whose bits are not known: instructions, sums that may be fused, atomics whose order shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tcsim.isa.scalar.atomic import Atomic
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access
from tcsim.ptx.compile.contraction import differ
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.ledger import Sums, halves
from tcsim.ptx.machine.threads import Threads


class Inexact:
    """The account of a block, or of a batch. origins: the first block of the cluster of each, whose shared memory an atomic may change."""

    def __init__(
        self, threads: Threads, origins: Sequence[tuple[int, int, int]], tells_order: bool, competes: bool, sums: Sums
    ) -> None:
        self.threads, self.origins, self.tells_order, self.competes = threads, origins, tells_order, competes
        self.sums = sums  # of a launch: floating-point sums in memory
        self.counts: Counter[str] = Counter()  # by instruction: the threads that executed it

    def note(self, instruction: str, w: Mask) -> None:
        """Count an instruction whose bits are not known."""
        self.counts[instruction] += int(self.threads.mask(w).sum())

    def contracted(self, instruction: str, type: str, own: Array, others: Sequence[Array], w: Mask) -> None:
        """Count the threads in which a sum has different bits if it is fused with a product, or another one, or not."""
        wrong = self.threads.mask(w) & np.any(
            [np.broadcast_to(differ(type, own, other), (self.threads.count,)) for other in others], axis=0
        )
        if wrong.any():
            self.counts[f"mul + {instruction}"] += int(wrong.sum())

    def took_turns(
        self, item: Atomic, space: str, places: Array, threads: Array, before: Array, after: Array, values: list[Array], needed: int
    ) -> None:  # fmt: skip
        """Keep account of what depends on the order of atomics: sums of floating-point numbers, old values."""
        if not (self.tells_order or item.rounds):
            return
        block = self.threads.block_of(threads)
        for own in np.unique(block) if np.ndim(block) else ():
            mine = block == own
            self.took_turns(
                item,
                space,
                places[mine],
                threads[mine],
                before[mine],
                after[mine],
                [each[mine] for each in values],
                needed,
            )
        if np.ndim(block):
            return
        index, origin = self.threads.indices[block], self.origins[block]
        if space.startswith("shared"):
            places = (places & np.uint64(0xFFFFFFFF)) + np.uint64(SHARED_WINDOW)
        name = f"atom.{item.mnemonic}"
        if not item.rounds:
            who = [(index, thread) for thread in (threads % self.threads.width).tolist()]
            self.sums.turns.add(name, item, origin, places, who, before, after, values, needed)
            return
        pairs = zip(halves(before, item.type), halves(values[0], item.type), strict=True)
        for number, ((first, type), (addend, _)) in enumerate(pairs):
            at = places + np.uint64(2 * number)
            self.sums.add(name, type, origin, at, first, addend, needed != 0)

    def added(self, instruction: str, type: str, at: Access, before: Array, data: Array) -> None:
        """Keep account of sums of floating-point numbers that a copy makes in memory."""
        if at.space not in ("global", "generic"):
            return
        container = CONTAINERS[type]
        shape = np.broadcast_shapes(before.shape, data.shape, (*at.address.shape, at.size))
        places = np.broadcast_to(at.address[..., None] + np.arange(at.size), shape).reshape(-1)[:: container.itemsize]
        there = np.broadcast_to(True if at.mask is None else at.mask, shape).reshape(-1)[:: container.itemsize]
        old, new = (
            np.ascontiguousarray(np.broadcast_to(own, shape)).reshape(-1).view(container) for own in (before, data)
        )
        self.sums.bring(instruction, type, places[there].astype(np.uint64), old[there], new[there])
