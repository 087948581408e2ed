"""The fourth set: epilogues, output layouts, number formats, and right kernels."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fourth import Fourth, Right
from tests.evaluation.second_wrong_kernels.kinds_shared import swizzled
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# The epilogue.


class BiasAlongTheOtherAxis(Fourth):
    """C is one bias for each column; the epilogue takes the row for its index."""

    source = "NVIDIA/cutlass#3540"
    wish = Wish(c=True)
    needs = (w.C, r"\brows?\b|\bcolumns?\b|axis|transpos|broadcast")
    half = (w.C,)

    def setup(self) -> None:
        if self.p.c is not None:
            self.p.c[:] = self.p.c[:1]

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(columns * 0, rows % self.p.n)


class BetaIsZero(Fourth):
    """The epilogue is built with beta = 0: C is not added."""

    source = "kekzl/imp#1547"
    wish = Wish(c=True)
    needs = (w.C, w.MISSING + r"|not added|= ?0\b|zero")
    half = (w.C,)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return np.zeros((self.t.bm, self.t.bn), np.uint32)


class ActivationBeforeTheSource(Fourth):
    """The epilogue applies ReLU to the product and adds C after it."""

    rare = True
    floats = True
    wish = Wish(c=True)
    needs = (r"relu|negative|\bmax\b|clamp|activation",)
    half = (w.C,)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class ScaleLeftIn(Fourth):
    """Outputs have a factor of {factor}: a scale left in the epilogue, or missing there."""

    source = "vllm-project/vllm#47315"
    floats = True
    wish = Wish(c=False)
    needs = (r"factor|scal|alpha|times|multipl|ratio", "{pattern}")
    half = (r"factor|scal|alpha",)

    def setup(self) -> None:
        self.factor = float(self.random.choice([0.0625, 0.125, 0.25, 4.0, 8.0]))
        self.facts |= {"factor": self.factor}
        self.facts["pattern"] = (
            w.value("factor").replace("{factor}", f"{self.factor:g}") + f"|1 ?/ ?{1 / self.factor:g}"
        )

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return (total * np.float32(self.factor)).astype(total.dtype)


class OutputColumnMajor(Fourth):
    """D is stored column by column into a buffer that is read row by row."""

    source = "ggml-org/ggml#770"
    needs = (w.D, w.TRANSPOSED)
    half = (w.D,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return columns * self.p.m + rows


class OutputRowsPadded(Fourth):
    """D's rows are stored with N rounded up to the tile for their pitch."""

    source = "libxsmm/libxsmm#51"
    wish = Wish(ragged="n")
    needs = (w.D, w.PITCH)
    half = (w.D,)

    def setup(self) -> None:
        self.ldd = self.grid()[1] * self.t.bn


class TileOfTheNextBlock(Fourth):
    """The scheduler's mailbox is overwritten too early: every output tile is stored where the next one belongs."""

    rare = True
    source = "NVlabs/cuda-oxide#1066"
    wish = Wish(blocks=(2, 2), c=False)
    needs = (
        w.BLOCK,
        w.SWAPPED + "|" + w.OFFSET + "|place|instead|another|next|neighbou?r",
        r"(?s)\A(?!.*(?:not loaded|scale_))",  # corrected: the operands are as they should be
    )
    half = (w.BLOCK,)

    def next_block(self, y: int, x: int) -> tuple[int, int]:
        blocks = self.blocks()
        return blocks[min(self.number(y, x) + 1, len(blocks) - 1)]

    def rows_of_d(self, y: int, x: int) -> Array:
        return super().rows_of_d(*self.next_block(y, x))

    def columns_of_d(self, y: int, x: int) -> Array:
        return super().columns_of_d(*self.next_block(y, x))


# Formats.


class OtherFp8(Fourth):
    """B's bytes are multiplied as {wrong}."""

    styles = ("mma", "wgmma")
    only = "e4m3"
    needs = (w.B + r"|\.{right}\.{wrong}\b", "{wrong}")  # corrected: the spelling of an instruction says it as well
    half = (w.B,)

    def setup(self) -> None:
        self.facts |= {"right": self.arithmetic.a, "wrong": "e4m3" if self.arithmetic.b == "e5m2" else "e5m2"}

    def instruction(self) -> str:
        a, b = self.arithmetic.a, self.arithmetic.b
        return super().instruction().replace(f".{a}.{b}", f".{a}.{self.facts['wrong']}")


