"""spcompress and spdecompress of sm_107a: structured sparsity, made and undone in the registers of one thread.

Sources: PTX ISA, sections spcompress and spdecompress (grammar, sizes and conditions of validity); ptxas 13.5.37.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.tcgen05.targets import SM_107A, known
from tcsim.layouts.compression import Selection, compress, decompress, elements
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Role
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import Row


@dataclass(frozen=True, kw_only=True)
class CompressionRow(Row):
    """The qualifiers of a spelling (tables 37 and 39 of the manual)."""

    bits: int  # `.elemsize`
    index_bits: int  # `.idxsize`
    source: int  # elements of a group that are kept: num_src
    target: int  # elements of a group: num_target
    count: int  # `.num`

    def width(self, name: str) -> int:
        """Registers of data, cdata or mdata."""
        return self.forms[0][name].count


@dataclass(frozen=True, eq=False, repr=False)
class _Compression(RegisterInstruction):
    """What both have."""

    row: CompressionRow

    def _vector(self, name: str, given: Any) -> npt.NDArray[np.uint32]:
        array, width = np.asarray(given), self.row.width(name)
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
        selection = Selection.decode(spdesc, self.row.bits)
        return compress(self._vector("data", data), self.row.bits, self.row.index_bits, selection)

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """mdata and cdata; threads with the same descriptor are compressed together."""
        data, descriptors = operands["data"], operands["spdesc"]
        found = {name: np.empty((*data.shape[:-1], self.row.width(name)), np.uint32) for name in self.RESULTS}
        for spdesc in np.unique(descriptors).tolist():
            own = np.broadcast_to(descriptors == spdesc, data.shape[:-1])
            found["mdata"][own], found["cdata"][own] = self.execute(data[own], spdesc)
        return found

    def ambiguous(self, data: Any, spdesc: int) -> npt.NDArray[np.bool_]:
        """Groups (..., groups) of four elements from which the hardware may keep others, because some are equal.

        >>> ins = tcsim.instruction("spcompress.b8.b2.sp::2:4.x1", arch="sm_107")
        >>> ins.ambiguous(np.array([0x01010100, 0x04030201], np.uint32), 0)
        array([ True, False])
        """
        selection = Selection.decode(spdesc, self.row.bits)
        codes = elements(self._vector("data", data), self.row.bits)
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
        row = self.row
        metadata, kept = self._vector("mdata", mdata), self._vector("cdata", cdata)
        broadcast([metadata.shape[:-1], kept.shape[:-1]], f"{self!r}.execute")
        return decompress(metadata, kept, row.bits, row.index_bits, row.source, row.target, row.count)

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """data."""
        return {"data": self.execute(operands["mdata"], operands["cdata"])}


NAME = "spcompress"
COUNTS = (1, 2, 4, 8, 16, 32, 64)
FACTORS = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 4), (2, 8), (2, 16), (4, 8), (4, 16))
MOST_DATA = 128  # registers of the dense vector
MOST_REGISTERS = 253  # of all vectors together


def _registers(bits: int) -> int:
    return -(-bits // 32)


_SPDESC = Operand("spdesc")


def _vector(name: str, count: int, role: Role = "source") -> Operand:
    return Operand(name, role, "vector", count=count)


def _row(
    operation: str, bits: int, index: int, source: int, target: int, count: int, operands: tuple[Operand, ...]
) -> CompressionRow:
    factor = f"{source}:{target}"
    words = {"elements": f".b{bits}", "index": f".b{index}", "factor": factor, "count": f".x{count}"}
    return CompressionRow(
        f"sp{operation}.b{bits}.b{index}.sp::{factor}.x{count}", NAME, arithmetic=operation, operation=operation,
        modifiers=MappingProxyType(words), forms=(Form(operands, SM_107A, "9.4", "thread"),),
        bits=bits, index_bits=index, source=source, target=target, count=count,
    )  # fmt: skip


def _rows() -> Iterator[CompressionRow]:
    for bits, index, count in product((8, 16), (2, 4), COUNTS):
        mdata = _vector("mdata", -(-count * index // bits), "destination")
        cdata = _vector("cdata", count, "destination")
        yield _row("compress", bits, index, 2, 4, count, (mdata, cdata, _vector("data", 2 * count), _SPDESC))
    for bits, index, (source, target), count in product((8, 16), (2, 4), FACTORS, COUNTS):
        data = _vector("data", _registers(target * bits * count), "destination")
        mdata = _vector("mdata", _registers(source * index * count))
        cdata = _vector("cdata", _registers(source * bits * count))
        whole = source * bits <= 32 and target <= 1 << index and target * bits * count >= 32
        if whole and data.count <= MOST_DATA and data.count + mdata.count + cdata.count <= MOST_REGISTERS:
            yield _row("decompress", bits, index, source, target, count, (data, mdata, cdata))


def rows() -> tuple[CompressionRow, ...]:
    """Every spelling."""
    return tuple(_rows())


def lowering(row: CompressionRow, arch: Arch) -> Lowering:
    """One machine instruction, for which nvdisasm 13.5 prints a placeholder instead of a name."""
    groups = {"compress": ("0X1C0", "2TO4"), "decompress": ("0X1D0", f"N{row.source}.M{row.target}")}
    number, group = groups[row.operation]
    return Lowering("native", (), ((f"__HIR{number}.{row.bits}.U{row.index_bits}.{group}.X{row.count}", 1),))


def evidence(row: CompressionRow, arch: Arch) -> Evidence:
    """The manual."""
    return known(arch, Evidence("literature", f"{PTX_MANUAL}, section sp{row.operation}"))


FAMILY = Family(
    NAME,
    rows,
    lowering,
    evidence,
    {"compress": CompressRegisters, "decompress": DecompressRegisters},
    "none: it selects elements",
    ("spdecompress",),
)
