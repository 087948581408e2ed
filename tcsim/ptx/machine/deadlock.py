"""A deadlock in words: which threads wait where, for what, and who has not come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcsim.core.errors import TcsimError
from tcsim.ptx.machine import mbarriers
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.fibers import Fiber, Wait
from tcsim.ptx.text.syntax import Instruction, line_in_words

_MOST_LINES = 32


def threads_in_words(mask: Array) -> str:
    """The threads of a mask.

    >>> threads_in_words(np.arange(64) >= 32), threads_in_words(np.arange(64) == 5)
    ('threads 32 to 63', 'thread 5')
    """
    found = np.nonzero(mask)[0]
    if not len(found):
        return "no thread"
    if len(found) == 1:
        return f"thread {found[0]}"
    parts = np.split(found, np.nonzero(np.diff(found) != 1)[0] + 1)
    shown = [f"{part[0]}" if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts[:4]]
    return f"threads {', '.join(shown)}{' and more' if len(parts) > 4 else ''}"


def deadlock(blocks: Sequence[Block]) -> Stop:
    """The end of a launch in which nobody can go on, at the first threads that wait."""
    block = next(own for own in blocks if own.fibers)
    fiber = min((*block.fibers.waiting, *block.fibers.ready.values()), key=lambda own: int(np.argmax(own.mask)))
    block.cluster.running = block
    return Stop("DEADLOCK", described(blocks), int(np.argmax(fiber.mask)), item=instruction_of(block, fiber))


def described(blocks: Sequence[Block]) -> str:
    """Who waits for what, in all blocks of a cluster."""
    found = []
    for block in blocks:
        together: dict[tuple[str, str], Array] = {}  # warps that wait at one line for the same are told once
        for fiber in sorted(
            (*block.fibers.waiting, *block.fibers.ready.values()), key=lambda own: int(np.argmax(own.mask))
        ):
            item = instruction_of(block, fiber)
            key = line_in_words(item) if item is not None else "line 0", waiting_for(block, fiber)
            together[key] = together.get(key, np.zeros_like(fiber.mask)) | fiber.mask
        each = [f"{threads_in_words(mask)}, {line}: {said}" for (line, said), mask in together.items()]
        found += [f"block {tuple(block.index)}, {said}" for said in each[:1]] + each[1:]
    more = f"; and {len(found) - _MOST_LINES} more" if len(found) > _MOST_LINES else ""
    gone = [f"{tuple(block.index)}" for block in blocks if block.done]
    ended = f"; block{'s' * (len(gone) > 1)} {', '.join(gone)} ended before" if gone else ""
    return "; ".join(found[:_MOST_LINES]) + more + ended


def instruction_of(block: Block, fiber: Fiber) -> Instruction | None:
    """The instruction at which threads are: threads at a barrier go on behind it."""
    item = fiber.waits.item if fiber.waits is not None else None
    return item if item is not None else block.program.first_of(fiber.block)


def waiting_for(block: Block, fiber: Fiber) -> str:
    """What threads wait for, in words."""
    waits = fiber.waits
    if waits is None:
        return "spins, and nothing changes what it reads"
    return _state(block, fiber, waits) + "".join(own.stuck(block, waits) for own in block.cluster.observers)


def _state(block: Block, fiber: Fiber, waits: Wait) -> str:
    if waits.kind == "mbarrier":
        try:
            state = mbarriers.described(block.mbarriers.word(waits.address), block.arch)
        except TcsimError as error:
            state = str(error)
        name = block.program.shared_name(waits.address & 0xFFFFFF)
        where = f"{name}, the mbarrier at {waits.address:#x}" if name else f"the mbarrier at {waits.address:#x}"
        return f"waits for {waits.text} of {where}: {state}"
    if waits.kind == "bar":
        arrived = block.barriers.arrived.get(waits.number, np.zeros(block.threads.count, np.int64)) > 0
        for other in block.fibers.waiting_for("bar"):
            if other.waits and other.waits.number == waits.number:
                arrived = arrived | other.mask
        alive = block.threads.alive
        wanted = waits.count or int(alive.reshape(-1, LANES).any(1).sum()) * LANES
        left = alive & ~arrived
        rest = f"not arrived: {threads_in_words(left)}" if left.any() else "no other thread is left"
        return f"waits at barrier {waits.number} for {wanted} threads; arrived: {threads_in_words(arrived)}; {rest}"
    if waits.kind == "cluster":
        lacking = [
            f"{threads_in_words(own)} of block {tuple(other.index)}"
            for other in block.cluster.blocks
            for own in (other.threads.alive & (other.barriers.cluster_phase <= block.cluster.phase),)
            if own.any()
        ]
        return f"waits at the cluster's barrier; not arrived: {', '.join(lacking)}"
    if waits.kind in ("lanes", "collective", "warp"):
        unit = waits.count or LANES
        own = np.unique(np.nonzero(fiber.mask)[0] // unit)
        others = np.isin(block.threads.numbers // unit, own) & block.threads.alive & ~fiber.mask
        there = f" at {_opcode(block, fiber)}, the same with the same mask" if waits.kind == "collective" else ""
        return (
            f"waits for the other lanes of its warp{'group' if unit > LANES else ''}{there}: {threads_in_words(others)}"
        )
    return f"waits for {waits.text}"


def _opcode(block: Block, fiber: Fiber) -> str:
    item = block.program.instruction_at(fiber.block, 0)
    return item.opcode if item is not None else ""
