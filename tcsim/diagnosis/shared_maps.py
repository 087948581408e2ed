"""Where a wrong kernel may read a tile of an operand in shared memory: swizzles, pitches, boxes, chunks of 16 bytes, core matrices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import numpy as np

from tcsim.diagnosis.maps import START, TILES, Ints, Rule, pitched, turned

MODES = {2: ((2, 1),), 4: ((1, 3), (1, 1)), 8: ((0, 7), (0, 3), (0, 1))}
"""Chunks in a row of a tile -> (row bits that are skipped, those that are used) of the hardware's swizzles, that of the row's own width first."""


def shared_rules(count: int, depth: int, chunk: int, step: int) -> Iterator[Rule]:
    """Other places in a tile in shared memory: swizzle, pitch, the 8 x 8 matrices of ldmatrix."""
    look = "writer and reader of the tile of {x} must use one swizzle, counted from one address"
    for span in (2, 4, 8):
        if span * chunk > depth:
            continue
        patterns = {
            f"chunk ^ (row {f'/ {1 << low} ' if low else ''}% {mask + 1})": (low, mask)
            for mask in (1, 3, 7)
            if mask < span
            for low in (0, 1, 2)
        }
        width = f"rows of {16 * span} bytes"
        for one, (low, mask) in patterns.items():
            said = f"{width}: {one} on one side only, none on the other"
            modes = MODES[span]
            hardware = (low, mask) in modes
            rank = 4 if (low, mask) == modes[0] else 5
            yield Rule("{x}: swizzle wrong", said, look, partial(xored, chunk, span, low, mask, 0, 0, 0), rank)
            for phase in range(1, mask + 1):
                said = f"{width}: {one}, counted from a row that is {phase << low} off"
                where = partial(xored, chunk, span, low, mask, low, mask, phase << low)
                yield Rule("{x}: swizzle wrong", said, START, where, 4 if hardware else 5)
            for two, (other_low, other_mask) in patterns.items():
                if (other_low, other_mask) < (low, mask):
                    said = f"{width}: {one} on one side, {two} on the other"
                    both = hardware and (other_low, other_mask) in modes
                    said += f": {_mode(mask)} and {_mode(other_mask)}" if both else ""
                    where = partial(xored, chunk, span, low, mask, other_low, other_mask, 0)
                    yield Rule("{x}: swizzle wrong", said, look, where, 4 if both else 5)
    for rows in TILES:
        for deep in sorted({step, 2 * step, 4 * step, 8 * step}):
            if rows >= 2 * count or deep > depth:
                continue
            pitches = [deep + pad for pad in (0, chunk // 2, chunk, 2 * chunk) if pad != deep]
            for written, read in permutations(pitches, 2):
                said = f"tiles of {rows} x {deep} written with {written} elements from row to row, read with {read}"
                advice = "one constant for the padded pitch of the tile of {x}"
                where = partial(pitched, True, rows, deep, written, read, 0)
                yield Rule("{x}: pitch in shared memory wrong", said, advice, where, 4 + (deep not in (written, read)))
        lengths = [deep for deep in (step, 2 * step, 4 * step, 8 * step) if deep <= depth] if rows <= count else []
        for much, ratio in (("twice", (1, 2)), ("half", (2, 1))) if lengths else ():
            each = ", ".join(f"{ratio[1] * deep} for {ratio[0] * deep}" for deep in lengths)
            said = f"tiles of {rows} rows read with {much} the elements from row to row that they are written with: {each}; the data do not tell which"
            where = partial(pitched, True, rows, step, ratio[0] * step, ratio[1] * step, 0)
            yield Rule("{x}: pitch in shared memory wrong", said, "look for bytes where elements are meant", where, 4)
        for deep in (2 * step, 4 * step, 8 * step):
            for boxes in (2, 4):
                if rows <= count and deep <= depth and deep // boxes >= chunk:
                    advice = "a copy (the box of a tensor map) and the reader of the tile of {x} must agree on the length of a row"
                    for verbs, by in ((("written", "read"), None), (("read", "written"), rows * deep // boxes)):
                        where = partial(_boxed, rows, deep, deep // boxes, by)
                        said = f"tiles {verbs[0]} in boxes of {rows} x {deep // boxes} one behind the other, {verbs[1]} in rows of {deep}"
                        yield Rule("{x}: tile in boxes", said, advice, where, 4)
                    said = f"tiles of {deep} along K in {boxes} boxes of {deep // boxes} that are all copied to the place of the first: it holds the last of them, and nothing is written to the others, which are zero"
                    yield Rule("{x}: tile in boxes", said, advice, partial(_over_the_first, deep, deep // boxes), 4)
                    box = f"tiles in boxes (swizzle atoms) of {rows} x {deep // boxes} one behind the other"
                    advice = "what advances along K in the tile of {x} goes on from box to box: by the leading byte offset, or the size of a box"
                    for by, what in ((deep // boxes, "read straight on, from the row below"), (0, "the first again")):
                        said = f"{box}: in place of the next box {what}"
                        where = partial(_boxed, rows, deep, deep // boxes, by)
                        yield Rule("{x}: tile in boxes", said, advice, where, 4)
    for order in ((16, 8), (8, 16)) if chunk == 16 else ():
        said = "in each 16 x 32 of K two lines lie where two elements of K belong: ldmatrix.trans moves 16 bits, two elements"
        advice = "8-bit elements of {x} that lie along M or N are transposed in registers (prmt), on the way to shared memory, or by a K-major copy"
        yield Rule("{x}: transposed in pairs of bytes", said, advice, partial(_by_pairs, order), 4)
    advice = "look at the address that each lane passes to ldmatrix: lanes 8-15 and 16-23"
    yield Rule(
        "{x}: 8 x 8 matrices exchanged",
        "the second and the third of each four, in registers 1 and 2",
        advice,
        partial(_quad, chunk),
        3,
    )


def _by_pairs(order: tuple[int, int], r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """Bytes as ldmatrix.trans brings 16 lines x 32 of K that lie K after K; order: by how much of K the second 8 lines and the second register are further on."""
    at = order[0] * (r // 8 % 2) + order[1] * (k // 16 % 2) + k // 4 % 4 * 2 + k // 2 % 2
    return r // 16 * 16 + r % 8 * 2 + k % 2, k // 32 * 32 + at


def _mode(mask: int) -> str:
    return f"swizzle {16 * (mask + 1)}B"


def xored(
    chunk: int,
    span: int,
    low: int,
    mask: int,
    other_low: int,
    other_mask: int,
    phase: int | Ints,
    r: Ints,
    k: Ints,
    o: Ints,
) -> tuple[Ints, Ints]:
    """Chunks exchanged by one pattern of row bits and back by another, counted `phase` rows late."""
    pattern = (r >> low & mask) ^ (r + phase >> other_low & other_mask if other_mask else 0)
    block = k // chunk
    return r, (block // span * span + (block % span ^ pattern)) * chunk + k % chunk


def _boxed(rows: int, deep: int, width: int, by: int | None, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """What is read from boxes of rows x width that are taken to begin `by` elements apart, or from rows (None); where boxes lie one behind the other, or, if that is how they are read, rows."""
    row, column = r % rows, k % deep
    place = row * deep + column if by is None else column // width * by + row * width + column % width
    if by == rows * width:
        line, at = place // deep, place % deep
    else:
        line, at = place // width % rows, place // (rows * width) * width + place % width
    return r - row + line, k - column + at


def _over_the_first(deep: int, width: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The last box where the first should be, and zeros behind it."""
    return r, np.where(k % deep < width, k + deep - width, -1)


