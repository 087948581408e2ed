"""The sixth set: kernels without a mistake, that add, cut, store and convert in other ways."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_sixth import RightSixth
from tests.evaluation.second_wrong_kernels.kinds_sixth_tensor import Swizzles
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class LoopFromTheEnd(RightSixth):
    """The loop runs over K from its end."""

    wish = Wish(tiles=3)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[::-1]


class SlicesFromTheEnd(RightSixth):
    """Slices of split-K are added from the last."""

    wish = Wish(split=(2, 3, 4), tiles=4)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class SlicesAsATree(RightSixth):
    """Four slices of split-K are added two and two."""

    wish = Wish(split=(4,), tiles=4)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        first, second, third, fourth = (self.values(partial) for partial in partials)
        return self.epilogue(
            (first + second) + (third + fourth), self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None]
        )


class SlicesInAnyOrder(RightSixth):
    """Every block adds its slices of split-K by atomics, in an order of its own."""

    wish = Wish(split=(3, 4), tiles=4)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[i] for i in self.random.permutation(len(partials))], y, x)


class SlicesInterleaved(RightSixth):
    """Slice i of split-K takes every split-th K tile, from i on."""

    wish = Wish(split=(2, 3), tiles=4)

    def slice_of(self, part: int) -> list[int]:
        return list(range(part, self.k_tiles(), self.t.split))


class SlicesOfStreamK(RightSixth):
    """Two slices of K are cut where a CTA's share of the work ends."""

    wish = Wish(split=(2,), tiles=4)

    def setup(self) -> None:
        self.cut = int(self.random.integers(1, self.k_tiles()))

    def slice_of(self, part: int) -> list[int]:
        return list(range(self.cut, self.k_tiles()) if part else range(self.cut))


class WrittenAsF16(RightSixth):
    """D is f16."""

    floats = True

    def setup(self) -> None:
        self.output = "f16"


class WrittenAsBf16(RightSixth):
    """D is bf16."""

    floats = True

    def setup(self) -> None:
        self.output = "bf16"


class BiasInTheEpilogue(RightSixth):
    """C is added in the epilogue, after split-K."""

    wish = Wish(split=(1, 2), c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class BlocksInGroups(RightSixth):
    """Blocks run in groups of two rows of the grid, the last one clamped."""

    wish = Wish(blocks=(2, 2))

    def blocks(self) -> list[tuple[int, int]]:
        (along_m, along_n), group = self.grid(), 2
        out = []
        for pid in range(along_m * along_n):
            first = pid // (group * along_n) * group
            height = min(along_m - first, group)
            out.append((first + pid % (group * along_n) % height, pid % (group * along_n) // height))
        return out


class PaddedForBoth(RightSixth):
    """Rows in shared memory are padded by 16 bytes, for the writer and the reader."""

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk) + k

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk) + k


class SwizzledForBoth(Swizzles, RightSixth):
    """Tiles are swizzled for the writer and the reader."""

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(row, k, pitch)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(row, k, pitch)


class PromotedInEveryTile(RightSixth):
    """Every K tile starts from zero, and is added to the sums outside the tensor cores."""

    wish = Wish(tiles=3)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        fresh = super().step(y, x, i, a, b, np.zeros_like(out), extras)
        return (self.values(out) + self.values(fresh)).view(np.uint32)


class ProductOfTheTransposed(RightSixth):
    """The kernel computes the transposed product from B and A: its instruction's M is D's N."""

    plain = True
    only = "same types"

    def gemm(self, a: Array, b: Array, c: Array, **extras: Array) -> Array:
        turned = [np.ascontiguousarray(np.swapaxes(operand, -1, -2)) for operand in (b, a, c)]
        return np.swapaxes(super().gemm(*turned), -1, -2)


class KInAnotherOrderInBoth(RightSixth):
    """Elements of K lie in shared memory in another order, the same for A and B."""

    plain = True

    def setup(self) -> None:
        self.hit, self.order = "ab", self.random.permutation(self.t.bk)

    def seen(self, tile: Array) -> Array:
        return tile[:, self.order]


class NoMultiplesOfTheTile(RightSixth):
    """M, N and K are no multiples of the tile: zeros are loaded, and nothing is stored, beyond them."""

    wish = Wish(ragged="mnk", blocks=(2, 2))


class ClampWithoutEffect(RightSixth):
    """The epilogue clamps D to the largest of f16."""

    wish = Wish(c=False)
    floats = True

    def setup(self) -> None:
        self.output = "f32"

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.clip(total, np.float32(-65504), np.float32(65504))
