"""`cvt` on arrays of registers: each element of the result is converted by itself."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError, listing
from tcsim.isa.cvt.rows import form_of
from tcsim.model.instruction import Instruction
from tcsim.numbers.codec import FLOAT_DTYPES
from tcsim.numbers.conversion import Codes, Conversion, Form, Register, convert

_CHUNK = 1 << 14  # elements converted at a time: the temporaries stay in the L2 cache


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
class Convert(Instruction):
    """d = cvt(a, ...) on registers: one result for every element of the operand arrays."""

    lowering: ConversionLowering

    @property
    def form(self) -> Form:
        """The operands, and the conversion that the spelling asks for."""
        return form_of(self.row)

    @property
    def registers(self) -> MappingProxyType[str, Register]:
        """The register operands by name, in PTX's order, the result first."""
        return self.form.registers

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
        call = f"{self!r}.execute"
        offered = {"a": a, "b": b, "e": e, "f": f, "c": c, "rbits": rbits, "scale": scale}
        given = {name: value for name, value in offered.items() if value is not None}
        wanted = [name for name in self.registers if name != "d"]
        if set(given) != set(wanted):
            raise OperandError(f"{call}: operands {listing(given)}; valid: {listing(wanted)}")
        taken = {name: self._take(name, given[name], call) for name in wanted}
        shape = broadcast([array.shape for _, array in taken.values()], call)
        flat = {name: (reg, np.broadcast_to(array, shape).reshape(-1)) for name, (reg, array) in taken.items()}
        out = np.empty(int(np.prod(shape)), self.registers["d"].dtype)
        for start in range(0, out.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = self._convert({name: (reg, array[part]) for name, (reg, array) in flat.items()})
        return out.reshape(shape)

    def _take(self, name: str, value: Any, call: str) -> tuple[Register, Codes]:
        """An operand as unsigned registers, and the register it is."""
        array = np.asarray(value)
        forms = [self.registers[name]]
        if name == "a" and self.form.second_type:
            forms.append(self.form.of_type(self.form.second_type)["a"])
        for register in forms:
            if array.dtype not in _dtypes(register):
                continue
            codes = np.ascontiguousarray(array).view(register.dtype).reshape(array.shape)
            stray = codes & register.dtype.type(register.padding)
            if stray.any():
                raise OperandError(
                    f"{call}: {name} is {int(codes[stray != 0].flat[0]):#x}, which sets padding; "
                    f"valid: {register.elements} fields of {register.format.bits} bits, {register.field_bits} apart"
                )
            return register, codes
        valid = [str(dtype) for register in forms for dtype in _dtypes(register)]
        raise OperandError(f"{call}: {name} is {array.dtype} {array.shape}; valid: {listing(valid)}")

    def _convert(self, operands: dict[str, tuple[Register, Codes]]) -> Codes:
        """One chunk of registers to one of results."""
        conversion = self.lowering.conversion
        codes = np.concatenate([operands[name][0].unpack(operands[name][1]) for name in self.form.sources])
        scale = random = None
        if "scale" in operands:
            register, factors = operands["scale"]
            scale = np.broadcast_to(register.unpack(factors), codes.shape)
        if "rbits" in operands:
            random = np.stack([_gather(operands["rbits"][1], bits) for bits in self.form.random])
        d = self.registers["d"]
        out = d.pack(convert(codes, conversion, scale, random))
        if "c" in operands:
            out |= operands["c"][1] << out.dtype.type(d.elements * d.field_bits)
        return out


def _dtypes(register: Register) -> list[np.dtype[Any]]:
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
