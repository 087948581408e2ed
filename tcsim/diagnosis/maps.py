"""Where a wrong kernel may read a line of an operand: every rule with its name, from a row of A (or a column of B) and k to another.

A rule says which line and k stand in for (line, k); k and line below 0 mean a zero. It may depend on the line of the other
operand, which is the output's column for A and its row for B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.sizes import PARTS, TILES

Ints = npt.NDArray[np.int64]
Where = Callable[[Ints, Ints, Ints], tuple[Ints, Ints]]  # (line, k, the other operand's line) -> (line, k)


@dataclass(frozen=True)
class Rule:
    """One way to read an operand wrongly; `mistake` without the operand's name."""

    mistake: str
    detail: str
    advice: str
    where: Where
    rank: int  # simpler rules first
    crosses: bool = False  # depends on the other operand's line
    lines_only: bool = False  # leaves k alone: the whole line is another
    part: str = ""  # "metadata", "scale", or "data" (all but those): only that is read so, at (line, number along K)
    recode: str = ""  # the function of its codes, by name: the places are its own

    def named(self, name: str) -> str:
        """The mistake's name for operand a or b."""
        return self.mistake.format(
            x=name, lines="rows" if name == "a" else "columns", line="row" if name == "a" else "column"
        )


START = (
    "a swizzle acts on shared addresses: the tile of {x} must start at a multiple of its period, 1024 bytes with 128B"
)
"""What to look at where a swizzle is counted from another row."""
SAME = Rule("", "", "", lambda r, k, o: (r, k), 0, lines_only=True)
ADVANCE = "{x}: K advance wrong"
LATE = "K blocks of {x} mismatched"
LINES = "{x}: {lines} of another block"
ALONG, ACROSS = "a line of K after another", "a line along M or N after another"
_LOOK = "look at how the block and warp indices go into the address"
_GRID = "look for blockIdx.x and blockIdx.y that are exchanged in the address"
_WARPS = "look for a warp's indices along M and along N that are exchanged in the address"


