"""Memory taken for another's: operands read from other buffers, behind the end of K or of a row, from other matrices of a batch; outputs that are an operand's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, product

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.hypothesis import Array, Operands, WrongKernel
from tcsim.diagnosis.maps import PARTS, STEPS, TILES
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.where import listing, where_text
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
        for a, b in product(backs, repeat=2) if length else ():
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


def overlay(name: str, tile: int, start: int, other: int) -> WrongKernel:
    """In tiles of `tile` lines of operand `name`, those from `start` on are the first ones of the other's tile of `other` lines."""
    theirs, own, lines = ("b", "rows", "columns") if name == "a" else ("a", "columns", "rows")
    end = min(tile, start + other)
    said = (
        f"{own} {start}-{end - 1} of every tile of {tile} hold {lines} 0-{end - start - 1}"
        f" of the tile of {other} of {theirs}: the buffers overlap"
    )
    advice = (
        f"look at where the tile of {theirs} begins in shared memory, and at sizes in elements where bytes are meant"
    )

    def read(given: Operands) -> Operands:  # all lines again for every tile of the other
        mine, others = (given.a, given.b) if name == "a" else (given.b, given.a)
        blocks = np.arange(0, others.shape[1], other)[:, None]
        at = np.arange(mine.shape[1]) % tile - start
        source = np.where((at >= 0) & (at < other), blocks + at, -1).reshape(-1)
        found = np.where(source[:, None] < 0, np.tile(mine, (1, len(blocks), 1)), _lines(others, source))
        axis = 1 if name == "a" else 2
        return given.reading(name, found)._replace(c=np.concatenate([given.c] * len(blocks), axis=axis))

    def store(computed: Array, right: Array) -> Array:
        i, j = np.indices(right.shape[1:])
        if name == "a":
            return computed[:, j // other * right.shape[1] + i, j]
        return computed[:, i, i // other * right.shape[2] + j]

    names = (f"{name}: overwritten by {theirs} in shared memory", said, advice)
    return WrongKernel((names,), read, store)


def _lines(x: Array, which: Ints) -> Array:
    """Lines of (batch, lines, K), zeros behind the end."""
    inside = which < x.shape[1]
    return np.where(inside[:, None], x[:, np.where(inside, which, 0)], 0)


def overlaid(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Those that give some wrong outputs."""
    formats = problem.machine.formats
    dense = problem.positions is None and problem.scales is None
    if not dense or formats["a"].name != formats["b"].name or wrong.shape[0] > 1 or not (wrong & reals.finite).any():
        return
    places = np.argwhere((wrong & reals.finite)[0])
    i, j = some_of(places, _SAMPLES).T
    wanted, reach = (reals.observed - reals.c)[0, i, j], reals.reach[0, i, j]
    for name, lines, theirs, mine, others in (("a", i, j, reals.a[0], reals.b[0]), ("b", j, i, reals.b[0], reals.a[0])):
        for tile in TILES:
            start = int((np.flatnonzero(wrong[0].any(axis=1 if name == "a" else 0)) % tile).min())
            if not start or tile >= 2 * len(mine):
                continue
            for other in TILES:
                source = theirs // other * other + lines % tile - start
                inside = (lines % tile >= start) & (source < len(others)) & (lines % tile - start < other)
                product = (others[np.where(inside, source, 0)] * others[theirs]).sum(axis=1)
                if (inside & (np.abs(product - wanted) <= reach)).mean() > 0.9:
                    yield overlay(name, tile, start, other)


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
    for width in sorted(width for width in widths if reach[-1] < width <= problem.sizes[1]):
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
    if empty[:, 0].any() or not width or len(columns) < width or not any((n + width) % tile == 0 for tile in PARTS):
        return "", False
    kept = np.flatnonzero(~empty[:, :m, :width].all(axis=(0, 2)))
    tiled = m > 2 and any(np.array_equal(kept, np.arange(0, m, tile)) for tile in (*TILES, m))
    said = f"what a tile holds past N = {n} was stored over them, from the row before"
    return said if tiled or size else "", tiled


_SIDE = 6  # rows and columns of each matrix that are tried first
_MOST = 64  # matrices of a batch of which every pair is tried
_LISTED = 6
_AXES = {
    "a": ("rows", "K"),
    "b": ("K", "columns"),
    "b as K-major": ("columns", "K"),
    "c": ("rows", "columns"),
    "d": ("rows", "columns"),
}


@dataclass(frozen=True, eq=False)
class Place:
    """Where the elements of one operand are read: element (matrix, row, k) of memory of `shape` at `place`; -1: nothing."""

    name: str  # a, b, c, d, or "b as K-major"
    mistake: str
    detail: str
    advice: str
    place: Ints  # (batch, rows, elements)

    def read(self, x: Array) -> Array:
        """An operand (batch, rows, elements) read like that; it may be longer than what was given, and stays as it is there."""
        _, rows, elements = self.place.shape
        found = x.copy()
        memory = x[:, :rows, :elements].reshape(-1)
        found[:, :rows, :elements] = np.where(self.place < 0, memory.dtype.type(0), memory[self.place])
        return found


def _kernel(places: tuple[Place, ...]) -> WrongKernel:
    """A kernel that reads, or stores, one or several operands so."""
    by_name = {one.name[:1] if one.name != "b" else "b as rows of K": one for one in places}

    def read(given: Operands) -> Operands:
        b = given.b
        if "b as rows of K" in by_name:
            b = by_name["b as rows of K"].read(b.swapaxes(1, 2)).swapaxes(1, 2)
        a, c = (by_name[x].read(y) if x in by_name else y for x, y in (("a", given.a), ("c", given.c)))
        return Operands(a, by_name["b"].read(b) if "b" in by_name else b, c)

    said = tuple((f"{one.name[0]}: {one.mistake}", one.detail, one.advice) for one in places)
    stored = by_name.get("d")
    store = (lambda found, right: found) if stored is None else (lambda found, right: stored.read(found))
    return WrongKernel(said, read, store, 1 + len(places))


def batched(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[WrongKernel]:
    """Those that give all outputs, one operand's first."""
    count = len(wrong)
    if count < 2 or problem.positions is not None or problem.scales is not None or not (wrong & reals.finite).any():
        return
    rows, columns = problem.sizes
    depth = problem.length
    sizes = {
        "a": (rows, depth),
        "b": (depth, columns),
        "b as K-major": (columns, depth),
        "c": (rows, columns),
        "d": (rows, columns),
    }
    names = [name for name in sizes if name != "c" or problem.c.any()]
    listed = {name: [*_strides(name, count, *sizes[name], [x * y for x, y in sizes.values()])] for name in names}
    every: Iterator[tuple[Place, ...]] = chain(
        (
            tuple(_of_map(name, at, *sizes[name]) for name, at in maps.items())
            for maps in _matched(reals, rows, columns)
        ),
        ((one,) for name in names for one in listed[name]),
        product(listed["a"], [*listed["b"], *listed["b as K-major"]]),
    )
    yield from islice((item for item in map(_kernel, every) if item.everywhere(reals)), 1)


def _matched(reals: Reals, rows: int, columns: int) -> Iterator[dict[str, Ints]]:
    """Which matrix of each operand every output matrix comes from, if it is one; a single operand's maps first."""
    count = len(reals.a)
    if count > _MOST:
        return
    some = [np.unique(np.linspace(0, size - 1, _SIDE).astype(np.int64)) for size in (rows, columns)]
    place = np.ix_(np.arange(count), *some)
    seen, c, reach = (
        reals.observed[place],
        reals.c[place],
        np.maximum(reals.reach[place], float(np.median(reals.reach))),
    )
    products = np.einsum("tik,ujk->tuij", reals.a[:, some[0]], reals.b[:, some[1]], optimize=True)
    own = np.arange(count)
    same = products[own, own]
    options = {
        "d": (same + c)[None].repeat(count, axis=0),  # [output, source]
        "a": products.swapaxes(0, 1) + c[:, None],
        "b": products + c[:, None],
        "a b": same[None] + c[:, None],
        "c": same[:, None] + c[None],
    }
    for name, values in options.items():
        if name == "c" and not c.any():
            continue
        fits = (np.abs(values - seen[:, None]) <= reach[:, None]).all(axis=(2, 3))
        if fits.any(axis=1).all():
            at = np.where(fits[own, own], own, fits.argmax(axis=1))
            if (at != own).any():
                yield dict.fromkeys(name.split(), at)


def _of_map(name: str, at: Ints, rows: int, elements: int) -> Place:
    count = len(at)
    own = np.arange(count)
    inner = np.arange(rows * elements).reshape(1, rows, elements)
    advice = f"look at the stride of the batch of {name} and at the index of the batch (blockIdx.z), where {name}'s pointer is made"
    for group in range(2, count):
        if np.array_equal(at, own // group) or np.array_equal(at, own // group * group):
            detail = f"{group} neighbours share one: {_listing(at)}"
            break
    else:
        detail = "the next one of the batch" if np.array_equal(at, (own + 1) % count) else _listing(at)
    mistake = "another matrix of the batch"
    if (at == at[0]).all():
        mistake, detail = "batch index ignored", f"the stride of the batch is 0: matrix {int(at[0])} for every one"
    if name == "d":
        mistake, detail = f"stored at another place: {mistake}", detail
    return Place(name, mistake, detail, advice, at[:, None, None] * (rows * elements) + inner)


def _listing(at: Ints) -> str:
    moved = [f"matrix {int(source)} for {place}" for place, source in enumerate(at) if place != source]
    return listing(moved, _LISTED, ", ")


def _strides(name: str, count: int, rows: int, elements: int, others: list[int]) -> Iterator[Place]:
    """Wrong strides of the batch, and axes that are exchanged."""
    size = rows * elements
    t, row, at = np.ogrid[:count, :rows, :elements]
    first, second = _AXES[name]
    tight = f"[batch][{first}][{second}]"
    axes = (
        ((t * elements + row * count * elements + at), f"[{first}][batch][{second}]"),
        ((row * elements + at) * count + t, f"[{first}][{second}][batch]"),
        ((t * rows + row) + at * count * rows, f"[{second}][batch][{first}]"),
    )
    advice = f"look at the strides of the batch (heads) and of the {first} (tokens) of {name[0]}, and at a transpose that was not made"
    for place, said in axes:
        stored = np.empty(place.size, np.int64)
        stored[place.reshape(-1)] = np.arange(place.size)
        for which, there in ((said, place), (tight, stored.reshape(place.shape))):
            other = tight if which == said else said
            detail = f"memory of {other} is taken for {which}: batch (heads) and {first} (tokens) are exchanged"
            yield Place(name, "axes of the batch exchanged", detail, advice, there)
    for stride in sorted({*others, size // 2, 2 * size, elements, size + elements} - {size}):
        place = t * stride + row * elements + at
        detail = f"{stride} elements from matrix to matrix instead of {size}"
        if name != "d":
            yield Place(
                name,
                "batch stride wrong",
                detail,
                f"look at the stride of the batch of {name[0]}",
                np.where(place < count * size, place, -1),
            )
