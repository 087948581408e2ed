"""Kernels without a mistake: their outputs are the model's, or differ from it by rounding alone."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.kinds_shared import swizzled
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class Correct(Kernel):
    """Nothing is wrong."""

    correct = True


class Plain(Correct):
    """The model's order, f32 outputs."""

    narrow = False


class Ragged(Correct):
    """M, N and K are not multiples of the tiles."""

    wish = Wish(blocks=(2, 2), ragged="mnk")


class HalfOutput(Correct):
    """Outputs are rounded to f16."""

    floats = True

    def setup(self) -> None:
        self.output = "f16"


class Bf16Output(Correct):
    """Outputs are rounded to bf16."""

    floats = True

    def setup(self) -> None:
        self.output = "bf16"


class Integers(Correct):
    """Bytes, summed exactly."""

    only = "s8"


class Sparse(Correct):
    """2:4 sparse A."""

    only = "sparse"


class Scaled(Correct):
    """Block scales."""

    only = "scaled"


class Blackwell(Correct):
    """tcgen05.mma."""

    styles = ("tcgen05",)


class Swizzled(Correct):
    """Shared memory is swizzled on both sides."""

    wish = Wish(span=128)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128)


class Padded(Correct):
    """Shared memory has padded rows on both sides."""

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk) + k

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk) + k


class SplitK(Correct):
    """Split-K, partials added in ascending order."""

    wish = Wish(tiles=4, split=(2, 3, 4))


class SplitKDescending(Correct):
    """Split-K, partials added as the last blocks finish first."""

    wish = Wish(tiles=4, split=(3, 4), c=False)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class SplitKUneven(Correct):
    """Stream-K: a slice of K ends in the middle, at different places for different tiles."""

    wish = Wish(blocks=(1, 2), tiles=4, split=(2,))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.cut = 1 + (y + x) % 3
        return super().mainloop(y, x, part)

    def slice_of(self, part: int) -> list[int]:
        cut = getattr(self, "cut", 1)
        return list(range(cut)) if part == 0 else list(range(cut, self.k_tiles()))


class Promoted(Correct):
    """Every K tile has a fresh accumulator, which is added to the total in f32."""

    wish = Wish(tiles=3, c=False)
    floats = True

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        fresh = self.values(self.multiply(a, b, np.zeros_like(out), extras))
        return (self.values(out) + fresh).astype(np.float32).view(np.uint32)


class SlicedAmongWarps(Correct):
    """Two warps take every other K tile; their sums are added."""

    wish = Wish(tiles=4, split=(2,))

    def slice_of(self, part: int) -> list[int]:
        return list(range(part, self.k_tiles(), 2))


class CInTheEpilogue(Correct):
    """C is added to the finished sum."""

    wish = Wish(c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class Descending(Correct):
    """The loop over K runs from the last tile to the first."""

    wish = Wish(tiles=3)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[::-1]


class SameOrderInBoth(Correct):
    """Pairs along K are swapped in both operands."""

    only = "16 bits"
    plain = True

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)

    def fragments_b(self, tile: Array) -> Array:
        return self.fragments_a(tile)


class ShorterInstruction(Correct):
    """m16n8k8 where the report is asked about m16n8k16."""

    styles = ("mma",)
    only = "16 bits"
    plain = True

    def instruction(self) -> str:
        return super().instruction().replace("m16n8k16", "m16n8k8")


class Reference(Correct):
    """Not a kernel but NumPy: the product in float64, rounded to the output."""

    plain = True

    def decoded(self, codes: Array, format: str) -> Array:
        return tcsim.decode(codes, format).astype(np.float64)

    def product(self, a: Array, b: Array, c: Array) -> Array:
        return a @ b + c

    def launch(self) -> Array:
        a, b = self.decoded(self.p.a, self.arithmetic.a), self.decoded(self.p.b, self.arithmetic.b)
        c = self.values(self.read_c(np.arange(self.p.m)[:, None], np.arange(self.p.n)[None])).astype(np.float64)
        total = self.product(a, b, c)
        return self.convert(total.astype(np.int32 if self.arithmetic.d == "s32" else np.float32))


class FloatReference(Reference):
    """The product as NumPy's float32 matmul gives it."""

    floats = True

    def product(self, a: Array, b: Array, c: Array) -> Array:
        return a.astype(np.float32) @ b.astype(np.float32) + c.astype(np.float32)


class ChainOfFma(Reference):
    """A kernel without tensor cores: one fused multiply-add after another in f32."""

    floats = True
    wish = Wish(tiles=1)

    def product(self, a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.float32)
        for k in range(a.shape[1]):
            total = (a[:, k, None] * b[None, k] + total.astype(np.float64)).astype(np.float32)
        return total


class TreeOfSums(Reference):
    """Products in f32, added in a tree."""

    floats = True

    def product(self, a: Array, b: Array, c: Array) -> Array:
        terms = (a.T[:, :, None] * b[:, None, :]).astype(np.float32)
        while len(terms) > 1:
            if len(terms) % 2:
                terms = np.concatenate([terms, np.zeros_like(terms[:1])])
            terms = terms[0::2] + terms[1::2]
        return terms[0] + c.astype(np.float32)
