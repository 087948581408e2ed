"""Special functions on arrays of registers: what they compute on each arch, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic import mufu
from tcsim.arithmetic.mufu import Unit
from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError, listing
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.cvt.registers import Packed
from tcsim.isa.special.rows import FUNCTIONS, SpecialRow, rows
from tcsim.isa.special.steps import Steps, run
from tcsim.lowering.traced import contiguous
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.registers import RegisterInstruction
from tcsim.numbers.codec import FLOAT_DTYPES


@dataclass(frozen=True)
class SpecialLowering(Lowering):
    """A lowering whose steps compute one element."""

    steps: tuple[Any, ...]


@dataclass(frozen=True, eq=False, repr=False)
class SpecialFunction(RegisterInstruction):
    """d = f(a), or a / b: one result for every element of the operand arrays."""

    row: SpecialRow
    lowering: SpecialLowering
    unit: Unit = field(default_factory=mufu.unit)

    @property
    def registers(self) -> MappingProxyType[str, Packed]:
        """The registers by name, in PTX's order, the result first."""
        return self.row.registers

    @property
    def inexact(self) -> bool:
        """Whether its bits are not known on this arch: they depend on the unit, and the unit was asked on sm_90 alone.

        >>> [tcsim.instruction("ex2.approx.f32", arch=arch).inexact for arch in ("sm_80", "sm_90")]
        [True, False]
        >>> tcsim.instruction("sqrt.rn.f32", arch="sm_80").inexact  # rounded once
        False
        """
        return self.row.unit is not None and self.arch.name not in mufu.MEASURED

    def execute(self, a: Any, b: Any = None) -> npt.NDArray[Any]:
        """Registers in, registers out, elementwise; the operand arrays broadcast. Only div takes b.

        A register is an unsigned integer as wide as PTX declares it (`registers["a"].dtype`): uint16 for .b16, uint32 for .b32
        and .f32, uint64 for .f64; f16x2 and bf16x2 are two numbers in a uint32. Where it is one number, an array of its own
        NumPy or ml_dtypes type is accepted too. The result is an array of the unsigned type.

        Raises OperandError for a missing or superfluous operand, or another dtype.

        >>> ex2 = tcsim.instruction("ex2.approx.ftz.f32", arch="sm_90")
        >>> ex2.execute(np.float32([0.5, -1.0])).view(np.float32)
        array([1.4142135, 0.5      ], dtype=float32)
        """
        given = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
        wanted = [name for name in self.registers if name != "d"]
        if list(given) != wanted:
            raise OperandError(f"{self._call}: operands {listing(given) or 'none'}; valid: {listing(wanted)}")
        taken = {name: self._taken(name, value) for name, value in given.items()}
        shape = broadcast([array.shape for array in taken.values()], self._call)
        arrays = {name: np.broadcast_to(array, shape) for name, array in taken.items()}
        return np.asarray(self.compute(self.forms[0], arrays)["d"])

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """d (...) of registers (...)."""
        return {"d": computed(self.row, self.lowering.steps, operands, self.unit)}

    def _taken(self, name: str, value: Any) -> Array:
        array, own = np.asarray(value), self.registers[name]
        valid = [own.dtype]
        if own.elements == 1:
            valid += [dtype for dtype, format in FLOAT_DTYPES.items() if format == own.format.name]
        if array.dtype not in valid:
            raise OperandError(
                f"{self._call}: {name} is {array.dtype} {array.shape}; valid: {listing(map(str, valid))}"
            )
        return np.ascontiguousarray(array).view(own.dtype).reshape(array.shape)


def computed(row: SpecialRow, steps: Steps, operands: Mapping[str, Array], unit: Unit) -> Array:
    """The result registers of a row: of packed pairs each half by itself."""
    d = row.registers["d"]
    if d.elements == 1:
        return run(steps, operands, unit)
    halves = {name: contiguous(array).view(np.uint16) for name, array in operands.items()}
    found = contiguous(run(steps, halves, unit))
    return found.view(d.dtype).reshape(np.shape(operands["a"]))


Kind = Literal["native", "split", "emulated"]
_PAIRS_AT_ONCE = ("sm_103", "sm_107")
"""Archs on which one MUFU.EX2 takes two 16-bit numbers (nvdisasm)."""


def lowering(row: SpecialRow, arch: Arch) -> SpecialLowering:
    """The machine instructions of a row: those of its steps."""
    two = row.registers["d"].elements
    opcodes: dict[str, int] = {}
    for step in row.steps:
        if step.opcode:
            opcodes[step.opcode] = opcodes.get(step.opcode, 0) + two
    if two == 2 and row.family == "ex2" and arch.name in _PAIRS_AT_ONCE:
        opcodes = {f"{opcode}x2": 1 for opcode in opcodes}
    if row.unit is None or (row.type == "f64" and len(row.steps) > 1):
        return SpecialLowering("emulated", row.steps, (), "a subroutine of ptxas around the special function unit")
    kind: Kind = "emulated" if len(row.steps) > 1 else "split" if sum(opcodes.values()) > 1 else "native"
    return SpecialLowering(kind, row.steps, tuple(opcodes.items()))


_IEEE = Evidence("literature", f"{PTX_MANUAL}: rounded as IEEE 754 says; ptxas's subroutine was not measured")


def evidence(row: SpecialRow, arch: Arch) -> Evidence:
    """A recording, or what the unit of sm_90 was found to do: no other was asked."""
    if arch.name in RECORDED:
        return RECORDED[arch.name]
    if row.unit is None:
        return _IEEE
    return Evidence("inferred", f"as sm_90: the special function unit of {arch.name} was not measured")


FAMILIES = tuple(Family(name, partial(rows, name), lowering, evidence, SpecialFunction) for name in FUNCTIONS)
