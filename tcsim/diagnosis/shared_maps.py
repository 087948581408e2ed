"""Where a wrong kernel may read a tile in shared memory whose rows and K are known: swizzles and their phases, pitches, boxes, matrices of ldmatrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import numpy as np

from tcsim.diagnosis.maps import START, Ints, Rule
from tcsim.diagnosis.sizes import TILES

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
            said = f"{width}: {one} on one side only"
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
                where = partial(_padded, rows, deep, written, read)
                yield Rule("{x}: pitch in shared memory wrong", said, advice, where, 4 + (deep not in (written, read)))
        lengths = [deep for deep in (step, 2 * step, 4 * step, 8 * step) if deep <= depth] if rows <= count else []
        for much, ratio in (("twice", (1, 2)), ("half", (2, 1))) if lengths else ():
            each = ", ".join(f"{ratio[1] * deep} for {ratio[0] * deep}" for deep in lengths)
            said = f"tiles of {rows} rows read with {much} the elements from row to row that they are written with: {each}; the data do not tell which"
            where = partial(_padded, rows, step, ratio[0] * step, ratio[1] * step)
            yield Rule("{x}: pitch in shared memory wrong", said, "look for bytes where elements are meant", where, 4)
        for deep in (2 * step, 4 * step, 8 * step):
            for boxes in (2, 4):
                if rows <= count and deep <= depth and deep // boxes >= chunk:
                    advice = "a copy (the box of a tensor map) and the reader of the tile of {x} must agree on the length of a row"
                    for verbs in (("written", "read"), ("read", "written")):
                        where = partial(_boxed, rows, deep, deep // boxes, verbs[0] == "written")
                        said = f"tiles {verbs[0]} in boxes of {rows} x {deep // boxes} one behind the other, {verbs[1]} in rows of {deep}"
                        yield Rule("{x}: tile in boxes", said, advice, where, 4)
                    said = f"tiles of {deep} along K in {boxes} boxes of {deep // boxes} that are all copied to the place of the first: it holds the last of them, and nothing is written to the others, which are zero"
                    yield Rule("{x}: tile in boxes", said, advice, partial(_over_the_first, deep, deep // boxes), 4)
                    box = f"tiles in boxes (swizzle atoms) of {rows} x {deep // boxes} one behind the other"
                    advice = "what advances along K in the tile of {x} goes on from box to box: by the leading byte offset, or the size of a box"
                    for by, what in ((deep // boxes, "read straight on, from the row below"), (0, "the first again")):
                        said = f"{box}: in place of the next box {what}"
                        where = partial(_next_box, rows, deep, deep // boxes, by)
                        yield Rule("{x}: tile in boxes", said, advice, where, 4)
    for order in ((16, 8), (8, 16)) if chunk == 16 else ():
        said = "in each 16 x 32 of K two lines lie where two elements of K belong: ldmatrix.trans moves 16 bits, two elements"
        advice = "8-bit elements of {x} that lie along M or N are transposed in registers (prmt), on the way to shared memory, or by a K-major copy"
        yield Rule("{x}: transposed in pairs of bytes", said, advice, partial(_by_pairs, order), 4)
    advice = "look at the address that each lane passes to ldmatrix: lanes 8-15 and 16-23"
    yield Rule(
        "{x}: 8 x 8 matrices exchanged", "the second and the third of each four", advice, partial(_quad, chunk), 3
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


def _padded(rows: int, deep: int, written: int, read: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    place = r % rows * read + k % deep
    row, column = place // written, place % written
    inside = (row < rows) & (column < deep)
    return np.where(inside, r // rows * rows + row, -1), k // deep * deep + np.minimum(column, deep - 1)


def _boxed(rows: int, deep: int, width: int, read: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """What is read from rows of `deep` where boxes of `width` lie one behind the other, or the other way round."""
    row, column = r % rows, k % deep
    if read:
        place = row * deep + column
        line, at = place // width % rows, place // (rows * width) * width + place % width
    else:
        place = column // width * (rows * width) + row * width + column % width
        line, at = place // deep, place % deep
    return r - row + line, k - column + at


def _next_box(rows: int, deep: int, width: int, by: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """What is read where boxes of rows x width lie one behind the other and are taken to begin `by` elements apart."""
    row, column = r % rows, k % deep
    place = column // width * by + row * width + column % width
    return r - row + place // width % rows, k - column + place // (rows * width) * width + place % width


def _over_the_first(deep: int, width: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The last box where the first should be, and zeros behind it."""
    return r, np.where(k % deep < width, k + deep - width, -1)


def _quad(chunk: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    high, right = r // 8 % 2, k // chunk % 2
    return r + 8 * (right - high), k + chunk * (high - right)
