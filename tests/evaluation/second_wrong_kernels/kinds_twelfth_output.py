"""The twelfth set: mistakes of the epilogue, of C and of the output's format and pitch."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import RELU
from tests.evaluation.second_wrong_kernels.kinds_ninth import either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_twelfth import (
    AGAIN,
    EXCHANGED,
    LACK,
    MOVED,
    SAME,
    UNWRITTEN,
    Twelfth,
    both_ways,
    lines,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, PITCH, TRANSPOSED, C, D, value


class FirstRowOfCInEveryRow(Twelfth):
    """The leading dimension of C is 0: row 0 of C is added to every row."""

    source = "NVIDIA/cutlass#945"
    wish = Wish(c=True)
    needs = (
        C,
        r"row 0|first row|one row|single row|same row|row vector|(?:stride|pitch|ldc|leading dimension).{0,20}\b0\b|bias .{0,20}(?:\bn\b|columns?)|"
        r"broadcast .{0,20}(?:along m|rows?)|c\[0",
    )

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows * 0, columns)


class CTakenColumnByColumn(Twelfth):
    """C is row-major and read as column-major: the element of row i and column j is number i + {m} j of its memory."""

    source = "intel/sycl-tla#656"
    wish = Wish(c=True)
    needs = (
        C,
        either(TRANSPOSED, r"c\.t\b|c\^t|column by column|\bm j\b|j ?\*? ?(?:m\b|{m})|{m} ?\*? ?j"),
    )

    def read_c(self, rows: Array, columns: Array) -> Array:
        if self.p.c is None:
            return super().read_c(rows, columns)
        inside = (rows < self.p.m) & (columns < self.p.n)
        return np.where(inside, self.p.c.ravel()[np.where(inside, rows + self.p.m * columns, 0)], 0).astype(np.uint32)


class NoCInTheRaggedBlocks(Twelfth):
    """The epilogue of the blocks at the edge does not add C: it is missing in columns {from}-{to}."""

    source = "NVIDIA/cutlass#818"
    wish = Wish(blocks=(1, 2), ragged="n", c=True)
    needs = (
        everything(C, either(lines(COLUMNS), r"edge|ragged|last (?:block|tile|columns)|boundary|partial|remainder")),
        either(LACK, UNWRITTEN, r"\bnot\b|beta .{0,20}\b0\b"),
    )

    def setup(self) -> None:
        self.c_late = True
        self.facts = {"from": self.p.n // self.t.bn * self.t.bn, "to": self.p.n - 1}

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        edge = columns >= self.p.n // self.t.bn * self.t.bn
        return np.where(edge, total, total + self.values(self.read_c(rows, columns)))


class PitchOfWholeBlocks(Twelfth):
    """The output is stored with N rounded up to whole blocks as the pitch: {padded} for {n}, so row r is {slack} r places late."""

    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (
        either(D, PITCH, r"\brows?\b"),
        either(value("padded"), value("slack"), r"rounded up|padded|whole (?:blocks|tiles)"),
        either(PITCH, MOVED, r"starts?|begins?|late|drift|slip|further"),
    )

    def setup(self) -> None:
        self.ldd = self.grid()[1] * self.t.bn
        self.facts = {"padded": self.ldd, "slack": self.ldd - self.p.n}


class ActivationBeforeC(Twelfth):
    """A ReLU is applied to the product before C is added: negative products are 0 in a b + c."""

    wish = Wish(c=True)
    needs = (
        RELU,
        r"\bbefore\b|\bthen\b|afterwards|\bafter\b|not (?:on|to|of) c|products?|without c|accumulator|\(a b\)|\ba b\b|max\(a|\+ ?c\b|plus c",
    )

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class Bf16InAnF16Output(Twelfth):
    """The values are rounded to bf16 and their 16 bits lie in an output of f16."""

    source = "thinking-machines-lab/batch_invariant_ops#11"
    floats = True
    needs = (
        either(r"bf16|bfloat", everything(r"upper|high|top|first", r"16 bits|half of the bits|halfword")),
        r"(?<!b)f(?:p|loat)?16|\bhalf\b|binary16",
        r"\bbits?\b|\bcodes?\b|interpret|(?:read|taken|seen|stored) as|viewed?|taken for|format|cast|type",
    )

    def setup(self) -> None:
        self.output = "f16"

    def convert(self, out: Array) -> Array:
        return out.astype(ml_dtypes.bfloat16).view(np.uint16).view(np.float16)


class StagingBufferFilledTooSoon(Twelfth):
    """The second half of a block goes into the staging buffer before the first is stored: columns 0-{low} of every {bn} are columns {half}-{last}."""

    needs = (
        COLUMNS,
        either(span("zero", "low"), value("half"), r"\bhalf\b|halves"),
        either(SAME, AGAIN, r"0-{low}.{0,40}(?:are|is|hold|from|take|stands?|have).{0,30}{half}-", r"overwrit|too soon|too early|barrier"),
    )  # fmt: skip

    def setup(self) -> None:
        half = self.t.bn // 2
        self.facts = {"zero": 0, "half": half, "low": half - 1, "last": self.t.bn - 1}

    def fragments_d(self, block: Array) -> Array:
        half = block.shape[1] // 2
        return np.concatenate([block[:, half:], block[:, half:]], axis=1)


class PairPackedTheOtherWay(Twelfth):
    """The two halves of every packed pair of f16 are the wrong way round: columns 2 j and 2 j + 1 are exchanged."""

    floats = True
    needs = (
        either(COLUMNS, D, r"\bb\b"),
        r"pairs?\b|even|odd|\b2 ?j|half2|neighbou?r|adjacent|1, 0|\^ ?1|every (?:2|two)\b",
        either(EXCHANGED, both_ways("0", "1"), r"wrong way|1, 0|packed"),
    )

    def setup(self) -> None:
        self.output = "f16"

    def fragments_d(self, block: Array) -> Array:
        return block[:, np.arange(block.shape[1]) ^ 1]
