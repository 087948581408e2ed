"""Which outputs a mask holds, and which lines a map puts in the place of others, in words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.core.ranges import runs
from tcsim.diagnosis.maps import Ints
from tcsim.diagnosis.reals import Mask


def where_text(mask: Mask) -> str:
    """Matrices, rows and columns that hold any.

    >>> where_text(np.eye(4, dtype=bool)[None])
    'rows 0-3, columns 0-3'
    """
    texts = []
    if len(mask) > 1:
        texts.append(f"matrices {ranges(np.flatnonzero(mask.any(axis=(1, 2))))}")
    for name, axes in (("row", (0, 2)), ("column", (0, 1))):
        places = np.flatnonzero(mask.any(axis=axes))
        texts.append(f"{name}{'s' * (len(places) != 1)} {ranges(places)}")
    return ", ".join(texts)


def tiles_text(mask: Mask) -> str:
    """The same, with the tiles one after another where they are no rectangle.

    >>> tiles_text(np.kron(np.eye(2, dtype=bool), np.ones((16, 32), bool))[None])
    'rows 0-15, columns 0-31; rows 16-31, columns 32-63'
    """
    _, height, width = mask.shape
    padded = np.pad(mask.any(axis=0), ((0, -height % _EDGE), (0, -width % _EDGE)))
    held: Mask = np.any(padded.reshape(len(padded) // _EDGE, _EDGE, -1, _EDGE), axis=(1, 3))
    bands = [row.tobytes() for row in held]
    kinds = [kind for kind in dict.fromkeys(bands) if any(kind)]
    if len(mask) > 1 or not 1 < len(kinds) <= _TILES:
        return where_text(mask)
    texts = []
    for kind in kinds:
        lines = np.repeat([band == kind for band in bands], _EDGE)[:height]
        texts.append(where_text(mask & lines[:, None]))
    return "; ".join(texts)


def ranges(places: npt.NDArray[np.intp]) -> str:
    """Indices as ranges; of many, their period if they have one.

    >>> ranges(np.flatnonzero(np.arange(256) % 16 >= 8))
    '8-15 of every 16 in 0-255'
    """
    text = runs(tuple(int(x) for x in places))
    if text.count(",") < 3:
        return text
    last = int(places[-1]) + 1
    for period in _PERIODS:
        first, inside = int(places[0]) // period * period, np.unique(places % period)
        whole = np.add.outer(np.arange(first, last, period), inside).reshape(-1)
        if len(inside) < period and np.array_equal(whole, places):
            return f"{runs(tuple(int(x) for x in inside))} of every {period} in {first}-{last - 1 | period - 1}"
    return text if len(text) <= 60 else f"{len(places)} of {places[0]}-{last - 1}"


def listing(texts: list[str], most: int, between: str = "; ") -> str:
    """The first of some texts, and how many more there are.

    >>> listing(["a", "b", "c"], 2), listing(["a", "b", "c"], 2, ", "), listing(["a", "b"], 2)
    ('a; b; and 1 more', 'a, b and 1 more', 'a; b')
    """
    more = f"{between.lstrip(',')}and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def beyond_diagonal(mask: Mask, held: Mask) -> str:
    """The side of a diagonal that a mask is, all of which is held; empty if it is none.

    >>> mask = np.tri(32, dtype=bool)[None]
    >>> beyond_diagonal(mask, mask), beyond_diagonal(~mask, ~mask)
    ('the triangle left of the diagonal, column <= row', 'the triangle right of the diagonal, column >= row + 1')
    """
    _, height, width = mask.shape
    off = np.arange(width) - np.arange(height)[:, None]
    own = off[mask.any(axis=0)]
    if len(np.unique(own)) < _DIAGONALS:
        return ""
    for first, said, sign in (
        (int(own.min()), "right of the diagonal, column >= row", 1),
        (int(own.max()), "left of the diagonal, column <= row", -1),
    ):
        side = sign * (off - first) >= 0
        partly = side.any(axis=1) & ~side.all(axis=1)
        if partly.sum() >= _DIAGONALS and held[:, side].all():
            return f"the triangle {said}" + (f" {'+' if first > 0 else '-'} {abs(first)}" if first else "")
    return ""


_EDGE, _TILES = 8, 4  # rows and columns of what is asked for; bands of tiles that are listed
_DIAGONALS = 8  # of a triangle, at least
_PERIODS = tuple(1 << power for power in range(1, 10))


MORE = " more runs"  # of a map that no rule describes
_GROUPS = (4, 8, 16, 32)  # lines whose order is written out


def described(lines: Ints, what: str) -> str:
    """A map of lines in words: runs that move together, and those that change places.

    >>> described(np.array([0, 1, 2, 3, 0, 1, 2, 3]), "rows")
    'rows 4-7 are rows 0-3: the second half is the first again'
    >>> described(np.array([0, 3, 2, 1]), "rows")
    'rows 1 and 3 exchanged'
    >>> described(np.array([-1, -1, 0, 1, 2, 3]), "rows")
    'rows 0-1 are zero, rows 2-5 are rows 0-3'
    >>> described(np.array([0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9]), "rows")
    'block i of 4 rows starts at 3 i: its stride is that of 3 rows'
    >>> described(np.arange(12).reshape(3, 4).T.reshape(-1), "rows")
    'rows transposed as an array of 3 x 4: row i * 4 + j stands at j * 3 + i, the 3 parts of 4 being interleaved'
    """
    if (
        found := _strided(lines, what)
        or _spread(lines, what)
        or _transposed(lines, what)
        or _parts_of_blocks(lines, what)
    ):
        return found
    for group in _GROUPS:
        inner = lines[:group]
        again = np.arange(len(lines)) // group * group + np.resize(inner, len(lines))
        moved = np.flatnonzero(lines != np.arange(len(lines)))
        same = (again == lines)[: moved.max(initial=0) + 1]
        if group < len(moved) and np.array_equal(np.sort(inner), np.arange(group)) and same.all():
            return f"{what} permuted in each {group}: the order is {', '.join(map(str, inner))}, interleaved or not"
    runs: dict[tuple[int, int], tuple[int, int]] = {}  # (first, last) -> those that they are
    start = 0
    for stop in range(1, len(lines) + 1):
        if stop == len(lines) or lines[stop] != (lines[stop - 1] + 1 if lines[stop - 1] >= 0 else -1):
            if lines[start] != start:
                runs[start, stop - 1] = int(lines[start]), int(lines[stop - 1])
            start = stop
    parts = []
    for own, other in runs.items():
        if other[0] < 0:
            parts.append(f"{what} {_range(*own)} are zero")
        elif runs.get(other) != own:
            parts.append(f"{what} {_range(*own)} are {what} {_range(*other)}")
        elif own < other:
            parts.append(f"{what} {_range(*own)} and {_range(*other)} exchanged")
    own, other = next(iter(runs.items()), ((0, 0), (0, 0)))
    half = own[1] - own[0] + 1
    if len(parts) == 1 and 2 * half == len(lines) and {own[0], other[0]} == {0, half}:
        return f"{parts[0]}: {_HALVES[(1, 1) if own[0] == 0 else (0, 0)].format('half ')}"
    if len(parts) > 2 and (found := _computed(lines, what)):
        return found
    if len(parts) <= 4:
        return ", ".join(parts)
    whole = ", a permutation of all, as of what was sorted or gathered and not put back"
    every = np.array_equal(np.sort(lines), np.arange(len(lines)))
    return ", ".join(parts[:4]) + f" and {len(parts) - 4}{MORE}" + whole * every


def _parts_of_blocks(lines: Ints, what: str) -> str:
    """Parts of every block that are other parts of it, the same in all blocks.

    >>> _parts_of_blocks(np.array([2, 3, 4, 5, 4, 5, 8, 9, 10, 11, 10, 11]), "rows")
    'in every 6 rows the parts of 2 are parts 1, 2, 2: each is overwritten by the next one'
    >>> _parts_of_blocks(np.array([2, 3, 2, 3, 6, 7, 6, 7]), "rows")
    'in every 4 rows the first half is the second again: 0-1 are 2-3'
    >>> _parts_of_blocks(np.array([0, 2, -1, -1, 4, 6, -1, -1]), "rows")
    'in every 4 rows the parts of 1 are parts 0, 2, zero, zero: 1, 3 nowhere'
    >>> _parts_of_blocks(np.array([0, 0, 2, 2, 4, 5]), "columns")
    'in every 2 columns the second is the first again'
    """
    every = np.arange(len(lines))
    last = int(np.flatnonzero(lines != every).max(initial=-1))
    for size in range(2, len(lines) + 1) if last >= 0 else ():
        at = every[: (last // size + 1) * size]  # behind it no line is another
        inside = at.size % size == 0 and (lines[:size] < size).all()
        zero = lines[at % size] < 0
        if not inside or not np.array_equal(lines[: at.size], np.where(zero, -1, at // size * size + lines[at % size])):
            continue
        for count in range(2, min(8, size) + 1):
            part = size // count
            if part * count != size:
                continue
            parts = lines[:size:part] // part
            each = np.repeat(parts, part)
            if np.array_equal(lines[:size], np.where(each < 0, -1, each * part + at[:size] % part)):
                following = count > 2 and np.array_equal(parts, np.minimum(np.arange(count) + 1, count - 1))
                if size == at.size and not following:
                    return ""
                if count == 2 and parts.min() >= 0:
                    one, other = _range(0, part - 1), _range(part, size - 1)
                    said = {(0, 0): f": {other} are {one}", (1, 1): f": {one} are {other}"}.get(
                        tuple(parts.tolist()), ""
                    ) * (part > 1)
                    return f"in every {size} {what} {_HALVES[tuple(parts.tolist())].format('half ' * (part > 1))}{said}"
                lost = sorted({*range(count)} - {*parts.tolist()})
                some = "" if parts.min() < 0 else "some are repeated, "
                others = f": {some}{', '.join(map(str, lost))} nowhere" if lost else ": they are permuted"
                said = ": each is overwritten by the next one" if following else others
                listed = ", ".join("zero" if one < 0 else str(one) for one in parts)
                return f"in every {size} {what} the parts of {part} are parts {listed}{said}"
    return ""


_HALVES = {
    (0, 0): "the second {}is the first again",
    (1, 1): "the first {}is the second again",
    (1, 0): "the first {0}and the second {0}are exchanged",
}


def _computed(lines: Ints, what: str) -> str:
    """Lines whose number is a plain function of that of each.

    >>> [_computed(np.array(lines), "rows") for lines in ([0, 0, 1, 1, 2, 2], [0, 1, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3])]
    ['row i is row i / 2: one for 2 rows', 'rows 3-5 are row 2: the index is clamped', 'all rows are row 3']
    >>> [_computed(np.array(lines), "rows") for lines in ([0, 1, 2, 3, 4, 0, 1, 2], [2, 3, 4, 5, 0, 1], [5, 4, 7, 6, 1, 0, 3, 2])]
    ['row i is row i % 5: they begin again', 'row i is row (i + 2) % 6: rotated', 'row i is row i ^ 5']
    >>> _computed(np.array([0, 0, 1, 1, 4, 4, 5, 5]), "rows")
    'in every 4 rows row i is row i / 2: one for 2 rows'
    """
    moved = np.flatnonzero(lines != np.arange(len(lines)))
    if len(moved) < 3:
        return ""
    at, line = np.arange(int(moved[-1]) + 1), what.removesuffix("s")
    own, last = lines[: len(at)], len(at) - 1
    first, end, start = int(own[0]), int(own[-1]), int(moved[0])
    forms = [
        (at * 0 + first, f"all {what} are {line} {first}"),
        *((at // by, f"{line} i is {line} i / {by}: one for {by} {what}") for by in range(2, 9)),
        (np.minimum(at, end), f"{what} {end + 1}-{last} are {line} {end}: the index is clamped"),
        (np.maximum(at, first), f"{what} 0-{first - 1} are {line} {first}: the index is clamped"),
        (at % max(start, 2), f"{line} i is {line} i % {start}: they begin again"),
        ((at + first) % len(at), f"{line} i is {line} (i + {first}) % {len(at)}: rotated"),
        (at ^ max(first, 0), f"{line} i is {line} i ^ {first}"),
    ]
    for size in (size for size in _GROUPS if size < start + len(at) and size < len(lines)):
        again = np.arange(len(lines)) // size * size + np.resize(lines[:size], len(lines))
        if lines[:size].max() < size and np.array_equal(again, lines) and (said := _computed(lines[:size], what)):
            return f"in every {size} {what} {said}"
    return next((said for form, said in forms if np.array_equal(form, own)), "")


def _strided(lines: Ints, what: str) -> str:
    """Blocks that start at multiples of another number than their size: of at least two, all moved but the first."""
    moved = np.flatnonzero(lines != np.arange(len(lines)))
    size = int(moved[0]) if len(moved) else 0
    if size < 2 or len(lines) < 2 * size:
        return ""
    at, stride = np.arange(len(lines)), int(lines[size])
    if stride < 1 or not np.array_equal(lines, at // size * stride + at % size):
        return ""
    return f"block i of {size} {what} starts at {stride} i: its stride is that of {stride} {what}"


def _spread(lines: Ints, what: str) -> str:
    """Lines that are stored at multiples of their number, those between at their own place.

    >>> _spread(np.array([0, 1, 1, 3, 2, 5]), "rows")
    'row 2 i is row i'
    """
    at, line = np.arange(len(lines)), what.removesuffix("s")
    fits = (by for by in range(2, 9) if np.array_equal(lines, np.where(at % by == 0, at // by, at)))
    return next((f"{line} {by} i is {line} i" for by in fits if by < len(lines)), "")


def _transposed(lines: Ints, what: str) -> str:
    """All lines in the order of an array of them that is transposed, as heads and tokens that are exchanged."""
    count = len(lines)
    inner, at = int(lines[1 % count]), np.arange(count)
    if inner < 2 or inner == count or count % inner:
        return ""
    outer = count // inner
    if not np.array_equal(lines, at % outer * inner + at // outer):
        return ""
    line = what.removesuffix("s")
    said = f"{line} i * {inner} + j stands at j * {outer} + i, the {outer} parts of {inner} being interleaved"
    return f"{what} transposed as an array of {outer} x {inner}: {said}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
