"""Matrix multiply-accumulate with a structured-sparse A: what mma.sp instructions do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.mma.sparse_operand import SparseOperand


@dataclass(frozen=True, eq=False, repr=False)
class SparseMatrixMultiply(MatrixMultiply, SparseOperand):
    """d = a * b + c where A holds the kept half of each row and metadata says where it belongs."""

    @property
    def rules(self) -> tuple[str, ...]:
        """What is kept, and the selectors."""
        own = self.sparsity
        lines = [
            f"A keeps {own.group // 2} of every {own.group} elements of a row",
            f"selector: {', '.join(map(str, own.selectors))}",
        ]
        if own.refused:
            stopped = ", ".join(map(str, own.refused))
            lines.append(f"selectors {stopped} assemble, and the hardware stops at them (measured on an H200)")
        if own.ordered:
            lines.append("::ordered_metadata: the indices of a group increase")
        return tuple(lines)

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
        call = f"{self!r}.execute"
        codes = self._fragments(call, a=a, b=b, c=c)
        groups = self._groups_in(metadata, selector, call, any_group=self.takes_any_group)
        return self.registers("d", self._kept(codes, self.sparsity.positions_of(groups), call, self._work_of_fields))

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
        call = f"{self!r}.matmul"
        codes = self._codes(call, a=a, b=b, c=c)
        return self._kept(codes, self.sparsity.positions_of(self._groups_for("metadata", metadata, call)), call)
