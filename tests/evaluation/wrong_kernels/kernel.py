"""A tiled GEMM kernel as arrays of addresses: blocks, warps, stages, shared memory, fragments, epilogue. Every address is a field.

It knows the instruction's arithmetic from `Machine.run` and nothing of `tcsim.diagnosis`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.multiplication import Machine
from tcsim.numbers.codec import decode, encode

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Operands:
    """Codes: a (M, K), of a sparse A (M, K / 2); b (K, N); c (M, N); perhaps positions and scale factors."""

    a: Any
    b: Any
    c: Any
    positions: Any = None
    scale_a: Any = None
    scale_b: Any = None


@dataclass(frozen=True)
class Tile:
    """Of a block: rows, columns, depth; warps along M and N."""

    bm: int
    bn: int
    bk: int
    warps_m: int = 2
    warps_n: int = 2

    def side(self, name: str) -> tuple[int, int]:
        """Rows of A's tile, or columns of B's, and those of one warp."""
        return (self.bm, self.bm // self.warps_m) if name == "a" else (self.bn, self.bn // self.warps_n)


def _second(first: Ints, second: Ints) -> Ints:
    return second


def _first(first: Ints, second: Ints) -> Ints:
    return first


@dataclass(frozen=True)
class Side:
    """How an operand is addressed. Rows are those of A, or columns of B; k counts along the row."""

    block: Callable[[Ints, Ints], Ints]  # (blockIdx.y, blockIdx.x) -> which tile
    warp: Callable[[Ints, Ints], Ints]  # (warp along M, along N) -> which of the tile's parts
    step: int = 0  # rows from one tile to the next; 0: the tile's
    warp_step: int = 0  # rows from one warp to the next; 0: the warp's
    offset: int = 0  # rows before the first
    fragment: Callable[[Ints], Ints] = lambda r: r  # rows of a warp
    stage: Callable[[int], int] = lambda tile: tile  # K tile -> the one that lies in its buffer
    inner: Callable[[int], float] = lambda step: step  # K step inside a tile
    shared: Callable[[Ints, Ints], tuple[Ints, Ints]] = lambda r, k: (r, k)  # place read -> what was written there
    memory: Callable[[Ints, Ints], tuple[Ints, Ints]] = lambda r, k: (
        r,
        k,
    )  # place read in global memory -> whose it is
    only: Callable[[Ints, Ints, int], npt.NDArray[np.bool_]] | None = None  # (y, x, K tile): where the mistake is made


def apart(side: Side) -> Side:
    """How scale factors or metadata are addressed: by the operand's blocks, warps and stages, in memory of their own."""
    return replace(side, memory=A.memory, shared=A.shared, inner=A.inner)


A = Side(_first, _first)
B = Side(_second, _second)


