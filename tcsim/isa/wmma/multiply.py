"""Matrix multiply-accumulate on fragments that may hold an element several times: what wmma.mma does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.wmma.fragments import TileInstruction
from tcsim.model.row import check_registers
from tcsim.numbers.packing import unpack


@dataclass(frozen=True, eq=False, repr=False)
class FragmentMultiply(TileInstruction, MatrixMultiply):
    """d = a * b + c on fragments as wmma.load makes them.

    An f16 A or B always takes 8 registers, and holds its elements two or four times where it would need fewer. Since
    Turing a lane has all copies, and the tensor core is fed from the first alone. On Volta they lie in different lanes,
    and each quad pair of lanes reads its own. `registers` writes all copies, `matrix` reads the first.
    """

    def execute(self, a: Any, b: Any, c: Any) -> npt.NDArray[np.uint32]:
        """Registers in, registers out: uint32 (..., 32, registers); leading dimensions broadcast.

        Raises OperandError for another dtype or shape; on Volta, where every copy is read, also for copies that differ.

        >>> mma = tcsim.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", arch="sm_90")
        >>> one = mma.registers("a", np.ones((16, 16), np.float16))
        >>> one.shape, mma.operands["a"].layout.copies
        ((32, 8), 2)
        >>> d = mma.execute(a=one, b=one, c=np.zeros((32, 8), np.uint32))
        >>> float(d.view(np.float32)[0, 0])
        16.0
        """
        for name, registers in (("a", a), ("b", b)):
            if self.operands[name].layout.copies_in_lanes:
                self._check_copies(name, np.asarray(registers))
        return super().execute(a, b, c)

    def _check_copies(self, name: str, registers: npt.NDArray[Any]) -> None:
        operand, layout = self.operands[name], self.operands[name].layout
        check_registers(registers, operand, f"{self!r}.execute")
        values = unpack(registers, operand.format, layout.element_bits).reshape(-1, layout.flat_element.size)
        first = layout.flat_holder[layout.flat_element]  # the first place of what each place holds
        wrong = np.argwhere(values != values[:, first])
        if wrong.size:
            _, place = wrong[0]
            lanes = [int(x) // layout.value.size for x in (first[place], place)]
            row, column = divmod(int(layout.flat_element[place]), layout.columns)
            raise OperandError(
                f"{self!r}.execute: {name} holds different codes of element ({row}, {column}) in lanes {lanes[0]} and "
                f"{lanes[1]}; on {self.arch.name} both are read, and no result of that is known; valid: equal copies, "
                "as wmma.load and `registers` make them"
            )
