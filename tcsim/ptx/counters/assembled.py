"""Counters as the machine code has it.

Without accesses that ptxas removed or moved behind a branch, those that it joined as one wider access, with constants that pass through the tensor core.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tcsim.layouts.banks import WARP_LANES
from tcsim.layouts.coalescing import Rows
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.cycles import CHIPS
from tcsim.ptx.counters.machine import Code
from tcsim.ptx.counters.rules import OPERATIONS
from tcsim.ptx.counters.tally import Tally

_WIDTHS = {".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2, ".64": 8, ".128": 16}
_PLAIN = {
    "ld.shared": ("LDS", "LD"), "st.shared": ("STS", "ST"), "ld.global": ("LDG", "LD"), "st.global": ("STG", "ST"),
}  # fmt: skip
"""By operation the machine instructions that do it."""
_CONSTANT, _CONSTANTS = "HFMA2.MMA", (("smsp__inst_executed_pipe_tensor_op_hmma.sum", 1), (rules.TENSOR_CYCLES, 2))
"""The machine instruction by which ptxas moves constants through the tensor core, and what it adds."""
_FIRST, _LINE, _BEHIND, _AGAIN = re.compile(r"ULDC\S* .*(c\[0x\w+\])\[(0x\w+)\]"), 64, 4, 2
"""A load from the constant bank; the bytes of a line of its cache; for how many cycles after the first load of a line an instruction is issued again;
and how many cycles more a constant then takes on its way through the tensor core."""
_TOGETHER = (4, 16)
"""Blocks and warps of a multiprocessor that all find a line missing. Where there are more, the later ones may find it, which depends on when they begin."""
_COPIES = {
    "UTMALDG": "ld", "UBLKCP.S.G": "ld", "UTMASTG": "st", "UTMAREDG": "st", "UBLKRED": "st", "UBLKCP.G.S": "st", "UBLKCP.S.S": "st",
}  # fmt: skip
"""Beginnings of machine instructions that TMA counts, and as what."""
JOINED, UNROLLED, CONSTANTS = "joined accesses", "a loop unrolled where lanes part", "constants"
"""Why what machine code makes of a counter is an estimate."""
_MAPS = ((rules.LOAD_WAVES, "LDS"), (rules.STORE_WAVES, "STS"))
Accesses = Mapping[int, Mapping[str, tuple[int, int]]]
"""By line of the PTX the loads and stores of its machine code, with the bytes of a lane, and how many warps executed them."""


def accesses(code: Iterable[tuple[Code, int]]) -> Accesses:
    """The loads and stores of machine code by line. code: instructions, each with how many warps executed it.

    >>> accesses([(Code(0, "LDS.128 R4, [R2]", "", 7), 4), (Code(16, "FADD R1, R1, R2", "", 8), 4)])
    {7: {'LDS': (16, 4)}, 8: {}}
    """
    found: defaultdict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for own, count in code:
        words = own.text.split()[0]
        if own.opcode in ("LDS", "STS", "LDG", "STG", "LD", "ST") and own.predicate != "@!PT":
            width = next((size for name, size in _WIDTHS.items() if f"{words}.".find(f"{name}.") >= 0), 4)
            before = found[own.line].get(own.opcode, (0, 0))
            found[own.line][own.opcode] = max(width, before[0]), before[1] + count
        else:
            found[own.line]  # a line that is there
    return dict(found)


def assembled(tally: Tally, code: Sequence[tuple[Code, int]]) -> tuple[Tally, Mapping[str, set[str]]]:
    """Counts of a launch with its machine code, and the counters that are an estimate, each with the reasons.

    code: machine instructions, each with how many warps executed it. What each block counts is changed in proportion.
    """
    doubts, made = defaultdict[str, set[str]](set), accesses(code)
    lines = {line: _line(tally, line, own, made.get(line, {}), doubts) for line, own in tally.lines.items()}
    _unrolled(tally, code, doubts)
    _copied(lines, code)
    _constants(tally, lines, code, doubts)
    before, after = _sums(tally.lines), _sums(lines)
    by_block = {
        name: own if before.get(name) == after.get(name) else np.rint(own * (after.get(name, 0) / max(before.get(name, 0), 1))).astype(np.int64)
        for name, own in tally.by_block.items()
    }  # fmt: skip
    return replace(tally, lines=lines, by_block=by_block), doubts


def _unrolled(tally: Tally, code: Iterable[tuple[Code, int]], doubts: dict[str, set[str]]) -> None:
    """Doubt accesses of loops that ptxas unrolled where lanes of a warp part: those that turn more often execute other copies than the rest."""
    copies: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for own, count in code:
        copies[own.line, own.opcode].add(count)
    for (line, opcode), counts in copies.items():
        counted = tally.lines.get(line, {})
        parts = counted.get(rules.THREADS, 0) < WARP_LANES * counted.get(rules.INSTRUCTIONS, 0)
        for operation in tally.operations.get(line, ()) if len(counts) > 1 and parts else ():
            if opcode in _PLAIN.get(operation, ()):
                for rule in OPERATIONS[operation].rules:
                    doubts[rule.counter].add(UNROLLED)


def _copied(lines: dict[int, dict[str, int]], code: Iterable[tuple[Code, int]]) -> None:
    """Count copies of TMA as often as their machine instruction is executed: behind a branch that was a predicate, or once for each lane."""
    found: defaultdict[tuple[int, str], int] = defaultdict(int)
    for own, count in code:
        kind = next((kind for name, kind in _COPIES.items() if own.text.startswith(name)), "")
        found[own.line, f"smsp__inst_executed_op_tma_{kind}.sum"] += count
    for (line, counter), count in found.items():
        if counter in lines.get(line, ()):
            lines[line][counter] = count


def _constants(
    tally: Tally, lines: dict[int, dict[str, int]], code: Sequence[tuple[Code, int]], doubts: dict[str, set[str]]
) -> None:
    """Count constants that pass through the tensor core, those of functions that ptxas brings where the kernel begins."""
    moved = [
        (own, count, misses)
        for (own, count), misses in zip(code, _misses(code), strict=True)
        if count and own.text.startswith(_CONSTANT)
    ]
    blocks = -(-tally.blocks // CHIPS["sm_90"].multiprocessors)
    together = blocks <= _TOGETHER[0] and code[0][1] * blocks <= _TOGETHER[1] * tally.blocks if code else True
    for own, count, misses in moved if lines else ():
        counted = lines.setdefault(own.line if own.line in lines else min(lines), {})
        for name, each in _CONSTANTS:
            more = _AGAIN * misses if name == rules.TENSOR_CYCLES and together else 0
            counted[name] = counted.get(name, 0) + (each + more) * count
            doubts[name].add(CONSTANTS)


def _misses(code: Iterable[tuple[Code, int]]) -> Iterator[int]:
    """Of each instruction how many of those a few cycles before it are the first that load from a line of constants."""
    first, cycle = dict[tuple[str, int], int](), 0
    for own, _ in code:
        yield sum(cycle - at <= _BEHIND for at in first.values())
        loads = _FIRST.match(own.text)
        if loads:
            first.setdefault((loads[1], int(loads[2], 16) // _LINE), cycle)
        cycle += max(own.cycles, 2 if own.text.startswith(_CONSTANT) else 1)


def _sums(lines: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for own in lines.values():
        for name, value in own.items():
            found[name] += value
    return found


def _line(
    tally: Tally, line: int, own: Mapping[str, int], made: Mapping[str, tuple[int, int]], doubts: dict[str, set[str]]
) -> dict[str, int]:
    """The counters of a line."""
    operations, found = tally.operations.get(line, set()), dict(own)
    if operations == {"tensormap"}:
        for name, opcode in _MAPS:
            waves = 0 if opcode in made else found.pop(name, 0)
            for whole in (rules.SHARED_WAVES, rules.IDEAL) if waves else ():
                found[whole] -= waves
        return found
    operation, width, sides = tally.samples.get(line, ("", 0, ()))
    if operation not in _PLAIN or operations != {operation} or not tally.items[line].opcode.startswith(("ld.", "st.")):
        return found
    now, executed = next((made[opcode] for opcode in _PLAIN[operation] if opcode in made), (0, 0))
    warps = 0 if tally.items[line].predicate else own.get(rules.INSTRUCTIONS, 0)
    for rule in OPERATIONS[operation].rules:
        if rule.counter not in found:
            continue
        if now == width and executed < warps:  # behind a branch that the PTX has later
            found[rule.counter] = found[rule.counter] * executed // warps
        elif now != width:
            each = int(rule.count(*sides, width)[0]) if now > width else 1
            wider = int(rule.count(*(_aligned(rows, now) for rows in sides), now)[0]) if now > width else int(now > 0)
            found[rule.counter] = found[rule.counter] * wider // max(each, 1)
            if now > width:
                doubts[rule.counter].add(JOINED)
    return {name: value for name, value in found.items() if value}


def _aligned(rows: Rows, width: int) -> Rows:
    """Where a wider access begins that has an address in it."""
    return np.where(rows < 0, rows, rows // width * width)
