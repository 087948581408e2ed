"""A GEMM kernel as one writes it for CUDA, in NumPy: blocks, stages of shared memory, warps, split-K, epilogue.

A mistake is a subclass that gets one method wrong.
"""

from __future__ import annotations

from typing import Any, ClassVar

import ml_dtypes
import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels.problem import Arithmetic, Array, Problem, Tiling, Wish


class Kernel:
    """d = a b + c. Every method is a line or two of the kernel; indices are arrays that broadcast."""

    # What the generator and the judge need to know of a kind. `needs`: patterns that a right report contains, all of them.
    # `equal`: patterns of another explanation that the data cannot tell apart, and that is as right.
    # `half`: patterns of a report that has the place right and the mistake wrong.
    wish: ClassVar[Wish] = Wish()
    styles: ClassVar[tuple[str, ...]] = ("mma", "wgmma", "tcgen05")
    plain: ClassVar[bool] = False  # no sparse and no block-scaled instructions
    floats: ClassVar[bool] = False
    only: ClassVar[str] = ""  # "sparse", "scaled", or a format of a
    needs: ClassVar[tuple[str, ...]] = ()
    equal: tuple[str, ...] = ()
    half: ClassVar[tuple[str, ...]] = ()
    correct: ClassVar[bool] = False
    narrow: ClassVar[bool] = True  # may write f16 or bf16

    def __init__(self, problem: Problem, tiling: Tiling, random: np.random.Generator) -> None:
        p, t = problem, tiling
        self.p, self.t, self.random = p, t, random
        self.arithmetic: Arithmetic = p.arithmetic
        self.bits = p.arithmetic.bits
        self.chunk = 128 // self.bits  # elements in 16 bytes
        self.thin = 2 if p.arithmetic.sparse else 1  # elements of K per stored element of A
        self.k_a = p.k // self.thin
        self.bk_a = t.bk // self.thin
        self.memory = {
            "a": (p.a if t.a_major == "k" else p.a.T).ravel(),
            "b": (p.b.T if t.b_major == "k" else p.b).ravel(),
        }
        self.lda = self.k_a if t.a_major == "k" else p.m
        self.ldb = p.k if t.b_major == "k" else p.n
        self.ldd = p.n
        self.pointer = {"a": 0, "b": 0, "d": 0}
        self.blank = float("nan") if random.random() < 0.2 and p.arithmetic.d == "f32" else 0.0
        self.output = (
            str(random.choice(["f32", "f16", "bf16"], p=[0.75, 0.15, 0.1]))
            if self.narrow and p.arithmetic.d == "f32"
            else p.arithmetic.d
        )
        self.c_late = False  # whether C is added in the epilogue
        self.facts: dict[str, Any] = {}
        self.setup()

    def setup(self) -> None:
        """Draw what the mistake leaves open."""

    # The launch.

    def grid(self) -> tuple[int, int]:
        """Blocks along M and N."""
        return -(-self.p.m // self.t.bm), -(-self.p.n // self.t.bn)

    def blocks(self) -> list[tuple[int, int]]:
        """blockIdx of every block, in the order they finish."""
        along_m, along_n = self.grid()
        return [(y, x) for y in range(along_m) for x in range(along_n)]

    def launch(self) -> Array:
        """The output (M, N): float32, int32, float16 or codes of bf16."""
        dtype = np.int32 if self.arithmetic.d == "s32" else np.float32
        memory = np.full(self.p.m * self.p.n, self.blank, dtype)
        for y, x in self.blocks():
            partials = [self.mainloop(y, x, part) for part in range(self.t.split)]
            self.store(memory, y, x, self.combine(partials, y, x))
        return self.convert(memory.reshape(self.p.m, self.p.n))

    # Where a block works.

    def rows_of_a(self, y: int, x: int) -> Array:
        """Rows of A that block (y, x) loads."""
        return y * self.t.bm + np.arange(self.t.bm)

    def columns_of_b(self, y: int, x: int) -> Array:
        """Columns of B that block (y, x) loads."""
        return x * self.t.bn + np.arange(self.t.bn)

    def rows_of_d(self, y: int, x: int) -> Array:
        """Rows of D that it writes."""
        return y * self.t.bm + np.arange(self.t.bm)

    def columns_of_d(self, y: int, x: int) -> Array:
        """Columns of D that it writes."""
        return x * self.t.bn + np.arange(self.t.bn)

    # Along K.

    def k_tiles(self) -> int:
        """K tiles in all."""
        return -(-self.p.k // self.t.bk)

    def slice_of(self, part: int) -> list[int]:
        """The K tiles of a slice of split-K."""
        each = -(-self.k_tiles() // self.t.split)
        return list(range(part * each, min((part + 1) * each, self.k_tiles())))

    def slot_written(self, operand: str, i: int) -> int:
        """The stage that the copy of the i-th tile goes to."""
        return i % self.t.stages

    def slot_read(self, operand: str, i: int) -> int:
        """The stage that iteration i reads."""
        return i % self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        """How many copies are in shared memory when iteration i computes; the next stages - 1 may be under way."""
        return i + 1

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        """Which copy iteration i finds in its stage; None: nobody has written it."""
        found = None
        for copy in range(min(self.copies_landed(operand, i), count)):
            if self.slot_written(operand, copy) == self.slot_read(operand, i):
                found = copy
        return found

    def k_of_a(self, tile: int) -> Array:
        """Stored columns of A that the copy of a K tile loads."""
        return tile * self.bk_a + np.arange(self.bk_a)

    def k_of_b(self, tile: int) -> Array:
        """Rows of B that it loads."""
        return tile * self.t.bk + np.arange(self.t.bk)

    # Global memory to shared memory to fragments.

    def inside_a(self, rows: Array, k: Array) -> Array:
        """The mask of a load of A."""
        return (rows < self.p.m) & (k < self.k_a)

    def inside_b(self, k: Array, columns: Array) -> Array:
        """The mask of a load of B."""
        return (k < self.p.k) & (columns < self.p.n)

    def read(self, operand: str, address: Array, mask: Array) -> Array:
        """Elements of flat memory; zeros behind its end and where the mask is off."""
        memory = self.memory[operand]
        address = address + self.pointer[operand]
        mask = mask & (address >= 0) & (address < len(memory))
        return np.where(mask, memory[np.where(mask, address, 0)], 0).astype(memory.dtype)

    def global_a(self, rows: Array, k: Array) -> Array:
        """A tile of A as it is copied: rows (bm, 1), k (1, bk)."""
        address = rows * self.lda + k if self.t.a_major == "k" else k * self.lda + rows
        return self.read("a", address, self.inside_a(rows, k))

    def global_b(self, k: Array, columns: Array) -> Array:
        """A tile of B as it is copied: k (bk, 1), columns (1, bn)."""
        address = columns * self.ldb + k if self.t.b_major == "k" else k * self.ldb + columns
        return self.read("b", address, self.inside_b(k, columns))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        """Where in shared memory the copy puts element k of row `row` (a column of B is a row here)."""
        return row * pitch + k

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        """Where ldmatrix or the descriptor looks for it."""
        return row * pitch + k

    def through_shared(self, operand: str, tile: Array) -> Array:
        """A tile (rows, k) after a trip through shared memory."""
        rows, pitch = tile.shape
        row, k = np.arange(rows)[:, None], np.arange(pitch)[None]
        shared = np.zeros(4 * rows * pitch + 4096, tile.dtype)
        shared[self.place_written(operand, row, k, pitch)] = tile
        return shared[self.place_read(operand, row, k, pitch)]

    def fragments_a(self, tile: Array) -> Array:
        """What the multiply sees of a tile of A (bm, bk)."""
        return tile

    def fragments_b(self, tile: Array) -> Array:
        """What the multiply sees of a tile of B, as (bn, bk)."""
        return tile

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        """A's fragments of a K tile."""
        if tile is None:
            return np.zeros((self.t.bm, self.bk_a), self.p.a.dtype)
        loaded = self.global_a(self.rows_of_a(y, x)[:, None], self.k_of_a(tile)[None])
        return self.fragments_a(self.through_shared("a", loaded))

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        """B's fragments of a K tile, (bk, bn)."""
        if tile is None:
            return np.zeros((self.t.bk, self.t.bn), self.p.b.dtype)
        loaded = self.global_b(self.k_of_b(tile)[:, None], self.columns_of_b(y, x)[None])
        return self.fragments_b(self.through_shared("b", np.ascontiguousarray(loaded.T))).T

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        """Metadata or scale factors of a K tile."""
        rows, columns = self.rows_of_a(y, x)[:, None], self.columns_of_b(y, x)[None]
        if self.arithmetic.sparse:
            return {"metadata": self.positions(rows, (tile * self.bk_a + np.arange(self.bk_a))[None])}
        if self.arithmetic.scale:
            block = self.arithmetic.block
            at = (tile * self.t.bk) // block + np.arange(self.t.bk // block)
            return {"scale_a": self.scales_a(rows, at[None]), "scale_b": self.scales_b(at[:, None], columns)}
        return {}

    def positions(self, rows: Array, k: Array) -> Array:
        """Positions of the kept elements; behind the end 0 and 1."""
        table = self.p.extras["metadata"]
        inside = (rows < table.shape[0]) & (k < table.shape[1])
        return np.where(inside, table[np.where(inside, rows, 0), np.where(inside, k, 0)], k % 2).astype(table.dtype)

    def _scales(self, name: str, row: Array, column: Array) -> Array:
        table = self.p.extras[name]
        inside = (row < table.shape[0]) & (column < table.shape[1])
        one = tcsim.encode(1.0, self.arithmetic.scale)
        return np.where(inside, table[np.where(inside, row, 0), np.where(inside, column, 0)], one).astype(table.dtype)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        """Scale factors of A (rows, blocks)."""
        return self._scales("scale_a", rows, blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        """Scale factors of B (blocks, columns)."""
        return self._scales("scale_b", blocks, columns)

    # The multiply.

    def warp_of_a(self, i: Array, j: Array) -> Array:
        """Which warp's rows of A the warp (i, j) multiplies."""
        return i

    def warp_of_b(self, i: Array, j: Array) -> Array:
        """Which warp's columns of B."""
        return j

    def warp_grid(self) -> tuple[Array, Array]:
        """Indices (i, j) of the warps along M and N."""
        i, j = np.mgrid[: self.t.warps[0], : self.t.warps[1]]
        return i, j

    def by_warps(self, block: Array) -> Array:
        """(bm, bn) -> (warps along M, warps along N, rows, columns)."""
        (wm, wn), (bm, bn) = self.t.warps, block.shape
        return block.reshape(wm, bm // wm, wn, bn // wn).swapaxes(1, 2)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        """What the accumulators (bm, bn) of a slice start from: C in the first one."""
        if self.p.c is None or part or self.c_late:
            return np.zeros((self.t.bm, self.t.bn), np.uint32)
        return self.read_c(self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None])

    def read_c(self, rows: Array, columns: Array) -> Array:
        """Codes of C; zeros outside."""
        if self.p.c is None:
            return np.zeros(np.broadcast_shapes(rows.shape, columns.shape), np.uint32)
        inside = (rows < self.p.m) & (columns < self.p.n)
        return np.where(inside, self.p.c[np.where(inside, rows, 0), np.where(inside, columns, 0)], 0).astype(np.uint32)

    def instruction(self) -> str:
        """The multiply's spelling."""
        return self.arithmetic.mnemonic

    def gemm(self, a: Array, b: Array, c: Array, **extras: Array) -> Array:
        """The instruction, over a K tile."""
        idesc = self.arithmetic.idesc
        more = {} if idesc is None else {"idesc": idesc}
        return np.asarray(
            tcsim.gemm(a, b, c, instruction=self.instruction(), arch=self.arithmetic.arch, **extras, **more)
        )

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        """All warps of a block: a (bm, bk), b (bk, bn), c (bm, bn)."""
        (wm, wn), (bm, bn) = self.t.warps, c.shape
        i, j = self.warp_grid()
        at_a, at_b = self.warp_of_a(i, j), self.warp_of_b(i, j)
        if (at_a == i).all() and (at_b == j).all():
            return self.gemm(a, b, c, **extras)
        own = {}
        for name, table in extras.items():
            if name == "scale_b":
                own[name] = np.moveaxis(table.reshape(table.shape[0], wn, bn // wn), 1, 0)[j]
            else:
                own[name] = table.reshape(wm, bm // wm, -1)[i]
        warps_a = a.reshape(wm, bm // wm, -1)[at_a]
        warps_b = np.moveaxis(b.reshape(b.shape[0], wn, bn // wn), 1, 0)[at_b]
        return self.gemm(warps_a, warps_b, self.by_warps(c), **own).swapaxes(1, 2).reshape(bm, bn)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        """The accumulators (bm, bn) of a block after its slice of K."""
        tiles, out = self.slice_of(part), self.accumulators(y, x, part)
        for i, tile in enumerate(tiles):
            at = [self.tile_in_stage(operand, i, len(tiles)) for operand in "ab"]
            a, b = (None if where is None else tiles[where] for where in at)
            out = self.step(y, x, i, self.tile_a(y, x, a), self.tile_b(y, x, b), out, self.extras(y, x, tile))
        return out

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        """Iteration i of the main loop."""
        return self.multiply(a, b, out, extras)

    # The epilogue.

    def values(self, codes: Array) -> Array:
        """Accumulators as numbers."""
        return codes.view(np.int32 if self.arithmetic.d == "s32" else np.float32)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        """The slices' sums, added in ascending order."""
        total = self.values(partials[0])
        for partial in partials[1:]:
            total = total + self.values(partial)
        return self.epilogue(total, self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None])

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        """What is done to the sums of a block before the store."""
        return total

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        """Which warp's place in the output the warp (i, j) writes."""
        return i, j

    def fragments_d(self, block: Array) -> Array:
        """A block (bm, bn) after its registers were stored."""
        return block

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        """Where D's elements go."""
        return rows * self.ldd + columns + self.pointer["d"]

    def inside_d(self, rows: Array, columns: Array) -> Array:
        """The mask of the store."""
        return (rows < self.p.m) & (columns < self.p.n)

    def store(self, memory: Array, y: int, x: int, block: Array) -> None:
        """Registers to global memory, one warp after another."""
        warps = self.by_warps(self.fragments_d(block))
        rows = self.rows_of_d(y, x).reshape(self.t.warps[0], -1)
        columns = self.columns_of_d(y, x).reshape(self.t.warps[1], -1)
        i, j = self.place_of_warps(*self.warp_grid())
        at_rows, at_columns = np.broadcast_arrays(rows[i][..., :, None], columns[j][..., None, :])
        address = self.address_of_d(at_rows, at_columns)
        inside = self.inside_d(at_rows, at_columns) & (address >= 0) & (address < len(memory))
        memory[address[inside]] = warps[inside]

    def convert(self, out: Array) -> Array:
        """The output's type."""
        if self.output == "f16":
            with np.errstate(over="ignore"):
                return out.astype(np.float16)
        if self.output == "bf16":
            return out.astype(ml_dtypes.bfloat16)
        return out
