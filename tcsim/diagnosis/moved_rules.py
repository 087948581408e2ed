"""Rules of where an epilogue's outputs lie: pointers, pitches, staging tiles, offsets, parts that are stored late."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.maps import PARTS, TILES, Rule, lines_from, pitched, turned
from tcsim.diagnosis.reals import Ints, Numbers
from tcsim.diagnosis.shared_maps import xored

MOST_GIVEN = 0.9  # of the known places a rule must give
_KNOWN = 600  # places that a rule is tried on
_MISSED = 0.1  # of the outputs
_LEAST = 12  # of which a pointer is read off
_PAIRS = 60  # of places that addresses are solved from
_STORE = "look at the address of the epilogue's store: its pointer and its leading dimension"
_STAGING_ORDER = "the epilogue, or the workspace of split-K, must be written and read in one order"
_STAGING_SWIZZLE = "the staging tile of the epilogue must be written and read, by TMA too, with one swizzle"
_STAGING = "the staging tile of the epilogue must be written and read with one pitch"

OFFSET = "d: read with an offset in its tile"
START = (
    "look at where the epilogue begins to read a tile: the column or lane of its tcgen05.ld, its address in the staging tile; "
    "the same comes of parts that are stored too early by as much, the last of them nowhere"
)
PITCHES = 65  # how far off a pitch of stores is looked for
_MASKS, _LOWS, _CHUNKS = (1, 3, 7, 15), (0, 1, 2, 3), (1, 2, 4, 8, 16, 32)  # of a swizzle: of rows and of columns
_PADS = (1, 2, 4, 8, 16)  # of a row of the staging tile
_OFFSETS = (1, 2, 4, 8, 16, 32)  # of lines


def offset_rules(count: int, what: str) -> Iterator[Rule]:
    """Tiles of the output that are read beside their beginning, with zeros behind their end. what: "rows" or "columns"."""
    own = np.arange(count)
    for size, by in product((size for size in TILES if size <= count), _OFFSETS):
        for off in (by, -by) if by < size else ():
            line = f"{what.removesuffix('s')} i is that at i {'+' if off > 0 else '-'} {by}"
            said = f"in every {size} {what} {line}, and the {'last' if off > 0 else 'first'} {by} are zero"
            source = np.where((own + off) // size == own // size, own + off, -1)
            yield Rule(OFFSET, said, START, partial(lines_from, source), 2, lines_only=True)


def pitch_rules(shape: tuple[int, int]) -> Iterator[Rule]:
    """Outputs stored with too large a pitch, whose rows do not meet."""
    rows, columns = shape
    for pitch in sorted({*range(columns + 1, columns + PITCHES), 2 * columns, max(rows, columns + 1)}):
        yield stored_with(pitch, 0, shape)


def store_rules(i: Ints, j: Ints, row: Ints, column: Ints, shape: tuple[int, int]) -> Iterator[Rule]:
    """Rules by which outputs (i, j) hold the model's of (row, column)."""
    random = repeatable()
    kept = random.permutation(len(i))[:_KNOWN]
    i, j, row, column = (x[kept] for x in (i, j, row, column))
    pairs = random.integers(0, len(i), (2, _PAIRS))
    pairs = pairs[:, row[pairs[0]] != row[pairs[1]]]
    yield from _swizzled(i, j, row, column, shape)
    yield from _global(i, j, row, column, shape, pairs)
    for height, width in product(TILES, (*TILES, shape[1])):
        same = (i // height == row // height) & (j // width == column // width)
        if height < 2 * shape[0] and width <= shape[1] and same.mean() >= MOST_GIVEN:
            found = list(_staged(i % height, j % width, row % height, column % width, (height, width), pairs))
            if found:
                yield found[0]
                return


def late_rules(base: Numbers, i: Ints, j: Ints, wanted: Numbers, reach: Numbers) -> Iterator[Rule]:
    """Outputs (i, j) of `wanted` that all lie equally many elements late or early, whatever their precision."""
    flat = base.reshape(-1)
    offs = np.arange(1 - flat.size, flat.size)
    written = np.flatnonzero(wanted != 0)
    missed = np.zeros(len(offs), np.int64)
    for one in written:
        place = i[one] * base.shape[1] + j[one] - offs
        inside = (place >= 0) & (place < flat.size)
        missed += ~(inside & (np.abs(flat[np.where(inside, place, 0)] - wanted[one]) <= reach[one]))
        kept = missed <= _MISSED * len(written)
        offs, missed = offs[kept], missed[kept]
    for off in sorted(offs.tolist(), key=abs)[:1]:
        if off and len(written) >= _LEAST:
            yield stored_with(base.shape[1], int(off), (base.shape[0], base.shape[1]))


def _swizzled(i: Ints, j: Ints, row: Ints, column: Ints, shape: tuple[int, int]) -> Iterator[Rule]:
    """Chunks of columns that are exchanged by bits of the row."""
    for mask, low, chunk in product(_MASKS, _LOWS, _CHUNKS) if (row == i).mean() >= MOST_GIVEN else ():
        where = partial(xored, chunk, mask + 1, low, mask, 0, 0, 0)
        if (mask + 1) * chunk <= shape[1] and (where(i, j, 0 * i)[1] == column).mean() >= MOST_GIVEN:
            bits = f"(row / {1 << low}) % {mask + 1}" if low else f"row % {mask + 1}"
            said = f"in every {(mask + 1) * chunk} columns chunk c of {chunk} is chunk c XOR {bits}"
            yield Rule("{x}: swizzle of the staging tile not undone", said, _STAGING_SWIZZLE, where, 3)
            return


def _global(i: Ints, j: Ints, row: Ints, column: Ints, shape: tuple[int, int], pairs: Ints) -> Iterator[Rule]:
    """One pitch and one pointer: i N + j = row pitch + column + off."""
    begin = i * shape[1] + j - column
    rise, run = begin[pairs[0]] - begin[pairs[1]], row[pairs[0]] - row[pairs[1]]
    whole = rise % run == 0
    pitches = rise[whole] // run[whole]
    offs = begin[pairs[0]][whole] - pitches * row[pairs[0]][whole]
    for pitch, off in dict.fromkeys(zip(pitches.tolist(), offs.tolist(), strict=True)):
        if pitch > 0 and (pitch, off) != (shape[1], 0) and (begin == row * pitch + off).mean() >= MOST_GIVEN:
            yield stored_with(pitch, off, shape)
            return


def stored_with(pitch: int, off: int, shape: tuple[int, int]) -> Rule:
    """The rule of outputs stored with a pitch, `off` elements late."""
    width, lines = shape[1], abs(off) // shape[1]
    said = [f"{pitch} elements for {width} from row to row"] if pitch != width else []
    whole = f", {lines} rows" if off % width == 0 else ""
    said += [f"by {off} elements{whole}: what is stored lies too {'late' if off > 0 else 'early'}"] if off else []
    said += [f"and the {'first' if off > 0 else 'last'} {lines} rows are never written"] if off and whole else []
    name = "{x}: pitch wrong" if pitch != width else "{x}: pointer off"
    rank = 1 if whole and pitch == width and 2 * lines <= shape[0] else 3
    return Rule(name, ", ".join(said), _STORE, partial(_stored_at, pitch, off, shape), rank)


def _stored_at(pitch: int, off: int, shape: tuple[int, int], r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    place = r * shape[1] + k - off
    row = np.minimum(place // pitch, shape[0] - 1)  # of rows that meet the last one
    column = place - row * pitch
    return np.where((place >= 0) & (column < shape[1]), row, -1), column


def _staged(r: Ints, c: Ints, row: Ints, column: Ints, tile: tuple[int, int], pairs: Ints) -> Iterator[Rule]:
    """Two pitches in a tile: r read + c = row written + column."""
    one, two = pairs
    below = row[one] * r[two] - row[two] * r[one]
    by = column - c
    with np.errstate(all="ignore"):
        read = (by[two] * row[one] - by[one] * row[two]) / below
        written = (by[two] * r[one] - by[one] * r[two]) / below
    found = np.stack([read, written], axis=1)[below != 0]
    found = found[np.isfinite(found).all(axis=1) & (found == np.rint(found)).all(axis=1)].astype(np.int64)
    height, width = tile
    for pitches in dict.fromkeys(map(tuple, found.tolist())):
        if min(pitches) >= width // 2 and pitches[0] != pitches[1]:
            fits = r * pitches[0] + c == row * pitches[1] + column
            if fits.mean() >= MOST_GIVEN:
                yield _staging(pitches[0], pitches[1], tile)


def staged_rules(shape: tuple[int, int]) -> Iterator[Rule]:
    """The usual ones, for outputs that are too coarse to be looked up: rows of a tile that are padded on one side only."""
    widths = {*(size for size in TILES if size < shape[1]), shape[1]}
    for height, width in product((size for size in TILES if size < 2 * shape[0]), sorted(widths)):
        for pad in _PADS:
            yield _staging(width + pad, width, (height, width))
            yield _staging(width, width + pad, (height, width))


def turned_rules(shape: tuple[int, int]) -> Iterator[Rule]:
    """Blocks of the output, of every size, that are written by rows and read by columns, or the other way round; but those of .trans, and the whole."""
    sizes = [sorted({extent, *(each for each in PARTS if each < 2 * extent)}) for extent in shape]
    for height, width in product(*sizes):
        if height == width == PARTS[0] or (height, width) == shape:
            continue
        for back in (False, True) if height != width else (False,):
            how = "written by columns and read by rows" if back else "written by rows and read by columns"
            said = f"each block of {height} x {width} outputs is {how}"
            yield Rule("{x} transposed", said, _STAGING_ORDER, partial(turned, height, width, back), 3)


def _staging(read: int, written: int, tile: tuple[int, int]) -> Rule:
    said = f"tiles of {tile[0]} x {tile[1]} are written with {written} elements from row to row, and read with {read}"
    where = partial(pitched, True, *tile, written, read, 0)
    return Rule("{x}: pitch of the staging tile in shared memory wrong", said, _STAGING, where, 3)
