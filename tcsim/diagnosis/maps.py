"""Where a wrong kernel may read a line of an operand: every rule with its name, from a row of A (or a column of B) and k to another.

A rule says which line and k stand in for (line, k); k and line below 0 mean a zero. It may depend on the line of the other
operand, which is the output's column for A and its row for B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt

TILES = (16, 32, 64, 128, 256)
"""Rows or columns of a tile."""
PARTS = (8, *TILES)
"""Rows or columns of a tile or of a part of one."""
STEPS = (1, 2, 4, 8, 16)
"""Instructions in a tile's K."""


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
_WHOLE = 1 << 30  # lines, or k: all of them in one block
_LOOK = "look at how the block and warp indices go into the address"
_GRID = "look for blockIdx.x and blockIdx.y that are exchanged in the address"
_WARPS = "look for a warp's indices along M and along N that are exchanged in the address"


def in_units(units: Ints, size: int) -> Ints:
    """The elements of units of some size; -1 for each of a unit that is none.

    >>> in_units(np.array([2, -1]), 3).tolist()
    [6, 7, 8, -1, -1, -1]
    """
    found: Ints = np.where(units[:, None] < 0, -1, units[:, None] * size + np.arange(size)).reshape(-1)
    return found


def lines_from(source: Ints, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The line of a list that stands in for each."""
    return source[np.minimum(r, len(source) - 1)], k


def k_from(source: Ints, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The k of a list that stands in for each; -1 for none."""
    return r, source[np.minimum(k, len(source) - 1)]


def of_blocks(source: Ints, size: int, depth: int) -> Where:
    """Blocks of `size` along K that stand in for each; -1: nothing, as behind K = depth."""
    k = in_units(source, size)
    return partial(k_from, np.where(k < depth, k, -1))


def line_rules(count: int, others: int) -> Iterator[Rule]:
    """Whole lines read in the place of others: block and warp indices. count: lines; others: those of the other operand."""
    own = np.arange(count)

    def rule(said: str, source: Ints, rank: int = 1) -> Rule:
        return Rule(
            LINES, said, _LOOK, partial(lines_from, np.where(source < count, source, -1)), rank, lines_only=True
        )

    sizes = [size for size in PARTS if size < count]
    for size in sizes:
        last = min(2 * size, count) - 1
        yield rule(f"the block of {size} is always the first, repeated: {size}-{last} are 0-{last - size}", own % size)
    for bit in (1 << power for power in range(max(count - 1, 0).bit_length())):
        said = f"blocks of {bit} exchanged in pairs: the halves 0-{bit - 1} and {bit}-{2 * bit - 1} of every {2 * bit}"
        yield rule(said if bit > 1 else "neighbours exchanged", own ^ bit)
    yield rule("in reverse", own[::-1])
    for size in sizes:
        yield rule(f"the next block of {size}, and zeros for the last one", own + size, 2)
        said = f"block i of {size} is block"
        yield rule(f"{said} i + 1, and the last is the first: one too far, round the end", (own + size) % count, 2)
        yield rule(f"{said} i - 1, and the first is the last: one too early, round the end", (own - size) % count, 2)
        for start in (size // 2, 2 * size):
            said = f"block i of {size} starts at {start} i: another tile's size where its own was meant"
            yield rule(said, _inner(own, size, start), 2 + (start >= count))  # zeros alone have simpler names
    for size, part in product(PARTS, PARTS):
        if part < size < count or part < size == count:
            both = ", both halves are the first" * (size == 2 * part)
            said = f"in every block of {size} the part of {part} is always the first, repeated: {part}-{2 * part - 1} are 0-{part - 1}{both}"
            if size < count:
                yield rule(said, _inner(own, part, 0, size), 2)
            for step in (step for step in (8, 16, 32) if step < part):
                said = f"in every block of {size} parts of {part} that start every {step}"
                yield rule(said, _inner(own, part, step, size), 3)
    for size, other in product(PARTS, PARTS):
        if size < count and other < others:
            said = f"the block of {size} is numbered by the other index, of blocks of {other}"
            where = partial(_other_part, _WHOLE, size, _WHOLE, other)
            yield Rule(LINES, said, _GRID, where, 3, crosses=True, lines_only=True)
        for part, theirs in product((size // 2, size // 4), (other // 2, other // 4)):
            if part >= 8 and theirs >= 8 and size <= count and other <= others:
                said = f"in every block of {size} the part of {part} is numbered by the other index, of parts of {theirs} in {other}"
                where = partial(_other_part, size, part, other, theirs)
                yield Rule(LINES, said, _WARPS, where, 4, crosses=True, lines_only=True)


def within(rule: Rule, depth: int, padded: int) -> Rule:
    """The rule for lines that end with zeros behind K."""
    if depth == padded:
        return rule
    return replace(rule, where=partial(_within, rule.where, depth))


def _within(where: Where, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    row, at = np.broadcast_arrays(*where(r, k, o))
    return np.where(k < depth, row, -1), at


def _other_part(size: int, part: int, other: int, theirs: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    number = o % other // theirs
    return np.where(number < size // part, r // size * size + number * part + r % part, -1), k


def _inner(own: Ints, part: int, moved: int, size: int = _WHOLE) -> Ints:
    """Parts that begin `moved` apart, in every block of some size."""
    return own // size * size + own % size // part * moved + own % part


_HALF_OF_A_PATTERN = ", as in a tile that starts 512 bytes off the period of a swizzle of 128 bytes"
_STAGE = "producer and consumer disagree about the stage of the pipeline"
_EARLY = f"{_STAGE}, or the next copy overwrites it before it has been read: a stage too few, or one that is released too soon"
_BACK = "one operand goes through K from the end, the other from the start: look at the sign of the step and at where it begins"
_ADVANCE = "the K advance is in bytes where elements are meant, or the other way round, or the wrong number"


def depth_rules(depth: int, step: int, chunk: int = 0) -> Iterator[Rule]:
    """Other k, the same for every line. depth: K; step: that of an instruction; chunk: elements of 16 bytes in shared memory."""
    own = np.arange(-(-depth // step) * step)

    def rule(mistake: str, said: str, advice: str, source: Ints, rank: int = 2) -> Rule:
        source = np.where((source >= 0) & (source < depth), source, -1)
        return Rule(mistake, said, advice, partial(k_from, source), rank)

    sizes = [size for size in (step, 2 * step, 4 * step, 8 * step, 16 * step) if size < depth]
    for size in sizes:
        block, last = own // size, (depth - 1) // size
        many = size > step and last < _MOST_SLICES
        split = f", as in {last + 1} slices of split-K that all begin at k 0" if many else ""
        yield rule(ADVANCE, f"no advance: K block 0 of {size} every time{split}", _ADVANCE, own % size)
        for by in (1, 2, 3):
            when = f"{by} blocks of {size}" if by > 1 else f"one block of {size}"
            yield rule(LATE, f"{when} late", _STAGE, np.maximum(block - by, 0) * size + own % size)
            yield rule(LATE, f"{when} early", _EARLY, np.minimum(block + by, last) * size + own % size)
        said = f"blocks of {size} exchanged in pairs" + (_HALF_OF_A_PATTERN if size == 4 * chunk else "")
        yield rule(LATE, said, _STAGE, (block ^ 1) * size + own % size)
        yield rule(LATE, f"blocks of {size} rotated by one", _STAGE, (own + size) % depth)
        yield rule(LATE, f"blocks of {size} rotated back by one", _STAGE, (own - size) % depth)
        if last > 1:
            said = f"blocks of {size} in reverse, block 0 being the last one"
            yield rule(_ORDER, said, _BACK, (last - block) * size + own % size)
        for part in (part for part in sizes if part < size):
            said = f"inside each tile of {size}: no advance, K block 0 of {part} every time"
            yield rule(ADVANCE, said, _ADVANCE, _inner(own, part, 0, size))
        for number, by in product(range(last + 1), (1, 2, 3, 4)):
            for other in (other for other in {number - by, number + by} if 0 <= other <= last):
                k = f"K {number * size}-{number * size + size - 1}"
                said = f"in block {number} of {size} ({k}) that of block {other}"
                yield rule(LATE, said, _STAGE, np.where(block == number, own + (other - number) * size, own), 3)
    if step > 1:
        said = f"the halves of every {step} along K, 0-{step // 2 - 1} and {step // 2}-{step - 1}, are exchanged"
        yield rule(LATE, said, _HALVES, own ^ step // 2, 3)
    for by in (by for by in _ROTATED if by % step):
        for way, source in (("further on", own + by), ("before", own - by)):
            said = f"every k is that {by} {way}, round the end: K 0 is K {int(source[0]) % depth}"
            yield rule(_ORDER, said, _START_OF_K, source % depth, 3)
    for part in (step // 2, step // 4):
        for first in range(0, step, part) if part else ():
            for zero in ((first, first + part), (first + part - step, first))[: step // part // 2]:
                where_zero = f"{zero[0]}-{zero[1] - 1}" if zero[0] >= 0 else f"all but {zero[1]}-{zero[0] + step - 1}"
                source = np.where((own - zero[0]) % step < zero[1] - zero[0], -1, own)
                yield rule(_NOT_LOADED, f"K {where_zero} of every {step} are zero", _FEW_REGISTERS, source)
    said = f"K 1-{step - 1} of every {step} are zero: the first element of each step alone counts"
    yield rule(_NOT_LOADED, said, _ONE_ROW, np.where(own % step, -1, own))
    for size in (*(size for size in _PACKED if size < depth), depth):
        listed = _WORDS if size < depth else range(2, min(size // 2, _MOST_PARTS) + 1)
        for parts in (parts for parts in listed if size % parts == 0):
            for outer in {parts, size // parts}:
                inner, at = size // outer, own % size
                said, why = f"K transposed as an array of {outer} x {inner}: the operands' layouts of K differ", _ARRAY
                if size < depth:
                    said, why = f"each {size} of K transposed as an array of {outer} x {inner}", _UNPACKED
                yield rule(_ORDER, said, why, own - at + at % outer * inner + at // outer, 3 + (size < depth))
    for size in [*sizes, depth]:
        for part in (step // 2, step, 2 * step, *((4 * step, 8 * step, 16 * step) if size == depth else ())):
            for moved in (part // 2, part // 4, 2 * part, 4 * part):
                if part < size and moved:
                    place = f"inside each tile of {size}: " if size < depth else ""
                    yield rule(ADVANCE, f"{place}{moved} for every {part}", _ADVANCE, _inner(own, part, moved, size), 3)


_ORDER = "K of {x} in another order"
_ARRAY = "channels and taps, or groups and elements: K goes through one first in A, through the other in B"
_UNPACKED = "look at which elements of {x} share a word, and at the order in which they are unpacked"
_PACKED, _WORDS = (32, 64, 128, 256), (2, 4, 8)
"""Elements that are packed together, and how many of them lie in one word."""
_HALVES = "look at the order of {x}'s registers, and of the matrices that ldmatrix loads into them"
_ROTATED = (1, 2, 4, 8, 16, 32)
_START_OF_K = "look at where the loop along K begins in {x}, and at what it is taken modulo"
_NOT_LOADED = "{x}: part of each step not loaded"
_FEW_REGISTERS = "registers of {x}'s fragment that are never loaded: ldmatrix.x2 for .x4, or too few lanes' addresses"
_ONE_ROW = "a buffer or a copy of one row of {x} where the fragment has all"
_MOST_SLICES = 8
_MOST_PARTS = 32  # of K, as the taps of a filter


def memory_rules(count: int, depth: int, others: int, chunk: int, step: int) -> Iterator[Rule]:
    """Other addresses in global memory: pitch, pointer, order. chunk: elements of 16 bytes."""
    deeps = sorted({step, 2 * step, 4 * step, 8 * step})
    size = count * depth
    for order, length in ((ALONG, depth), (ACROSS, count)):
        k_first = order == ALONG
        wrong = {length + by for by in (-64, -32, -16, -8, -4, -1, 1, 4, 8, 16, 32, 64)}
        wrong |= {length // 2, length * 2, depth, count, others, 16, 32, 64, 128, 256, 512, *deeps}
        for other in sorted(other for other in wrong - {length} if other > 0):
            said = f"{other} elements for {length} ({order})"
            advice = "look at the leading dimension that is passed"
            yield Rule("{x}: pitch wrong", said, advice, partial(pitched, k_first, count, depth, length, other, 0), 4)
        for off in sorted({*(1 << power for power in range(10)), chunk, length, 2 * length}):
            for by in (off, -off):
                where = partial(pitched, k_first, count, depth, length, length, by)
                lines = f": {abs(by) // length} along {'M or N' if k_first else 'K'}" if off % length == 0 else ""
                said = f"by {by} elements ({order}){lines}"
                yield Rule("{x}: pointer off", said, "look at the address of the first element", where, 4)
        for written in sorted(
            {-(-length // unit) * unit for unit in (4, 8, 16, 32, 64, 128)} | {length + 8, length + 16}
        ):
            if written > length:
                said = f"rows of {length} that are padded to {written} are read as packed, {length} from one to the next ({order})"
                advice = "look at the leading dimension that is passed: it must be that of the padded memory"
                where = partial(pitched, k_first, count, depth, written, length, 0)
                yield Rule("{x}: pitch wrong", said, advice, where, 4)
        for unit in (unit for unit in (chunk // 2, chunk, 2 * chunk, 8 * chunk) if unit > 1 and length % unit):
            said = (
                f"each line begins at the multiple of {unit} elements ({16 * unit // chunk} bytes) before it ({order})"
            )
            advice = "wide loads take aligned addresses: pad the leading dimension to a multiple of 16 bytes, or load narrower at such lines"
            where = partial(
                _placed, length, k_first, lambda outer, inner, n=length, unit=unit: outer * n // unit * unit + inner
            )
            yield Rule("{x}: addresses rounded down", said, advice, where, 4)
        for times in (2, 4):
            for said, place in (
                (
                    f"{times} elements apart where they are neighbours",
                    lambda outer, inner, n=length, by=times: outer * n + by * inner,
                ),
                (
                    f"{times} times as far from the first element",
                    lambda outer, inner, n=length, by=times: by * (outer * n + inner),
                ),
                (
                    f"1 / {times} as far from the first element: each {times} times",
                    lambda outer, inner, n=length, by=times: (outer * n + inner) // by,
                ),
            ):
                advice = "look at the stride of the innermost index, and at the size of the type that the pointer is of"
                yield Rule(
                    "{x}: stride of elements wrong",
                    f"{said} ({order})",
                    advice,
                    partial(_placed, length, k_first, place),
                    4,
                )
        wrap = 1 << max(size - 1, 1).bit_length() - 1
        for power in (power for power in (wrap, wrap // 2, wrap // 4) if power > length):
            said = f"begins again every {power} elements ({order})"
            advice = "an offset that is kept in too few bits overflows: look at the type of the index"
            where = partial(
                _placed, length, k_first, lambda outer, inner, n=length, power=power: (outer * n + inner) % power
            )
            yield Rule("{x}: addresses wrap", said, advice, where, 4)
        for deep in (deep for deep in deeps if deep < depth):
            said = f"each K tile of {deep} begins {deep} lines along M or N further on, not {deep} along K ({order})"
            said += f": {deep // length} along K" if deep % length == 0 else ""
            said += ", as of a coordinate that is given the number of the tile" if deep == length else ""
            advice = (
                "the pointer is advanced by the stride of the other axis, or a tensor map's coordinates are exchanged"
            )
            where = partial(_sideways, deep, count, depth, k_first)
            yield Rule("{x}: K advance along the other axis", said, advice, where, 4)
    whole = "the whole matrix, row-major taken for column-major"
    look = "look at the order in memory of {x}, and at .row and .col"
    yield Rule("{x} transposed", whole, look, lambda r, k, o: divmod(k * count + r, depth), 2)
    yield Rule("{x} transposed", whole, look, lambda r, k, o: divmod(r * depth + k, count)[::-1], 3)
    for edge in (8, 16, 32, 64):
        said = f"each {edge} x {edge} block is loaded from K {edge} i on, i being the number of its lines' block: the lines' offset for that of K"
        advice = "one index is used for both offsets in the address of {x}"
        yield Rule("{x}: offset of the lines taken along K", said, advice, partial(_diagonal, edge, depth), 4)
        advice = "add or drop .trans where ldmatrix, stmatrix or movmatrix moves {x}"
        yield Rule("{x} transposed", f"each {edge} x {edge} block", advice, partial(turned, edge, edge, False), 3)
    for rows, deep in product(TILES, deeps):
        if rows <= count and deep <= depth:
            detail = f"tile (i, j) of {rows} x {deep} is fetched from row {deep} j, k {rows} i"
            advice = "the innermost coordinate of a tensor map comes first"
            where = partial(_coordinates, rows, deep, count, depth)
            yield Rule("{x}: tile coordinates exchanged", detail, advice, where, 4)


def _placed(length: int, k_first: bool, place: Callable[..., Ints], r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The line and the k at the address that an element is looked for at."""
    found = place(r, k) if k_first else place(k, r)
    return (found // length, found % length) if k_first else (found % length, found // length)


def _sideways(deep: int, count: int, depth: int, k_first: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The first tile of K, of lines as many further on as the tile is long for each tile."""
    row, at = r + k // deep * deep, k % deep
    row, at = (row, at) if k_first else (row % count, at + row // count)
    return np.where((row < count) & (at < depth), row, -1), at


def _diagonal(edge: int, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    at = r // edge * edge + k % edge
    return np.where(at < depth, r, -1), at


def turned(height: int, width: int, back: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """Blocks of height x width that are written row by row and read column by column, or back the other way round."""
    row, at = r % height, k % width
    place = at * height + row if back else row * width + at
    row, column = (place // width, place % width) if back else (place % height, place // height)
    return r // height * height + row, k // width * width + column


def pitched(
    along: bool, height: int, width: int, written: int, read: int, off: int, r: Ints, k: Ints, o: Ints
) -> tuple[Ints, Ints]:
    """Tiles of height x width that are written with one pitch and read with another, `off` elements late; along: the elements of a line lie beside each other."""
    row, at = r % height, k % width
    place = (row * read + at if along else at * read + row) + off
    outer, inner = np.divmod(place, written)
    line, to = (outer, inner) if along else (inner, outer)
    inside = (place >= 0) & (line < height) & (to < width)
    return np.where(inside, r - row + line, -1), k - at + to


def _coordinates(rows: int, deep: int, count: int, depth: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    line, at = k // deep * deep + r % rows, r // rows * rows + k % deep
    return np.where((line < count) & (at < depth), line, -1), at
