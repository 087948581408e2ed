"""What would cost less, line by line: said only where the arithmetic of the same addresses shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tcsim.layouts.banks import BANKS, INACTIVE, WORD_BYTES
from tcsim.layouts.coalescing import Rows
from tcsim.layouts.swizzle import SWIZZLES
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.cycles import CHIPS
from tcsim.ptx.counters.occupancy import occupancy
from tcsim.ptx.counters.rules import OPERATIONS
from tcsim.ptx.counters.tally import Tally

WORTH = 1.5
"""How many times the least a cost has to be for a line to be named."""
_PITCHES = tuple(1 << bits for bits in range(6, 13))
_LEAST_COPY, _NARROW = 512, 64
"""Bytes of a copy of TMA, and columns of a wgmma, below which the unit's fixed cost counts more than the work."""
_FLOOR = 18.0
"""Cycles of a wgmma of 8 columns (docs/profile.md)."""
_WIDE, _MANY, _FEW = 16, 64, 4


@dataclass(frozen=True)
class Shape:
    """What a block of a launch takes."""

    threads: int
    registers: int = 0  # of each thread; 0: not known
    shared: int = 0  # bytes


@dataclass(frozen=True)
class Advice:
    """Why a line costs more than it must."""

    line: int  # of the PTX; 0: of the whole launch
    source: str
    reason: str
    change: str  # what would help; empty where nothing was found
    cycles: float  # of one multiprocessor that it would save, if all ran there

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def _columns(counters: Mapping[str, float], actual: str, least: str) -> float:
    """How many times the least."""
    return counters.get(actual, 0) / counters[least] if counters.get(least) else 0.0


def changes(width: int) -> Iterator[tuple[str, Callable[[Rows], Rows]]]:
    """Where the same elements could lie instead: a name, and what it makes of addresses."""
    if width == _WIDE:
        yield from (
            (f"swizzle {name}", swizzle) for name, swizzle in SWIZZLES.items() if name in ("128B", "64B", "32B")
        )
    pad = max(width, WORD_BYTES)
    for pitch in _PITCHES:
        yield f"pad rows of {pitch} bytes by {pad}", partial(_padded, pitch, pad)


