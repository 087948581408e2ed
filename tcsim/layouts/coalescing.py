"""Global memory as L1 sees it: sectors and lines that a warp's access touches, passes through the tags, rounds of atomics.

Each function takes `rows`, int64 (warps, 32): the address of each lane, INACTIVE for lanes that take no part; a lane touches `width` bytes from
there, at a multiple of the width. What comes back has one entry for each warp. `tcsim.ptx.counters.rules` says how often each was confirmed.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.layouts.banks import BANKS, INACTIVE, WARP_LANES, WORD_BYTES

Rows = npt.NDArray[np.int64]
SECTOR_BYTES = 32
"""Bytes that caches move and count."""
LINE_BYTES = 128
"""Bytes that have one tag: four sectors."""
TAG_SETS = 4
"""Lines that one pass through the tags looks up, one of each set."""
TAG_SPAN = 1 << 15
"""Bytes after which the set of a line repeats, as far as it was measured."""
_TAG_BITS = (0b10110101, 0b01101111)
"""Bits of a line's number whose parities are the two bits of its set. Found on an H200: of all pairs of parities of eight bits it is the only
one that gives the passes of 112 launches."""
_PARITY = np.array([number.bit_count() & 1 for number in range(TAG_SPAN // LINE_BYTES)])
_SET = 2 * _PARITY[np.arange(len(_PARITY)) & _TAG_BITS[0]] + _PARITY[np.arange(len(_PARITY)) & _TAG_BITS[1]]
_FAR = np.iinfo(np.int64).max


def distinct(rows: Rows) -> Rows:
    """How many different numbers each row (warps, n) has; INACTIVE does not count.

    >>> distinct(np.array([[4, 4, 7], [INACTIVE, 5, INACTIVE]])).tolist()
    [2, 1]
    """
    order = np.sort(rows, axis=1)
    new = order != INACTIVE
    new[:, 1:] &= order[:, 1:] != order[:, :-1]
    return new.sum(1)


def units(rows: Rows, width: int, unit: int) -> Rows:
    """The numbers of the units of `unit` bytes that lanes touch: (warps, 32 * n), INACTIVE where there is none."""
    count = max(1, width // unit)
    found = rows[..., None] // unit + np.arange(count)
    return np.where(rows[..., None] == INACTIVE, INACTIVE, found).reshape(len(rows), -1)


def sectors(rows: Rows, width: int) -> Rows:
    """Different sectors.

    >>> lanes = np.arange(32)
    >>> sectors(np.stack([lanes * 4, lanes * 128]), 4).tolist()
    [4, 32]
    """
    return distinct(units(rows, width, SECTOR_BYTES))


def lines(rows: Rows, width: int, unit: int = LINE_BYTES) -> Rows:
    """Different lines: what L2 is asked for where L1 has nothing. unit: bytes of one request."""
    return distinct(units(rows, width, unit))


def _brought(values: Rows) -> Rows:
    """Of each lane the first lane of its row (warps, 32) that has its value."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, 1)
    place = np.arange(WARP_LANES) * np.ones((len(values), 1), np.int64)
    place[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0
    found = np.empty_like(place)
    np.put_along_axis(found, order, np.take_along_axis(order, np.maximum.accumulate(place, axis=1), 1), 1)
    return found


def tag_pass(rows: Rows) -> Rows:
    """Of each lane in which pass through the tags its line is looked up, from 0 on: (warps, 32). Of one set one line a pass, in the order of lanes."""
    line = np.where(rows == INACTIVE, INACTIVE, rows // LINE_BYTES)
    brought = _brought(line)
    first = (brought == np.arange(WARP_LANES)) & (line != INACTIVE)
    sets, own = _SET[line % len(_SET)], np.zeros_like(rows)
    for number in range(TAG_SETS):
        of = sets == number
        own[of] = np.cumsum(first & of, 1)[of] - 1
    return np.take_along_axis(own, brought, 1)


def tag_passes(rows: Rows, width: int) -> Rows:
    """Passes through the tags: the most different lines of one set.

    >>> lanes = np.arange(32)
    >>> tag_passes(np.stack([lanes * 4, lanes * 128, lanes * 256]), 4).tolist()
    [1, 8, 8]
    """
    return np.where(rows == INACTIVE, INACTIVE, tag_pass(rows)).max(1, initial=INACTIVE) + 1


def data_passes(rows: Rows, width: int) -> Rows:
    """Passes through L1's data of a load: of each pass through the tags the most different words of one bank, by phase of 128 bytes."""
    return _passes([_bank_keys(rows, rows, width, tag_pass(rows))], width, alike=True)


def copy_passes(source: Rows, destination: Rows, width: int) -> Rows:
    """The same of cp.async.ca: equal words take turns, in the line that is read and in the shared memory that is written."""
    passes = tag_pass(source)
    return _passes([_bank_keys(source, own, width, passes) for own in (source, destination)], width, alike=False)


def _bank_keys(source: Rows, of: Rows, width: int, passes: Rows) -> tuple[Rows, Rows]:
    """Of each lane its phase and pass through the tags, of each of its words the number: (warps, 32), (warps, 32, words)."""
    each = max(1, width // WORD_BYTES)
    words = of[..., None] // WORD_BYTES + np.arange(each)
    phase = np.arange(WARP_LANES) // (WARP_LANES // each)
    return np.where(source == INACTIVE, INACTIVE, passes * each + phase), words


def _passes(keys: list[tuple[Rows, Rows]], width: int, alike: bool) -> Rows:
    """The sum over groups of lanes of the most words of one bank; alike: equal ones are served together. Of several keys the most of a group."""
    most, count = max(1, width // WORD_BYTES) * WARP_LANES, len(keys[0][0])
    found = []
    for group, words in keys:
        taking = np.broadcast_to(group[..., None] != INACTIVE, words.shape)
        place = (np.arange(count)[:, None] * most + group)[..., None]
        place = np.broadcast_to(place, words.shape)[taking]
        own = words[taking]
        if alike and len(own):
            low = own.min()
            span = int(own.max() - low) + 1
            unique = np.sort(place * span + own - low)
            unique = unique[np.append(True, unique[1:] != unique[:-1])]
            place, own = unique // span, unique % span + low
        wanted = np.bincount(place * BANKS + own % BANKS, minlength=count * most * BANKS)
        found.append(wanted.reshape(count, most, BANKS).max(2))
    return np.asarray(reduce(np.maximum, found).sum(1))


def atomic_pass(rows: Rows, width: int, unit: int = LINE_BYTES) -> Rows:
    """Of each lane in which pass through the tags an atomic executes it: (warps, 32), INACTIVE for lanes that take no part.

    A pass takes one unit (a line; half a line of compare and swap) of each set, that of the first lane left. Of this unit it takes the lanes that no
    earlier lane of the set, whatever its line, holds up: one that waits for the same place of its line. So equal addresses take turns, too.

    >>> lanes = np.arange(32)
    >>> atomic_pass(np.stack([lanes * 4, lanes % 2 * 4, lanes * 128]), 4).max(1).tolist()
    [0, 15, 7]
    """
    line, place = rows // LINE_BYTES, rows % LINE_BYTES // width
    sets = np.where(rows == INACTIVE, INACTIVE, _SET[line % len(_SET)])
    queue, earlier = sets * LINE_BYTES + place, np.tri(WARP_LANES, k=-1, dtype=bool)
    behind = (queue[:, :, None] == queue[:, None, :]) & earlier
    beside = sets[:, :, None] == sets[:, None, :]
    own, left = np.full_like(rows, INACTIVE), rows != INACTIVE
    for turn in range(WARP_LANES):
        if not left.any():
            break
        first = (beside & left[:, None, :]).argmax(2)  # of each lane the first one of its set
        served = (
            left & (rows // unit == np.take_along_axis(rows, first, 1) // unit) & ~(behind & left[:, None, :]).any(2)
        )
        own[served] = turn
        left &= ~served
    return own


def by_pass(rows: Rows, width: int, unit: int, piece: int) -> Rows:
    """Different pieces of `piece` bytes that an atomic touches, each pass by itself; unit: as for `atomic_pass`."""
    place, number = units(rows, width, piece), np.repeat(atomic_pass(rows, width, unit), max(1, width // piece), axis=1)
    low = place[place != INACTIVE].min(initial=_FAR)
    return distinct(np.where(place == INACTIVE, INACTIVE, (place - low) * WARP_LANES + number))


def atomic_passes(rows: Rows, width: int, unit: int = LINE_BYTES) -> Rows:
    """Passes of an atomic through the tags."""
    return atomic_pass(rows, width, unit).max(1, initial=INACTIVE) + 1


def atomic_data_passes(rows: Rows, width: int, unit: int = LINE_BYTES) -> Rows:
    """Passes of an atomic that gives back values through L1's data: of each pass through the tags the most lanes of one bank, by phase of 128 bytes."""
    return _passes([_bank_keys(rows, rows, width, atomic_pass(rows, width, unit))], width, alike=False)


def bypassing_sectors(source: Rows, destination: Rows, width: int = 16) -> Rows:
    """Sectors of cp.async.cg: different pairs of a line that is read and a sector of shared memory that is written; of equal destinations the last lane counts."""
    lanes = np.arange(WARP_LANES)
    later = ((destination[:, :, None] == destination[:, None, :]) & (lanes[:, None] < lanes)).any(2)
    taking = (destination != INACTIVE) & (source != INACTIVE) & ~later
    return distinct(_paired(np.where(taking, source // LINE_BYTES, INACTIVE), destination // SECTOR_BYTES))


def bypassing_misses(source: Rows, destination: Rows, requests: bool) -> Rows:
    """Requests of cp.async.cg to L2, or their sectors; of equal destinations the first lane counts.

    A request reads sectors of a line for a line of shared memory; all of them are turned alike (the places of 16 bytes in 64, exclusive or), and written
    whole or in the same half. L2 takes some of those that ask for the same for one, by their order in time, which no rule gives.

    >>> lanes = np.arange(32)[None] * 16
    >>> [int(bypassing_misses(lanes, own, True)[0]) for own in (lanes, lanes ^ 16, lanes * 4)], int(bypassing_misses(lanes, lanes, False)[0])
    ([4, 4, 32], 16)
    """
    lanes = np.arange(WARP_LANES)
    earlier = ((destination[:, :, None] == destination[:, None, :]) & (lanes[:, None] > lanes)).any(2)
    taking = (destination != INACTIVE) & (source != INACTIVE) & ~earlier
    turned, half = (source // 16 ^ destination // 16) % 4, destination // 16 % 2
    part = _paired(np.where(taking, source // SECTOR_BYTES, INACTIVE), destination // SECTOR_BYTES * 2 + turned % 2)
    if not requests:
        return distinct(part)
    whole = ((part[:, :, None] == part[:, None, :]) & (half[:, :, None] != half[:, None, :])).any(2)
    kind = (destination // LINE_BYTES * 4 + turned) * 3 + np.where(whole, 2, half)
    return distinct(_paired(np.where(taking, source // LINE_BYTES, INACTIVE), kind))


def _paired(first: Rows, second: Rows) -> Rows:
    """A number for each pair of two numbers; INACTIVE where the first is."""
    low = first[first != INACTIVE].min(initial=_FAR)
    return np.where(first == INACTIVE, INACTIVE, (first - low) * (int(second.max(initial=0)) + 1) + second)


def bulk_pieces(starts: Rows, lengths: Rows, shared: Rows) -> tuple[Rows, Rows]:
    """Where the pieces of a copy of TMA begin and end in global memory: its rows, cut where a line of shared memory ends.

    shared: where each row begins there.

    >>> [own.tolist() for own in bulk_pieces(np.array([48]), np.array([256]), np.array([96]))]
    [[48, 80, 208], [80, 208, 304]]
    """
    lines = (shared + lengths - 1) // LINE_BYTES - shared // LINE_BYTES + 1
    row = np.repeat(np.arange(len(starts)), lines)
    number = np.arange(len(row)) - (np.cumsum(lines) - lines)[row]
    cut = (shared // LINE_BYTES * LINE_BYTES)[row] + LINE_BYTES * number - shared[row]
    return starts[row] + np.maximum(cut, 0), starts[row] + np.minimum(cut + LINE_BYTES, lengths[row])


def bulk_sectors(starts: Rows, ends: Rows) -> Rows:
    """Sectors of each piece.

    >>> bulk_sectors(np.array([16, 0]), np.array([144, 16])).tolist()
    [5, 1]
    """
    return np.asarray(-(-ends // SECTOR_BYTES) - starts // SECTOR_BYTES)


def bulk_requests(starts: Rows, ends: Rows, loads: bool) -> Rows:
    """Requests of each piece to L2: one for each line. A load asks for the sectors at its ends by themselves where it does not want all of them.

    >>> bulk_requests(np.array([16, 0]), np.array([144, 16]), True).tolist()
    [3, 1]
    """
    if not loads:
        return np.asarray((ends - 1) // LINE_BYTES - starts // LINE_BYTES + 1)
    first, last = -(-starts // SECTOR_BYTES) * SECTOR_BYTES, ends // SECTOR_BYTES * SECTOR_BYTES
    parts = np.where(last < first, 1, (first > starts).astype(np.int64) + (last < ends))
    return np.asarray(parts + np.where(last > first, (last - 1) // LINE_BYTES - first // LINE_BYTES + 1, 0))


def lane_rows(threads: npt.NDArray[Any], addresses: npt.NDArray[Any]) -> tuple[Rows, Rows]:
    """Addresses of threads that ascend as rows of warps, (warps, 32), and the numbers of these warps."""
    if (
        len(threads) % WARP_LANES == 0
        and len(threads)
        and int(threads[-1]) - int(threads[0]) == len(threads) - 1
        and not int(threads[0]) % WARP_LANES
    ):
        return addresses.astype(np.int64).reshape(-1, WARP_LANES), np.asarray(threads[::WARP_LANES] // WARP_LANES)
    warp = threads // WARP_LANES
    new = np.ones(len(warp), bool)
    new[1:] = warp[1:] != warp[:-1]
    found = np.full((int(new.sum()), WARP_LANES), INACTIVE)
    found[np.cumsum(new) - 1, threads % WARP_LANES] = addresses.astype(np.int64)
    return found, warp[new]
