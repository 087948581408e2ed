"""Mutants of block-scaled multiplies: those of plain multiplies, and mistakes about scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from conformance.isa.mma import mutants as plain
from conformance.stimuli.scaled import reaches_floor, scaled_step
from conformance.testbench import Array, Inputs, Mutant
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.scaled_dot import scaled_dot_add
from tcsim.arithmetic.steps import ScaledDotAdd, Step, Values
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.mma.scaled_sparse_multiply import ScaledSparseMatrixMultiply
from tcsim.numbers.formats import NAN, Format

Registers = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.uint8]


def matrices_of(instruction: ScaledMatrixMultiply, inputs: Inputs) -> dict[str, Array]:
    """What `matmul` takes, from what `execute` takes: codes of every operand, and the positions of kept elements."""
    out: dict[str, Array] = {name: instruction.matrix(name, inputs[name]) for name in "abc"}
    out["scale_a"] = instruction.scale_matrix("a", inputs["scale_a"], inputs["byte_id_a"], inputs["thread_id_a"])
    out["scale_b"] = instruction.scale_matrix("b", inputs["scale_b"], inputs["byte_id_b"], inputs["thread_id_b"])
    if isinstance(instruction, ScaledSparseMatrixMultiply):
        out["metadata"] = instruction.decode_metadata(inputs["metadata"])
    return out


# --- changed scales


def _with_scales(*names: str) -> Callable[[Callable[[Codes, Format], Codes]], Callable[..., Registers]]:
    """Run with the scale matrices (..., M, blocks) or (..., blocks, N) of some operands changed."""

    def changed(change: Callable[[Codes, Format], Codes]) -> Callable[..., Registers]:
        def run(instruction: ScaledMatrixMultiply, inputs: Inputs) -> Registers:
            codes = matrices_of(instruction, inputs)
            for name in names:
                codes[name] = change(codes[name], instruction.scales[name].format)
            return instruction.registers("d", instruction.matmul(**codes))

        return run

    return changed


def _ones(codes: Codes, format: Format) -> Codes:
    return np.full_like(codes, format.bias << format.fraction_bits)


def _without_nan(codes: Codes, format: Format) -> Codes:
    return np.where(format.fields(codes).kind == NAN, np.uint8(format.largest_code), codes)


def _flushed(codes: Codes, format: Format) -> Codes:
    return np.where(codes & np.uint8(0x78) == 0, np.uint8(0), codes)


def _reversed(axis: int) -> Callable[[Codes, Format], Codes]:
    return lambda codes, format: np.flip(codes, axis)


def _rows_exchanged(codes: Codes, format: Format) -> Codes:
    return np.roll(codes, 8, axis=-2)


def _with_selectors(*names: str) -> Callable[..., Registers]:
    """Run with some selectors taken for 0."""

    def run(instruction: ScaledMatrixMultiply, inputs: Inputs) -> Registers:
        return instruction.execute(**{**inputs, **{name: np.zeros_like(inputs[name]) for name in names}})

    return run


def _signs_read(instruction: ScaledMatrixMultiply, inputs: Inputs) -> Registers:
    """The top bit of a scale negates its block."""
    codes = matrices_of(instruction, inputs)
    sign = np.uint8(1 << instruction.operands["a"].format.sign_shift)
    for name, scale, axis in (("a", "scale_a", -1), ("b", "scale_b", -2)):
        repeat = codes[name].shape[axis] // codes[scale].shape[axis]
        negative = (codes[scale] >> np.uint8(7)).repeat(repeat, axis=axis) == 1
        codes[name] = np.where(negative, codes[name] ^ sign, codes[name])
    return instruction.registers("d", instruction.matmul(**codes))


# --- changed steps


def _with_step(change: Callable[[ScaledDotAdd], Step]) -> Callable[..., Registers]:
    def run(instruction: ScaledMatrixMultiply, inputs: Inputs) -> Registers:
        lowering = replace(instruction.lowering, steps=(change(scaled_step(instruction)),))
        return replace(instruction, lowering=lowering).execute(**inputs)

    return run


def _floor_moved(by: int) -> Callable[[ScaledDotAdd], Step]:
    def change(step: ScaledDotAdd) -> Step:
        unit: Datapath = replace(step.unit, floor=step.unit.floor + by)
        return replace(step, unit=unit)

    return change


class _CancelledIsZero(ScaledDotAdd):
    """A group whose sum is zero counts only as a zero."""

    def run(self, values: Values) -> None:
        a, b, c, scale_a, scale_b, formats = self.scaled_operands(values)
        (count, m, k), n = a.shape, b.shape[2]
        each = (count, m, n)
        # every result by itself
        a = np.broadcast_to(a[:, :, None, :], (*each, k)).reshape(-1, 1, k)
        b = np.broadcast_to(b.transpose(0, 2, 1)[:, None], (*each, k)).reshape(-1, k, 1)
        blocks = scale_a.shape[2]
        scale_a = np.broadcast_to(scale_a[:, :, None, :], (*each, blocks)).reshape(-1, 1, blocks)
        scale_b = np.broadcast_to(scale_b.transpose(0, 2, 1)[:, None], (*each, blocks)).reshape(-1, blocks, 1)
        products = formats[0].values(a[:, 0, :]) * formats[1].values(b[:, :, 0])
        zero = products.reshape(-1, k // self.group, self.group).sum(-1) == 0
        a = np.where(zero.repeat(self.group, axis=-1)[:, None, :], a.dtype.type(0), a)
        d = scaled_dot_add(a, b, c.reshape(-1, 1, 1), scale_a, scale_b, formats, self.unit, self.group)
        values.put(self.result, d.reshape(each), self.output)


def _cancelled_is_zero(step: ScaledDotAdd) -> Step:
    return _CancelledIsZero(step.k, step.addend, step.unit, step.result, step.group)


# --- to which instructions they apply


def _always(instruction: ScaledMatrixMultiply) -> bool:
    return True


def _by_group(instruction: ScaledMatrixMultiply) -> bool:
    return scaled_step(instruction).group > 0


def _several_blocks(instruction: ScaledMatrixMultiply) -> bool:
    return instruction.blocks > 1


def _several_bytes(instruction: ScaledMatrixMultiply) -> bool:
    return len(instruction.row.scale_a.layout.byte_ids) > 1


def _with_significand(instruction: ScaledMatrixMultiply) -> bool:
    return instruction.row.scale_a.format.fraction_bits > 0


def _negative_zero(instruction: ScaledMatrixMultiply) -> bool:
    """By group, a sum of minus zeros is not one; only a result that underflows could show it."""
    return not _by_group(instruction) or reaches_floor(instruction)


_A, _B, _BOTH = _with_scales("scale_a"), _with_scales("scale_b"), _with_scales("scale_a", "scale_b")


def _metadata_rows(instruction: ScaledSparseMatrixMultiply, inputs: Inputs) -> Registers:
    codes = matrices_of(instruction, inputs)
    codes["metadata"] = np.roll(codes["metadata"], 8, axis=-2)
    return instruction.registers("d", instruction.matmul(**codes))


def _is_sparse(instruction: ScaledMatrixMultiply) -> bool:
    return isinstance(instruction, ScaledSparseMatrixMultiply)


MUTANTS = (
    *(replace(mutant, applies=_negative_zero) if mutant.name == "-0 kept" else mutant for mutant in plain.MUTANTS),
    Mutant("scaled floor-1", "the largest exponent may be one lower", reaches_floor, _with_step(_floor_moved(-1))),
    Mutant("scaled floor+1", "the largest exponent is kept one higher", reaches_floor, _with_step(_floor_moved(1))),
    Mutant("scales of A ignored", "every scale of A is one", _always, _A(_ones)),
    Mutant("scales of B ignored", "every scale of B is one", _always, _B(_ones)),
    Mutant("scale rows exchanged", "the scales of rows g and g + 8 of A change places", _always, _A(_rows_exchanged)),
    Mutant("scale blocks of A reversed", "the last byte holds the first block", _several_blocks, _A(_reversed(-1))),
    Mutant("scale blocks of B reversed", "the last byte holds the first block", _several_blocks, _B(_reversed(-2))),
    Mutant("byte id of A ignored", "byte 0, whatever the byte id says", _several_bytes, _with_selectors("byte_id_a")),
    Mutant("byte id of B ignored", "byte 0, whatever the byte id says", _several_bytes, _with_selectors("byte_id_b")),
    Mutant("thread id of A ignored", "the first pair of lanes", _always, _with_selectors("thread_id_a")),
    Mutant("thread id of B ignored", "the first of four lanes", _always, _with_selectors("thread_id_b")),
    Mutant("NaN scale is a number", "the largest one", _always, _BOTH(_without_nan)),
    Mutant("scale subnormals flushed", "subnormal scales are zeros", _with_significand, _BOTH(_flushed)),
    Mutant("scale signs read", "the top bit of a scale is a sign", _with_significand, _signs_read),
    Mutant("scaled by product", "every product is a term, with its own exponent", _by_group,
           _with_step(lambda step: replace(step, group=0))),
    Mutant("cancelled group is a zero", "a group that cancels has no exponent", _by_group,
           _with_step(_cancelled_is_zero)),
    Mutant("metadata rows exchanged", "rows g and g + 8 change places", _is_sparse, _metadata_rows),
)  # fmt: skip
"""Every mutant of block-scaled multiplies."""
