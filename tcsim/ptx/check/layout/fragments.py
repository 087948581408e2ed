"""Operands in registers: which elements they are, and how they would have had to be loaded from shared memory to be others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tcsim.layouts.swizzle import PATTERN_ROW, SWIZZLES
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.tags import LINE, Tags, halves_of
from tcsim.ptx.check.layout.tiles import NEAR, Mend, Source, View, dense_k
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.threads import RANK_SHIFT

Way = tuple[Any, ...]
"""A way to load elements: the rule that says so, words, and what makes of addresses others, with its arguments."""
_PITCHES = tuple(range(16, 1100, 16))
"""Bytes from one row to the next that are tried."""
_STARTS = tuple(sign * 2 * step for step in (8, 16, 24, 32, 1, 2, 4, 64, 128) for sign in (-1, 1))
_ROWS = 8
"""Rows of the matrices that ldmatrix loads."""
_CHUNK = 16
_PATTERNS = {(own.bits, own.shift): own for own in SWIZZLES.values() if own.bits}
"""Those of TMA and of descriptors, by bits and how far above."""
_SWIZZLES = tuple((bits, shift) for bits in (1, 2, 3) for shift in (3, 2, 1, 4, 5) if shift >= bits or shift < 4)
"""Bits of the number of a 16-byte piece that are changed, and how far above them those are that change them."""


def view_of(
    name: str, tags: Tags, numbers: Array, layout: Any, threads: Array, origins: Origins, line: int, sparse: bool = False
) -> View | None:  # fmt: skip
    """An operand that some threads hold in registers; None if nothing is known of it.

    sparse: it has half of the elements.
    """
    place = halves_of(layout, name == "B")
    if place is None:
        return None
    lane, half, each = place
    rows = tags.rows(numbers)[half]
    found = np.maximum(tags.origin[rows, threads[lane]], -1)
    if not (found > 0).any():
        return None
    k = np.arange(found.shape[1]) * each
    if sparse:
        k = dense_k(k, layout.element_bits)
    marked = tags.place[rows, threads[lane]]
    addresses, lines = (marked & (1 << LINE) - 1) - 1, marked >> LINE
    source = Loaded(origins, addresses, lines) if (addresses >= 0).all() else Source()
    begin = int(addresses.flat[0]) if isinstance(source, Loaded) else -1
    return View(name, found, k, each, "k", 0, line, int(lines.flat[0]) or line, source, begin=begin)


@dataclass(frozen=True, eq=False)
class Loaded(Source):
    """Elements that were loaded from shared memory."""

    origins: Origins
    place: Array  # the address of each (rows, columns)
    lines: Array  # the instruction that loaded it

    def _made(self, way: Way) -> Mend:
        rule, said, change, *given = way
        name = _AS_DATA.get(change)
        data = {} if name is None else {name: given[0] if given else True}
        return Mend(rule, said, lambda: self.origins.lookup(change(self.place, *given)), way, data)

    def mends(self) -> Iterator[Mend]:
        """Other ways to load them."""
        return map(self._made, _ways(self.place))

    def again(self, key: Hashable) -> Mend | None:
        """One of these, by what it is."""
        return self._made(key) if isinstance(key, tuple) else None

    def shifts(self, target: Array) -> Iterator[Mend]:
        """The operand, or what one instruction loaded of it, from elsewhere."""
        place, lines = self.place, np.unique(self.lines).tolist()
        parts = [np.ones(place.shape, bool)]
        parts += [self.lines == own for own in lines] if len(lines) > 1 else []
        for part in parts:
            for step in _STARTS:
                data = {"add": step} if part.all() else {}
                yield Mend("FRAGMENT_LAYOUT", _further(step), partial(self._part, part, place + step), change=data)
            for step in range(_CHUNK, 8 * _CHUNK, _CHUNK):
                data = {"xor": step} if part.all() else {}
                yield Mend("FRAGMENT_LAYOUT", _flipped(step), partial(self._part, part, place ^ step), change=data)
        first = int(place.flat[0])
        there = self.origins.where(target, first >> RANK_SHIFT)
        if there is not None and abs(int(there.flat[0]) - first) <= NEAR:
            said = f"its first element read from byte {int(there.flat[0]) & 0xFFFFFF} of shared memory instead of {first & 0xFFFFFF}"
            yield Mend("FRAGMENT_LAYOUT", said, lambda: target)

    def _part(self, part: Array, place: Array) -> Array:
        return self.origins.lookup(np.where(part, place, self.place))


def _ways(place: Array) -> Iterator[Way]:
    """Other ways to load the elements, the likeliest first."""
    fragment = "FRAGMENT_LAYOUT"
    blocks = _blocks(place)
    if blocks is not None:  # .trans: a lane's neighbours of one row lie side by side
        turned = bool((np.diff(place[:_ROWS, 0]) == 2).all())
        yield fragment, f"ldmatrix {'without' if turned else 'with'} .trans", _turned
    for own, word, across in ((place, "row", False), (place.T, "column", True)):
        for before in _pitch(own):
            for pitch in _PITCHES:
                if pitch != before:
                    said = f"{pitch} bytes from {word} to {word} instead of {before}"
                    yield fragment, said, _spread, pitch - before, across
    yield from _swizzles(place)
    if blocks is not None:
        said = "the 8 x 8 matrices in the other order"
        if blocks.shape[0] == blocks.shape[2]:
            yield fragment, said, _permuted, 2, 1, 0, 3
        yield from ((fragment, said, _reversed, axis) for axis in (0, 2) if blocks.shape[axis] > 1)
    pitches = [sign * rows * pitch for pitch in _pitch(place) for rows in (1, 2, 4, 8, 16) for sign in (-1, 1)]
    for step in (*pitches, *_STARTS):
        yield fragment, _further(step), np.add, step
    for step in range(_CHUNK, 8 * _CHUNK, _CHUNK):
        yield fragment, _flipped(step), np.bitwise_xor, step


def _further(step: int) -> str:
    return f"addresses {abs(step)} bytes {'higher' if step > 0 else 'lower'}"


def _flipped(step: int) -> str:
    return f"bits {step:#x} of the address flipped"


def _blocks(place: Array) -> Array | None:
    """The 8 x 8 matrices of 16-bit elements, or 8 rows of 16 bytes: (row blocks, 8, column blocks, 8)."""
    rows, columns = place.shape
    return place.reshape(rows // _ROWS, _ROWS, columns // 8, 8) if not rows % _ROWS and not columns % 8 else None


def _permuted(place: Array, *axes: int) -> Array:
    """The axes of `_blocks` in another order: of one ldmatrix rows and columns of matrices change places."""
    blocks = _blocks(place)
    return place if blocks is None else blocks.transpose(axes).reshape(place.shape)


def _turned(place: Array) -> Array:
    """In each 8 x 8 matrix rows and columns change places."""
    return _permuted(place, 0, 3, 2, 1)


def _reversed(place: Array, axis: int) -> Array:
    """The 8 x 8 matrices of one ldmatrix in another order: their rows, or their columns, in reverse."""
    blocks = _blocks(place)
    return place if blocks is None else np.flip(blocks, axis).reshape(place.shape)


_AS_DATA: dict[Any, str] = {np.add: "add", np.bitwise_xor: "xor", _turned: "trans"}


def _spread(place: Array, more: int, across: bool) -> Array:
    """Rows, or of what was transposed columns, that are further apart or nearer."""
    count = np.arange(place.shape[1] if across else len(place)) * more
    found: Array = place + (count if across else count[:, None])
    return found


def _pitch(place: Array) -> list[int]:
    """Bytes from one row to the next, as far as pieces that a swizzle exchanges let them be seen."""
    found = list[int]()
    if len(place) > _ROWS and not int(place[_ROWS, 0] - place[0, 0]) % _ROWS:
        found.append(int(place[_ROWS, 0] - place[0, 0]) // _ROWS)
    found += [int(place[1, 0] - place[0, 0])] if len(place) > 1 else []
    return [own for own in dict.fromkeys(found) if abs(own) >= _CHUNK]


def _xor(place: Array, bits: int, shift: int) -> Array:
    """What a swizzle flips in addresses."""
    found: Array = (place // _CHUNK >> shift & (1 << bits) - 1) * _CHUNK
    return found


def _straight(place: Array) -> bool:
    """Whether pieces lie in rows as they are counted."""
    return bool(((place - place[:, :1]) == (place[:1] - place[0, 0])).all())


def _named(bits: int, shift: int) -> str:
    return f"address bits {4 + shift} to {3 + shift + bits}" if bits > 1 else f"address bit {4 + shift}"


def _swizzled(place: Array, *patterns: tuple[int, int]) -> Array:
    """Pieces of 16 bytes that are exchanged by bits of the address above; by several one after the other."""
    for bits, shift in patterns:
        place = place ^ _xor(place, bits, shift)
    return place


def _phase(place: Array, rows: int, bits: int, shift: int) -> Array:
    """Pieces exchanged as those of another row are."""
    pitch = (_pitch(place) or [64])[0]
    found: Array = place ^ _xor(place, bits, shift) ^ _xor(place + rows * pitch, bits, shift)
    return found


def _off(place: Array, bits: int, shift: int) -> int:
    """The rows by which a tile lies off the pattern of a swizzle; 0 if it does not."""
    own, pitch = _PATTERNS.get((bits, shift)), (_pitch(place) or [64])[0]
    begins = int(place[0, 0]) // PATTERN_ROW * PATTERN_ROW
    if own is None or pitch != own.span:
        return 0
    return next((rows for rows in range(1, _ROWS) if (begins + rows * pitch) % own.period == 0), 0)


def _on_pattern(place: Array, bits: int, shift: int) -> Array:
    """The tile as it would be on the pattern."""
    return _phase(place, _off(place, bits, shift), bits, shift)


def _swizzles(place: Array) -> Iterator[Way]:
    """Ways to exchange the 16-byte pieces of a row: not at all, by different address bits, or as another row does."""
    fragment, straight = "FRAGMENT_LAYOUT", _straight(place)
    for bits, shift in _SWIZZLES:
        how = "exchanged" if straight else "not exchanged"
        yield fragment, f"the 16-byte pieces of a row {how} by {_named(bits, shift)}", _swizzled, (bits, shift)
    off = {own: _off(place, *own) for own in _SWIZZLES}
    for rows in range(1, _ROWS):
        for bits, shift in _SWIZZLES:
            if off[bits, shift] == rows:
                period = _PATTERNS[bits, shift].period
                said = f"the tile at a multiple of {period} bytes, or its rows counted from there for the swizzle,"
                yield "SWIZZLE_PHASE_1024", said, _on_pattern, bits, shift
            yield fragment, f"the swizzle's phase {rows} rows back", _phase, rows, bits, shift
    for bits, shift in _SWIZZLES:
        for more, far in _SWIZZLES if _straight(_swizzled(place, (bits, shift))) else ():
            said = f"the 16-byte pieces of a row exchanged by {_named(more, far)} instead of {_named(bits, shift)}"
            yield fragment, said, _swizzled, (bits, shift), (more, far)
