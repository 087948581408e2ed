"""`cvt` on arrays of registers: each element of the result is converted by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError, listing
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.isa.cvt.rows import CvtRow
from tcsim.model.effects import Array
from tcsim.model.form import Form
from tcsim.model.registers import RegisterInstruction
from tcsim.numbers.codec import FLOAT_DTYPES
from tcsim.numbers.conversion import Codes, Conversion, convert

DIRECTIONS = {
    "rne": "to nearest, ties to even",
    "rna": "to nearest, ties away from zero",
    "rz": "toward zero",
    "rm": "toward minus infinity",
    "rp": "toward plus infinity",
}
"""What each rounding does, for readers."""


@dataclass(frozen=True, repr=False)
class ConvertEach:
    """The one step of a conversion: what becomes of every element."""

    conversion: Conversion

    def __repr__(self) -> str:
        c = self.conversion
        random = f" by the carry out of {c.random_bits} random bits"
        parts = [f"{c.source.name} to {c.target.name}{random if c.random_bits else ' ' + DIRECTIONS[c.rounding]}"]
        if c.scale:
            parts.append(("times" if c.scale == "multiply" else "divided by") + " the scale factor first")
        if c.flush_source:
            parts.append("subnormal sources are zeros")
        if c.saturate or c.target.kind == "integer":
            parts.append("clamped")
        if c.relu:
            parts.append("negative is +0")
        if c.positive_zero:
            parts.append("-0 is +0")
        if c.source.kind == "float" and c.source.nan != "none":
            parts.append(self._nan())
        return "; ".join(parts)

    def _nan(self) -> str:
        c = self.conversion
        if c.nan is not None:
            return f"NaN is {c.nan:#x}"
        kept = "NaN keeps sign and payload" + (", quiet" if c.quiet else "")
        return kept + (", less one unit" if c.nan_decrement else "")


@dataclass(frozen=True)
class ConversionLowering(Lowering):
    """A lowering whose one step converts each element."""

    steps: tuple[Any, ...]

    @property
    def conversion(self) -> Conversion:
        """What becomes of one element."""
        conversion: Conversion = self.steps[0].conversion
        return conversion


@dataclass(frozen=True, eq=False, repr=False)
class Convert(RegisterInstruction):
    """d = cvt(a, ...) on registers: one result for every element of the operand arrays."""

    row: CvtRow
    lowering: ConversionLowering

    @property
    def registers(self) -> MappingProxyType[str, Packed]:
        """The registers by name, in PTX's order, the result first."""
        return self.row.registers

    def execute(
        self,
        a: Any,
        b: Any = None,
        e: Any = None,
        f: Any = None,
        *,
        c: Any = None,
        rbits: Any = None,
        scale: Any = None,
    ) -> npt.NDArray[Any]:
        """Registers in, registers out, elementwise; the operand arrays broadcast.

        Operands have the manual's names: `cvt...x2.f32 d, a, b` puts `a` into the upper half; the four sources of
        `x4` are `a`, `b`, `e`, `f` from the highest field down; `rbits` are the random bits of `.rs`, `scale` the
        ue8m0 scale factors, `c` the third operand of `cvt.pack`. A register is an unsigned integer as wide as PTX
        declares it (`registers["a"].dtype`): uint16 for .b16, uint32 for .b32 and .f32, uint64 for .f64, uint8 for
        .b8. Where the register is one number, an array of its own NumPy or ml_dtypes type is accepted too. The result
        is an array of the unsigned type of d's register.

        Raises OperandError for a missing or superfluous operand, another dtype, or bits set where there is padding.

        >>> cvt = tcsim.instruction("cvt.rn.satfinite.e4m3x2.f32", arch="sm_90")
        >>> [hex(d) for d in cvt.execute(a=np.float32([1.0, 1000.0]), b=np.float32([-2.0, np.nan]))]
        ['0x38c0', '0x7e7f']
        """
        call = self._call
        offered = {"a": a, "b": b, "e": e, "f": f, "c": c, "rbits": rbits, "scale": scale}
        given = {name: value for name, value in offered.items() if value is not None}
        wanted = [name for name in self.registers if name != "d"]
        if set(given) != set(wanted):
            raise OperandError(f"{call}: operands {listing(given)}; valid: {listing(wanted)}")
        form = self._form_of(given["a"])
        taken = {name: self._take(form, name, given[name], call) for name in wanted}
        shape = broadcast([array.shape for array in taken.values()], call)
        arrays = {name: np.broadcast_to(array, shape) for name, array in taken.items()}
        operands = {
            operand.name: np.stack([arrays[part] for part in operand.parts], -1)
            if operand.parts
            else arrays[operand.name]
            for operand in form.operands
            if operand.role == "source"
        }
        return np.asarray(self.compute(form, operands)["d"])

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """d, as `execute` gives it; of the vector of x4 the last axis has the four sources."""
        own = registers_of(form)
        given = {
            register.name: operands[operand.name][..., i] if operand.parts else operands[operand.name]
            for operand in form.operands
            if isinstance(operand, Packed) and operand.role == "source"
            for i, register in enumerate(operand.each)
        }
        codes = np.concatenate([own[name].unpack(given[name]) for name in self.row.sources])
        scale = random = None
        if "scale" in given:
            scale = own["scale"].unpack(given["scale"])
        if "rbits" in given:
            random = np.stack([_gather(given["rbits"], bits) for bits in self.row.random])
        d = own["d"]
        out = d.pack(convert(codes, self.lowering.conversion, scale, random))
        if "c" in given:
            out = out | given["c"] << out.dtype.type(d.elements * d.field_bits)
        return {"d": out}

    def _form_of(self, a: Any) -> Form:
        """The form whose `a` an array fits, or the plainest."""
        dtype = np.asarray(a).dtype
        return next((form for form in self.row.forms if dtype in _dtypes(registers_of(form)["a"])), self.row.forms[0])

    def _take(self, form: Form, name: str, value: Any, call: str) -> Codes:
        """An operand as unsigned registers."""
        array, register = np.asarray(value), registers_of(form)[name]
        if array.dtype not in _dtypes(register):
            valid = [str(dtype) for form in self.row.forms for dtype in _dtypes(registers_of(form)[name])]
            raise OperandError(f"{call}: {name} is {array.dtype} {array.shape}; valid: {listing(dict.fromkeys(valid))}")
        codes: Codes = np.ascontiguousarray(array).view(register.dtype).reshape(array.shape)
        stray = codes & register.dtype.type(register.padding)
        if stray.any():
            raise OperandError(
                f"{call}: {name} is {int(codes[stray != 0].flat[0]):#x}, which sets padding; "
                f"valid: {register.elements} fields of {register.format.bits} bits, {register.field_bits} apart"
            )
        return codes


def _dtypes(register: Packed) -> list[np.dtype[Any]]:
    """The dtypes of arrays that hold the register: unsigned, and what its one number is in NumPy or ml_dtypes."""
    found = [register.dtype]
    if register.elements == 1 and register.format.kind == "integer":
        found.append(np.dtype(f"i{register.dtype.itemsize}"))
    if register.elements == 1:
        found += [dtype for dtype, name in FLOAT_DTYPES.items() if name == register.format.name]
    return found


def _gather(words: Codes, bits: tuple[int, ...]) -> npt.NDArray[np.uint32]:
    """The integers whose bits, most significant first, stand at the given positions of the words."""
    value = np.zeros(words.shape, np.uint32)
    for bit in bits:
        value = (value << np.uint32(1)) | ((words >> np.uint32(bit)) & np.uint32(1))
    return value
