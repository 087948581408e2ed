"""Where a result is wrong, and how: counts, zeros, NaN and factors in blocks of 8, 16, 32 and 64 outputs, and what resembles what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.display import Shown
from tcsim.diagnosis.reals import Mask, Numbers
from tcsim.diagnosis.resemblance import resemblances
from tcsim.diagnosis.where import where_text

SIZES = (8, 16, 32, 64)
"""Rows and columns of the blocks that are looked at."""
UNIT = SIZES[0]
_WIDEST, _TALLEST = 64, 32  # blocks in a line of text, and lines
_STRIP = 512  # rows that are reckoned with at once
_SUMS = ("outputs", "off", "beyond", "zero", "nan", "used", "o", "r", "oo", "rr", "or")
_PURE = 0.9  # part of a block's outputs that its kind holds of
_LETTERS = "abcdefgh"

RIGHT, ROUNDED, SOME, ZERO, NAN, FACTOR, OFFSET, OTHER = ".~:0N*+x"
"""What a block is, as the text shows it; a factor has a letter of its own."""
KINDS = {
    RIGHT: "the model's bits",
    ROUNDED: "within rounding of the model",
    SOME: "partly wrong",
    ZERO: "zero where the model is not",
    NAN: "NaN or infinite where the model is not",
    FACTOR: "the model times a factor, another in every block",
    OFFSET: "the model plus a constant",
    OTHER: "wrong",
}


@dataclass(frozen=True)
class Blocks:
    """The map in blocks of one size. Arrays are (batch, rows, columns) of blocks."""

    size: int
    kinds: npt.NDArray[np.str_]  # a letter of `KINDS`, or of a factor
    wrong: npt.NDArray[np.int64]  # outputs beyond rounding
    outputs: npt.NDArray[np.int64]
    factor: Numbers  # observed / model where that is one number, else NaN
    letters: dict[str, float]  # the factor that each letter stands for

    @property
    def pure(self) -> bool:
        """Whether every block is wholly right or wholly wrong."""
        part = self.wrong / np.maximum(self.outputs, 1)
        return bool(((part == 0) | (part >= _PURE)).all())

    @cached_property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The letters that occur, and what they mean."""
        used = set(np.unique(self.kinds).tolist())
        said = {**KINDS, **{letter: f"{by:.4g} times the model" for letter, by in self.letters.items()}}
        return tuple((letter, said[letter]) for letter in said if letter in used)


