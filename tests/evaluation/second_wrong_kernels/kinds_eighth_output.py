"""The eighth set: mistakes of the epilogue, of C, and of the store."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eighth import (
    EXCHANGED,
    FACTOR,
    FROM,
    UNMASKED,
    UNWRITTEN,
    Eighth,
    either,
    everything,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import BLOCK, COLUMNS, PITCH, ROWS, SAME, TRANSPOSED, ZERO, C, D, value

EMPTY = either(UNWRITTEN, ZERO, r"\bnan\b|empty|blank")
NEGATIVE = r"negat|minus|\bsigns?\b|(?<![\d.\w])-1(?:\.0)?\b(?![\d-])|subtract|\bb ?[-\u2212] ?c\b|\bc ?[-\u2212] ?a"


class AlphaUsedForBeta(Eighth):
    """C is multiplied by {alpha}."""

    floats = True
    wish = Wish(c=True)
    needs = (
        C,
        either(everything(either(FACTOR, r"\bbeta"), r"(?<![\d.]){alpha}(?:\.0+)?(?!\.?\d)"), r"{alpha} ?\*? ?c\b"),
    )
    half = (C,)

    def setup(self) -> None:
        self.facts = {"alpha": float(self.random.choice([0.5, 2.0, 0.25, 3.0, -0.5]))}
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return (total + np.float32(self.facts["alpha"]) * self.values(self.read_c(rows, columns))).astype(total.dtype)


class SourceSubtracted(Eighth):
    """C is subtracted instead of added."""

    wish = Wish(c=True)
    needs = (C, NEGATIVE)
    half = (C,)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total - self.values(self.read_c(rows, columns))


class SourceOfColumnZero(Eighth):
    """C is read as a vector, with a column stride of 0: column 0 of C is added to every column of D."""

    source = "openxla/xla#46897"
    wish = Wish(c=True)
    needs = (
        C,
        either("column|vector|broadcast|stride"),
        either(r"broadcast|vector|\b0\b|zero|first column|every column|all columns|same column|ldc"),
    )
    half = (C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows, np.where(columns < self.p.n, 0, columns))


class _FlatC(Eighth):
    """C is found by an address of its own."""

    wish = Wish(c=True)

    def address_of_c(self, rows: Array, columns: Array) -> Array:
        return rows * self.p.n + columns

    def read_c(self, rows: Array, columns: Array) -> Array:
        flat = np.ravel(self.p.c if self.p.c is not None else np.zeros(1, np.uint32))
        address = self.address_of_c(rows, columns)
        inside = (rows < self.p.m) & (columns < self.p.n) & (address >= 0) & (address < len(flat))
        return np.where(inside, flat[np.where(inside, address, 0)], 0).astype(np.uint32)


class LeadingDimensionOfCIsTheTile(_FlatC):
    """C is read with a leading dimension of {ldc} where its rows are {n} long."""

    needs = (C, either(PITCH, r"\bldc\b|rows of"), value("ldc"))
    half = (C,)

    def setup(self) -> None:
        self.facts = {"n": self.p.n, "ldc": self.p.n + int(self.random.choice([-4, 4, 8, 16]))}

    def address_of_c(self, rows: Array, columns: Array) -> Array:
        return rows * self.facts["ldc"] + columns


class SourceInTheOtherOrder(_FlatC):
    """C is read column-major, and is stored row-major."""

    needs = (C, either(TRANSPOSED, "other order|ldc"))
    half = (C,)

    def address_of_c(self, rows: Array, columns: Array) -> Array:
        return columns * self.p.m + rows


class SourceOfTheFirstBlockRow(Eighth):
    """The pointer of C is not advanced along M: each block adds rows 0-{last} of C."""

    wish = Wish(blocks=(2, 1), c=True, whole="m")
    needs = (C, either(ROWS, BLOCK), either(SAME, r"0-{last}(?!\d)|first|not advanced|offset"))
    half = (C,)

    def setup(self) -> None:
        self.facts = {"last": self.t.bm - 1}

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows % self.t.bm, columns)


class SourceOfTheNeighbouringColumn(Eighth):
    """The pointer of C is {by} elements too far: each output adds the C of {by} columns to its right."""

    source = "NVIDIA/cutlass#3540"
    wish = Wish(c=True)
    needs = (C, either(r"offset|shift|pointer|further|moved|right|columns? (?:later|on)|starts|base"), value("by"))
    half = (C,)

    def setup(self) -> None:
        self.facts = {"by": int(self.random.choice([1, 2, 4, 8]))}

    def read_c(self, rows: Array, columns: Array) -> Array:
        wrapped = columns + self.facts["by"]
        return super().read_c(
            rows + wrapped // self.p.n * (columns < self.p.n), np.where(columns < self.p.n, wrapped % self.p.n, columns)
        )


class SourceOnlyWhereTheTileIsWhole(Eighth):
    """C is added in whole blocks alone: in rows {first}-{last}, of the ragged block row, it is missing."""

    source = "NVIDIA/cutlass#818"
    wish = Wish(blocks=(2, 1), ragged="m", c=True)
    needs = (
        C,
        either("without|missing|not added|lack|omit|lost|ignored|zero|forgot|dropped|no c"),
        either(value("first"), r"ragged|last (?:block|tile|rows)"),
    )
    half = (C,)

    def setup(self) -> None:
        self.facts = {"first": self.p.m // self.t.bm * self.t.bm, "last": self.p.m - 1}

    def read_c(self, rows: Array, columns: Array) -> Array:
        return np.where(rows < self.facts["first"], super().read_c(rows, columns), 0).astype(np.uint32)


class ReluBeforeTheSource(Eighth):
    """The ReLU is applied before C is added, and none was asked for: D = max(a b, 0) + C."""

    wish = Wish(c=True)
    needs = (
        r"relu|max\(|negative|clamp|positive",
        either(
            r"before c|before (?:the )?(?:c|bias|source|residual)\b|then c\b|\+ ?c\b|c (?:is )?added (?:after|later)|then add|without c\b|plus c\b",
            everything("relu|max", r"\bc\b"),
        ),
    )
    half = ("relu|negative|clamp",)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class ClampedToSix(Eighth):
    """The epilogue clamps D to 0 and 6."""

    floats = True
    needs = (r"clamp|clip|saturat|limit|relu ?6|at most|\bmin\b|between|bounded", r"\b6\b|relu6|6\.0")
    half = ("relu|clamp|negative",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.clip(total, 0, 6).astype(total.dtype)


class SiluInTheEpilogue(Eighth):
    """The epilogue applies SiLU, x * sigmoid(x), which was not asked for."""

    source = "NVIDIA/TensorRT-LLM#15092"
    floats = True
    needs = (r"silu|swish|sigmoid",)
    half = ("relu|activation|negative|elementwise|function",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return (total.astype(np.float64) / (1 + np.exp(-total.astype(np.float64)))).astype(total.dtype)


class FactorsOfColumns(Eighth):
    """The epilogue multiplies every column by a factor of its own, as for dequantised weights."""

    floats = True
    needs = (r"column|per-channel|along n|\bn\b", r"factor|scal(?:e|ed|es|ing)\b|multiplied by|multiplies|times")
    half = ("factor|scale|column",)

    def setup(self) -> None:
        self.factors = self.random.uniform(0.25, 4, self.p.n + self.t.bn).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * self.factors[columns]


class FactorsOfRows(Eighth):
    """The epilogue multiplies every row by a factor of its own, as the routing weight of a token."""

    source = "ROCm/triton#685"
    floats = True
    needs = (r"\brows?\b|per-token|along m|\bm\b", r"factor|scal(?:e|ed|es|ing)\b|multiplied by|multiplies|times")
    half = ("factor|scale|row",)

    def setup(self) -> None:
        self.factors = self.random.uniform(0.05, 1, self.p.m + self.t.bm).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * self.factors[rows]


class BiasOfRowsAdded(Eighth):
    """A vector of biases, one for each row, is added, and none was asked for."""

    floats = True
    needs = (r"\brows?\b|along m|\bm\b", r"bias|constant|vector|each row|every row|per-row")
    half = ("bias|row",)

    def setup(self) -> None:
        self.bias = (self.random.standard_normal(self.p.m + self.t.bm) * 8).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.bias[rows]


class Negated(Eighth):
    """The immediate that negates B is -1: D = C - a b."""

    styles = ("wgmma",)
    needs = (NEGATIVE,)
    half = (FACTOR,)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return self.values(self.read_c(rows, columns)) - total


class RunTwiceIntoTheSameOutput(Eighth):
    """The kernel adds into D and ran twice, for a warm-up, without clearing it: D is twice what it should be."""

    source = "ROCm/aiter#5310"
    needs = (r"twice|doubled?|(?<![\d.])2(?:\.0)?\b|two times", either(FACTOR, "twice|double|added|accumulat"))
    half = (FACTOR,)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + total


class BitsOfBf16InF16(Eighth):
    """D is converted to bf16 and its bits are stored into an array of f16."""

    floats = True
    needs = (
        r"bf16|bfloat",
        r"\bbits|reinterpret|codes|d?type|viewed|stored as|interpreted|read as|taken (?:for|as)|labell?ed",
    )
    half = ("bf16|type|format",)

    def setup(self) -> None:
        self.output = "f16"

    def convert(self, out: Array) -> Array:
        return np.asarray(out.astype(ml_dtypes.bfloat16)).view(np.float16)


class BitsOfF16InBf16(Eighth):
    """D is converted to f16 and its bits are stored into an array of bf16."""

    floats = True
    needs = (
        r"(?<!b)(?:f16|fp16|float16|half)",
        r"\bbits|reinterpret|codes|d?type|viewed|stored as|interpreted|read as|taken (?:for|as)|labell?ed",
    )
    half = ("f16|type|format",)

    def setup(self) -> None:
        self.output = "bf16"

    def convert(self, out: Array) -> Array:
        return np.asarray(out.astype(np.float16)).view(ml_dtypes.bfloat16)


class QuartersOfDExchanged(Eighth):
    """Accumulators 1 and 2 of each 16x16 are confused: rows 8-15 of columns 0-7 and rows 0-7 of columns 8-15 of D are exchanged."""

    styles = ("mma",)
    wish = Wish(whole="mn")
    needs = (
        either(EXCHANGED, FROM),
        r"\b8\b|8-15|quarter|8x8|register|accumulator",
        either(everything(ROWS, COLUMNS), r"quarter|8 ?(?:x|by|\u00d7) ?8|register|accumulator|fragment"),
    )
    half = (either(D, "rows", "columns"),)

    def fragments_d(self, block: Array) -> Array:
        m, n = block.shape
        return block.reshape(m // 16, 2, 8, n // 16, 2, 8).transpose(0, 4, 2, 3, 1, 5).reshape(m, n)


class ColumnsOfAQuad(Eighth):
    """The two values of a thread are stored 4 columns apart, not next to each other: columns 2q+r of each 8 go to q+4r."""

    styles = ("mma",)
    needs = (COLUMNS, either(EXCHANGED, "interleav|2q|4 columns apart|4 apart"))
    half = ("columns",)

    def fragments_d(self, block: Array) -> Array:
        return block.reshape(len(block), -1, 4, 2).swapaxes(-1, -2).reshape(block.shape)


class EightRowsForgotten(Eighth):
    """All four accumulators are stored in the first row of a thread: rows 0-7 of each 16 hold rows 8-15, which are never written."""

    styles = ("mma",)
    wish = Wish(whole="m")
    needs = (ROWS, r"8-15|\b8\b", either(everything(FROM, EMPTY), r"overwritten|\+ ?8\b"))
    half = ("rows", EMPTY)

    def store(self, memory: Array, y: int, x: int, block: Array) -> None:
        before = memory.copy()
        lower = np.roll(block.reshape(-1, 2, 8, block.shape[1]), 1, axis=1).reshape(block.shape)
        super().store(memory, y, x, lower)
        row = np.arange(len(memory)) // self.p.n
        kept = (row // self.t.bm == y) & (row % 16 >= 8)
        memory[kept] = before[kept]


class HalfOfTheVectorStored(Eighth):
    """Threads hold four columns and store two: columns 2 and 3 of every four of D are never written."""

    needs = (COLUMNS, EMPTY, r"\b2\b|every four|of (?:each|every) 4|2 of 4|half|\b4\b|vector|float2|8 bytes")
    half = ("columns", EMPTY)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % 4 < 2)


class BoxOfTheStoreTooNarrow(Eighth):
    """The TMA store has a box of half the tile: columns {half}-{last} of each {bn} of D are never written."""

    styles = ("wgmma", "tcgen05")
    needs = (COLUMNS, EMPTY, either(value("half"), "half|box"))
    half = ("columns", EMPTY)

    def setup(self) -> None:
        self.facts = {"half": self.t.bn // 2, "last": self.t.bn - 1, "bn": self.t.bn}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % self.t.bn < self.t.bn // 2)


class ColumnsComparedWithM(Eighth):
    """The mask of the store compares columns with M: columns {m}-{last} of D are never written."""

    wish = Wish(blocks=(1, 4))
    styles = ("mma",)
    needs = (either(COLUMNS), EMPTY, value("m"))
    half = ("columns", EMPTY)

    def setup(self) -> None:
        self.facts = {"m": self.p.m, "last": self.p.n - 1}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns < self.p.m)


class StoredBeyondTheRow(Eighth):
    """The store has no mask for columns: the zeros beyond N = {n} overwrite the first {over} columns of the next row."""

    wish = Wish(ragged="n", blocks=(1, 2))
    needs = (
        either(COLUMNS, UNMASKED),
        either(UNMASKED, "overwrit", everything(ZERO, either(value("over"), r"\b0-{end}(?!\d)"))),
    )
    half = ("columns", ZERO)

    def setup(self) -> None:
        over = self.grid()[1] * self.t.bn - self.p.n
        self.facts = {"n": self.p.n, "over": over, "end": over - 1}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return rows < self.p.m


class OutputInColumnOrder(Eighth):
    """D is stored column-major where row-major was asked for."""

    source = "NVIDIA/cutlass#1150"
    needs = (either(D, r"\btranspos"), TRANSPOSED)
    half = (TRANSPOSED,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return np.where((rows < self.p.m) & (columns < self.p.n), columns * self.p.m + rows, -1)


class StagedWithOtherPitch(Eighth):
    """D goes through shared memory, written with rows of {written} and read with rows of {bn}: blocks of D are sheared."""

    needs = (
        either(D, BLOCK),
        either(PITCH, "shear|rows of|staged|shared"),
        either(value("written"), value("bn"), value("pad")),
    )
    half = (either(D, PITCH),)

    def setup(self) -> None:
        pad = int(self.random.choice([4, 8]))
        self.facts = {"bn": self.t.bn, "written": self.t.bn + pad, "pad": pad}

    def fragments_d(self, block: Array) -> Array:
        m, n = block.shape
        shared = np.zeros(m * self.facts["written"], block.dtype)
        shared[(np.arange(m)[:, None] * self.facts["written"] + np.arange(n)).ravel()] = block.ravel()
        return shared[np.arange(m)[:, None] * n + np.arange(n)]


class StagedBeforeAllHadRead(Eighth):
    """D is staged in the memory of the operands without a barrier: the upper rows of each tile are lost, rows 0-{last} of D hold rows {half}-{end}."""

    source = "KnowingNothing/MatmulTutorial#13"
    wish = Wish(whole="m")
    needs = (ROWS, either(value("half"), r"half|halves"), either(FROM, SAME, "overwritten"))
    half = ("rows",)

    def setup(self) -> None:
        self.facts = {"last": self.t.bm // 2 - 1, "half": self.t.bm // 2, "end": self.t.bm - 1}

    def fragments_d(self, block: Array) -> Array:
        return np.concatenate([block[len(block) // 2 :]] * 2)


class GateAndUpInterleaved(Eighth):
    """Columns of each tile of {bn} are stored interleaved: the left half of D goes to the even columns, the right half to the odd."""

    wish = Wish(whole="n")
    needs = (
        COLUMNS,
        either("interleav|even|odd|shuffl|stride 2", everything(EXCHANGED, either(value("bn"), value("half"), "half"))),
    )
    half = ("columns",)

    def setup(self) -> None:
        self.facts = {"bn": self.t.bn, "half": self.t.bn // 2}

    def fragments_d(self, block: Array) -> Array:
        return block.reshape(len(block), 2, -1).swapaxes(1, 2).reshape(block.shape)


class BlocksOneColumnToTheRight(Eighth):
    """The pointer of D is {by} elements too far: every output lies {by} columns to the right, into the next row."""

    needs = (either(D, COLUMNS), either("offset|shift|pointer|moved|right|further|start"), value("by"))
    half = (either(D, "columns"),)

    def setup(self) -> None:
        self.facts = {"by": int(self.random.choice([1, 2, 4]))}
        self.pointer["d"] = self.facts["by"]
