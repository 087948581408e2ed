"""Memory taken for another's: operands read from other buffers, behind the end of K or of a row; outputs that are an operand's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.hypothesis import Array, Operands, WrongKernel
from tcsim.diagnosis.maps import PARTS, STEPS, TILES
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.where import where_text
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format

_USUAL = 0.25  # of the right outputs
_DIFFERENT = 16  # codes that are an operand's bytes: fewer may be so by chance
_ORDERS = {True: "lines of K one after another", False: "lines along M or N one after another"}
_STAGED = "the copies of {x} land in shared memory where the epilogue has staged the output: wait for them, or give it memory of its own"
_SAMPLES = 48  # outputs that every hypothesis is tried on first


def _dense(problem: Problem) -> bool:
    return problem.positions is None and problem.scales is None


def other_buffers(problem: Problem, reals: Reals, open_: Mask) -> Iterator[WrongKernel]:
    """An operand read from the other's buffer, with its own pitch: every order of both in memory, where the types are the same."""
    formats = problem.machine.formats
    if not _dense(problem) or formats["a"].name != formats["b"].name:
        return
    for name, k_first, other_k_first in product("ba", (True, False), (True, False)):
        theirs = "b" if name == "a" else "a"
        said = (
            f"the memory of {theirs} ({_ORDERS[other_k_first]}) is read with the addresses of {name} ({_ORDERS[k_first]}),"
            " and zeros behind its end"
        )
        advice = f"look at the base pointer, the tensor map or the descriptor that {name} is read through"
        read = partial(_of_other, name, k_first, other_k_first, problem.sizes, problem.length)
        yield WrongKernel(((f"{name} read from the buffer of {theirs}", said, advice),), read, rank=2)


def _of_other(
    name: str, k_first: bool, other_k_first: bool, sizes: tuple[int, int], depth: int, given: Operands
) -> Operands:
    own, others = (given.a, given.b) if name == "a" else (given.b, given.a)
    lines, theirs = sizes if name == "a" else sizes[::-1]
    memory = others[:, :theirs, :depth]
    memory = (memory if other_k_first else memory.swapaxes(1, 2)).reshape(len(memory), -1)
    line, k = np.ogrid[:lines, :depth]
    place = line * depth + k if k_first else k * lines + line
    read, last = np.zeros_like(own), memory.shape[1] - 1
    read[:, :lines, :depth] = np.where(place <= last, memory[:, np.minimum(place, last)], 0)
    return given.reading(name, read)


def bytes_of_operands(problem: Problem, reals: Reals, open_: Mask) -> Iterator[WrongKernel]:
    """Wrong outputs that all are an operand's bytes as they lie in memory, where the right ones would not be."""
    formats = problem.machine.formats
    if not open_.any() or formats["d"].kind != "float" or formats["d"].bits != 32:
        return
    seen = problem.observed[open_]
    right = problem.outputs
    for name, codes in (("a", problem.a), ("b", problem.b.swapaxes(1, 2))):
        for lines in (codes, codes.swapaxes(1, 2)):
            words = _words(np.ascontiguousarray(lines), formats[name], problem.output, formats["d"])
            if words is None or len(words) > 1 << 20:
                continue
            if not _held(words, seen[:_SAMPLES], formats["d"]).all() or _in(words, right[open_]).mean() > _USUAL:
                continue  # if many right ones are: the other operand copies this one, its rows or columns are single ones
            by_chance = len(words) / 2.0 ** (FORMATS[problem.output].bits if problem.output else 32)
            held = _held(words, seen, formats["d"])
            if len(seen) >= 8 and held.all() and by_chance < 0.2 and len(np.unique(seen)) >= _DIFFERENT:
                lines_wrong = open_.any(axis=2, keepdims=True) & open_.any(axis=1, keepdims=True)
                where = open_ | lines_wrong & np.isin(problem.observed, words) & (problem.observed != right)
                said = f"{where_text(where)} hold raw codes of {name}, neighbours in memory read as one number: bits of an operand, no sums"
                names = (f"output overwritten by {name} in shared memory", said, _STAGED.format(x=name))
                yield WrongKernel((names,), store=partial(_over, where, reals.observed, problem.observed), rank=2)
                break


