"""Matrix multiply-accumulate on registers and on matrices of codes: what mma instructions do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.isa.mma.product import MatrixProduct
from tcsim.model.effects import Array
from tcsim.model.form import Form
from tcsim.model.registers import RegisterInstruction


@dataclass(frozen=True, eq=False, repr=False)
class MatrixMultiply(MatrixProduct, RegisterInstruction):
    """d = a * b + c on fragments of a warp."""

    in_place = True

    def execute(self, a: Any, b: Any, c: Any) -> npt.NDArray[np.uint32]:
        """Registers in, registers out: uint32 (..., lanes, registers); leading dimensions broadcast.

        Raises OperandError for another dtype or shape.

        >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> one = np.full((32, 2), 0x3C003C00, np.uint32)
        >>> d = mma.execute(a=one, b=one[:, :1], c=np.zeros((32, 4), np.uint32))
        >>> float(d.view(np.float32)[0, 0])
        8.0
        """
        call = f"{self!r}.execute"
        found: npt.NDArray[np.uint32] = self._executed(call, a=a, b=b, c=c)
        return found

    def matmul(self, a: Any, b: Any, c: Any) -> npt.NDArray[Any]:
        """Codes in, codes out: a (..., M, K), b (..., K, N), c and the result (..., M, N); leading dimensions broadcast.

        Codes are unsigned integers of the format's container, or NumPy or ml_dtypes arrays of exactly that format.

        Raises OperandError for another shape, FormatError for another dtype.

        >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
        >>> d = mma.matmul(np.ones((16, 8), np.float16), np.ones((8, 8), np.float16), np.zeros((16, 8), np.float32))
        >>> float(tcsim.decode(d, "f32")[0, 0])
        8.0
        """
        call = f"{self!r}.matmul"
        return self._product(self._codes(call, a=a, b=b, c=c), call)

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """d of the operands of a form; each warp's selectors are those of its first lane."""
        if "d" in operands:
            into: Any = operands["d"]
            return {"d": self._executed(f"{self!r}.execute", into, **{name: operands[name] for name in "abc"})}
        given: dict[str, Any] = {}
        for operand in form.operands:
            if operand.role == "destination":
                continue
            value = operands[operand.name]
            if operand.parts:
                given |= {name: value[..., 0, place].astype(np.int64) for place, name in enumerate(operand.parts)}
            else:
                given[operand.name] = int(value) if operand.kind == "immediate" else value
        return {"d": self.execute(**given)}
