"""The ninth set: mistakes in shared memory, registers, descriptors, Tensor Memory, metadata, scale factors and zero points."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import (
    AGAIN,
    LACK,
    MOVED,
    SCALES,
    Ninth,
    Scaled,
    either,
    everything,
    span,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, KTILE, LAST, PITCH, ROWS, SAME, SWIZZLE, ZERO, A, B

METADATA = r"metadata|positions? of the (?:kept|non-?zero)|sparse ind"


class LowRowsOfAEverywhere(Ninth):
    """The row offset of ldmatrix is pinned to 0: in every 16 rows of A, rows 8-15 are rows 0-7 again."""

    source = "tracel-ai/cubek#599"
    styles = ("mma",)
    plain = True
    needs = (A, either(SAME, MOVED), either(r"\b8\b|8-15|0-7|a1|a3|register|quarter|ldmatrix"))

    def fragments_a(self, tile: Array) -> Array:
        rows = np.arange(len(tile))
        return tile[rows - rows % 16 + rows % 8]


class PairsPackedBackwards(Ninth):
    """A's registers are packed with the halves exchanged: k 2i and 2i + 1 change places in A."""

    source = "AMD-Ecosystem/flashinfer#2"
    styles = ("mma",)
    plain = True
    only = "16 bits"
    needs = (
        either(A, B),
        either(r"pair|neighbou?r|half|halves|2i|even|odd|k \^ 1|xor|adjacent", everything(MOVED, KTILE)),
        either(MOVED, r"xor|backward|order"),
    )

    def fragments_a(self, tile: Array) -> Array:
        return tile[:, np.arange(tile.shape[1]) ^ 1]