def _padded(pitch: int, pad: int, rows: Rows) -> Rows:
    return np.asarray(rows + rows // pitch * pad)


def better(operation: str, width: int, sides: tuple[Rows, ...]) -> tuple[str, int, int] | None:
    """Of a shared access: the change that saves most, and the wavefronts before and after; None if none saves any."""
    rule = next(own for own in OPERATIONS[operation].rules if own.counter == rules.SHARED_WAVES)
    *others, rows = sides
    before = int(rule.count(*sides, width)[0])
    found = [
        (int(rule.count(*others, np.where(rows == INACTIVE, INACTIVE, change(rows)), width)[0]), name)
        for name, change in changes(width)
    ]
    least = min(found, key=lambda own: own[0])
    return (least[1], before, least[0]) if least[0] < before else None


def advise(tally: Tally, arch: str, shape: Shape) -> tuple[Advice, ...]:
    """All that is said of a launch, the costliest first."""
    found = [own for line, counters in tally.lines.items() for own in _of_line(tally, line, counters)]
    return tuple(sorted([*found, *_of_launch(tally.blocks, arch, shape)], key=lambda own: (-own.cycles, own.line)))


def _of_line(tally: Tally, line: int, counters: Mapping[str, float]) -> Iterator[Advice]:
    item = tally.items[line]
    source = item.source.places[-1] if item.source else ""
    operation, width, sides = tally.samples.get(line, ("", 0, ()))

    def said(reason: str, change: str, cycles: float) -> Advice:
        return Advice(line, source, reason, change, cycles)

    ways = _columns(counters, rules.SHARED_WAVES, rules.IDEAL)
    if ways >= WORTH:
        waves, least = counters[rules.SHARED_WAVES], counters[rules.IDEAL]
        if operation.startswith("atom"):
            reason, change = (
                f"atomics in one bank take turns: {waves:,.0f} wavefronts instead of {least:,.0f}",
                "",
            )
        else:
            tried = better(operation, width, sides)
            reason = (
                f"{ways:.1f}".removesuffix(".0") + f"-way bank conflict: {waves:,.0f} wavefronts, {least:,.0f} without"
            )
            change = f"{tried[0]}: {tried[2]} instead of {tried[1]} wavefronts" if tried else ""
        yield said(reason, change, waves - least)
    times = _columns(counters, rules.ACTUAL_SECTORS, rules.IDEAL_SECTORS)
    if times >= WORTH:
        sectors, least = counters[rules.ACTUAL_SECTORS], counters[rules.IDEAL_SECTORS]
        requests = sum(counters.get(f"{rules.REQUESTS}{kind}.sum", 0) for kind in ("ld", "st", "red", "atom"))
        turns = operation.startswith(("red", "atom")) and times > 4
        reason = "lanes change one address in turn" if turns else "not coalesced"
        each = f"{sectors / max(requests, 1):.1f} sectors a request, {least / max(requests, 1):.1f} would do"
        change = (
            "add the values of a warp first, then one lane's to memory"
            if turns
            else "neighbouring lanes at neighbouring addresses"
        )
        yield said(f"{reason}: {each}", change, (sectors - least) / 4)
    elif operation in ("ld.global", "st.global") and width <= WORD_BYTES:
        requests = sum(counters.get(f"{rules.REQUESTS}{kind}.sum", 0) for kind in ("ld", "st"))
        if requests >= _MANY * BANKS:
            yield said(
                f"{width} bytes a lane: {requests:,.0f} requests", f"{_WIDE} bytes a lane (v4.b32): {requests * width / _WIDE:,.0f} requests",
                requests * (1 - width / _WIDE) / 4,
            )  # fmt: skip
    copies = counters.get("smsp__inst_executed_op_tma_ld_pred_on_any.sum", 0)
    if copies >= _MANY and counters.get(rules.TMA_BYTES, 0) / copies < _LEAST_COPY:
        size = counters[rules.TMA_BYTES] / copies
        yield said(
            f"TMA copies of {size:,.0f} bytes: {copies:,.0f} of them",
            "a box with more rows",
            copies * (1 - size / _LEAST_COPY) * 4,
        )
    narrow = re.search(r"wgmma\.mma_async.*\.m64n(\d+)k", item.opcode)
    if narrow and int(narrow[1]) < _NARROW:
        columns, warps = int(narrow[1]), counters.get(rules.INSTRUCTIONS, 0)
        lost = warps / 4 * max(_FLOOR - columns / 2, 0)
        yield said(
            f"wgmma of {columns} columns: the tensor core needs {_FLOOR:.0f} cycles at least",
            f"n{_NARROW} or more",
            lost,
        )


def _of_launch(blocks: int, arch: str, shape: Shape) -> Iterator[Advice]:
    """Few warps beside each other, and a last wave of blocks that leaves most of the GPU idle."""
    chip, held = CHIPS.get(arch), occupancy(arch, shape.threads, shape.registers, shape.shared)
    if chip is None or held is None or not held.blocks:
        return
    if (
        held.limit in ("registers", "shared memory")
        and held.warps * _FEW <= held.most
        and blocks > held.blocks * chip.multiprocessors
    ):
        what = (
            f"{shape.registers} registers a thread"
            if held.limit == "registers"
            else f"{shape.shared:,} bytes of shared memory"
        )
        yield Advice(0, "", f"low occupancy: {held}: {what}", "less of it for each block", 0.0)
    room = held.blocks * chip.multiprocessors if blocks > chip.multiprocessors * held.blocks else chip.multiprocessors
    full, rest = divmod(blocks, room)
    if 0 < full < _FEW and 0 < rest <= room / 2:
        reason = f"tail: {blocks} blocks, {room} at a time: the last {rest} leave {100 * (1 - rest / room):.0f} % of the GPU idle"
        yield Advice(0, "", reason, f"{full * room} blocks, or more and smaller ones", 0.0)