def _quad(chunk: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    high, right = r // 8 % 2, k // chunk % 2
    return r + 8 * (right - high), k + chunk * (high - right)


_WIDE = 128  # lines of a tile that may be more than there are
_DEEP = (2, 4, 8, 16)  # chunks of 16 bytes in a row of it
_STEP = 2  # chunks in an instruction's K


def tile_rules(count: int, depth: int, chunk: int, described: bool) -> Iterator[Rule]:
    """count: lines; depth: K; chunk: elements of 16 bytes; described: descriptors say where a tile lies."""
    yield from _chunk_rules(chunk)
    for span in (16, 32):
        if span * chunk <= depth:
            yield from _address_swizzles(chunk, span)
    for rows in TILES:
        for deep in (chunk * chunks for chunks in _DEEP if chunk * chunks < 2 * depth and rows <= max(count, _WIDE)):
            yield from _pitch_rules(rows, deep, chunk)
        if rows < 2 * count:
            for deep in (chunk * chunks for chunks in _DEEP):
                if deep < 2 * depth:
                    yield from _order_rules(rows, deep)
                    if described:
                        yield from _core_rules(rows, deep, chunk)
                        yield from _panel_rules(rows, deep, chunk)
            if described:
                yield from _group_rules(rows)


def _chunk_rules(chunk: int) -> Iterator[Rule]:
    name, advice = "bytes missing in shared memory", "cp.async copies 4, 8 or 16 bytes: look at its size"
    for first, last in ((chunk // 2, chunk), (0, chunk // 2), (chunk // 4, chunk)):
        if first < last:
            size = 16 * (last - first) // chunk
            said = f"the {'first' if first == 0 else 'last'} {size} of every 16 bytes along K are zero, of a, of b or of both"
            yield Rule(name, said, advice, partial(_zeros, chunk, first, last), 3)
    name, advice = (
        "{x}: 8 x 8 matrices repeated",
        "look at the address that each lane passes to ldmatrix: which 16 bytes along K",
    )
    for kept in (0, 1):
        said = f"the {('second', 'first')[kept]} 16 bytes of each 32 along K are the {('first', 'second')[kept]} again"
        yield Rule(name, said, advice, partial(_one_of_two, chunk, kept), 3)


def _zeros(chunk: int, first: int, last: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    inside = (k % chunk >= first) & (k % chunk < last)
    return r, k - (k + 1) * inside


def _one_of_two(chunk: int, kept: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return r, k // (2 * chunk) * 2 * chunk + kept * chunk + k % chunk


def _address_swizzles(chunk: int, span: int) -> Iterator[Rule]:
    """Swizzles of addresses where a row has more bytes than a swizzle's pattern."""
    look = "writer and reader of the tile of {x} must use one swizzle"
    for mask in (7, 3, 1):
        said = f"rows of {16 * span} bytes: {_mode(mask)} on one side only, none on the other"
        yield Rule("{x}: swizzle wrong", said, look, partial(_by_address, chunk, span, mask), 4)


def _by_address(chunk: int, span: int, mask: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    block = k // chunk
    return r, (block ^ ((r * span + block % span) >> 3 & mask)) * chunk + k % chunk


def _order_rules(rows: int, deep: int) -> Iterator[Rule]:
    advice = "the major of {x} in its descriptor, or .trans of ldmatrix, must be that of the tile in shared memory"
    written = "{x}: tile transposed"
    if rows != deep:
        said = f"tiles of {rows} x {deep} lie MN-major in shared memory and are read as K-major"
        yield Rule(written, said, advice, partial(turned, rows, deep, False), 4)
        said = f"tiles of {rows} x {deep} lie K-major in shared memory and are read as MN-major"
        yield Rule(written, said, advice, partial(turned, rows, deep, True), 4)


def _pitch_rules(rows: int, deep: int, chunk: int) -> Iterator[Rule]:
    """Pitches of a tile in which lines lie side by side, K after K: padded on one side only, that of another tile, or K's extent."""
    advice = "one constant for the pitch of the tile of {x}, from one k to the next"
    padded = [rows + pad for pad in (chunk // 2, chunk)]
    for written, read in (
        *((rows, pitch) for pitch in (*padded, *sorted({deep, 2 * rows, rows // 2} - {rows}))),
        *((pitch, rows) for pitch in padded),
    ):
        said = (
            f"tiles of {rows} x {deep} that lie MN-major, written with {written} elements from k to k, read with {read}"
        )
        where = partial(pitched, False, rows, deep, written, read, 0)
        yield Rule("{x}: pitch in shared memory wrong", said, advice, where, 4)


def _core_rules(rows: int, deep: int, chunk: int) -> Iterator[Rule]:
    """Tiles without a swizzle, whose core matrices of 8 rows x 16 bytes lie one after the other along K or along M or N."""
    across, along = rows // 8, deep // chunk
    for said, width, k_first in (("along K", along, True), ("along M or N", across, False)):
        lbo, sbo = (128, 128 * along) if k_first else (128 * across, 128)
        for each in sorted({_STEP, along}):
            those = "in each instruction of " * (each < along)
            yield Rule(
                "{x}: LBO and SBO swapped",
                f"{those}tiles of {rows} x {deep}, K-major, swizzle NONE, core matrices one after another {said}",
                f"the descriptor of {{x}} should have LBO {lbo} and SBO {sbo} bytes",
                partial(_cores, rows, deep, chunk, width, k_first, each),
                4,
            )


def _cores(
    rows: int, deep: int, chunk: int, width: int, k_first: bool, each: int, r: Ints, k: Ints, o: Ints
) -> tuple[Ints, Ints]:
    """Core matrices with the strides exchanged, of `each` of them along K."""
    group, block = r % rows // 8, k % deep // chunk
    start, block = block // each * each, block % each
    place = start + group + block * width if k_first else (group + start) * width + block
    group, block = (place // width, place % width) if k_first else (place % width, place // width)
    inside = (group < rows // 8) & (block < deep // chunk)
    line = r // rows * rows + group * 8 + r % 8
    return line - (line + 1) * ~inside, k // deep * deep + block * chunk + k % chunk


def _panel_rules(rows: int, deep: int, chunk: int) -> Iterator[Rule]:
    """MN-major tiles with a swizzle, in panels of its span along M or N: LBO goes to the next panel, SBO to the next 8 of K."""
    for chunks in (2, 4, 8):
        span = chunks * chunk
        if span < rows and deep > 8:
            yield Rule(
                "{x}: LBO and SBO swapped",
                f"tiles of {rows} x {deep}, MN-major, {_mode(chunks - 1)}, in panels of {span} along M or N",
                f"in the descriptor of {{x}} SBO ({128 * chunks} bytes) goes to the next 8 of K, LBO to the next panel",
                partial(_panels, rows, deep, span, _STEP * chunk),
                4,
            )


def _panels(rows: int, deep: int, span: int, step: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """Atoms of `span` lines x 8 k of such a tile with the strides exchanged in each instruction's K."""
    line, at, groups = r % rows, k % deep, deep // 8
    place = at // step * (step // 8) + line // span + at % step // 8 * groups
    there = place // groups * span + line % span
    return np.where(there < rows, r - line + there, -1), k - at + place % groups * 8 + at % 8


def _group_rules(rows: int) -> Iterator[Rule]:
    advice = "the SBO of {x}'s descriptor is the stride from 8 lines to the next 8"
    for start, much in ((4, "half"), (16, "twice"), (2, "a quarter"), (32, "four times")):
        said = f"in every tile of {rows} the groups of 8 start every {start}: {much} of the right stride, {128 * start} bytes for 1024 with swizzle 128B"
        where = partial(_groups, rows, start)
        yield Rule("{x}: SBO wrong", said, advice, where, 1, lines_only=True)


def _groups(rows: int, start: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    line = r % rows // 8 * start + r % 8
    return r // rows * rows + line - (r // rows * rows + line + 1) * (line >= rows), k