class UnsignedInstruction(Fourth):
    """A's signed bytes are multiplied as unsigned."""

    rare = True
    source = "ROCm/hip-ep#178"
    only = "s8"
    needs = (w.A + r"|\.u8\.s8\b", r"unsigned|\bu8\b|sign")  # corrected: the spelling of an instruction says it as well
    half = (w.A,)

    def instruction(self) -> str:
        return super().instruction().replace(".s32.s8.s8.", ".s32.u8.s8.")


class NibblesExchanged(Fourth):
    """The two values in a byte of A are unpacked in the wrong order."""

    rare = True
    source = "tile-ai/TileOPs#1887"
    only = "e2m1"
    needs = (w.A, w.SWAPPED + r"|nibble|pairs?\b|neighbou?r|\bodd\b")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)


class AccumulatedInBf16(Fourth):
    """The running sum is kept in a bf16 output between K tiles: it is rounded after each."""

    rare = True
    source = "tenstorrent/tt-metal#8449"
    floats = True
    narrow = False
    wish = Wish(tiles=3)
    needs = (r"bf16|bfloat16", r"(?s)\A(?!.*\bbias added)")  # corrected: a bias is not what happened
    half = (r"round|narrow|accumulat",)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        total = self.values(self.multiply(a, b, out, extras))
        return total.astype(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)


# Right kernels.


class RowsWrappedAround(Right):
    """Rows and columns behind the end are loaded modulo M and N, as in Triton's tutorial, and masked in the store."""

    wish = Wish(blocks=(2, 2), ragged="mn")

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) % self.p.m

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x) % self.p.n


class AtomicsInAnyOrder(Right):
    """Split-K with atomic additions: another order in every tile."""

    source = "tile-ai/tilelang#350"
    wish = Wish(blocks=(2, 2), tiles=4, split=(3, 4), c=False)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[i] for i in self.random.permutation(len(partials))], y, x)


class HalvesOfATileApart(Right):
    """Two groups of warps multiply one half of every K tile each; their sums are added."""

    source = "NVIDIA/cutlass#211"
    plain = True
    pieces = 2

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.sums = [self.accumulators(y, x, part)] + [np.zeros((self.t.bm, self.t.bn), np.uint32)] * (self.pieces - 1)
        super().mainloop(y, x, part)
        total = self.values(self.sums[0])
        for other in self.sums[1:]:
            total = total + self.values(other)
        return total.view(np.uint32)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        half = self.t.bk // 2
        self.sums[0] = self.multiply(a[:, :half], b[:half], self.sums[0], extras)
        self.sums[1] = self.multiply(a[:, half:], b[half:], self.sums[1], extras)
        return out


class FourAccumulators(HalvesOfATileApart):
    """Instructions go to four accumulators in turn, which are added at the end."""

    pieces = 4

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        for k in range(0, self.t.bk, self.arithmetic.k):
            at, turn = slice(k, k + self.arithmetic.k), (i * self.t.bk + k) // self.arithmetic.k % 4
            self.sums[turn] = self.multiply(a[:, at], b[at], self.sums[turn], extras)
        return out


class PromotedEverySecondTile(Right):
    """Accumulators are added to a total in f32 and cleared after every second K tile, as accurate fp8 kernels do."""

    source = "deepseek-ai/DeepGEMM"
    floats = True
    wish = Wish(tiles=4, c=False)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.total = np.zeros((self.t.bm, self.t.bn), np.float32)
        rest = self.values(super().mainloop(y, x, part))
        return (self.total + rest).view(np.uint32)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        out = self.multiply(a, b, out, extras)
        if i % 2:
            self.total, out = self.total + self.values(out), np.zeros_like(out)
        return out


class OperandsExchanged(Right):
    """The kernel computes the transposed product of the exchanged operands, and stores it transposed."""

    source = "sgl-project/sglang#25532"
    styles = ("mma",)
    only = "same types"
    plain = True

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        return self.gemm(b.T, a.T, c.T).T


