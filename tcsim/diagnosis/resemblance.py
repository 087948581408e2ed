"""What a wrong result looks like: rows, columns and blocks that hold what belongs elsewhere, or that repeat each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.reals import Ints, Mask, Numbers
from tcsim.diagnosis.where import ranges, where_text

_COLUMNS = 48  # across which lines are compared
_HITS = 12  # lines that one number may be found in; of more it tells nothing
_VOTES = 3  # numbers of a line that must be found in the other
_SHARE = 0.25  # of a line's wrong outputs that the other line must give
_MOST = 6  # sentences of a kind
_BLOCK = 8
_WHOLE = 0.9  # of a block


def resemblances(
    observed: Numbers, model: Numbers, open_: Mask, tolerance: float, exactness: float = 0.0
) -> Iterator[str]:
    """Sentences of what the open outputs resemble, those that are finite. All arrays are (batch, M, N).

    Pre-conditions: open_ holds outputs that differ from the model beyond rounding.
    """
    open_ = open_ & np.isfinite(observed)
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    o, r, left = observed[matrix], model[matrix], open_[matrix].copy()
    if not left.any():
        return
    said = f" (matrix {matrix})" if len(open_) > 1 else ""
    reach = tolerance, exactness
    for source, whose in ((r, " of the model"), (o, "")):
        for name, turned in (("rows", False), ("columns", True)):
            if not left.any():
                return
            one, other, mask = (x.T if turned else x for x in (o, source, left))
            found, given = line_map(one, other, mask, reach, itself=source is o)
            if source is o:  # what is alike in the model too says nothing
                right, moved = r.T if turned else r, np.flatnonzero(given.any(axis=1))
                given[moved] &= ~_close(right[moved], right[found[moved]], reach)
            for text, lines in _runs(found, given, name, whose):
                yield text + _where(np.flatnonzero(given[lines].any(axis=0)), given.shape[1], name) + said
            left &= ~(given.T if turned else given)
    yield from (text + said for text in _blocks(o, r, left, reach))
    yield from (text + said for text in _repeated(o, r, left))


def _close(one: Numbers, other: Numbers, reach: tuple[float, float]) -> Mask:
    with np.errstate(invalid="ignore"):
        close: Mask = np.abs(one - other) <= np.maximum(reach[0], (1e-5 + 2 * reach[1]) * np.abs(one))
    return close


def line_map(
    observed: Numbers, source: Numbers, open_: Mask, reach: tuple[float, float], itself: bool = False
) -> tuple[Ints, Mask]:
    """For each row the row of `source` that may give its open outputs, and which outputs it gives: none, if too few.

    itself: source is observed, and only rows further up are an answer.
    """
    height, width = observed.shape
    own = np.arange(height)
    columns = np.flatnonzero(open_.any(axis=0))
    columns = columns[np.linspace(0, len(columns) - 1, min(_COLUMNS, len(columns))).astype(int)]
    rows, lines = [], []
    for column in columns:
        order = np.argsort(source[:, column], kind="stable")
        values = source[order, column]
        asked = np.flatnonzero(open_[:, column] & (observed[:, column] != 0))
        seen = observed[asked, column]
        far = np.maximum(reach[0], (1e-5 + 2 * reach[1]) * np.abs(seen))
        with np.errstate(invalid="ignore"):  # infinite outputs look like none
            low, high = np.searchsorted(values, seen - far), np.searchsorted(values, seen + far, side="right")
        for offset in range(_HITS):
            hit = (high - low <= _HITS) & (low + offset < high)
            rows.append(asked[hit])
            lines.append(order[low[hit] + offset])
    row, line = np.concatenate(rows), np.concatenate(lines)
    if itself:
        row, line = row[line < row], line[line < row]
    tested = np.bincount(np.nonzero(open_[:, columns])[0], minlength=height)
    pairs, votes = np.unique(row * height + line, return_counts=True)
    enough = votes >= np.maximum(_VOTES, _SHARE * tested[pairs // height])
    pairs, votes = pairs[enough], votes[enough]
    found = own.copy()
    best = np.lexsort((-(pairs % height), votes))  # the most votes last; of equal ones the first line
    found[pairs[best] // height] = pairs[best] % height
    given = np.zeros_like(open_)
    moved = np.flatnonzero(found != own)
    given[moved] = open_[moved] & _close(observed[moved], source[found[moved]], reach)
    given[given.sum(axis=1) < np.maximum(_VOTES, _SHARE * open_.sum(axis=1))] = False
    return found, given


def _runs(found: Ints, given: Mask, name: str, whose: str) -> Iterator[tuple[str, Ints]]:
    """The map in sentences, and the lines of each: a shift of all lines, or runs that move together."""
    moved = np.flatnonzero(given.any(axis=1))
    if not len(moved):
        return
    by = found[moved] - moved
    if len(np.unique(by)) == 1 and abs(int(by[0])) < len(moved):
        way = "up" if by[0] < 0 else "down"
        side = {"rows": way, "columns": {"up": "left", "down": "right"}[way]}[name]
        yield (
            f"{name} shifted by {abs(int(by[0]))}: {_range(moved, name)} look like {_range(found[moved], name)}{whose}, "
            f"further {side}", moved,
        )  # fmt: skip
        return
    period = next((size for size in _PERIODS if size < len(found) and _is_period(found, moved, size)), None)
    if period is not None and len(np.unique(by)) > 1:
        yield f"{_range(moved, name)} repeat {name} 0-{period - 1}{whose}, every {period}", moved
        return
    cuts = np.flatnonzero((np.diff(by) != 0) | (np.diff(moved) != 1)) + 1
    parts = np.split(moved, cuts)
    for part in parts[:_MOST]:
        yield (
            f"{_range(part, name)} {'look' if len(part) > 1 else 'looks'} like {_range(found[part], name)}{whose}",
            part,
        )
    if len(parts) > _MOST:
        rest = np.concatenate(parts[_MOST:])
        yield f"{len(rest)} more {name} look like other {name}{whose}", rest


_PERIODS = tuple(1 << power for power in range(1, 12))


def _is_period(found: Ints, moved: Ints, size: int) -> bool:
    return bool((found[moved] == moved % size).all())


def _range(lines: Ints, name: str) -> str:
    first, last = int(lines[0]), int(lines[-1])
    return f"{name[:-1]} {first}" if first == last else f"{name} {first}-{last}"


def _where(across: npt.NDArray[np.intp], whole: int, name: str) -> str:
    """The part of the other axis that it holds of; nothing if it is all of it."""
    other = {"rows": "columns", "columns": "rows"}[name]
    return "" if len(across) == whole else f", in {other} {ranges(across)}"


def _blocks(o: Numbers, r: Numbers, left: Mask, reach: tuple[float, float]) -> Iterator[str]:
    """Blocks that hold another block of the model: lines of what they hold that are others' lines."""
    height, width = (size // _BLOCK for size in o.shape)

    def as_lines(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        blocks = x[: height * _BLOCK, : width * _BLOCK].reshape(height, _BLOCK, width, _BLOCK)
        return blocks.swapaxes(1, 2).reshape(-1, _BLOCK**2)

    open_ = as_lines(left)
    if not open_.any():
        return
    source, given = line_map(as_lines(o), as_lines(r), open_, reach)
    moved = np.flatnonzero(given.mean(axis=1) >= _WHOLE)
    if not len(moved):
        return
    step = np.stack([source[moved] // width - moved // width, source[moved] % width - moved % width], axis=1)
    ways, which, counts = np.unique(step, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    for number in order[:_MOST]:
        own = moved[which.reshape(-1) == number]
        there = source[own]
        yield f"{_region(own, width)} look like {_region(there, width)} of the model"
    if len(ways) > _MOST:
        rest = int(counts[order[_MOST:]].sum())
        yield f"{rest} more blocks of {_BLOCK} x {_BLOCK} look like other blocks of the model"


def _region(places: npt.NDArray[Any], width: int) -> str:
    mask = np.zeros((1, int(places.max() // width) + 1, width), bool)
    mask[0, places // width, places % width] = True
    return where_text(np.repeat(np.repeat(mask, _BLOCK, axis=1), _BLOCK, axis=2))


def _repeated(o: Numbers, r: Numbers, left: Mask) -> Iterator[str]:
    """Neighbours that are equal where the model's are not: one line was written to many places."""
    for name, one, right, mask in (("rows", o, r, left), ("columns", o.T, r.T, left.T)):
        if len(one) < 2 or one.shape[1] < 2:
            continue
        differ = right[1:] != right[:-1]
        open_ = mask[1:] & mask[:-1] & differ
        same = open_ & (one[1:] == one[:-1])
        lines = np.flatnonzero((same.sum(axis=1) >= 0.9 * open_.sum(axis=1)) & (same.sum(axis=1) >= _VOTES))
        if len(lines):
            for part in np.split(lines, np.flatnonzero(np.diff(lines) != 1) + 1)[:_MOST]:
                yield f"{name} {part[0]}-{part[-1] + 1} are all the same"
            return
