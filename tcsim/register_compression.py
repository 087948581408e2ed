"""spcompress and spdecompress: structured sparsity, made and undone in the registers of one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.errors import OperandError
from tcsim.instruction import Instruction, broadcast
from tcsim.registry import Row
from tcsim.structured_compression import Selection, compress, decompress, elements


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
