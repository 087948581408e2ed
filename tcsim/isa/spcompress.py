"""spcompress and spdecompress: structured sparsity, made and undone in the registers of one thread.

spcompress and spdecompress of sm_107a: the rows the assembler accepts.

Sources: PTX ISA 9.4, sections spcompress and spdecompress (grammar, sizes and conditions of validity); ptxas 13.5.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.isa.tcgen05.targets import SM_107A
from tcsim.layouts.compression import Selection, compress, decompress, elements
from tcsim.model.family import Family
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row


@dataclass(frozen=True)
class CompressionForm:
    """The qualifiers of a row, and the sizes of its register vectors (tables 37 and 39 of the manual)."""

    bits: int  # `.elemsize`
    index_bits: int  # `.idxsize`
    source: int  # elements of a group that are kept: num_src
    target: int  # elements of a group: num_target
    count: int  # `.num`
    widths: dict[str, int]  # registers of data, cdata and mdata


def compression_of(row: Row) -> CompressionForm:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, CompressionForm):
        raise TypeError(f"{row.mnemonic} compresses nothing")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class _Compression(Instruction):
    """What both have."""

    @property
    def form(self) -> CompressionForm:
        """The qualifiers and sizes."""
        return compression_of(self.row)

    def _vector(self, name: str, given: Any) -> npt.NDArray[np.uint32]:
        array, width = np.asarray(given), self.form.widths[name]
        if array.dtype != np.uint32 or array.shape[-1:] != (width,):
            raise OperandError(f"{self!r}.execute: {name} is {array.dtype} {array.shape}; valid: uint32 (..., {width})")
        return array


@dataclass(frozen=True, eq=False, repr=False)
class CompressRegisters(_Compression):
    """spcompress: two of every four elements, and where they were."""

    RESULTS = ("mdata", "cdata")

    def execute(self, data: Any, spdesc: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Compress: data uint32 (..., 2n) and the sparsity descriptor -> mdata (..., m), cdata (..., n), uint32.

        Each element of the leading dimensions is a thread. Elements stay in order. Which of equal ones stay is up to the
        hardware, here those of lower index: `ambiguous` says where.

        Raises OperandError for another dtype or shape, or a descriptor that the element size does not have.

        >>> ins = tcsim.instruction("spcompress.b8.b4.sp::2:4.x1", arch="sm_107")
        >>> mdata, cdata = ins.execute(data=np.array([0x0003F900, 0x06030500], np.uint32), spdesc=5)  # MAXABS of s8
        >>> hex(mdata[0]), hex(cdata[0])
        ('0x3121', '0x60503f9')
        """
        form = self.form
        selection = Selection.decode(spdesc, form.bits)
        return compress(self._vector("data", data), form.bits, form.index_bits, selection)

    def ambiguous(self, data: Any, spdesc: int) -> npt.NDArray[np.bool_]:
        """Groups (..., groups) of four elements of which the hardware may keep others, because some are equal.

        >>> ins = tcsim.instruction("spcompress.b8.b2.sp::2:4.x1", arch="sm_107")
        >>> ins.ambiguous(np.array([0x01010100, 0x04030201], np.uint32), 0)
        array([ True, False])
        """
        selection = Selection.decode(spdesc, self.form.bits)
        codes = elements(self._vector("data", data), self.form.bits)
        return selection.ambiguous(codes.reshape(*codes.shape[:-1], -1, 4))


@dataclass(frozen=True, eq=False, repr=False)
class DecompressRegisters(_Compression):
    """spdecompress: elements back to their places, zeros elsewhere."""

    def execute(self, mdata: Any, cdata: Any) -> npt.NDArray[np.uint32]:
        """Decompress: mdata uint32 (..., m) and cdata (..., n) -> data (..., k), uint32.

        Each element of the leading dimensions is a thread.

        Raises OperandError for another dtype or shape, or an index that the group does not have.

        >>> ins = tcsim.instruction("spdecompress.b8.b4.sp::2:4.x2", arch="sm_107")
        >>> [hex(word) for word in ins.execute(mdata=np.array([0x3121], np.uint32), cdata=np.array([0x060503F9], np.uint32))]
        ['0x3f900', '0x6000500']
        """
        form = self.form
        metadata, kept = self._vector("mdata", mdata), self._vector("cdata", cdata)
        broadcast([metadata.shape[:-1], kept.shape[:-1]], f"{self!r}.execute")
        return decompress(metadata, kept, form.bits, form.index_bits, form.source, form.target, form.count)


def compression(row: Row, *rest: Any) -> Any:
    """The instruction of a row of the family spcompress."""
    return {"compress": CompressRegisters, "decompress": DecompressRegisters}[row.arithmetic](row, *rest)


NAME = "spcompress"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
FACTORS = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 4), (2, 8), (2, 16), (4, 8), (4, 16))
MOST_DATA = 128  # registers of the dense vector
MOST_REGISTERS = 253  # of all vectors together


def _registers(bits: int) -> int:
    return -(-bits // 32)


def _row(word: str, arithmetic: str, form: CompressionForm) -> Row:
    factor = f"{form.source}:{form.target}"
    return Row(
        f"{word}.b{form.bits}.b{form.index_bits}.sp::{factor}.x{form.count}",
        NAME,
        (0, 0, 0),
        MappingProxyType({}),
        SM_107A,
        "9.4",
        arithmetic,
        modifiers=MappingProxyType(
            {
                "elements": f".b{form.bits}",
                "index": f".b{form.index_bits}",
                "factor": factor,
                "count": f".x{form.count}",
            }
        ),
        facts=form,
    )


def _rows() -> Iterator[Row]:
    for bits, index, count in product((8, 16), (2, 4), COUNTS):
        widths = {"data": 2 * count, "cdata": count, "mdata": -(-count * index // bits)}
        yield _row("spcompress", "compress", CompressionForm(bits, index, 2, 4, count, widths))
    for bits, index, (source, target), count in product((8, 16), (2, 4), FACTORS, COUNTS):
        widths = {
            "data": _registers(target * bits * count),
            "mdata": _registers(source * index * count),
            "cdata": _registers(source * bits * count),
        }
        whole = source * bits <= 32 and target <= 1 << index and target * bits * count >= 32
        if whole and widths["data"] <= MOST_DATA and sum(widths.values()) <= MOST_REGISTERS:
            yield _row("spdecompress", "decompress", CompressionForm(bits, index, source, target, count, widths))


def rows() -> tuple[Row, ...]:
    """Every spelling."""
    return tuple(_rows())


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, for which nvdisasm 13.5 prints a name that is none."""
    form = compression_of(row)
    if row.arithmetic == "compress":
        opcode = f"__HIR0X1C0.{form.bits}.U{form.index_bits}.2TO4.X{form.count}"
    else:
        opcode = f"__HIR0X1D0.{form.bits}.U{form.index_bits}.N{form.source}.M{form.target}.X{form.count}"
    return Lowering("native", (), ((opcode, 1),))


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual."""
    return Evidence("literature", f"PTX ISA 9.4, section {row.mnemonic.split('.')[0]}")


FAMILY = Family(NAME, rows, lowering, evidence, compression, "none: it selects elements")
