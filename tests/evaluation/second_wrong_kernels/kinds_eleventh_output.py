"""The eleventh set: mistakes of the epilogue: C, activation, staging, output format, store."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import MOVED, RELU, Eleventh, near, place
from tests.evaluation.second_wrong_kernels.kinds_ninth import AGAIN, either, everything
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, PITCH, SAME, SPLIT, TRANSPOSED, C, D, value


class CWithThePaddedPitch(Eleventh):
    """C is read with a leading dimension of {padded}, N rounded up to whole tiles, and not of {n}."""

    source = "ROCm/xla#819"
    wish = Wish(c=True, ragged="n", blocks=(2, 1))
    needs = (C, either(value("padded"), everything(PITCH, r"padded|rounded|too (?:long|wide|large)")))

    def setup(self) -> None:
        self.facts = {"padded": self.padded()[1]}

    def read_c(self, rows: Array, columns: Array) -> Array:
        address = rows * self.padded()[1] + columns
        return super().read_c(address // self.p.n, address % self.p.n)


class CReadColumnMajor(Eleventh):
    """C is read as if it were column-major, with a leading dimension of {m}."""

    source = "ROCm/composable_kernel#546"
    wish = Wish(c=True)
    needs = (C, either(TRANSPOSED, r"column[- ]major", everything(PITCH, value("m"))))

    def read_c(self, rows: Array, columns: Array) -> Array:
        address = columns * self.p.m + rows
        read = super().read_c(address // self.p.n, address % self.p.n)
        return np.where((rows < self.p.m) & (columns < self.p.n), read, 0).astype(np.uint32)


class CInEverySlice(Eleventh):
    """Each of the {split} slices of split-K starts from C: C is added {split} times."""

    source = "textbook"
    wish = Wish(c=True, split=(2, 3), tiles=3)
    needs = (
        C,
        either(
            AGAIN,
            r"(?:every|each|all|per) .{0,20}(?:slice|split|part)",
            r"(?:[x\xd7*] ?|by |beta\W+(?:is |of )?){split}\b|\b{split}(?:\.0)? ?(?:[x\xd7*]|c\b)",
        ),
    )

    def setup(self) -> None:
        self.facts = {"split": self.t.split}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)


class ReluOnEverySlice(Eleventh):
    """The epilogue with its relu runs in each slice of split-K, before the slices are added."""

    source = "triton-lang/triton#643"
    floats = True
    wish = Wish(split=(2, 3), tiles=3, c=False)
    needs = (SPLIT, RELU)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([np.maximum(self.values(partial), 0).view(np.uint32) for partial in partials], y, x)


class StagingOverwrittenBeforeTheStore(Eleventh):
    """The two halves of a block's columns go through one buffer without a barrier: columns 0-{before} are stored as columns {half}-{end}."""

    source = "NVIDIA/Fuser#3960"
    needs = (
        place("half", "end", COLUMNS, r"half|halves|(?<!\d)0\s*-\s*{before}(?!\d)"),
        either(MOVED, SAME, r"overwrit|stored as"),
        r"(?<!\d)0\s*-\s*{before}\b.{0,60}\b{half}\s*-\s*{end}|overwrit|second half|upper half|right half|twice|staging|buffer|missing|lost",
    )

    def setup(self) -> None:
        half = self.t.bn // 2
        self.facts = {"half": half, "before": half - 1, "end": self.t.bn - 1}

    def fragments_d(self, block: Array) -> Array:
        half = block.shape[1] // 2
        return np.concatenate([block[:, half:]] * 2, 1)


class Bf16BitsInAnArrayOfHalves(Eleventh):
    """The outputs are rounded to bf16 and their bits are taken for f16."""

    source = "textbook"
    floats = True
    needs = (r"\bbf16|bfloat16", r"\bf16|\bhalf\b|\bfloat16|fp16")

    def setup(self) -> None:
        self.output = "f16"

    def convert(self, out: Array) -> Array:
        return out.astype(ml_dtypes.bfloat16).view(np.float16)


class DWithThePaddedPitch(Eleventh):
    """D is stored with a leading dimension of {padded}, N rounded up to whole tiles, and not of {n}."""

    source = "textbook"
    wish = Wish(ragged="n", blocks=(2, 1))
    needs = (D, either(value("padded"), near(r"\bd\b|\bldd\b|output|store", PITCH)))

    def setup(self) -> None:
        self.ldd = self.padded()[1]
        self.facts = {"padded": self.ldd}