def _held(words: Codes, codes: Codes, d: Format) -> Mask:
    """Which codes are among some words; a NaN of any payload is, if one of them is NaN."""
    found = _in(words, codes)
    return found | np.isnan(decode(codes, d)) if np.isnan(decode(words, d)).any() else found


def _in(words: Codes, codes: Codes) -> Mask:
    """Which codes are among sorted words."""
    found: Mask = words[np.minimum(np.searchsorted(words, codes), len(words) - 1)] == codes
    return found


def _over(where: Mask, numbers: Numbers, codes: Codes, computed: Array, right: Array) -> Array:
    """What was observed, where it is not sums."""
    return np.where(where, numbers if right.dtype == numbers.dtype else codes, right)


def _words(codes: Codes, format: Format, narrow: str | None, d: Format) -> Codes | None:
    """Neighbouring codes as the numbers that a reader of 32-bit floats would find, as codes of d after a narrower format."""
    if format.bits not in (8, 16, 32) and format.container_bits != 32:
        return None
    flat = codes.reshape(len(codes), -1)
    flat = flat[:, : flat.shape[1] // 4 * 4]
    words = np.unique(np.ascontiguousarray(flat).view(np.uint32).reshape(-1))
    if narrow is None:
        return words
    with np.errstate(all="ignore"):
        return np.unique(encode(decode(encode(decode(words, d), narrow), narrow), d))


_STAGES = (1, 2, 3, 4, 5, 6)
NEXT, LAST, FIRST = 0, -1, -2
_AGAIN = {
    NEXT: "the next {line}'s first",
    LAST: "the last one again (the index is clamped)",
    FIRST: "the first ones again (the index is taken modulo K)",
}
"""What follows the last k where it is not an earlier tile."""
_CLEAR = "zero what lies behind K in a tile, of one operand at least: predicate the loads (a clamped or wrapped index is not enough), or let TMA fill with zeros"


def tails(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Ends of K inside a tile that were not cleared, which give some wrong outputs; the shortest first."""
    if not _dense(problem) or not (wrong & reals.finite).any():
        return
    depth = problem.length
    t, i, j = some_of(np.argwhere(wrong & reals.finite), _SAMPLES).T
    wanted, reach = (reals.observed - reals.right)[t, i, j], reals.reach[t, i, j]
    for tile in (size * problem.step for size in STEPS):
        length = -depth % tile
        backs = [*_AGAIN, *(tile * stages for stages in _STAGES if tile * stages <= depth)]
        for a, b in product(backs, repeat=2) if 0 < length < depth else ():  # else: all of K again, a factor
            more = [behind(x, t, line, depth, length, back) for x, line, back in ((reals.a, i, a), (reals.b, j, b))]
            if (np.abs((more[0] * more[1]).sum(axis=1) - wanted) <= reach).mean() > 0.9:
                yield tail(depth, length, a, b)


def tail(depth: int, length: int, a: int, b: int) -> WrongKernel:
    """`length` more of K. a, b: how much earlier what follows the last k was fetched, or one of `_AGAIN`."""
    said = [
        f"of {x} the {length} after K = {depth} are "
        + (f"those {back} before" if back > 0 else _AGAIN[back].format(line=line))
        for x, line, back in (("a", "row", a), ("b", "column", b))
    ]
    read = partial(_longer, depth, length, (a, b))
    return WrongKernel((("K tail not cleared", "; ".join(said), _CLEAR),), read, again=a == b != NEXT)


def _longer(depth: int, length: int, backs: tuple[int, int], given: Operands) -> Operands:
    lines = []
    for x, back in zip(given[:2], backs, strict=True):
        t, line = (place.reshape(-1) for place in np.indices(x.shape[:2]))
        more = behind(x, t, line, depth, length, back).reshape(*x.shape[:2], length)
        lines.append(np.concatenate([x[:, :, :depth], more], axis=2))
    return Operands(lines[0], lines[1], given.c)


def behind(lines: Array, t: Ints, line: Ints, depth: int, length: int, back: int) -> Array:
    """What follows the last k of some lines (n,): (n, length)."""
    k = depth + np.arange(length)[None]
    row = line[:, None] + (k // depth if back == NEXT else 0 * k)
    at = k - back if back > 0 else 0 * k + depth - 1 if back == LAST else k % depth
    inside = row < lines.shape[1]
    return np.where(inside, lines[t[:, None], np.where(inside, row, 0), at], lines.dtype.type(0))


PAST_END = "d: stored past the end of a row"
_LOADS = {
    "are those of the first columns again": "modulo N",
    "are the last column's": "clamped",
    "are the next elements in memory": "memory",
}
"""What lies in B past its last column, and a short name for it."""


def past_end(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Stores that are not masked at N and give every wrong output: all are in the first columns of rows after the first."""
    reach = np.flatnonzero(wrong.any(axis=(0, 1)))
    if not _dense(problem) or not len(reach) or wrong[:, 0].any() or (wrong & ~reals.finite).any() or reals.floor:
        return
    widths = {-problem.sizes[1] % tile for tile in PARTS} - {0}
    for width in sorted(width for width in widths if reach[-1] < width < problem.sizes[1]):
        for loads, with_c in product(_LOADS, (False, True) if problem.c.any() else (False,)):
            item = stored_past(width, problem.sizes, loads, with_c, wrong)
            if item.gives(reals)[wrong].all():
                yield item
                return


def stored_past(width: int, size: tuple[int, int], loads: str, with_c: bool, over: Mask) -> WrongKernel:
    """In the first `width` columns, every row of which outputs are stored `over` holds what lies past N in the row before. with_c: C's next elements are added."""
    m, n = size
    said = f"what a tile holds past N = {n} is stored over the first {width} columns of the next row: the columns of b that were loaded there {loads}"
    place = np.s_[:, 1:m, :width]

    def read(given: Operands) -> Operands:
        at = np.arange(n, n + width)[:, None] + np.arange(given.b.shape[2]) * (n if _LOADS[loads] == "memory" else 0)
        column, k = (at * 0 + n - 1, 0 * at) if _LOADS[loads] == "clamped" else (at % n, at // n)
        k = k if _LOADS[loads] == "memory" else np.arange(given.b.shape[2]) + 0 * at
        b, c, inside = given.b.copy(), np.zeros_like(given.c), k < given.b.shape[2]
        b[:, :width] = np.where(inside, given.b[:, column, np.where(inside, k, 0)], given.b.dtype.type(0))
        if with_c:
            c[:, : m - 1, :width] = given.c[place]
        return Operands(given.a, b, c)

    def store(computed: Array, right: Array) -> Array:
        found = right.copy()
        found[place] = np.where(over[place], computed[:, : m - 1, :width], right[place])
        return found

    return WrongKernel(((PAST_END, said, f"mask the store at N (column < {n}), as the loads must be"),), read, store)


def over_next_row(empty: Mask, size: tuple[int, int] | None) -> tuple[str, bool]:
    """What is to be said of outputs of one code that may come of a store past N, empty if they cannot; whether nothing else is as likely.

    It is not where they are all rows but the first of each tile: what comes from the tile above is overwritten by the tile's own outputs.
    """
    columns, (m, n) = np.flatnonzero(empty.any(axis=(0, 1))), size or empty.shape[1:]
    width = int(columns[-1]) + 1 if len(columns) else 0
    if (
        empty[:, 0].any()
        or not 0 < width < n
        or len(columns) < width
        or not any((n + width) % tile == 0 for tile in PARTS)
    ):
        return "", False
    kept = np.flatnonzero(~empty[:, :m, :width].all(axis=(0, 2)))
    tiled = m > 2 and any(np.array_equal(kept, np.arange(0, m, tile)) for tile in (*TILES, m))
    said = f"what a tile holds past N = {n} ran into the next row and overwrote them"
    return said if tiled or size else "", tiled
