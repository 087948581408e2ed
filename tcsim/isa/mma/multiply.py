"""Matrix multiply-accumulate on registers and on matrices of codes: what mma instructions do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import NO_SCALES, Scales
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment
from tcsim.model.row import check_registers
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import Format
from tcsim.numbers.packing import pack, unpack

_CHUNK_PRODUCTS = 1 << 17  # products computed at a time: their float64 terms (1 MiB) stay in the L2 cache


@dataclass(frozen=True, eq=False, repr=False)
class MatrixMultiply(Instruction):
    """d = a * b + c on fragments of a warp."""

    @cached_property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c and d."""
        return {name: operand.format for name, operand in self.operands.items()}

    @cached_property
    def matrices(self) -> int:
        """Independent matrix products of one instruction: 4 for m8n8k4 f16 (one a quad pair), else 1."""
        return self.operands["d"].layout.matrices

    def execute(self, a: Any, b: Any, c: Any) -> npt.NDArray[np.uint32]:
        """Registers in, registers out: uint32 (..., lanes, registers); leading dimensions broadcast.

        Raises OperandError for another dtype or shape.

        >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> one = np.full((32, 2), 0x3C003C00, np.uint32)
        >>> d = mma.execute(a=one, b=one[:, :1], c=np.zeros((32, 4), np.uint32))
        >>> float(d.view(np.float32)[0, 0])
        8.0
        """
        arrays = []
        for name, given in (("a", a), ("b", b), ("c", c)):
            registers = np.asarray(given)
            check_registers(registers, self.operands[name], f"{self!r}.execute")
            arrays.append(registers)
        batch = broadcast([x.shape[:-2] for x in arrays], f"{self!r}.execute")
        flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in arrays]
        out = np.empty((flat[0].shape[0], self.operands["d"].lanes, self.operands["d"].registers), np.uint32)
        for part in self._chunks(len(out), self.matrices):
            codes = [self._matrices(x[part], self.operands[name]) for x, name in zip(flat, "abc", strict=True)]
            out[part] = self._registers(self._run(*codes), self.operands["d"])
        return out.reshape(*batch, *out.shape[-2:])

    def matmul(self, a: Any, b: Any, c: Any) -> npt.NDArray[Any]:
        """Codes in, codes out: a (..., M, K), b (..., K, N), c and the result (..., M, N); leading dimensions broadcast.

        Codes are unsigned integers of the format's container, or NumPy or ml_dtypes arrays of exactly that format.

        Raises OperandError for another shape, FormatError for another dtype.

        >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> d = mma.matmul(np.ones((16, 8), np.float16), np.ones((8, 8), np.float16), np.zeros((16, 8), np.float32))
        >>> float(tcsim.decode(d, "f32")[0, 0])
        8.0
        """
        arrays = []
        for name, given in (("a", a), ("b", b), ("c", c)):
            operand = self.operands[name]
            codes = as_codes(given, operand.format, f"{self!r}.matmul: {name}")
            if codes.shape[-2:] != operand.shape:
                raise OperandError(
                    f"{self!r}.matmul: {name} has shape {codes.shape}; valid: (..., {operand.shape[0]}, {operand.shape[1]})"
                )
            arrays.append(codes)
        batch = broadcast([x.shape[:-2] for x in arrays], f"{self!r}.matmul")
        flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in arrays]
        out = np.empty((flat[0].shape[0], *self.operands["d"].shape), self.operands["d"].format.dtype)
        for part in self._chunks(len(out), 1):
            out[part] = self._run(*(x[part] for x in flat))
        return out.reshape(*batch, *out.shape[-2:])

    def matrix(self, name: str, registers: Any) -> npt.NDArray[Any]:
        """The codes that registers (..., lanes, registers) hold of an operand: (..., [matrices,] rows, columns)."""
        operand = self.operands[name]
        array = np.asarray(registers)
        check_registers(array, operand, f"{self!r}.matrix")
        codes = self._matrices(array.reshape(-1, *array.shape[-2:]), operand)
        inner = (operand.layout.matrices, *operand.shape) if operand.layout.matrices > 1 else operand.shape
        return codes.reshape(*array.shape[:-2], *inner)

    def registers(self, name: str, codes: Any) -> npt.NDArray[np.uint32]:
        """The registers that hold the codes (..., [matrices,] rows, columns) of an operand: inverse of `matrix`."""
        operand = self.operands[name]
        array = as_codes(codes, operand.format, f"{self!r}.registers: {name}")
        inner = (operand.layout.matrices, *operand.shape) if operand.layout.matrices > 1 else operand.shape
        if array.shape[-len(inner) :] != inner:
            raise OperandError(f"{self!r}.registers: {name} has shape {array.shape}; valid: (..., {inner})")
        flat = array.reshape(-1, *operand.shape)
        return self._registers(flat, operand).reshape(*array.shape[: -len(inner)], operand.lanes, operand.registers)

    def _run(
        self, a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any], *, scales: Scales = NO_SCALES
    ) -> npt.NDArray[Any]:
        formats = (self.operands["a"].format, self.operands["b"].format, self.operands["c"].format)
        return self.lowering.run(a, b, c, formats, scales)

    def _chunks(self, count: int, matrices: int) -> list[slice]:
        m, n, k = self.shape
        step = max(1, _CHUNK_PRODUCTS // (m * n * k * matrices))
        return [slice(start, start + step) for start in range(0, count, step)]

    @staticmethod
    def _matrices(registers: npt.NDArray[np.uint32], operand: Fragment) -> npt.NDArray[Any]:
        layout = operand.layout
        values = unpack(registers, operand.format, layout.element_bits)
        values = values.reshape(len(registers), layout.lanes * layout.value.size)
        return values[:, layout.flat_holder].reshape(-1, layout.rows, layout.columns)

    @staticmethod
    def _registers(codes: npt.NDArray[Any], operand: Fragment) -> npt.NDArray[np.uint32]:
        layout = operand.layout
        values = codes.reshape(-1, layout.matrices * layout.rows * layout.columns)[:, layout.flat_element]
        packed = pack(values.reshape(len(values), layout.lanes, layout.value.size), operand.format, layout.element_bits)
        return packed.astype(np.uint32, copy=False)
