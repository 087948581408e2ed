"""Accumulators that a persistent kernel does not clear between its output tiles: each tile is added to those before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.sizes import PARTS
from tcsim.diagnosis.whole import Whole
from tcsim.numbers.codec import decode, encode

_MOST = 256  # tiles
_SAMPLES = 48  # outputs that every hypothesis is tried on first


@dataclass(frozen=True)
class Carried(Whole):
    """Tiles of `height` x `width`, numbered along N or M first; each starts from the sum of the one `back` tiles before."""

    height: int
    width: int
    size: tuple[int, int]  # M and N
    along_n: bool
    back: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Along M and N."""
        return -(-self.size[0] // self.height), -(-self.size[1] // self.width)

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        down, across = self.tiles
        if self.back == (1 if not self.along_n else across):
            before = "the previous one along M" if down > 1 else ""
        elif self.back == (1 if self.along_n else down):
            before = "the previous one along N" if across > 1 else ""
        else:
            before = ""
        before = before or f"that of {self.back} blocks before"
        said = f"each block of {self.height} x {self.width} outputs is added to the sums of {before}"
        advice = "clear the accumulators, or set scale_d to 0, at the first K tile of every output tile of a persistent kernel"
        return [("accumulators not cleared between output tiles", said, advice)]

    def before(self, i: Ints, j: Ints, times: int) -> tuple[Ints, Ints, Mask]:
        """The outputs whose sums are still in the accumulators of some outputs, `times` turns ago, and which there are."""
        down, across = self.tiles
        y, x = i // self.height, j // self.width
        number = (y * across + x if self.along_n else x * down + y) - times * self.back
        y, x = (number // across, number % across) if self.along_n else (number % down, number // down)
        row, column = y * self.height + i % self.height, x * self.width + j % self.width
        inside = (number >= 0) & (row < self.size[0]) & (column < self.size[1])
        return np.where(inside, row, 0), np.where(inside, column, 0), inside

    def more(self, product: Numbers, i: Ints, j: Ints) -> Numbers:
        """What is added to some outputs of a matrix."""
        total = np.zeros(i.shape)
        for times in range(1, -(-self.tiles[0] * self.tiles[1] // self.back)):
            row, column, inside = self.before(i, j, times)
            total += np.where(inside, product[row, column], 0.0)
        return total

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        found: Numbers = reals.right[matrix].copy()
        i, j = np.indices(self.size)
        found[: self.size[0], : self.size[1]] += self.more(reals.product[matrix], i, j)
        return found

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of all sums that an accumulator held."""
        sizes = replace(reals, product=np.abs(reals.a) @ np.abs(reals.b).swapaxes(1, 2), c=np.abs(reals.c))
        return reals.near(self.values(reals, matrix), matrix, self.values(sizes, matrix))

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit; C is added at the end."""
        bare = replace(problem, finish=None)
        out = np.zeros(problem.observed.shape, problem.machine.formats["d"].dtype)
        down, across = self.tiles
        for matrix in range(len(out)):
            held: list[Codes] = []
            for number in range(down * across):
                y, x = (number // across, number % across) if self.along_n else (number % down, number // down)
                last = held[number - self.back] if number >= self.back else None
                own = np.zeros((self.height, self.width), out.dtype) if last is None else last.copy()
                rows, columns = (
                    np.arange(at * size, min((at + 1) * size, end))
                    for at, size, end in zip((y, x), (self.height, self.width), self.size, strict=True)
                )
                start = np.zeros_like(problem.c)
                start[matrix, rows[:, None], columns] = own[: len(rows), : len(columns)]
                own[: len(rows), : len(columns)] = replace(bare, c=start).predict(Part(matrix, rows, columns))
                held.append(own)
                out[matrix, rows[:, None], columns] = own[: len(rows), : len(columns)]
        formats = problem.machine.formats
        if not problem.c.any():
            return out
        with np.errstate(all="ignore"):
            total = decode(out, formats["d"]).astype(np.float64) + decode(problem.c, formats["c"]).astype(np.float64)
        return encode(total, formats["d"])


def carried(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Carried]:
    """Those that give some wrong outputs, small steps back first."""
    formats = problem.machine.formats
    first = problem.observed.shape[0] == 1 and not wrong[0, :8, :8].all()  # nothing is before the first tile
    if not first or not (wrong & reals.finite).any() or formats["c"].name != formats["d"].name:
        return
    size = problem.size or (wrong.shape[1], wrong.shape[2])
    places = np.argwhere((wrong & reals.finite)[0])
    i, j = some_of(places, _SAMPLES).T
    wanted, reach = (reals.observed - reals.right)[0, i, j], reals.reach[0, i, j]
    heights, widths = ([*(tile for tile in PARTS if tile < extent), extent] for extent in size)
    tried = [
        Carried(height, width, size, along_n, back)
        for height in heights
        for width in widths
        for along_n, back in _first_wrong(wrong[0, : size[0], : size[1]], height, width)
    ]
    for item in sorted(tried, key=lambda one: one.back):
        few = slice(0, 6)
        for part in (few, slice(None)):
            more = item.more(reals.product[0], i[part], j[part])
            if not (np.abs(more - wanted[part]) <= reach[part]).mean() > 0.9:
                break
        else:
            yield item


def _first_wrong(wrong: Mask, height: int, width: int) -> Iterator[tuple[bool, int]]:
    """Of tiles that are numbered along N or along M, the number of the first wrong one, which is the first that another was before."""
    down, across = -(-wrong.shape[0] // height), -(-wrong.shape[1] // width)
    if down * across > _MOST:
        return
    ends = ((0, down * height - wrong.shape[0]), (0, across * width - wrong.shape[1]))
    tiles = np.pad(wrong, ends).reshape(down, height, across, width).any(axis=(1, 3))
    for along_n in (True, False):
        back = int((tiles if along_n else tiles.T).reshape(-1).argmax())
        if back:
            yield along_n, back