@dataclass(frozen=True)
class Kernel:
    """A kernel; with the defaults it is right."""

    machine: Machine
    tile: Tile
    a: Side = A
    b: Side = B
    scale_a: Side | None = None  # None: as a, but for what lies in a's own memory; so are scale_b and positions
    scale_b: Side | None = None
    positions: Side | None = None
    tiles: Callable[[int], Sequence[int]] = range  # the K tiles in order, of how many
    tiles_of: Callable[[int, int, int], Sequence[int]] | None = None  # (y, x, count): of one block
    splits: int = 1
    in_turn: bool = False  # splits take the K tiles in turn
    kept: Callable[[int], Sequence[int]] = range  # the splits that are added up, of how many
    restart: bool = False  # each K tile starts from zero
    start: str = "c"  # what the accumulator begins with: c, zero, or run (an earlier result)
    c_late: float = 0.0  # times c added at the end
    c_right: bool = False  # c is read at the output's own place, wherever that is stored
    store_block: Callable[[Ints, Ints], tuple[Ints, Ints]] = lambda y, x: (y, x)
    store_warp: Callable[[Ints, Ints], tuple[Ints, Ints]] = lambda i, j: (i, j)
    store_lane: Callable[[Ints, Ints], tuple[Ints, Ints]] = lambda r, c: (r, c)  # inside a warp's tile
    store: Callable[[Ints, Ints], tuple[Ints, Ints]] = lambda r, c: (r, c)
    silent: Callable[[Ints, Ints, Ints, Ints], npt.NDArray[np.bool_]] | None = None  # (y, x, i, j): who stores nothing
    grid: Callable[[int, int], tuple[int, int]] = lambda y, x: (y, x)
    epilogue: Callable[[Any], Any] = lambda d: d
    fill: int = 0  # what lay in the output

    def run(self, given: Operands) -> Any:
        """The output: codes (M, N)."""
        tile, machine = self.tile, self.machine
        m, n, k = given.a.shape[0], given.b.shape[1], given.b.shape[0]
        across = self.grid(-(-m // tile.bm), -(-n // tile.bn))
        y, x, i, j = (
            axis.reshape(-1)
            for axis in np.meshgrid(*map(np.arange, (*across, tile.warps_m, tile.warps_n)), indexing="ij")
        )
        count = -(-k // tile.bk)
        out = np.full((m, n), self.fill, machine.formats["d"].dtype)
        rows, columns = self._stored(y, x, i, j)
        inside = (rows >= 0) & (rows < m) & (columns >= 0) & (columns < n)
        at = replace(self, **_STORE)._stored(y, x, i, j) if self.c_right else (rows, columns)
        known = (at[0] >= 0) & (at[0] < m) & (at[1] >= 0) & (at[1] < n)
        c = np.where(known, given.c[np.where(known, at[0], 0), np.where(known, at[1], 0)], given.c.dtype.type(0))
        total = None
        for split in self.kept(self.splits):
            chunk = -(-count // self.splits)
            own = (
                range(count)[split :: self.splits]
                if self.in_turn
                else range(count)[split * chunk : (split + 1) * chunk]
            )
            part = np.zeros_like(c) if split or self.start == "zero" else c
            if self.start == "run":
                part = self._accumulate(given, y, x, i, j, part, own)
            part = self._accumulate(given, y, x, i, j, part, own)
            total = part if total is None else self._sum(total, part)
        if self.c_late:
            total = self._sum(total, encode(self.c_late * decode(c, machine.formats["c"]), machine.formats["d"]))
        if self.silent is not None:
            inside = inside & ~self.silent(y, x, i, j)[:, None, None]
        for place in range(len(y)):  # later blocks and warps overwrite earlier ones
            here = inside[place]
            out[rows[place][here], columns[place][here]] = total[place][here]
        return self.epilogue(out)

    def _sum(self, first: Any, second: Any) -> Any:
        format = self.machine.formats["d"]
        if format.kind != "float":
            return first + second
        return encode(decode(first, format) + decode(second, format), format)

    def _stored(self, y: Ints, x: Ints, i: Ints, j: Ints) -> tuple[Ints, Ints]:
        (bm, wm), (bn, wn) = self.tile.side("a"), self.tile.side("b")
        by, bx = self.store_block(y, x)
        wi, wj = self.store_warp(i, j)
        r, c = self.store_lane(*np.meshgrid(np.arange(wm), np.arange(wn), indexing="ij"))
        rows = (by * bm + wi * wm)[:, None, None] + r
        columns = (bx * bn + wj * wn)[:, None, None] + c
        return self.store(rows, columns)

    def _accumulate(self, given: Operands, y: Ints, x: Ints, i: Ints, j: Ints, total: Any, tiles: range) -> Any:
        machine = self.machine
        start = total
        listed = [tiles[t] for t in self.tiles(len(tiles)) if t < len(tiles)]
        for number, kt in enumerate(listed):
            if self.restart and number:
                total = np.zeros_like(start)
            for step in range(self.tile.bk // machine.shape[2]):
                total = self._step(given, (y, x, i, j), total, kt, step)
        return total

    def _step(self, given: Operands, place: tuple[Ints, Ints, Ints, Ints], total: Any, kt: int, step: int) -> Any:
        machine = self.machine
        share = machine.shape[2] // machine.kept  # 2 of a sparse instruction
        a, at_a, k_a = self._fetch("a", self.a, given.a, share, place, kt, step)
        b, _, k_b = self._fetch("b", self.b, given.b.T, 1, place, kt, step)
        b = np.swapaxes(b, 1, 2)
        formats = (machine.formats["a"], machine.formats["b"], machine.formats["c"])
        if self.tiles_of is not None:
            count = -(-given.b.shape[0] // self.tile.bk)
            used = np.array([kt in self.tiles_of(int(v), int(u), count) for v, u in zip(*place[:2], strict=True)])
            a = np.where(used[:, None, None], a, a.dtype.type(0))
        scales = {}
        if machine.blocks:
            for name, side, own, length in (
                ("scale_a", self.scale_a or apart(self.a), given.scale_a, machine.block),
                ("scale_b", self.scale_b or apart(self.b), given.scale_b.T, machine.block),
            ):
                codes, _, _ = self._fetch(name[-1], side, np.repeat(own, length, axis=1), 1, place, kt, step)
                codes = codes[:, :, ::length]
                scales[name] = (codes if name == "scale_a" else np.swapaxes(codes, 1, 2), machine.formats["scale"])
        if machine.sparsity is not None:
            where, _, _ = self._fetch("a", self.positions or apart(self.a), given.positions, share, place, kt, step)
            chosen = np.take_along_axis(
                b[:, None], machine.sparsity.columns(where)[..., None], axis=2
            )  # (T, rows, kept, columns)
            flat = machine.lowering.run(
                a.reshape(-1, 1, a.shape[2]),
                chosen.reshape(-1, *chosen.shape[2:]),
                total.reshape(-1, 1, total.shape[2]),
                formats,
            )
            return flat.reshape(total.shape)
        return machine.lowering.run(a, b, total, formats, scales)

    def _fetch(
        self, name: str, side: Side, codes: Any, share: int, place: tuple[Ints, Ints, Ints, Ints], kt: int, step: int
    ) -> tuple[Any, Ints, Ints]:
        """What one step of each warp reads of an operand's rows (rows, K): (T, rows of a warp, k); zeros outside."""
        right = A if name == "a" else B
        found, row, k = self._read(name, side, codes, share, place, kt, step)
        if side.only is None:
            return found, row, k
        fine, _, _ = self._read(name, right, codes, share, place, kt, step)
        y, x = place[:2]
        return np.where(side.only(y, x, kt)[:, None, None], found, fine), row, k

    def _read(
        self, name: str, side: Side, codes: Any, share: int, place: tuple[Ints, Ints, Ints, Ints], kt: int, step: int
    ) -> tuple[Any, Ints, Ints]:
        y, x, i, j = place
        size, own = self.tile.side(name)
        width = self.machine.shape[2] // share
        local = side.warp(i, j)[:, None] * (side.warp_step or own) + side.fragment(np.arange(own))  # (T, rows)
        column = (np.arange(width) + int(side.inner(step) * width))[None, None]
        row, k = side.shared(*np.broadcast_arrays(local[..., None], column))
        written = (row >= 0) & (k >= 0) & (row < size) & (k < self.tile.bk // share)
        row = row + (side.block(y, x) * (side.step or size) + side.offset)[:, None, None]
        k = k + side.stage(kt) * (self.tile.bk // share)
        row, k = side.memory(row, k)
        inside = written & (row >= 0) & (row < codes.shape[0]) & (k >= 0) & (k < codes.shape[1])
        found = codes[np.where(inside, row, 0), np.where(inside, k, 0)]
        return np.where(inside, found, codes.dtype.type(0)), row, k


_STORE = {item.name: item.default for item in fields(Kernel) if item.name.startswith("store")}
