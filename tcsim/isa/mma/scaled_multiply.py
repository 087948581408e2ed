"""Matrix multiply-accumulate with block scales on registers and on matrices of codes: block-scaled mma.sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array, broadcast
from tcsim.core.errors import FormatError, OperandError
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.mma.product import Array
from tcsim.isa.mma.sparse_operand import SparseRow
from tcsim.layouts.block_scales import BlockScaling, ScaleOperand
from tcsim.numbers.codec import as_scale_codes
from tcsim.numbers.formats import Format

Side = Literal["a", "b"]


@dataclass(frozen=True, kw_only=True)
class ScaledRow(SparseRow):
    """A row whose A and B have scales, one for each block of K."""

    scale_a: ScaleOperand
    scale_b: ScaleOperand


@contextmanager
def _quoting(call: str) -> Iterator[None]:
    """Put the call before what the layouts of scales say of wrong selectors."""
    try:
        yield
    except OperandError as error:
        raise OperandError(f"{call}: {error}") from None


@dataclass(frozen=True, eq=False, repr=False)
class ScaledMatrixMultiply(MatrixMultiply):
    """d = (a * scale_a) * (b * scale_b) + c, each block of K with a scale of its own."""

    row: ScaledRow

    @property
    def scales(self) -> dict[str, ScaleOperand]:
        """The scale operands by name, scale_a and scale_b: format, registers, layout."""
        return {operand.name: operand for operand in (self.row.scale_a, self.row.scale_b)}

    @property
    def scale_formats(self) -> dict[str, Format]:
        """The number formats of scale_a and scale_b."""
        return {name: operand.format for name, operand in self.scales.items()}

    @property
    def scaling(self) -> BlockScaling:
        """The kind of scaling, and where the scales are."""
        return BlockScaling(self.row.arithmetic, self.row.scale_a, self.row.scale_b)

    @property
    def blocks(self) -> int:
        """Scales of one row of A, and of one column of B."""
        return self.scaling.blocks

    @property
    def block(self) -> int:
        """Elements of K that share a scale. Of a sparse A, elements of the dense row: half of them are kept."""
        return self.shape[2] // self.blocks

    def execute(
        self,
        a: Any,
        b: Any,
        c: Any,
        scale_a: Any = None,
        scale_b: Any = None,
        byte_id_a: Any = 0,
        thread_id_a: Any = 0,
        byte_id_b: Any = 0,
        thread_id_b: Any = 0,
    ) -> npt.NDArray[np.uint32]:
        """Registers in, registers out: uint32 (..., 32, registers), scales uint32 (..., 32); leading dimensions broadcast.

        A byte id and a thread id for each scale operand say which bytes of which lanes hold the scales: integers, or
        integer arrays of the batch's shape. `scales["scale_a"].layout` has the places.

        Raises OperandError for another dtype or shape, or selectors that the instruction does not have.

        >>> name = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0"
        >>> mma = tcsim.instruction(name, arch="sm_120")
        >>> one, two = np.full((32, 4), 0x38383838, np.uint32), np.full(32, 0x80, np.uint32)
        >>> d = mma.execute(one, one[:, :2], np.zeros((32, 4), np.uint32), scale_a=two, scale_b=two << 8, byte_id_b=1)
        >>> float(d.view(np.float32)[0, 0])
        128.0
        """
        call = f"{self!r}.execute"
        codes = self._fragments(call, a=a, b=b, c=c)
        codes.append(self._scales_in("a", scale_a, byte_id_a, thread_id_a, call))
        codes.append(self._scales_in("b", scale_b, byte_id_b, thread_id_b, call))
        return self.registers("d", self._product(codes, call, work=self._work_of_fields))

    def matmul(self, a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Array:
        """Codes in, codes out: a (..., M, K), b (..., K, N), c and the result (..., M, N).

        scale_a (..., M, K / block), scale_b (..., K / block, N); leading dimensions broadcast. Codes are unsigned integers
        of the format's container, or NumPy or ml_dtypes arrays of exactly that format; float8_e4m3fn counts as ue4m3.

        Raises OperandError for another shape, FormatError for another dtype.

        >>> name = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
        >>> mma = tcsim.instruction(name, arch="sm_120")
        >>> a, b = tcsim.encode(np.ones((16, 64)), "e2m1"), tcsim.encode(np.ones((64, 8)), "e2m1")
        >>> scale_a = tcsim.encode(np.tile([0.5, 1, 2, 4], (16, 1)), "ue4m3")
        >>> d = mma.matmul(a, b, np.zeros((16, 8), np.float32), scale_a=scale_a, scale_b=np.full((4, 8), 0x38, np.uint8))
        >>> float(tcsim.decode(d, "f32")[0, 0])
        120.0
        """
        call = f"{self!r}.matmul"
        codes = self._codes(call, a=a, b=b, c=c)
        return self._product([*codes, *self._scale_matrices(scale_a, scale_b, call)], call)

    def scale_matrix(self, side: Side, registers: Any, byte_id: Any = 0, thread_id: Any = 0) -> npt.NDArray[np.uint8]:
        """The scale matrix (..., M, blocks) or (..., blocks, N) that registers (..., 32) hold of A or of B."""
        return self._scales_in(side, registers, byte_id, thread_id, f"{self!r}.scale_matrix")

    def scale_registers(self, side: Side, scales: Any, byte_id: int = 0, thread_id: int = 0) -> npt.NDArray[np.uint32]:
        """Registers (..., 32) that hold a scale matrix: inverse of `scale_matrix`; bytes that are not read are zero.

        Raises OperandError for another shape or selectors that do not exist, FormatError for another dtype.

        >>> name = "mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0"
        >>> mma = tcsim.instruction(name, arch="sm_120")
        >>> words = mma.scale_registers("b", np.full((2, 8), 0x7F, np.uint8), byte_id=2, thread_id=1)
        >>> [hex(word) for word in words[:4]]
        ['0x0', '0x7f7f0000', '0x0', '0x0']
        """
        call = f"{self!r}.scale_registers"
        operand = self.scales[f"scale_{side}"]
        codes = _scale_codes(scales, operand, call)
        with _quoting(call):
            return operand.layout.scatter(codes, byte_id, thread_id)

    # --- taking operands

    def _scale_matrices(self, scale_a: Any, scale_b: Any, call: str) -> tuple[Array, Array]:
        return _scale_codes(scale_a, self.row.scale_a, call), _scale_codes(scale_b, self.row.scale_b, call)

    def _scales_in(self, side: Side, registers: Any, byte_id: Any, thread_id: Any, call: str) -> npt.NDArray[np.uint8]:
        operand, words = self.scales[f"scale_{side}"], np.asarray(registers)
        if words.dtype != np.uint32 or (words.shape[-1:] != (32,) and words.shape[-2:] != (32, 1)):
            raise OperandError(f"{call}: scale_{side} is {words.dtype} {words.shape}; valid: uint32 (..., 32)")
        words = words[..., 0] if words.shape[-1] == 1 else words
        with _quoting(call):
            operand.layout.check(byte_id, thread_id)
        broadcast([words.shape[:-1], np.shape(byte_id), np.shape(thread_id)], call)
        return operand.layout.gather(words, byte_id, thread_id)


def _scale_codes(given: Any, operand: ScaleOperand, call: str) -> npt.NDArray[np.uint8]:
    """A scale matrix as codes."""
    array = as_array(given, f"{call}: {operand.name}", FormatError)
    what = f"{call}: {operand.name}"
    if array.dtype == np.dtype(object):
        raise FormatError(f"{what} is {given!r}; valid: codes of {operand.format.name}, (..., {operand.shape[0]}, "
                          f"{operand.shape[1]})")  # fmt: skip
    codes = as_scale_codes(array, operand.format, what)
    if codes.shape[-2:] != operand.shape:
        raise OperandError(f"{what} has shape {codes.shape}; valid: (..., {operand.shape[0]}, {operand.shape[1]})")
    return codes
