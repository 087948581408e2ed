"""Matrix multiply-accumulate with block scales and a structured-sparse A: block-scaled mma.sp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.isa.mma.product import Array
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply


@dataclass(frozen=True, eq=False, repr=False)
class ScaledSparseMatrixMultiply(ScaledMatrixMultiply, SparseMatrixMultiply):
    """d = (a * scale_a) * (b * scale_b) + c where A holds the kept half of each row and metadata says where it belongs.

    A block is a run of K of the dense row; half of its elements are kept.
    """

    def execute(  # type: ignore[override]
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
        metadata: Any = None,
        selector: int = 0,
    ) -> npt.NDArray[np.uint32]:
        """Registers in, registers out, as for a dense A; metadata uint32 (..., 32) and one selector for all.

        Raises OperandError for another dtype or shape, selectors that do not exist, or undefined metadata.

        >>> kind = "mma.sp::ordered_metadata.sync.aligned.kind::mxf4.block_scale"
        >>> mma = tcsim.instruction(f"{kind}.m16n8k128.row.col.f32.e2m1.e2m1.f32.ue8m0", arch="sm_120a")
        >>> one, scale = np.full((32, 4), 0x22222222, np.uint32), np.full(32, 0x7F7F, np.uint32)
        >>> words = np.full(32, 0x44444444, np.uint32)  # the first two pairs of every four
        >>> c = np.zeros((32, 4), np.uint32)
        >>> d = mma.execute(one, one, c, scale_a=scale, scale_b=scale, metadata=words)
        >>> float(d.view(np.float32)[0, 0])
        64.0
        """
        call = f"{self!r}.execute"
        codes = self._fragments(call, a=a, b=b, c=c)
        codes.append(self._scales_in("a", scale_a, byte_id_a, thread_id_a, call))
        codes.append(self._scales_in("b", scale_b, byte_id_b, thread_id_b, call))
        positions = self.sparsity.positions_of(self._groups_in(metadata, selector, call))
        return self.registers("d", self._kept(codes, positions, call, self._work_of_fields))

    def matmul(  # type: ignore[override]
        self, a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None, metadata: Any = None
    ) -> Array:
        """Codes in, codes out: a (..., M, K / 2) kept elements, metadata (..., M, K / 2) their positions in their groups.

        Everything else as for a dense A: scale_a (..., M, K / block), scale_b (..., K / block, N), K of the dense row.

        Raises OperandError for another shape or positions that metadata cannot say, FormatError for another dtype.

        >>> kind = "mma.sp::ordered_metadata.sync.aligned.kind::mxf8f6f4.block_scale"
        >>> mma = tcsim.instruction(f"{kind}.m16n8k64.row.col.f32.e4m3.e4m3.f32.ue8m0", arch="sm_120a")
        >>> a, positions = mma.compress(np.tile(np.uint8([0, 0x38, 0, 0x38]), (16, 16)))
        >>> b, scale = np.full((64, 8), 0x38, np.uint8), np.full((16, 1), 0x80, np.uint8)
        >>> d = mma.matmul(a, b, np.zeros((16, 8), np.float32), scale_a=scale, scale_b=scale[:8].T, metadata=positions)
        >>> float(tcsim.decode(d, "f32")[0, 0])
        128.0
        """
        call = f"{self!r}.matmul"
        codes = self._codes(call, a=a, b=b, c=c)
        codes.extend(self._scale_matrices(scale_a, scale_b, call))
        positions = self.sparsity.positions_of(self._groups_for("metadata", metadata, call))
        return self._kept(codes, positions, call)
