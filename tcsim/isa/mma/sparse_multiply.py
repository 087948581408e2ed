"""Matrix multiply-accumulate with a structured-sparse A: what mma.sp instructions do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.mma.sparse_operand import SparseOperand
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.row import check_registers
from tcsim.numbers.codec import as_codes
from tcsim.numbers.formats import Format


@dataclass(frozen=True, eq=False, repr=False)
class SparseMatrixMultiply(MatrixMultiply, SparseOperand):
    """d = a * b + c where A holds the kept half of each row and metadata says where it belongs."""

    @property
    def sparsity(self) -> Sparsity:
        """How the metadata is stored."""
        facts = self.row.facts
        if not isinstance(facts, Sparsity):
            raise TypeError(f"{self!r} has no sparsity facts")
        return facts

    @property
    def _product_formats(self) -> tuple[Format, Format, Format]:
        return self.operands["a"].format, self.operands["b"].format, self.operands["c"].format

    def execute(self, a: Any, b: Any, c: Any, metadata: Any = None, selector: int = 0) -> npt.NDArray[np.uint32]:
        """Registers in, registers out: uint32 (..., 32, registers), metadata uint32 (..., 32), one selector for all.

        Metadata groups that the manual leaves undefined are computed as the H200 computes them (each index by itself)
        on sm_90, and refused elsewhere and for tf32.

        Raises OperandError for another dtype or shape, a selector the hardware does not run, or undefined metadata.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> one = np.full((32, 2), 0x3C003C00, np.uint32)
        >>> words = np.full(32, 0x44444444, np.uint32)  # the first two of every four
        >>> d = mma.execute(a=one, b=one, c=np.zeros((32, 4), np.uint32), metadata=words)
        >>> float(d.view(np.float32)[0, 0])
        8.0
        """
        arrays = {"a": np.asarray(a), "b": np.asarray(b), "c": np.asarray(c)}
        for name, registers in arrays.items():
            check_registers(registers, self.operands[name], f"{self!r}.execute")
        groups = self._groups_in(metadata, selector, f"{self!r}.execute", any_group=self.takes_any_group)
        batch = broadcast([*(x.shape[:-2] for x in arrays.values()), groups.shape[:-2]], f"{self!r}.execute")
        codes = {name: self.matrix(name, registers) for name, registers in arrays.items()}
        positions = self.sparsity.positions_of(groups)
        d = self._selected((codes["a"], codes["b"], codes["c"]), self._product_formats, positions, batch)
        return self._registers(d.reshape(-1, *self.operands["d"].shape), self.operands["d"]).reshape(
            *batch, 32, self.operands["d"].registers
        )

    def matmul(self, a: Any, b: Any, c: Any, metadata: Any = None) -> npt.NDArray[Any]:
        """Codes in, codes out: a (..., M, K / 2) kept elements, metadata (..., M, K / 2) their positions in their groups.

        b (..., K, N), c and the result (..., M, N). Positions as `compress` and `decode_metadata` give them.

        Raises OperandError for another shape or positions that metadata cannot say, FormatError for another dtype.

        >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> dense = np.tile(np.float16([0, 2, 0, 3]), (16, 4))
        >>> a, positions = mma.compress(dense)
        >>> d = mma.matmul(a, np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32), metadata=positions)
        >>> float(tcsim.decode(d, "f32")[0, 0])
        20.0
        """
        codes = {}
        for name, given in (("a", a), ("b", b), ("c", c)):
            operand = self.operands[name]
            codes[name] = as_codes(given, operand.format, f"{self!r}.matmul: {name}")
            if codes[name].shape[-2:] != operand.shape:
                raise OperandError(
                    f"{self!r}.matmul: {name} has shape {codes[name].shape}; "
                    f"valid: (..., {operand.shape[0]}, {operand.shape[1]})"
                )
        positions = self.sparsity.positions_of(self._groups_for("metadata", metadata, f"{self!r}.matmul"))
        batch = broadcast([*(x.shape[:-2] for x in codes.values()), positions.shape[:-2]], f"{self!r}.matmul")
        return self._selected((codes["a"], codes["b"], codes["c"]), self._product_formats, positions, batch)
