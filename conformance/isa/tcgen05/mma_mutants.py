"""Mutants of tcgen05.mma: mistakes about sums, scales, signs, negations, masks, tables and halves of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.isa.tcgen05.memory_models import executed
from conformance.testbench import Array, Inputs, Mutant
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import DotAdd, ScaledDotAdd
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.numbers.conversion import OTHER_FORMATS
from tcsim.numbers.formats import FORMATS, Format

Operands = dict[str, Any]


def _form(condition: Callable[[MultiplyRow], bool]) -> Callable[[TensorMemoryMultiply], bool]:
    return lambda instruction: condition(instruction.row)


def _is_float(row: MultiplyRow) -> bool:
    return "s32" not in row.kind.d_formats


def _meets_floor(row: MultiplyRow) -> bool:
    """Whether products, or their scales, can be so small that the floor of the largest exponent counts; those of fp8 cannot."""
    return _is_float(row) and row.kind.name != "f8f6f4" and not (row.ashift or row.collectors)


# --- other arithmetic


class _Restepped(TensorMemoryMultiply):
    """The instruction with other steps."""

    def _changed(self, step: Any) -> Any:
        raise NotImplementedError

    def _steps(self, desc: InstructionDescriptor, scale_d: int) -> tuple[Any, ...]:
        return tuple(self._changed(step) for step in super()._steps(desc, scale_d))


def _with_steps(change: Callable[[Any], Any]) -> Callable[[TensorMemoryMultiply, Inputs], Array]:
    def run(instruction: TensorMemoryMultiply, inputs: Inputs) -> Array:
        kind = type("_Bound", (_Restepped,), {"_changed": staticmethod(change)})
        bound = kind(instruction.row, instruction.arch, instruction.targets, instruction.lowering, instruction.evidence)
        return executed(bound, inputs)

    return run


def _with_units(change: Callable[[Datapath], Datapath]) -> Callable[[TensorMemoryMultiply, Inputs], Array]:
    return _with_steps(lambda step: replace(step, unit=change(step.unit)) if isinstance(step, DotAdd) else step)


def _by_product(step: Any) -> Any:
    return replace(step, group=0) if isinstance(step, ScaledDotAdd) else step


# --- operands read otherwise


def _operands(change: Callable[[Operands], Operands]) -> Callable[[TensorMemoryMultiply, Inputs], Array]:
    return lambda instruction, inputs: executed(instruction, inputs, change)


def _described(**fields: Any) -> Callable[[TensorMemoryMultiply, Inputs], Array]:
    def run(instruction: TensorMemoryMultiply, inputs: Inputs) -> Array:
        def change(operands: Operands) -> Operands:
            desc = instruction.descriptor(operands["idesc"])
            return {**operands, "idesc": replace(desc, **fields)}

        return executed(instruction, inputs, change)

    return run


def _without(name: str) -> Callable[[Operands], Operands]:
    def change(operands: Operands) -> Operands:
        blank = {"disable_output_lane": np.zeros_like(operands.get(name)), "scale_input_d": 0, "zero_column_mask": 0}
        return {**operands, name: blank[name]} if name in operands else operands

    return change


def _exchanged(operands: Operands) -> Operands:
    """The shared memories of the two CTAs exchanged."""
    return {**operands, "smem": operands["smem"][::-1]}


def _scales_exchanged(operands: Operands) -> Operands:
    """Each scale factor of a word taken for its neighbour: bytes 0 and 1, 2 and 3 exchanged behind D."""
    tmem = operands["tmem"].copy()
    columns = slice(operands["scale_a"] & 0xFFFF, (operands["scale_b"] & 0xFFFF) + 16)
    words = tmem.words[..., columns]
    tmem.words[..., columns] = (words & 0x00FF00FF) << 8 | words >> 8 & 0x00FF00FF
    return {**operands, "tmem": tmem}


def _respelled(change: Callable[[MultiplyRow], MultiplyRow]) -> Callable[[TensorMemoryMultiply, Inputs], Array]:
    """The instruction of another row."""

    def run(instruction: TensorMemoryMultiply, inputs: Inputs) -> Array:
        return executed(replace(instruction, row=change(instruction.row)), inputs)

    return run


def _unshifted(row: MultiplyRow) -> MultiplyRow:
    return replace(row, ashift=False)


def _paired(row: MultiplyRow) -> MultiplyRow:
    """4-bit elements kept as on other archs."""
    return replace(row, kind=replace(row.kind, unpaired=()))


class _TwosComplement(TensorMemoryMultiply):
    """The instruction with A and B in the usual integers."""

    def formats(self, idesc: int | InstructionDescriptor) -> dict[str, Format]:
        """The formats, with another for A and B."""
        return super().formats(idesc) | dict.fromkeys("ab", OTHER_FORMATS["s16"])


class _Unsigned(TensorMemoryMultiply):
    """The instruction with A and B without signs."""

    def _product(
        self, arrays: dict[str, Any], desc: InstructionDescriptor, scale_d: int, order: Sequence[int] = (0,)
    ) -> Array:
        formats = self.formats(desc)
        bare = {name: arrays[name] & formats[name].dtype.type((1 << formats[name].sign_shift) - 1) for name in "ab"}
        return super()._product({**arrays, **bare}, desc, scale_d, order)


def _as(kind: type[TensorMemoryMultiply]) -> Callable[[TensorMemoryMultiply, Inputs], Array]:
    def run(instruction: TensorMemoryMultiply, inputs: Inputs) -> Array:
        parts = (instruction.row, instruction.arch, instruction.targets, instruction.lowering, instruction.evidence)
        return executed(kind(*parts), inputs)

    return run


def _tables(order: Callable[[Array], Array]) -> Callable[[Operands], Operands]:
    """The bytes (CTAs, lanes, 8) of the lookup tables put in another order."""

    def change(operands: Operands) -> Operands:
        tmem = operands["tmem"].copy()
        columns = slice(operands["lookup"] & 0xFFFF, (operands["lookup"] & 0xFFFF) + 2)
        octets = np.ascontiguousarray(tmem.words[..., columns]).view(np.uint8)
        tmem.words[..., columns] = np.ascontiguousarray(order(octets)).view(np.uint32)
        return {**operands, "tmem": tmem}

    return change


def _first_half(operands: Operands) -> Operands:
    """The descriptor of B without its bit for the upper half of the indices."""
    tile = MatrixDescriptor.decode(int(operands["b"]), "sm_107")
    return {**operands, "b": np.uint64(replace(tile, k_half=0).encode())}


def _has_signs(row: MultiplyRow) -> bool:
    """Whether A and B have a sign and a magnitude, and are integers."""
    return any(FORMATS[name].sign_magnitude for name in row.kind.ab_formats)


def _has_two_vectors(row: MultiplyRow) -> bool:
    return row.kind.table == "mxf4"


MUTANTS: tuple[Mutant, ...] = (
    Mutant("F-1", "one fraction bit fewer is kept", _form(_is_float),
           _with_units(lambda unit: replace(unit, fraction_bits=unit.fraction_bits - 1))),
    Mutant("F+1", "one fraction bit more is kept", _form(_is_float),
           _with_units(lambda unit: replace(unit, fraction_bits=unit.fraction_bits + 1))),
    Mutant("floor-1", "the largest exponent may be one lower", _form(_meets_floor),
           _with_units(lambda unit: replace(unit, floor=unit.floor - 1))),
    Mutant("floor+1", "the largest exponent is kept one higher", _form(_meets_floor),
           _with_units(lambda unit: replace(unit, floor=unit.floor + 1))),
    Mutant("addend last", "c is added to the rounded products", _form(_is_float),
           _with_units(lambda unit: replace(unit, addend_last=True))),
    Mutant("products renormalised", "a significand product of 2 and more moves to the next exponent",
           _form(lambda row: _is_float(row) and row.kind.table != "mxf4"),
           _with_units(lambda unit: replace(unit, renormalise_products=True))),
    Mutant("scaled by product", "each product of e2m1 is aligned by itself", _form(_has_two_vectors),
           _with_steps(_by_product)),
    Mutant("negations ignored", "the descriptor's negate bits do nothing", _form(lambda row: row.kind.negate),
           _described(negate_a=False, negate_b=False)),
    Mutant("D always read", "enable-input-d does nothing", _form(lambda row: True),
           _operands(lambda operands: {**operands, "enable_input_d": True})),
    Mutant("lanes all written", "disable-output-lane does nothing",
           _form(lambda row: any("disable_output_lane" in form for form in row.forms)), _operands(_without("disable_output_lane"))),
    Mutant("D not scaled", "scale-input-d does nothing",
           _form(lambda row: _is_float(row) and any("scale_input_d" in form for form in row.forms)),
           _operands(_without("scale_input_d"))),
    Mutant("no mask", "the zero-column mask does nothing", _form(lambda row: row.weight_stationary),
           _operands(_without("zero_column_mask"))),
    Mutant("A not shifted", ".ashift does nothing", _form(lambda row: row.ashift), _respelled(_unshifted)),
    Mutant("4-bit elements in pairs", "metadata means pairs, as on the other archs",
           lambda instruction: instruction.row.sparse and instruction.row.kind.unpaired_on(instruction.arch),
           _respelled(_paired)),
    Mutant("two's complement", "negative numbers are read as other integers are", _form(_has_signs), _as(_TwosComplement)),
    Mutant("signs ignored", "only the magnitudes of A and B count", _form(_has_signs), _as(_Unsigned)),
    Mutant("sums saturate", "integer sums stop at the ends of s32, which the kind cannot ask for", _form(_has_signs),
           _with_steps(lambda step: replace(step, saturate=True))),
    Mutant("tables backwards", "index 0 means the last number of a table", _form(lambda row: row.lookup),
           _operands(_tables(lambda octets: octets[..., ::-1]))),
    Mutant("index bits backwards", "the first bit of an index is its highest", _form(lambda row: row.lookup),
           _operands(_tables(lambda octets: octets[..., [0, 4, 2, 6, 1, 5, 3, 7]]))),
    Mutant("tables of the next columns", "neighbouring lookup tables change places", _form(lambda row: row.lookup),
           _operands(_tables(lambda octets: octets[:, np.arange(128) ^ 1]))),
    Mutant("first half only", "the bit of the indices' half does nothing", _form(lambda row: row.lookup),
           _operands(_first_half)),
    Mutant("CTAs exchanged", "each CTA multiplies the other's shared memory", _form(lambda row: row.cta_group == 2),
           _operands(_exchanged)),
    Mutant("scale bytes exchanged", "neighbouring bytes of the scale words change places",
           _form(lambda row: bool(row.block)), _operands(_scales_exchanged)),
)  # fmt: skip
