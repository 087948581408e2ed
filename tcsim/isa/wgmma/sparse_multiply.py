"""Warpgroup matrix multiply-accumulate with a structured-sparse A: what wgmma.mma_async.sp instructions do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.isa.mma.sparse_operand import SparseOperand
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.model.effects import Array


@dataclass(frozen=True, eq=False, repr=False)
class SparseWarpgroupMultiply(WarpgroupMultiply, SparseOperand):
    """d = (scale_a a) (scale_b b) + c on 128 lanes, where A holds the kept half of each row."""

    def execute(  # type: ignore[override]  # the dense instruction has neither metadata nor a selector
        self,
        smem: Any,
        a: Any,
        b: Any,
        c: Any,
        metadata: Any = None,
        selector: int = 0,
        scale_d: bool = True,
        scale_a: int = 1,
        scale_b: int = 1,
        trans_a: int = 0,
        trans_b: int = 0,
    ) -> npt.NDArray[np.uint32]:
        """The accumulator registers (..., 128, registers) after the instruction.

        smem: uint8 (..., bytes), its index the shared address. a: a descriptor of the compressed tile, 64 x K / 2, an int or
        uint64 (...), or its registers uint32 (..., 128, n). b: a descriptor. c: registers uint32 (..., 128, registers), read
        if scale_d. metadata: uint32 (..., 128). Leading dimensions broadcast. selector: which lanes hold the metadata, one
        for all. scale_a, scale_b: 1 or -1; trans_a, trans_b: 0 for K-major, 1 for MN-major.

        Raises OperandError for another dtype or shape, immediates that the type does not have, undefined metadata of tf32,
        or reads outside smem.

        Source: PTX ISA, section wgmma.mma_async.sp; arithmetic inferred from dense wgmma and from mma.sp of an H200.

        >>> wgmma = tcsim.instruction("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", arch="sm_90a")
        >>> smem = np.full(1024, 0x3C, np.uint8)  # f16 1.05859375 wherever B is read
        >>> b = tcsim.MatrixDescriptor(leading_byte_offset=128).encode()
        >>> ones = np.full((128, 4), 0x3C003C00, np.uint32)
        >>> words = np.full(128, 0x44444444, np.uint32)  # the first two of every four
        >>> d = wgmma.execute(smem=smem, a=ones, b=b, c=np.zeros((128, 4), np.uint32), metadata=words)
        >>> float(d.view(np.float32)[0, 0])
        16.9375
        """
        call = f"{self!r}.execute"
        codes = self.multiplicands(smem, a, b, c, scale_d, (scale_a, scale_b), (trans_a, trans_b))
        columns = self._columns({"metadata": np.asarray(metadata), "selector": np.asarray(selector)}, call)
        return self.registers("d", self._product(codes, call, columns))

    def _columns(self, operands: Mapping[str, Array], call: str) -> Array:
        """The row of B that each kept element meets."""
        selector = int(operands["selector"])
        groups = self._groups_in(operands["metadata"], selector, call, any_group=self.takes_any_group)
        return self.sparsity.columns(self.sparsity.positions_of(groups))

    def matmul(self, a: Any, b: Any, c: Any, metadata: Any = None) -> npt.NDArray[Any]:
        """Codes in, codes out: a (..., 64, K / 2) kept elements, metadata (..., 64, K / 2) their positions in their groups.

        b (..., K, N), c and the result (..., 64, N). Positions as `compress` and `decode_metadata` give them.

        Raises OperandError for another shape or positions that metadata cannot say, FormatError for another dtype.

        >>> wgmma = tcsim.instruction("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", arch="sm_90a")
        >>> a, positions = wgmma.compress(np.tile(np.float16([0, 2, 0, 3]), (64, 8)))
        >>> d = wgmma.matmul(a, np.ones((32, 8), np.float16), np.zeros((64, 8), np.float32), metadata=positions)
        >>> float(tcsim.decode(d, "f32")[0, 0])
        40.0
        """
        call = f"{self!r}.matmul"
        codes = self._codes(call, a=a, b=b, c=c)
        return self._kept(codes, self.sparsity.positions_of(self._groups_for("metadata", metadata, call)), call)