def line_rules(count: int, others: int) -> Iterator[Rule]:
    """Whole lines read in the place of others: block and warp indices. count: lines; others: those of the other operand."""

    def rule(detail: str, where: Callable[[Ints, Ints], Ints], rank: int = 1, advice: str = _LOOK) -> Rule:
        crosses = advice != _LOOK
        return Rule(LINES, detail, advice, lambda r, k, o: (where(r, o), k), rank, crosses, lines_only=True)

    for size in PARTS:
        if size < count:
            last = min(2 * size, count) - 1
            said = f"the block of {size} is always the first, repeated: {size}-{last} are 0-{last - size}"
            yield rule(said, partial(_modulo, size))
    bit = 1
    while bit < count:
        yield rule(
            f"blocks of {bit} exchanged in pairs: the halves 0-{bit - 1} and {bit}-{2 * bit - 1} of every {2 * bit}"
            if bit > 1
            else "neighbours exchanged",
            partial(_exchanged, bit, count),
        )
        bit *= 2
    yield rule("in reverse", lambda r, o: count - 1 - r)
    for size in PARTS:
        if size < count:
            yield rule(f"the next block of {size}, and zeros for the last one", partial(_next, size, count), 2)
            yield rule(
                f"block i of {size} is block i + 1, and the last is the first: one too far, round the end",
                partial(_rotated, size, count),
                2,
            )
            yield rule(
                f"block i of {size} is block i - 1, and the first is the last: one too early, round the end",
                partial(_rotated, -size, count),
                2,
            )
            for start in (size // 2, 2 * size):
                said = f"block i of {size} starts at {start} i: another tile's size where its own was meant"
                yield rule(said, partial(_stepped, size, start), 2 + (start >= count))  # zeros alone have simpler names
    for size in PARTS:
        for part in PARTS:
            if part < size < count or part < size == count:
                if size < count:
                    yield rule(
                        f"in every block of {size} the part of {part} is always the first, repeated: {part}-{2 * part - 1} are 0-{part - 1}"
                        + ", both halves are the first" * (size == 2 * part),
                        partial(_part, size, part),
                        2,
                    )
                for step in (8, 16, 32):
                    if step < part:
                        said = f"in every block of {size} parts of {part} that start every {step}"
                        yield rule(said, partial(_parts, size, part, step), 3)
    for size in PARTS:
        for other in PARTS:
            if size < count and other < others:
                said = f"the block of {size} is numbered by the other index, of blocks of {other}"
                yield rule(said, partial(_other_block, size, other, count), 3, _GRID)
            for parts in (2, 4):
                for others_parts in (2, 4):
                    own, theirs = size // parts, other // others_parts
                    if own >= 8 and theirs >= 8 and size <= count and other <= others:
                        said = f"in every block of {size} the part of {own} is numbered by the other index, of parts of {theirs} in {other}"
                        yield rule(said, partial(_other_part, size, own, other, theirs), 4, _WARPS)


def within(rule: Rule, depth: int, padded: int) -> Rule:
    """The rule for lines that end with zeros behind K."""
    if depth == padded:
        return rule
    return replace(rule, where=partial(_within, rule.where, depth))


def _within(where: Where, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    row, at = np.broadcast_arrays(*where(r, k, o))
    return np.where(k < depth, row, -1), at


def _modulo(size: int, r: Ints, o: Ints) -> Ints:
    return r % size


def _exchanged(bit: int, count: int, r: Ints, o: Ints) -> Ints:
    return np.where(r ^ bit < count, r ^ bit, -1)


def _rotated(size: int, count: int, r: Ints, o: Ints) -> Ints:
    return (r + size) % count


def _next(size: int, count: int, r: Ints, o: Ints) -> Ints:
    return np.where(r + size < count, r + size, -1)


def _stepped(size: int, step: int, r: Ints, o: Ints) -> Ints:
    return r // size * step + r % size


def _part(size: int, part: int, r: Ints, o: Ints) -> Ints:
    return r // size * size + r % part


def _parts(size: int, part: int, step: int, r: Ints, o: Ints) -> Ints:
    return r // size * size + r % size // part * step + r % part


def _other_block(size: int, other: int, count: int, r: Ints, o: Ints) -> Ints:
    line = o // other * size + r % size
    return np.where(line < count, line, -1)


def _other_part(size: int, own: int, other: int, theirs: int, r: Ints, o: Ints) -> Ints:
    number = o % other // theirs
    return np.where(number < size // own, r // size * size + number * own + r % own, -1)


_HALF_OF_A_PATTERN = ", as in a tile that starts 512 bytes off the period of a swizzle of 128 bytes"
_STAGE = "producer and consumer disagree about the stage of the pipeline"
_EARLY = f"{_STAGE}, or the next copy overwrites it before it has been read: a stage too few, or one that is released too soon"
_BACK = "one operand goes through K from the end, the other from the start: look at the sign of the step and at where it begins"
_ADVANCE = "the K advance is in bytes where elements are meant, or the other way round, or the wrong number"


def depth_rules(depth: int, step: int, chunk: int = 0) -> Iterator[Rule]:
    """Other k, the same for every line. depth: K; step: that of an instruction; chunk: elements of 16 bytes in shared memory."""

    def rule(mistake: str, detail: str, advice: str, where: Callable[[Ints], Ints], rank: int) -> Rule:
        return Rule(mistake, detail, advice, lambda r, k, o: (r, _inside(where(k), depth)), rank)

    advance = ADVANCE
    sizes = [size for size in (step, 2 * step, 4 * step, 8 * step, 16 * step) if size < depth]
    for size in sizes:
        last = (depth - 1) // size
        split = (
            f", as in {last + 1} slices of split-K that all begin at k 0" if size > step and last < _MOST_SLICES else ""
        )
        yield rule(advance, f"no advance: K block 0 of {size} every time{split}", _ADVANCE, partial(_first, size), 2)
        for by in (1, 2, 3):
            when = f"{by} blocks of {size}" if by > 1 else f"one block of {size}"
            yield rule(LATE, f"{when} late", _STAGE, partial(_late, size, by, 0), 2)
            yield rule(LATE, f"{when} early", _EARLY, partial(_late, size, -by, last), 2)
        said = f"blocks of {size} exchanged in pairs" + (_HALF_OF_A_PATTERN if size == 4 * chunk else "")
        yield rule(LATE, said, _STAGE, partial(_pairs, size), 2)
        yield rule(LATE, f"blocks of {size} rotated by one", _STAGE, partial(_turned_round, size, depth), 2)
        yield rule(LATE, f"blocks of {size} rotated back by one", _STAGE, partial(_turned_round, -size, depth), 2)
        if last > 1:
            said = f"blocks of {size} in reverse, block 0 being the last one"
            yield rule("K of {x} in another order", said, _BACK, partial(_backwards, size, last), 2)
        for part in sizes:
            if part < size:
                said = f"inside each tile of {size}: no advance, K block 0 of {part} every time"
                yield rule(advance, said, _ADVANCE, partial(_inner, size, part, 0), 2)
        for number in range(last + 1):
            for by in (1, 2, 3, 4):
                for other in {number - by, number + by}:
                    if 0 <= other <= last:
                        said = f"in block {number} of {size} (K {number * size}-{number * size + size - 1}) that of block {other}"
                        yield rule(LATE, said, _STAGE, partial(_one, size, number, other), 3)
    for part in (step // 2, step // 4):
        for first in range(0, step, part) if part else ():
            for zero in ((first, first + part), (first + part - step, first))[: step // part // 2]:
                where_zero = f"{zero[0]}-{zero[1] - 1}" if zero[0] >= 0 else f"all but {zero[1]}-{zero[0] + step - 1}"
                said = f"K {where_zero} of every {step} are zero"
                advice = "registers of {x}'s fragment that are never loaded: ldmatrix.x2 for .x4, or too few lanes' addresses"
                yield rule("{x}: part of each step not loaded", said, advice, partial(_without, step, *zero), 2)
    for parts in range(2, min(depth // 2, _MOST_PARTS) + 1):
        if depth % parts == 0:
            for outer in {parts, depth // parts}:
                said = f"K transposed as an array of {outer} x {depth // outer}: the operands' layouts of K differ"
                advice = (
                    "channels and taps, or groups and elements: K goes through one first in A, through the other in B"
                )
                yield rule("K of {x} in another order", said, advice, partial(_as_array, outer, depth), 3)
    for size in [*sizes, depth]:
        for part in (step // 2, step, 2 * step, *((4 * step, 8 * step, 16 * step) if size == depth else ())):
            for number, over in ((1, 2), (1, 4), (2, 1), (4, 1)):
                moved = part * number // over
                if part < size and moved:
                    place = f"inside each tile of {size}: " if size < depth else ""
                    much = f"{moved} for every {part}"
                    yield rule(advance, f"{place}{much}", _ADVANCE, partial(_inner, size, part, moved), 3)


_MOST_SLICES = 8
_MOST_PARTS = 32  # of K, as the taps of a filter


def _as_array(outer: int, depth: int, k: Ints) -> Ints:
    return k % outer * (depth // outer) + k // outer


def _inside(k: Ints, depth: int) -> Ints:
    return np.where((k >= 0) & (k < depth), k, -1)


def _backwards(size: int, last: int, k: Ints) -> Ints:
    return (last - k // size) * size + k % size


def _without(step: int, first: int, end: int, k: Ints) -> Ints:
    """Of every step all but [first, end), which may begin before it."""
    return np.where((k % step - first) % step < end - first, -1, k)


def _first(size: int, k: Ints) -> Ints:
    return k % size


def _late(size: int, by: int, end: int, k: Ints) -> Ints:
    block = k // size - by
    return (np.maximum(block, 0) if by > 0 else np.minimum(block, end)) * size + k % size


def _turned_round(size: int, depth: int, k: Ints) -> Ints:
    return (k + size) % depth


def _pairs(size: int, k: Ints) -> Ints:
    return k ^ size if size & (size - 1) == 0 else (k // size ^ 1) * size + k % size


def _inner(size: int, part: int, moved: int, k: Ints) -> Ints:
    return k // size * size + k % size // part * moved + k % part


def _one(size: int, number: int, other: int, k: Ints) -> Ints:
    return np.where(k // size == number, k + (other - number) * size, k)


def memory_rules(count: int, depth: int, others: int, chunk: int, step: int) -> Iterator[Rule]:
    """Other addresses in global memory: pitch, pointer, order. chunk: elements of 16 bytes."""
    pitch, pointer = "{x}: pitch wrong", "{x}: pointer off"
    for order, length, size in ((ALONG, depth, count * depth), (ACROSS, count, count * depth)):
        k_first = order == ALONG
        wrong = {length + by for by in (-64, -32, -16, -8, -4, -1, 1, 4, 8, 16, 32, 64)}
        wrong |= {length // 2, length * 2, depth, count, others, *(s for s in (16, 32, 64, 128, 256, 512))}
        wrong |= {step, 2 * step, 4 * step, 8 * step}
        for other in sorted(wrong - {length}):
            if other > 0:
                said = f"{other} elements for {length} ({order})"
                advice = "look at the leading dimension that is passed"
                yield Rule(pitch, said, advice, partial(flat_place, other, 0, length, size, k_first), 4)
        for off in sorted({*(1 << power for power in range(10)), chunk, length, 2 * length}):
            for by in (off, -off):
                said = f"by {by} elements ({order})"
                advice = "look at the address of the first element"
                yield Rule(pointer, said, advice, partial(flat_place, length, by, length, size, k_first), 4)
        for unit in (chunk // 2, chunk, 2 * chunk, 8 * chunk):
            if unit > 1 and length % unit:
                said = f"each line begins at the multiple of {unit} elements ({16 * unit // chunk} bytes) before it ({order})"
                advice = "wide loads take aligned addresses: pad the leading dimension to a multiple of 16 bytes, or load narrower at such lines"
                rounded = partial(_rounded_down, unit, length, k_first)
                yield Rule("{x}: addresses rounded down", said, advice, rounded, 4)
        wrap = 1 << max(size - 1, 1).bit_length() - 1
        for power in (wrap, wrap // 2, wrap // 4):
            if power > length:
                said = f"begins again every {power} elements ({order})"
                advice = "an offset that is kept in too few bits overflows: look at the type of the index"
                yield Rule("{x}: addresses wrap", said, advice, partial(_wrapped, power, length, k_first), 4)
        for deep in sorted({step, 2 * step, 4 * step, 8 * step}):
            if deep < depth:
                said = (
                    f"each K tile of {deep} begins {deep} lines along M or N further on, not {deep} along K ({order})"
                )
                if deep % length == 0:
                    said += f": {deep // length} along K"
                if deep == length:
                    said += ", as of a coordinate that is given the number of the tile"
                advice = "the pointer is advanced by the stride of the other axis"
                sideways = partial(_sideways, deep, length, size, k_first)
                yield Rule("{x}: K advance along the other axis", said, advice, sideways, 4)
    said = "look at the order in memory that {x} is given in, and at .row and .col"
    detail = "the whole matrix, row-major taken for column-major"
    for where, rank in ((_turned, 2), (_turned_back, 3)):
        yield Rule("{x} transposed", detail, said, partial(where, count, depth), rank)
    for edge in (8, 16, 32, 64):
        detail = f"each {edge} x {edge} block"
        advice = "add or drop .trans where {x} is moved with ldmatrix, stmatrix or movmatrix"
        yield Rule("{x} transposed", detail, advice, partial(_blocks, edge), 3)
    for rows in TILES:
        for deep in sorted({step, 2 * step, 4 * step, 8 * step}):
            if rows <= count and deep <= depth:
                detail = f"tile (i, j) of {rows} x {deep} is fetched from row {deep} j, k {rows} i"
                advice = "the innermost coordinate of a tensor map comes first"
                where = partial(_coordinates, rows, deep, count, depth)
                yield Rule("{x}: tile coordinates exchanged", detail, advice, where, 4)


def flat_place(
    pitch: int, off: int, length: int, size: int, k_first: bool, r: Ints, k: Ints, o: Ints
) -> tuple[Ints, Ints]:
    """What lies at an address that is counted with a pitch, `off` elements late; nothing outside. length: the right pitch."""
    outer, inner = (r, k) if k_first else (k, r)
    place = outer * pitch + inner + off
    place = np.where((place >= 0) & (place < size), place, -1)
    outer, inner = np.where(place < 0, -1, place // length), place % length
    return (outer, inner) if k_first else (np.where(outer < 0, -1, inner), outer)


def _rounded_down(unit: int, length: int, k_first: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    outer, inner = (r, k) if k_first else (k, r)
    place = outer * length // unit * unit + inner
    outer, inner = place // length, place % length
    return (outer, inner) if k_first else (inner, outer)


def _sideways(deep: int, length: int, size: int, k_first: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The first tile of K, of lines as many further on as the tile is long for each tile."""
    return flat_place(length, 0, length, size, k_first, r + k // deep * deep, k % deep, o)


def _wrapped(power: int, length: int, k_first: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    outer, inner = (r, k) if k_first else (k, r)
    place = (outer * length + inner) % power
    outer, inner = place // length, place % length
    return (outer, inner) if k_first else (inner, outer)


def _turned(count: int, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    place = k * count + r
    return place // depth, place % depth


def _turned_back(count: int, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    place = r * depth + k
    return place % count, place // count


def _blocks(edge: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return r // edge * edge + k % edge, k // edge * edge + r % edge


def _coordinates(rows: int, deep: int, count: int, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    line, at = k // deep * deep + r % rows, r // rows * rows + k % deep
    return np.where((line < count) & (at < depth), line, -1), at
