"""Parts of K whose sums are transposed in blocks of the output: partial sums that are written in one order and read in another.

What that changes in an output is a sum over K, so that the tiles of K in which it holds are a solution of linear equations: weights of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.least_squares import in_parts, samples
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.sizes import PARTS
from tcsim.diagnosis.some_tiles import TIMES, holding
from tcsim.diagnosis.where import ranges
from tcsim.numbers.codec import decode, encode

_MOST, _SAMPLES = 24, 12  # tiles of K; outputs beyond one for each
_AT_ONCE = 32  # sizes of blocks
_WORKSPACE = "look at the workspace of split-K: at the order in which partial sums are written and read"


@dataclass(frozen=True)
class Blocks:
    """Blocks of the output whose partial sums are written by rows and read by columns, or, `back`, the other way round."""

    height: int
    width: int
    back: bool
    size: tuple[int, int]  # M and N

    @property
    def said(self) -> str:
        """In words."""
        how = "written by columns and read by rows" if self.back else "written by rows and read by columns"
        return f"each block of {self.height} x {self.width} outputs is {how}"

    def source(self, i: Ints, j: Ints) -> tuple[Ints, Ints, Mask]:
        """The row and the column whose sum each output gets, and whether the output has them: sums behind its edge are zero."""
        row, column = i % self.height, j % self.width
        place = row + self.height * column if self.back else self.width * row + column
        at = divmod(place, self.width) if self.back else divmod(place, self.height)[::-1]
        row, column = i - row + at[0], j - column + at[1]
        inside = (row < self.size[0]) & (column < self.size[1])
        return np.where(inside, row, 0), np.where(inside, column, 0), inside


@dataclass(frozen=True)
class TransposedPart(Hypothesis):
    """The sums of some tiles of K are transposed in blocks."""

    blocks: Blocks
    held: tuple[bool, ...]  # which tiles of K
    unit: int  # K of a tile

    @property
    def _k(self) -> Ints:
        return np.flatnonzero(np.repeat(self.held, self.unit))

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        return [("partial sums transposed", f"those of K {ranges(self._k)}: {self.blocks.said}", _WORKSPACE)]

    def _moved(self, sums: Numbers) -> Numbers:
        """Sums (M, N) where they are added; zeros behind the edge."""
        rows, columns = self.blocks.size
        row, column, inside = self.blocks.source(*np.indices((rows, columns)))
        found = sums.copy()
        found[:rows, :columns] = np.where(inside, sums[row, column], 0.0)
        return found

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        k = self._k[self._k < reals.a.shape[2]]
        part = reals.a[matrix][:, k] @ reals.b[matrix][:, k].T
        found: Numbers = reals.right[matrix] - part + self._moved(part)
        return found

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of the place where a sum was made."""
        k = self._k[self._k < reals.a.shape[2]]
        part = np.abs(reals.a[matrix][:, k]) @ np.abs(reals.b[matrix][:, k]).T
        size = reals.reach[matrix] / reals.unit + self._moved(part) if reals.unit else 0.0
        return reals.near(self.values(reals, matrix), matrix, size)

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit: the slices' sums, each from zero, added up, with C first or last."""
        format = problem.machine.formats["d"]
        kind = np.float64 if format.kind != "float" else np.float16 if format.name == "f16" else np.float32
        c = decode(problem.c, problem.machine.formats["c"]).astype(kind)
        bare = problem.bare
        best: tuple[int, Codes] | None = None
        for cut, late in product(self._cuts(problem), (False, True)[: 1 + bool(c.any())]):
            total: Any = c * 0
            for number, (steps, moved) in enumerate(cut):
                first = bare if number == 0 and not late and not moved else replace(bare, c=np.zeros_like(bare.c))
                one = replace(first, order=steps)
                sums = decode(one.outputs(), format).astype(kind)
                sums = np.stack([self._moved(x) for x in sums]) if moved else sums
                total = total + sums + (c if number == 0 and not late and moved else 0)
            out = encode(total + c if late else total, format)
            out = problem.after_clamp(out)
            same = int((out == problem.observed).sum())
            if best is None or same > best[0]:
                best = same, out
        if best is None:
            raise ValueError("a problem without K")
        return best[1]

    def _cuts(self, problem: Problem) -> Iterator[list[tuple[tuple[int, ...], bool]]]:
        """The slices of K, with whether each is moved: as long as the moved one, and as long as can be."""
        steps = np.arange(problem.blocks)
        held = np.repeat(self.held, self.unit // problem.step)[: len(steps)]
        edges = np.flatnonzero(np.diff(held.astype(int))) + 1
        runs = np.split(steps, edges)
        longest = max(len(run) for run in runs if held[run[0]])
        for size in (longest, len(steps)):
            cut = [run[at : at + size] for run in runs for at in range(0, len(run), size)]
            yield [(tuple(int(step) for step in run), bool(held[run[0]])) for run in cut]


def _every(size: tuple[int, int]) -> Iterator[Blocks]:
    """Of every size."""
    sizes = [sorted({extent, *(each for each in PARTS if each < 2 * extent)}) for extent in size]
    for height, width in product(*sizes):
        for back in (False, True)[: 1 + (height != width)]:
            yield Blocks(height, width, back, size)


def transposed_parts(problem: Problem, reals: Reals, open_: Mask) -> Iterator[TransposedPart]:
    """Blocks that give some outputs where the sums of some tiles of K are transposed, of the largest tiles of K that give any."""
    depth = reals.a.shape[2]
    units = [unit for unit in (times * problem.step for times in (*TIMES, 1)) if unit < depth <= _MOST * unit]
    chosen = samples(reals, open_, -(-depth // units[-1])) if units and len(reals.a) == 1 else None
    if chosen is None:
        return
    chosen = chosen[: -(-depth // units[-1]) + _SAMPLES]
    place = tuple(chosen.T)
    size = problem.sizes
    plain = reals.a[0][place[1]] * reals.b[0][place[2]]
    wanted = reals.observed[place] - reals.right[place]
    every = list(_every(size))
    for unit in units:
        found = False
        for start in range(0, len(every), _AT_ONCE):
            some = every[start : start + _AT_ONCE]
            changes = np.stack([_products(reals, blocks, place) - plain for blocks in some])
            for number, holds in holding(in_parts(changes, unit).sum(axis=3), wanted, reals.reach[place]):
                found = True
                yield TransposedPart(some[number], tuple(bool(x) for x in holds), unit)
        if found:
            return


def _products(reals: Reals, blocks: Blocks, place: tuple[Ints, ...]) -> Numbers:
    """The terms (samples, K) of the sums that some outputs get."""
    row, column, inside = blocks.source(place[1], place[2])
    found: Numbers = reals.a[0][row] * reals.b[0][column] * inside[:, None]
    return found