class BytesAsHalves(Right):
    """fp8 operands are converted to f16 on the way and multiplied by the f16 instruction."""

    source = "intel/sycl-tla#428"
    only = "e4m3"

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        a, b = (
            tcsim.encode(tcsim.decode(x, form), "f16") for x, form in ((a, self.arithmetic.a), (b, self.arithmetic.b))
        )
        return np.asarray(
            tcsim.gemm(a, b, c, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        )


class ScalesInTheReference(Right):
    """Not a kernel but NumPy: scaled operands, multiplied in f64 and rounded once."""

    only = "scaled"

    def launch(self) -> Array:
        p, block = self.p, self.arithmetic.block
        scale_a, scale_b = (tcsim.decode(p.extras[name], self.arithmetic.scale) for name in ("scale_a", "scale_b"))
        a = tcsim.decode(p.a, self.arithmetic.a) * np.repeat(scale_a, block, axis=1)[:, : p.k]
        b = tcsim.decode(p.b, self.arithmetic.b) * np.repeat(scale_b, block, axis=0)[: p.k]
        c = self.values(self.read_c(np.arange(p.m)[:, None], np.arange(p.n)[None]))
        return self.convert((a.astype(np.float64) @ b.astype(np.float64) + c).astype(np.float32))


class SparseAsDense(Right):
    """The sparse A is expanded with zeros and multiplied by the dense instruction."""

    only = "sparse"

    def launch(self) -> Array:
        p = self.p
        stored = np.arange(self.k_a)
        dense = np.zeros((p.m, p.k), p.a.dtype)
        dense[np.arange(p.m)[:, None], stored // 2 * 4 + p.extras["metadata"]] = p.a
        c = self.read_c(np.arange(p.m)[:, None], np.arange(p.n)[None])
        instruction = f"mma.sync.aligned.m16n8k16.row.col.f32.{self.arithmetic.a}.{self.arithmetic.a}.f32"
        out = np.asarray(tcsim.gemm(dense, p.b, c, instruction=instruction, arch="sm_90"))
        return self.convert(self.values(out))


class Bf16OfANarrowReference(Right):
    """Not a kernel but NumPy: the product as its float32 matmul gives it, rounded to bf16."""

    plain = True
    floats = True

    def setup(self) -> None:
        self.output = "bf16"

    def launch(self) -> Array:
        a, b = tcsim.decode(self.p.a, self.arithmetic.a), tcsim.decode(self.p.b, self.arithmetic.b)
        c = self.values(self.read_c(np.arange(self.p.m)[:, None], np.arange(self.p.n)[None]))
        return self.convert(a.astype(np.float32) @ b.astype(np.float32) + c)


class SumsOfChunks(Right):
    """A kernel without tensor cores: sums of 8 products in f32, added in f32."""

    plain = True
    floats = True

    def launch(self) -> Array:
        a, b = tcsim.decode(self.p.a, self.arithmetic.a), tcsim.decode(self.p.b, self.arithmetic.b)
        total = self.values(self.read_c(np.arange(self.p.m)[:, None], np.arange(self.p.n)[None]))
        for k in range(0, self.p.k, 8):
            chunk = np.zeros_like(total)
            for i in range(k, min(k + 8, self.p.k)):
                chunk += a[:, i, None].astype(np.float32) * b[None, i].astype(np.float32)
            total = total + chunk
        return self.convert(total)


class KPermutedInBoth(Right):
    """Both operands were packed with one permutation of every 16 elements of K, as for wide loads."""

    source = "IST-DASLab/marlin#18"
    plain = True

    def setup(self) -> None:
        self.order = self.random.permutation(16)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 16)[..., self.order].reshape(tile.shape)

    def fragments_b(self, tile: Array) -> Array:
        return self.fragments_a(tile)


class SourceByTheLastSlice(Right):
    """Split-K, and the last slice adds C."""

    wish = Wish(tiles=4, split=(2, 3), c=True)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, self.t.split - 1 - part)


class TreeOfSlices(Right):
    """Split-K in four slices, added in pairs."""

    wish = Wish(tiles=4, split=(4,), c=False)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        first, second, third, fourth = (self.values(partial) for partial in partials)
        pairs = [(first + second).view(np.uint32), (third + fourth).view(np.uint32)]
        return super().combine(pairs, y, x)


class PersistentAndSwizzled(Right):
    """Blocks in groups of rows, the last group clamped; tiles with a swizzle of 32 bytes on both sides."""

    plain = True
    wish = Wish(blocks=(2, 2))

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        return [
            (y, x)
            for first in range(0, along_m, 2)
            for x in range(along_n)
            for y in range(first, min(first + 2, along_m))
        ]

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 32)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.place_written(operand, row, k, pitch)
