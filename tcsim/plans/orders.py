"""An order of summation as data, and a product computed in it: chains along K, who takes which elements, how the chains' sums are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.engines import choice
from tcsim.libdevice.operations import fma
from tcsim.multiplication import gemm

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
_COMPILED = 1 << 16
"""FMAs of a chain from which numba's loop is worth while."""
_TOGETHER = 1 << 15
"""Accumulators that NumPy holds at once: they stay in the cache."""


@dataclass(frozen=True)
class Order:
    """Parts of K, the lanes of a part, the runs of a lane: each run is one chain from zero, ascending in k.

    A part is a chunk of consecutive elements, or the tiles that come to it in turn. Its lanes take blocks of consecutive elements in turn. The runs of a lane
    are added in ascending order, then its lanes as `lanes_by` says, then the parts as `parts_by` says, then the bias.

    >>> [part.tolist() for part in Order(parts=2, chunk=4, lanes=2, block=1).places(6)]
    [[[[0, 2]], [[1, 3]]], [[[4]], [[5]]]]
    """

    instruction: str = ""  # of a chain: a multiply of tensor cores; empty: f32 FMA
    parts: int = 1
    chunk: int = 0  # elements of a part, the last perhaps shorter; 0: all
    turn: int = 0  # elements of a tile, if parts take tiles in turn; 0: parts are chunks
    residue: int = 0  # elements of a tile: what a part has beyond whole tiles fills a tile of its own, before all others; 0: it comes last
    lanes: int = 1
    block: int = 1
    run: int = 0  # elements of a lane's run; 0: all
    vector: int = 1  # how many partial sums a lane keeps; its elements are added to them in turn
    lanes_by: str = "ascending"  # a key of SUMS
    parts_by: str = "ascending"  # a key of SUMS; "rounded": each in the output's type first; "in place": from the bias on, each sum in the output's type
    bias: str = "sum"  # added to the f32 sum; "rounded": to the sum in the output's type
    operands: str = ""  # "tf32": rounded to it, to nearest even

    def __str__(self) -> str:
        size = f"tiles of {self.turn} in turn" if self.turn else f"{self.chunk} elements"
        whole = f"{self.parts} parts of {size}, added {SAID[self.parts_by]}" if self.parts > 1 else "one part"
        lanes = (
            f", {self.lanes} lanes that take {self.block} at once, added {SAID[self.lanes_by]}"
            if self.lanes > 1
            else ""
        )
        runs = f", a fresh accumulator after {self.run} elements of each" if self.run else ""
        first = f", what exceeds tiles of {self.residue} first" if self.residue else ""
        return f"{whole}{lanes}{runs}: chains of {self.instruction or 'f32 FMA'}{first}"

    def places(self, k: int) -> Iterator[Places]:
        """Of each part the elements of each run of each lane: (lanes, runs, elements), -1 where a run is shorter."""
        size = self.chunk or k
        for part in range(self.parts):
            if self.turn:
                every = np.arange(k)
                part_of = every // self.turn % self.parts
                elements = every[part_of == part]
            else:
                elements = np.arange(part * size, min((part + 1) * size, k))
            if len(elements):
                yield self._dealt(elements)

    def _dealt(self, elements: Places) -> Places:
        number = np.arange(len(elements))
        lane = number // self.block % self.lanes
        row = number // (self.block * self.lanes) * self.block + number % self.block  # of a lane's elements
        if self.vector > 1:
            run, place = row % self.vector, row // self.vector
        elif self.run:
            run, place = row // self.run, row % self.run
        else:
            run, place = row * 0, row
        found = np.full((self.lanes, int(run.max()) + 1, int(place.max()) + 1), -1, np.int64)
        found[lane, run, place] = elements
        return found


def _ascending(parts: list[Floats]) -> Floats:
    return reduce(np.add, parts)