@dataclass(frozen=True, eq=False)
class ErrorMap(Shown):
    """Where and how observed outputs differ from the model's.

    >>> model = np.random.default_rng(0).standard_normal((1, 64, 32))
    >>> observed = model.copy()
    >>> observed[0, 32:] = model[0, :32]
    >>> observed[0, :8, 16:] *= 2
    >>> print(*error_map(observed, model).lines()[1:], sep="\\n")
    twice the model: rows 0-7, columns 16-31
    rows 32-63 look like rows 0-31 of the model
    in blocks of 8 x 8:
      rows 0-7    ..aa
      rows 8-31   ....
      rows 32-63  xxxx
      . = the model's bits, x = wrong, a = 2 times the model
    """

    shape: tuple[int, int, int]  # matrices, rows, columns
    sums: dict[str, Numbers]  # (matrices, blocks down, blocks across) of `UNIT`
    exactness: float  # the relative precision of what was observed
    facts: tuple[str, ...]  # what was seen, a sentence each

    def blocks(self, size: int) -> Blocks:
        """The map in blocks of size x size outputs; a multiple of `UNIT`."""
        sums = {name: _gathered(own, size // UNIT) for name, own in self.sums.items()}
        whole = np.maximum(sums["outputs"], 1)
        factor, offset = self._factors(sums)
        most = _PURE * whole
        scaled = np.abs(factor - 1) > 1e-3
        scaled &= sums["beyond"] >= 0.5 * whole  # outputs that are nearly zero are not wrong
        letters = dict(zip(_LETTERS, _distinct(factor[scaled]), strict=False))
        kinds = np.select(
            [
                sums["off"] == 0,
                sums["beyond"] == 0,
                sums["zero"] >= most,
                sums["nan"] >= most,
                scaled,
                sums["beyond"] < most,
                ~np.isnan(offset),
            ],
            [RIGHT, ROUNDED, ZERO, NAN, FACTOR, SOME, OFFSET],
            OTHER,
        )
        for letter, by in letters.items():
            kinds[(kinds == FACTOR) & np.isclose(factor, by, rtol=5e-3)] = letter
        wrong, outputs = (sums[name].astype(np.int64) for name in ("beyond", "outputs"))
        return Blocks(size, kinds, wrong, outputs, factor, letters)

    def _factors(self, sums: dict[str, Numbers]) -> tuple[Numbers, Numbers]:
        """The one factor of each block, and the one number added to it; NaN where there is none."""
        count = sums["used"]
        enough = (count >= UNIT) & (count >= _PURE * sums["outputs"]) & (sums["beyond"] > 0)
        with np.errstate(all="ignore"):
            factor = sums["or"] / sums["rr"]
            rest = 1 - sums["or"] ** 2 / (sums["rr"] * sums["oo"])
            mean = (sums["o"] - sums["r"]) / count
            spread = (sums["oo"] - 2 * sums["or"] + sums["rr"]) / count - mean**2
            alike = np.maximum(16 * self.exactness**2, 1e-9)
            scaled = enough & (rest <= alike) & (np.abs(factor) > 1e-6)
            added = enough & ~scaled & (spread <= alike * np.maximum(mean**2, sums["rr"] / count)) & (mean != 0)
        return np.where(scaled, factor, np.nan), np.where(added, mean, np.nan)

    @cached_property
    def shown(self) -> Blocks:
        """The largest blocks that are each wholly right or wrong, few enough for a page of text."""
        fitting = [size for size in self._sizes() if self._fits(size)]
        for size in reversed(fitting):
            found = self.blocks(size)
            if size <= SIZES[-1] and found.kinds[0].size > 1 and found.pure and SOME not in found.kinds:
                return found
        return self.blocks(fitting[0])

    def _sizes(self) -> list[int]:
        """Sizes of blocks: further powers of two where the matrix is large."""
        sizes = list(SIZES)
        while not self._fits(sizes[-1]):
            sizes.append(2 * sizes[-1])
        return sizes

    def _fits(self, size: int) -> bool:
        return self.shape[2] <= size * _WIDEST and self.shape[1] <= size * _TALLEST * 2

    @property
    def matrix(self) -> int:
        """The matrix with most wrong outputs: the one that is drawn."""
        return int(self.sums["beyond"].sum(axis=(1, 2)).argmax())

    def lines(self) -> list[str]:
        """The map and the facts in text."""
        return [*self.facts, *self.drawn()]

    def drawn(self) -> list[str]:
        """The map in text, with a heading and a legend."""
        found = self.shown
        batch = f" of matrix {self.matrix}" if self.shape[0] > 1 else ""
        lines = [f"in blocks of {found.size} x {found.size}{batch}:"]
        rows = ["".join(row) for row in found.kinds[self.matrix]]
        labels = list(_merged(rows, found.size, self.shape[1]))
        if len(labels) > _TALLEST:
            labels = [*labels[:_TALLEST], ("...", "")]
        width = max(len(label) for label, _ in labels)
        lines += [f"  {label:<{width}}  {text}".rstrip() for label, text in labels]
        lines.append("  " + ", ".join(f"{letter} = {text}" for letter, text in found.legend))
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        found = self.shown
        return {
            "block": found.size, "matrix": self.matrix, "legend": dict(found.legend), "facts": list(self.facts),
            "map": ["".join(row) for row in found.kinds[self.matrix]],
        }  # fmt: skip


def _merged(rows: list[str], size: int, height: int) -> Iterator[tuple[str, str]]:
    """Lines of the map, alike ones as one."""
    start = 0
    for stop in range(1, len(rows) + 1):
        if stop == len(rows) or rows[stop] != rows[start]:
            yield f"rows {start * size}-{min(stop * size, height) - 1}", rows[start]
            start = stop


def error_map(
    observed: Numbers,
    model: Numbers,
    near: Mask | None = None,
    size: tuple[int, int] | None = None,
    exactness: float = 0.0,
) -> ErrorMap:
    """The map of observed outputs against the model's, both (batch, M, N).

    near: which are the model's up to rounding, if that is known better than by 1e-5 of a usual output. size: rows and columns
    that count. exactness: the relative precision of what was observed, 0 for the model's own.
    """
    if size is not None:
        observed, model = observed[:, : size[0], : size[1]], model[:, : size[0], : size[1]]
        near = None if near is None else near[:, : size[0], : size[1]]
    usual = _usual(model)
    sums = {name: np.zeros((len(model), *(-(-one // UNIT) for one in model.shape[1:]))) for name in _SUMS}
    beyond = np.zeros(model.shape, bool)
    zero, nan = np.zeros_like(beyond), np.zeros_like(beyond)
    with np.errstate(all="ignore"):
        for matrix in range(len(model)):
            for top in range(0, model.shape[1], _STRIP):
                place = (matrix, slice(top, top + _STRIP))
                o, r = observed[place], model[place]
                off = ~((o == r) | (np.isnan(o) & np.isnan(r)))
                close = np.abs(o - r) <= (1e-5 + 2 * exactness) * np.maximum(np.abs(r), usual)
                beyond[place] = off & ~(close if near is None else near[place])
                finite = np.isfinite(o) & np.isfinite(r)
                nan[place] = beyond[place] & ~np.isfinite(o) & np.isfinite(r)
                zero[place] = beyond[place] & (o == 0)
                u, v = np.where(finite, o, 0.0), np.where(finite, r, 0.0)
                one = np.ones_like(off)
                parts = (one, off, beyond[place], zero[place], nan[place], finite, u, v, u * u, v * v, u * v)
                blocks = slice(top // UNIT, top // UNIT + -(-len(o) // UNIT))
                for name, part in zip(_SUMS, parts, strict=True):
                    sums[name][matrix, blocks] = _summed(part)
    found = ErrorMap(model.shape, sums, exactness, ())
    tolerance = (1e-5 + 2 * exactness) * usual
    facts = tuple(_facts(found, observed, model, beyond, zero, nan, tolerance))
    return ErrorMap(model.shape, sums, exactness, facts)


def _usual(model: Numbers) -> float:
    """The middle size of an output; of many outputs, of some of them."""
    some = np.abs(model.reshape(-1)[:: max(1, model.size // 65536)])
    some = some[np.isfinite(some)]
    return float(np.median(some)) if some.size else 0.0


def _summed(part: npt.NDArray[Any]) -> Numbers:
    """Sums over blocks of `UNIT` x `UNIT`; blocks at the edge are smaller."""
    rows, columns = (np.arange(0, size, UNIT) for size in part.shape)
    few = part.view(np.uint8) if part.dtype == np.bool_ else part
    down = np.add.reduceat(few, rows, axis=0)  # of a mask at most `UNIT`: no overflow
    return np.add.reduceat(down, columns, axis=1, dtype=np.float64)


def _gathered(sums: Numbers, by: int) -> Numbers:
    """Sums over by x by neighbours."""
    rows, columns = (np.arange(0, size, by) for size in sums.shape[1:])
    return np.add.reduceat(np.add.reduceat(sums, rows, axis=1), columns, axis=2)


def _distinct(factor: Numbers) -> list[float]:
    """The factors that occur, most frequent first; those of nearly one value are one."""
    values, counts = np.unique([float(f"{x:.3g}") for x in factor], return_counts=True)
    return [float(values[place]) for place in np.argsort(-counts, kind="stable")][: len(_LETTERS)]


def _facts(
    found: ErrorMap, observed: Numbers, model: Numbers, beyond: Mask, zero: Mask, nan: Mask, tolerance: float
) -> Iterator[str]:
    """What there is to say of the outputs that are wrong beyond rounding, the plainest first."""
    if not beyond.any():
        return
    total = int(beyond.sum())
    with np.errstate(invalid="ignore"):
        far = np.where(beyond & ~nan, np.abs(observed - model), -1.0)
    matrix, row, column = (int(x) for x in np.unravel_index(int(far.argmax()), far.shape))
    if far[matrix, row, column] > 0:
        said = f" of matrix {matrix}" if len(far) > 1 else ""
        seen, right = observed[matrix, row, column], model[matrix, row, column]
        yield f"furthest off: D({row},{column}){said} is {seen:.6g}, the model's is {right:.6g}"
    for mask, what in ((zero, "zero where the model is not"), (nan, "NaN or infinite where the model is not")):
        if mask.any():
            yield f"{what}: {int(mask.sum()):,} of {total:,} wrong outputs, {where_text(mask)}"
    fine = found.blocks(UNIT)
    for letter, by in fine.letters.items():
        mask = _spread(fine.kinds == letter, beyond.shape)
        said = {2.0: "twice", 0.5: "half", -1.0: "the negative of"}.get(by, f"{by:.4g} times")
        yield f"{said} the model: {where_text(mask)}"
    if (fine.kinds == OFFSET).any():
        _, offset = found._factors(found.sums)
        mask = fine.kinds == OFFSET
        added = offset[mask]
        said = f"{float(np.median(added)):.4g}" if np.ptp(added) <= 1e-3 * abs(added[0]) else "a constant of each block"
        yield f"the model plus {said}: {where_text(_spread(mask, beyond.shape))}"
    open_ = beyond & ~zero & ~nan
    yield from resemblances(observed, model, open_, tolerance, found.exactness)


def _spread(blocks: Mask, shape: tuple[int, ...]) -> Mask:
    """A mask of blocks as one of outputs."""
    wide = np.repeat(np.repeat(blocks, UNIT, axis=1), UNIT, axis=2)
    return wide[:, : shape[1], : shape[2]]
