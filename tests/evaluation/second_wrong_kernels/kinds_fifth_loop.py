"""The fifth set: the K loop, its stages, split-K, and convolutions as GEMMs."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fifth import MOVED, Fifth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Advancing along K.


class OneOperandATileAhead(Fifth):
    """The pointer of {operand} is advanced before the first load, the other's after it: {operand} is one K tile ahead."""

    needs = ("{pattern}", w.STAGE + "|" + w.OFFSET)
    half = (w.STAGE + "|" + w.OFFSET,)

    def setup(self) -> None:
        self.early = self.one_operand()

    def k_of_a(self, tile: int) -> Array:
        return super().k_of_a(tile + (self.early == "a"))

    def k_of_b(self, tile: int) -> Array:
        return super().k_of_b(tile + (self.early == "b"))


class AdvanceByTheOtherStride(Fifth):
    """b_ptr += BK * stride along N instead of along K: each K tile reads B's first rows, BK columns further on."""

    source = "NVIDIA/cutlass#503"
    plain = True
    wish = Wish(majors="km")
    needs = (w.B, w.PITCH + "|" + w.OFFSET + "|advance", w.KTILE + "|tile|step|advance|each")
    half = (w.B,)

    def global_b(self, k: Array, columns: Array) -> Array:
        tile, row = k // self.t.bk, k % self.t.bk
        return self.read("b", row * self.ldb + tile * self.t.bk + columns, self.inside_b(k, columns))


# Stages.


class DrainNotWaited(Fifth):
    """cp.async.wait_group allows {pending} pending groups even when nothing more is committed: the last K tiles are read before they land."""

    source = "tile-ai/tilelang#96"
    wish = Wish(stages=(3, 4), tiles=4)
    needs = (w.KTILE, w.STALE + "|" + w.MISSING, w.LAST)
    half = (w.KTILE, w.LAST)

    def setup(self) -> None:
        self.pending = self.facts["pending"] = self.t.stages - 2

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        landed = count - self.pending
        return i if i < landed else i - self.t.stages if i >= self.t.stages else None


class PhaseBitNeverFlipped(Fifth):
    """The consumer never flips the parity it waits for: after the first round it reads the tile of the round before."""

    source = "tile-ai/tilelang#3087"
    wish = Wish(stages=(2, 3), tiles=4)
    needs = (w.STAGE, w.STALE)
    half = (w.STAGE,)

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return i if i < self.t.stages else i - self.t.stages


class NoBarrierBeforeOverwrite(Fifth):
    """No barrier ends an iteration: the lower half of the block's warps finds the next tile of A in shared memory."""

    source = "tile-ai/tilelang#2613"
    plain = True
    wish = Wish(stages=(1,), warps=(2, 1), tiles=3)
    needs = (w.A, w.STALE + "|" + w.STAGE)
    half = (w.A,)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        tiles, out = self.slice_of(part), self.accumulators(y, x, part)
        for i, tile in enumerate(tiles):
            a = self.tile_a(y, x, tile).copy()
            a[self.t.bm // 2 :] = self.tile_a(y, x, tiles[min(i + 1, len(tiles) - 1)])[self.t.bm // 2 :]
            out = self.step(y, x, i, a, self.tile_b(y, x, tile), out, self.extras(y, x, tile))
        return out


# Split-K.


class SliceRemainderDropped(Fifth):
    """Each of {split} slices takes K tiles / {split}, rounded down: the last K tiles belong to none."""

    source = "ggml-org/llama.cpp#8311"
    wish = Wish(split=(2, 3, 4), tiles=3)
    needs = (w.KTILE, w.MISSING, w.LAST)
    half = (w.KTILE, w.MISSING)

    def setup(self) -> None:
        self.facts["split"] = self.t.split

    def slice_of(self, part: int) -> list[int]:
        each = self.k_tiles() // self.t.split
        return list(range(part * each, (part + 1) * each))


class BetaCInEverySlice(Fifth):
    """Each of {split} slices of K starts from C: C is counted {split} times."""

    source = "NVIDIA/cutlass#424"
    wish = Wish(split=(2, 3), tiles=3, c=True)
    needs = (w.C, w.TWICE + r"|times|(?:every|each|per) (?:slice|part)|factor|scaled|x {split}\b|\b{split} ?(?:x|\*)")
    half = (w.C,)

    def setup(self) -> None:
        self.facts["split"] = self.t.split

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)


class SlicesStoredNotAdded(Fifth):
    """Slices of split-K are stored instead of added: only the last one's share of K remains."""

    source = "ROCm/rocm-libraries#10146"
    wish = Wish(split=(2, 3), tiles=3, c=False)
    needs = (w.SPLIT + "|" + w.KTILE, w.MISSING + "|only")
    half = (w.KTILE,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:], y, x)


class AddedToThePreviousRuns(Fifth):
    """Slices are added atomically to an output that nobody cleared: it holds the sum of {runs} runs."""

    source = "triton-lang/triton#2183"
    wish = Wish(split=(2, 3), c=False)
    needs = (
        r"twice|doubl|tripl|thrice|(?<![\d.]){runs}(?:\.0*)?(?![.\d])",
        r"times|twice|doubl|tripl|thrice|factor|scal|alpha|ratio|accumul|added|clear|\bx\b|\*",
    )
    half = (r"factor|scal|alpha|ratio|accumul",)

    def setup(self) -> None:
        self.runs = self.facts["runs"] = int(self.random.choice([2, 3]))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * total.dtype.type(self.runs)


class PartialsInBf16(Fifth):
    """The slices' sums wait in a workspace of bf16."""

    floats = True
    narrow = False
    wish = Wish(split=(2, 3, 4), tiles=3, integers=False, c=False)
    needs = (r"bf16|bfloat16", r"round|partial|split|slice|precision|workspace|truncat|accumul|convert|stored")
    half = (r"round|precision|partial|split",)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        narrow = [self.values(partial).astype(ml_dtypes.bfloat16).astype(np.float32) for partial in partials]
        return super().combine([partial.view(np.uint32) for partial in narrow], y, x)


# Convolutions.


class FilterInTheOtherOrder(Fifth):
    """K of the implicit GEMM is channels of {taps} taps in A and taps of channels in B: the filter's layout is the other one."""

    source = "modular/modular#6248"
    plain = True
    needs = (w.KTILE, MOVED + "|stride|layout")
    half = (w.KTILE,)

    def setup(self) -> None:
        self.taps = self.facts["taps"] = int(self.random.choice([t for t in (3, 4, 9, 16) if self.p.k % t == 0]))

    def k_of_b(self, tile: int) -> Array:
        k = super().k_of_b(tile)
        return np.where(k < self.p.k, k % self.taps * (self.p.k // self.taps) + k // self.taps, k)
