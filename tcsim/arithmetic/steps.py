"""The steps that an instruction lowers to: fused dot-adds, ordinary arithmetic, integer dots.

A `Lowering` is what really runs on an arch for a mnemonic: its steps read and write named values (`a`, `b`, `c`, and
results such as `acc` and `d`), the last step writes `d`. Steps are data; `run` interprets them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.dot import Datapath, dot_add
from tcsim.arithmetic.ordinary import Operation, compute
from tcsim.arithmetic.scaled_dot import ScaledFormats, scaled_dot_add
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format
from tcsim.numbers.rounding import Rounding

Codes = npt.NDArray[Any]


@dataclass
class Values:
    """The named values a lowering works on, each with its format.

    Axes: a (batch, M, K), b (batch, K, N), scale_a (batch, M, blocks), scale_b (batch, blocks, N), rest (batch, M, N).
    """

    codes: dict[str, Codes]
    formats: dict[str, Format]

    def put(self, name: str, codes: Codes, format: Format) -> None:
        """Bind a name."""
        self.codes[name], self.formats[name] = codes, format

    def get(self, name: str) -> tuple[Codes, Format]:
        """A value by name: `a[2]` is column 2 of a, `b[2]` row 2 of b (both broadcast over the result), `+0` is zero."""
        if name == "+0":
            return np.zeros((1, 1, 1), np.uint32), FORMATS["f32"]
        sliced = re.fullmatch(r"([ab])\[(\d+)\]", name)
        if sliced is None:
            return self.codes[name], self.formats[name]
        operand, k = sliced[1], int(sliced[2])
        codes = self.codes[operand]
        return (codes[:, :, k, None] if operand == "a" else codes[:, None, k, :]), self.formats[operand]


@cache
def conversion_table(source: str, target: str) -> Codes:
    """The code in `target` of every code of a format of at most 16 bits."""
    codes = np.arange(1 << FORMATS[source].container_bits, dtype=FORMATS[source].dtype)
    return encode(decode(codes, source), target)


@dataclass(frozen=True)
class Widen:
    """Convert both multiplicands to a wider format; exact. For formats of at most 16 bits."""

    format: str

    def run(self, values: Values) -> None:
        """Rebind a and b."""
        for name in ("a", "b"):
            codes, format = values.get(name)
            values.put(name, conversion_table(format.name, self.format)[codes], FORMATS[self.format])


@dataclass(frozen=True)
class DotAdd:
    """One fused dot-add over the products k, with an addend, on a datapath."""

    k: tuple[int, ...]  # which products
    addend: str  # "c", "acc" (the previous step's rounded result) or "+0"
    unit: Datapath
    result: str  # "acc" or "d"

    @property
    def output(self) -> Format:
        """The container format of the result."""
        return FORMATS["f16" if self.unit.output == "f16" else "f32"]

    def operands(self, values: Values) -> tuple[Codes, Codes, Codes, tuple[Format, Format, Format]]:
        """The codes and formats that `tcsim.arithmetic.dot.dot_add` takes."""
        a, format_a = values.get("a")
        b, format_b = values.get("b")
        if self.k != tuple(range(a.shape[2])):
            a, b = a[:, :, self.k], b[:, self.k, :]
        c, format_c = values.get(self.addend)
        if self.addend == "+0":
            c, format_c = np.zeros((a.shape[0], a.shape[1], b.shape[2]), self.output.dtype), self.output
        return a, b, c, (format_a, format_b, format_c)

    def run(self, values: Values) -> None:
        """Bind the result."""
        values.put(self.result, dot_add(*self.operands(values), self.unit), self.output)


@dataclass(frozen=True)
class ScaledDotAdd(DotAdd):
    """One fused dot-add whose products, or groups of them, are scaled by the block that their k lies in."""

    group: int = 0  # products summed exactly before they are scaled; 0: each product is a term of its own

    def scaled_operands(self, values: Values) -> tuple[Codes, Codes, Codes, Codes, Codes, ScaledFormats]:
        """The codes and formats that `tcsim.arithmetic.scaled_dot.scaled_dot_add` takes."""
        a, b, c, formats = self.operands(values)
        (scale_a, format), (scale_b, _) = values.get("scale_a"), values.get("scale_b")
        length = values.codes["a"].shape[2] // scale_a.shape[2]
        blocks = sorted({k // length for k in self.k})
        return a, b, c, scale_a[:, :, blocks], scale_b[:, blocks, :], (*formats, format)

    def run(self, values: Values) -> None:
        """Bind the result."""
        a, b, c, scale_a, scale_b, formats = self.scaled_operands(values)
        d = scaled_dot_add(a, b, c, scale_a, scale_b, formats, self.unit, self.group)
        values.put(self.result, d, self.output)


@dataclass(frozen=True)
class Arithmetic:
    """One ordinary IEEE operation, elementwise: fma (x * y + z), add (x + y), mul (x * y), convert (x)."""

    op: Operation
    result: str
    arguments: tuple[str, ...]
    format: str  # of the result; arguments are read in their own formats, exactly
    rounding: Rounding = "rne"
    nan_order: str = ""  # of an fma: which operand's NaN passes through first; empty: the canonical NaN always

    def run(self, values: Values) -> None:
        """Bind the result."""
        codes, formats = zip(*(values.get(name) for name in self.arguments), strict=True)
        out = FORMATS[self.format]
        values.put(self.result, compute(self.op, codes, formats, out, self.rounding, self.nan_order), out)


@dataclass(frozen=True)
class IntegerDot:
    """An exact integer dot product plus addend, reduced to 32 bits once at the end."""

    addend: str  # "c" or "+0"
    saturate: bool  # clamp to the range of s32; else wrap modulo 2**32
    result: str

    def run(self, values: Values) -> None:
        """Bind the result. BLAS on float64 is exact here: sums stay below 2**53."""
        a, b = (decode(*values.get(name)).astype(np.float64) for name in ("a", "b"))
        total = np.matmul(a, b).astype(np.int64)
        if self.addend != "+0":
            total = total + decode(*values.get(self.addend))
        values.put(self.result, to_s32(total, self.saturate), FORMATS["s32"])


@dataclass(frozen=True)
class IntegerAdd:
    """acc + c in 32 bits."""

    saturate: bool
    result: str

    def run(self, values: Values) -> None:
        """Bind the result."""
        total = decode(*values.get("acc")) + decode(*values.get("c"))
        values.put(self.result, to_s32(total, self.saturate), FORMATS["s32"])


@dataclass(frozen=True)
class BitDot:
    """c plus the number of set bits of a XOR b or a AND b along k, modulo 2**32."""

    op: Literal["xor", "and"]
    result: str = "d"

    def run(self, values: Values) -> None:
        """Bind the result. popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b)."""
        a, b = (values.get(name)[0].astype(np.float32) for name in ("a", "b"))
        both = np.matmul(a, b)
        count = both if self.op == "and" else a.sum(2, keepdims=True) + b.sum(1, keepdims=True) - 2 * both
        total = count.astype(np.int64) + decode(*values.get("c"))
        values.put(self.result, to_s32(total, saturate=False), FORMATS["s32"])


Step = Widen | DotAdd | ScaledDotAdd | Arithmetic | IntegerDot | IntegerAdd | BitDot


def to_s32(total: npt.NDArray[np.int64], saturate: bool) -> npt.NDArray[np.uint32]:
    """Reduce exact integers to s32 codes."""
    if saturate:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return (total & 0xFFFFFFFF).astype(np.uint32)


Scales = Mapping[str, tuple[Codes, Format]]
"""scale_a (batch, M, blocks) and scale_b (batch, blocks, N), each with its format."""
NO_SCALES: Scales = MappingProxyType({})


@dataclass(frozen=True)
class Lowering:
    """What a mnemonic becomes on an arch."""

    kind: Literal["native", "split", "emulated", "cuda cores"]  # what the assembler emits
    steps: tuple[Step, ...]
    opcodes: tuple[tuple[str, int], ...] = ()  # (SASS opcode, how often): the arithmetic of one instruction
    note: str = field(default="", compare=False)  # for readers
    adds_in_turn: str = (
        ""  # who adds c register by register, and takes what it has just written of d for a register that is both
    )

    def run(
        self, a: Codes, b: Codes, c: Codes, formats: tuple[Format, Format, Format], scales: Scales = NO_SCALES
    ) -> Codes:
        """Execute the steps on one batch: a (batch, M, K), b (batch, K, N), c (batch, M, N) -> d codes."""
        return self.values(a, b, c, formats, scales).codes["d"]

    def values(
        self, a: Codes, b: Codes, c: Codes, formats: tuple[Format, Format, Format], scales: Scales = NO_SCALES
    ) -> Values:
        """Execute the steps and keep every named value. `scales`: scale_a and scale_b with their format, if there are."""
        values = Values({"a": a, "b": b, "c": c}, dict(zip("abc", formats, strict=True)))
        for name, (codes, format) in scales.items():
            values.put(name, codes, format)
        for step in self.steps:
            step.run(values)
        return values