class SecondAtomReachedLinearly(Ninth):
    """A's tile lies in two swizzle atoms, and the descriptor advances linearly past the first one: the second half of k is the first half, k 0-{last}, of the row below."""

    source = "triton-lang/triton#6220"
    styles = ("wgmma", "tcgen05")
    plain = True
    wish = Wish(whole="k")
    needs = (
        A,
        either(
            r"advance|descriptor|atom|swizzle|row below|next row|one row|lbo|sbo|k step",
            everything(ROWS, MOVED),
            everything(KTILE, MOVED),
        ),
    )

    def setup(self) -> None:
        self.facts = {"last": self.t.bk // 2 - 1}

    def fragments_a(self, tile: Array) -> Array:
        half = tile.shape[1] // 2
        below = np.concatenate([tile[1:, :half], tile[:1, half:]])
        return np.concatenate([tile[:, :half], below], axis=1)


class StrideNotShifted(Ninth):
    """The descriptor's stride byte offset is written in bytes, not in 16 bytes: of the {m} rows of an instruction only the first 8 of A are met, the rest is empty memory."""

    source = "tile-ai/tilelang#813"
    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (
        either(A, ROWS),
        either(ZERO, LACK, r"\bsbo\b|stride"),
        either(r"\bsbo\b|stride|8 rows|first 8|rows 8-|rows? 0-7|core matri|blocks? of 8"),
    )

    def setup(self) -> None:
        self.m = 64 if self.arithmetic.style == "wgmma" else self.t.bm
        self.facts = {"m": self.m}

    def fragments_a(self, tile: Array) -> Array:
        return np.where((np.arange(len(tile)) % self.m < 8)[:, None], tile, 0).astype(tile.dtype)


class PhaseOfBEveryRow(Ninth):
    """B is swizzled with a phase that changes every 2 rows, and read with one that changes every row."""

    source = "ROCm/triton#245"
    styles = ("mma",)
    plain = True
    needs = (B, either(SWIZZLE, r"chunk|16 bytes|phase|xor|shared memory|bank", everything(MOVED, KTILE)))

    def swizzled(self, row: Array, k: Array, pitch: int, each: int) -> Array:
        """The address of an element if the phase changes after so many rows."""
        chunks = pitch // self.chunk
        return row * pitch + ((k // self.chunk) ^ (row // each % min(chunks, 8))) * self.chunk + k % self.chunk

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 2) if operand == "b" else super().place_written(operand, row, k, pitch)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 1) if operand == "b" else super().place_read(operand, row, k, pitch)


class WarpOrderOfARegisters(Ninth):
    """A comes from registers, and its warps were laid out along N first: of every 64 rows of A, 16-31 and 32-47 change places."""

    source = "triton-lang/triton#5030"
    styles = ("wgmma",)
    needs = (either(A, ROWS), MOVED, r"16-31|32-47|16 rows|warp|blocks? of 16")

    def fragments_a(self, tile: Array) -> Array:
        rows = np.arange(len(tile))
        return tile[rows // 64 * 64 + np.array([0, 2, 1, 3])[rows // 16 % 4] * 16 + rows % 16]


class AccumulatorsOverlapInTmem(Ninth):
    """Two accumulators of {half} columns lie {apart} columns apart in Tensor Memory: columns {from}-{to} hold the sum of both, those behind are of columns {apart} later, and the last {apart} nothing."""

    source = "facebookexperimental/triton#943"
    styles = ("tcgen05",)
    wish = Wish(whole="n", c=False)
    needs = (
        COLUMNS,
        either(r"overlap|\bsum\b|plus|added|also|accumulat|as well", everything(MOVED, ZERO), r"tensor memory|tmem"),
    )

    def setup(self) -> None:
        self.facts = {
            **self.columns(0, self.t.bn // 4, self.t.bn // 2),
            "half": self.t.bn // 2,
            "apart": self.t.bn // 4,
        }

    def fragments_d(self, block: Array) -> Array:
        half, apart = self.t.bn // 2, self.t.bn // 4
        memory = np.zeros_like(block)
        memory[:, :half] = block[:, :half]
        memory[:, apart : apart + half] += block[:, half:]
        return memory


class HalfSubpartitionsReadWhole(Ninth):
    """An accumulator of 64 rows fills the low 16 lanes of every 32, and is read as 32 lanes after 32: rows 32-47 hold rows 16-31, and rows 16-31 and 48-63 nothing."""

    source = "tile-ai/tilelang#2877"
    styles = ("tcgen05",)
    needs = (ROWS, either(r"16-31|32-47|48-63|16 rows|16 lanes|lanes?|blocks? of 16"), either(ZERO, MOVED))

    def fragments_d(self, block: Array) -> Array:
        if self.t.bm != 64:
            return block
        memory = np.zeros_like(block)
        memory[:16], memory[32:48] = block[:16], block[16:32]
        return memory


class EpilogueWarpsStartAtTwo(Ninth):
    """The epilogue's warps are 2 to 5, and take lanes by their number modulo 4 but rows by their place: quarters of 32 rows are rotated by 2."""

    source = "NVIDIA/Fuser#4014"
    styles = ("tcgen05",)
    needs = (
        ROWS,
        MOVED,
        either(ROWS, r"lane|quarter|warp"),
        r"\b32\b|\b64\b|64-|0-63|0-31|quarter|half|halves",
    )

    def fragments_d(self, block: Array) -> Array:
        return np.roll(block, 64, axis=0) if self.t.bm == 128 else block


class MetadataOfTheFirstRows(Ninth):
    """The metadata's pointer is not advanced with the block: all blocks of rows use that of rows 0-{last}."""

    source = "vllm-project/vllm#11019"
    only = "sparse"
    wish = Wish(blocks=(2, 1))
    needs = (METADATA, either(SAME, MOVED, r"rows? 0-|first"))

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows % self.t.bm, k)


class SparseTailLost(Ninth):
    """K is not a multiple of the sparse step of {step}: the loop does K // {step} steps, and k {from}-{to} is dropped."""

    source = "tile-ai/tilelang#2605"
    only = "sparse"
    wish = Wish(ragged="k")
    needs = (KTILE, LACK, either(span("from", "to"), everything(KTILE, LAST)))

    def setup(self) -> None:
        step = self.arithmetic.k
        self.facts = {"step": step, "from": self.p.k // step * step, "to": self.p.k - 1}

    def inside_a(self, rows: Array, k: Array) -> Array:
        return super().inside_a(rows, k) & (2 * k < self.facts["from"])


class PackedOffsetHalvedAgain(Ninth):
    """The K offset of A's tiles, in packed bytes already, is halved once more: tile i starts at k = i * {half}."""

    source = "hw-native-sys/PTOAS#1060"
    only = "e2m1"
    needs = (A, either(AGAIN, MOVED, r"advance|stride|half|halv|step"), KTILE)

    def setup(self) -> None:
        self.facts = {"half": self.t.bk // 2}

    def k_of_a(self, tile: int) -> Array:
        return tile * self.bk_a // 2 + np.arange(self.bk_a)


class FirstScalesInEveryStep(Scaled):
    """Every step of a K tile is given the first scale factors of the tile, of A and of B: those of k {from}-{to} are never used."""

    source = "mlc-ai/TIRx-kernels#5"
    needs = (SCALES, either(SAME, MOVED, r"first|never|k \d+-\d+"))

    def setup(self) -> None:
        block = self.arithmetic.block or 32
        self.facts = {"from": block, "to": min(self.t.bk, self.p.k) - 1}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks * 0 + blocks.min())

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks * 0 + blocks.min(), columns)


class TrailingScalesNotApplied(Scaled):
    """The scale factors of the last block of K, k {from}-{to}, are never applied: it counts with 1."""

    source = "pytorch/FBGEMM#6159"
    needs = (
        SCALES,
        either(span("from", "to"), LAST),
        either(LACK, r"not applied|ignor|\b1\b|\bone\b|unscaled|forgotten|absent"),
    )

    def setup(self) -> None:
        self.edge = -(-self.p.k // (self.arithmetic.block or 32)) - 1
        self.facts = {"from": self.edge * (self.arithmetic.block or 32), "to": self.p.k - 1}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, np.where(blocks >= self.edge, 1 << 20, blocks))

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(np.where(blocks >= self.edge, 1 << 20, blocks), columns)


class FlatScales(Scaled):
    """A's scale factors, read from flat memory by an address of the kernel's own."""

    def written(self) -> Array:
        """The memory of A's scale factors."""
        return self.p.extras["scale_a"].ravel()

    def address(self, rows: Array, blocks: Array) -> Array:
        """Where the kernel looks."""
        return rows * self.p.extras["scale_a"].shape[1] + blocks

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        flat, at = self.written(), self.address(rows, blocks)
        own = super().scales_a(rows, blocks)
        inside = (rows < self.p.m) & (blocks < self.p.extras["scale_a"].shape[1]) & (at < len(flat))
        return np.where(inside, flat[np.where(inside, at, 0)], own).astype(own.dtype)


class PitchOfScalesNotPadded(FlatScales):
    """A's scale factors lie in rows padded to {padded}, and are read with a pitch of {valid}."""

    source = "ROCm/aiter#2900"
    needs = (SCALES, A, either(PITCH, r"padded|padding"))

    def setup(self) -> None:
        valid = self.p.extras["scale_a"].shape[1] if self.arithmetic.scale else 4
        self.facts = {"valid": valid, "padded": -(-valid // 4) * 4}

    def written(self) -> Array:
        table = self.p.extras["scale_a"]
        return np.pad(table, ((0, 0), (0, self.facts["padded"] - self.facts["valid"]))).ravel()


class ScalesTakenAsMContiguous(FlatScales):
    """A's scale factors are contiguous along K, and the kernel reads them as contiguous along M."""

    source = "tile-ai/TileOPs#2040"
    needs = (SCALES, A, either(PITCH, r"transpos|major|contiguous|order|layout|along m"))

    def address(self, rows: Array, blocks: Array) -> Array:
        return blocks * self.p.m + rows


class ScaleIndexIsTheIteration(Scaled):
    """The scale factors are indexed by the iteration, as if a K tile were one block: tile i takes block i for all of its {blocks}, in A and in B."""

    source = "tile-ai/TileOPs#1666"
    needs = (SCALES, either(SAME, MOVED, r"index|advance|\bstep\b|half|iteration|k tile|block of k|k \d+-\d+"))

    def setup(self) -> None:
        self.ratio = self.t.bk // (self.arithmetic.block or 32)
        self.facts = {"blocks": self.ratio}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks // self.ratio)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // self.ratio, columns)


class GroupsOfBTwiceAsLarge(Scaled):
    """The group size is built in as {wrong}, B is scaled by groups of {right}: B's odd scale factors along K are never used, the even ones twice."""

    source = "mit-han-lab/llm-awq#21"
    needs = (SCALES, B, either(SAME, MOVED, r"group|pair|even|odd|block size|granular"))

    def setup(self) -> None:
        self.facts = {"right": self.arithmetic.block, "wrong": 2 * self.arithmetic.block}

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 2 * 2, columns)


class ScalesIgnoreTheSlice(Scaled):
    """Split-K: the scale factors are indexed by the iteration within the slice, so that slice 1 takes those of slice 0, from k 0 on instead of k {start}."""

    source = "foundation-model-stack/foundation-model-stack#153"
    wish = Wish(split=(2,), tiles=4)
    needs = (SCALES, either(r"split|slice", SAME, MOVED), either(KTILE, r"slice|split"))

    def setup(self) -> None:
        self.first = 0
        self.facts = {"start": self.slice_of(1)[0] * self.t.bk if self.t.split > 1 else 0}

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.first = self.slice_of(part)[0]
        return super().mainloop(y, x, part)

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        return super().extras(y, x, tile - self.first)


class OffsetOfANotCorrected(Ninth):
    """A was stored as u8 with an offset of 128, and the correction by the sums of B's columns is missing: every output has 128 times the sum of its column of B too much."""

    source = "vllm-project/vllm#5941"
    only = "s8"
    needs = (
        r"zero.?point|128|constant|column",
        either(
            everything(A, r"zero.?point|\boffset\b|\+ ?128|128 (?:added|more|too)|unsigned|u8|constant"),
            r"sums? of (?:the |its |their )?(?:column|b\b)|column sums|sum over k of b",
        ),
    )

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        b = self.p.b.view(np.int8).astype(np.int32)
        return total + 128 * b.sum(axis=0)[np.minimum(columns, self.p.n - 1)]


class ZeroPointOfBTwice(Ninth):
    """B's zero point, {zero}, is part of the stored weights already and is subtracted again: every output lacks {zero} times the sum of its row of A."""

    source = "mit-han-lab/llm-awq#321"
    only = "s8"
    needs = (
        r"zero.?point|constant|\brow",
        either(
            everything(B, r"zero.?point|\boffset\b|- ?{zero}\b|constant"),
            r"sums? of (?:the |its |their )?(?:row|a\b)|row sums|sum over k of a",
        ),
    )

    def setup(self) -> None:
        self.facts = {"zero": int(self.random.choice([3, 7, 8, 16]))}

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        a = self.p.a.view(np.int8).astype(np.int32)
        return total - self.facts["zero"] * a.sum(axis=1)[np.minimum(rows, self.p.m - 1)]