def _halves(parts: list[Floats]) -> Floats:
    """Each with the one half the number further, of a power of two."""
    size = 1 << (len(parts) - 1).bit_length()
    parts = parts + [np.zeros_like(parts[0])] * (size - len(parts))
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[: len(parts) // 2], parts[len(parts) // 2 :], strict=True)]
    return parts[0]


def _block(parts: list[Floats]) -> Floats:
    """128 threads take the parts in turn; halves down to 32; then 4 sums of every fourth, and these in ascending order."""
    threads = [_ascending(parts[i::128]) for i in range(min(128, len(parts)))]
    threads += [np.zeros_like(parts[0])] * (128 - len(threads))
    threads = [_halves(threads[i::32]) for i in range(32)]
    return _ascending([_ascending(threads[i::4]) for i in range(4)])


def _buffers(parts: list[Floats]) -> Floats:
    """The last part, then half as many sums as there are parts: part p of the others was added to sum p modulo their number."""
    *others, last = parts
    count = (len(parts) + 1) // 2
    return _ascending([last, *(_ascending(others[i::count]) for i in range(min(count, len(others))))])


SUMS: dict[str, Callable[[list[Floats]], Floats]] = {
    "ascending": _ascending,
    "halves": _halves,
    "block": _block,
    "buffers": _buffers,
}
SAID = {
    "ascending": "in ascending order", "halves": "in halves", "block": "by a block of 128 threads", "buffers": "in buffers",
    "rounded": "in ascending order, each rounded to the output's format", "in place": "in ascending order, each sum rounded to the output's format",
}  # fmt: skip


def total(order: Order, a: Array, b: Array, out: Any, bias: Floats | None, arch: str, engine: Any = None) -> Floats:
    """a (..., M, K) times b (..., K, N), operands as `gemm` takes them or f32, with the bias (N,): f32, before the rounding to the type `out`."""
    if order.operands == "tf32":
        a, b = _tf32(a), _tf32(b)

    def rounded(x: Floats) -> Floats:
        return x if out == np.float32 else x.astype(out).astype(np.float32)

    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        parts = (_part(order, a, b, places, arch, engine) for places in order.places(a.shape[-1]))
        if order.parts_by == "in place":
            running = rounded(next(parts) if bias is None else next(parts) + bias)
            return reduce(lambda sum, part: rounded(part + sum), parts, running)
        if order.parts_by in ("ascending", "rounded"):
            found = reduce(np.add, parts if order.parts_by == "ascending" else map(rounded, parts))
        else:
            every = list(parts)
            found = SUMS[order.parts_by](every + [np.zeros_like(every[0])] * (order.parts - len(every)))
        if bias is None:
            return found
        return (rounded(found) if order.bias == "rounded" else found) + bias


def _tf32(x: Floats) -> Floats:
    """f32 rounded to tf32, to nearest even; NaN and infinity stay."""
    codes = np.ascontiguousarray(x).view(np.uint32)
    near = (codes + np.uint32(0xFFF) + (codes >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), near, codes).view(np.float32)


def _part(order: Order, a: Array, b: Array, places: Places, arch: str, engine: Any) -> Floats:
    """The sum of one part."""
    if order.instruction:
        left, right = (_taken(x, axis, places[0, 0], order.residue) for x, axis in ((a, -1), (b, -2)))
        codes = gemm(left, right, instruction=order.instruction, arch=arch, engine=engine)
        found: Floats = codes.view(np.float32)
        return found
    lanes, runs, _ = places.shape
    sums = chains(a, b, places.reshape(lanes * runs, -1), engine).reshape(lanes, runs, *_outer(a, b))
    first: list[Floats] = [_ascending(list(each)) for each in sums]
    return SUMS[order.lanes_by](first)


_STEP = 16
"""Elements of K that the widest instruction takes: zeros up to a multiple of it change nothing."""


def _taken(x: Array, axis: int, places: Places, residue: int) -> Array:
    """Elements along K, the residue filled with zeros up to whole instructions."""
    first, last = int(places[0]), int(places[-1]) + 1
    found = x[..., first:last] if axis == -1 else x[..., first:last, :]
    if len(places) != last - first:
        found = np.take(x, places, axis)
    rest = len(places) % residue if residue else 0
    if rest % _STEP == 0 or rest == len(places):
        return found
    zeros = [(0, 0)] * x.ndim
    zeros[axis] = (0, -rest % _STEP)
    cut = (
        (..., slice(None, rest), slice(None))[: 2 if axis == -1 else 3],
        (..., slice(rest, None), slice(None))[: 2 if axis == -1 else 3],
    )
    return np.concatenate([np.pad(found[cut[0]], zeros), found[cut[1]]], axis)


def _outer(a: Array, b: Array) -> tuple[int, ...]:
    """The shape of a b."""
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def chains(a: Floats, b: Floats, places: Places, engine: Any = None) -> Floats:
    """f32 FMA from zero along some elements of K, one after another: a (..., M, K), b (..., K, N), places (chains, elements), -1 for none.

    >>> a, b = np.float32([[1, 2, 3]]), np.float32([[1], [10], [100]])
    >>> chains(a, b, np.array([[0, 2], [1, -1]])).ravel()
    array([301.,  20.], dtype=float32)
    """
    shape = _outer(a, b)
    size = int(np.prod(shape))
    if size * places.size >= _COMPILED and _compiles(engine):
        from tcsim.plans import compiled  # numba, which is not always there

        return compiled.chains(a, b, places, shape)
    found = np.zeros((len(places), *shape), np.float32)
    a, b = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    a = np.concatenate([a, np.zeros_like(a[..., :1])], -1)  # of which -1 is the last
    b = np.concatenate([b, np.zeros_like(b[..., :1, :])], -2)
    rows = max(1, _TOGETHER * shape[-2] // max(size, 1))
    step = max(1, _TOGETHER // max(size, 1))
    for first in range(0, len(places), step):
        for row in range(0, shape[-2], rows):
            some = found[first : first + step, ..., row : row + rows, :]
            for k in places[first : first + step].T:
                left, right = np.moveaxis(a[..., row : row + rows, k], -1, 0), np.moveaxis(b[..., k, :], -2, 0)
                some[...] = fma(left[..., None], right[..., None, :], some)
    return found


def _compiles(engine: Any) -> bool:
    """Whether numba may be used."""
    asked = choice.asked() if engine is None else engine
    return asked != "numpy" and find_spec("numba") is not None
