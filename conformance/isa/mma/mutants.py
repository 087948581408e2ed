"""Mutants of multiplies on registers: mistakes about sums, rounding, special values, operands and layouts.

A mutant is the right model with one thing changed. `applies` says for which instructions the change could show at
all; where it could, some recorded hardware result must contradict it (test_mutants.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from conformance.stimuli.classes import Problem, floor_matters, lowest_exponent
from conformance.testbench import Mutant
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Arithmetic, BitDot, DotAdd, IntegerAdd, IntegerDot, Step, Widen
from tcsim.arithmetic.units import unit_for
from tcsim.core.targets import ARCHS
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.numbers.formats import FORMATS, NAN, SUBNORMAL, Format
from tcsim.numbers.rounding import Rounding

Registers = npt.NDArray[np.uint32]
Run = Callable[[MatrixMultiply, dict[str, Registers]], Registers]


# --- changed lowerings


def _relowered(change: Callable[[MatrixMultiply], tuple[Step, ...]]) -> Run:
    def run(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
        lowering = replace(instruction.lowering, steps=change(instruction))
        return replace(instruction, lowering=lowering).execute(**registers)

    return run


def _dot_adds(instruction: MatrixMultiply) -> list[DotAdd]:
    return [step for step in instruction.lowering.steps if isinstance(step, DotAdd)]


def _with_units(change: Callable[[Datapath], Datapath]) -> Run:
    def steps(instruction: MatrixMultiply) -> tuple[Step, ...]:
        return tuple(
            replace(step, unit=change(step.unit)) if isinstance(step, DotAdd) else step
            for step in instruction.lowering.steps
        )

    return _relowered(steps)


def _has(*kinds: type[Step]) -> Callable[[MatrixMultiply], bool]:
    return lambda instruction: any(isinstance(step, kinds) for step in instruction.lowering.steps)


def _halves(instruction: MatrixMultiply) -> tuple[Step, ...]:
    steps: list[Step] = []
    for step in instruction.lowering.steps:
        if isinstance(step, DotAdd) and len(step.k) > 1:
            middle = len(step.k) // 2
            steps.append(replace(step, k=step.k[:middle], result="acc"))
            steps.append(replace(step, k=step.k[middle:], addend="acc"))
        else:
            steps.append(step)
    return tuple(steps)


def _one_step(unit: Datapath) -> Run:
    """The instruction as a single native dot-add over all of K."""

    def steps(instruction: MatrixMultiply) -> tuple[Step, ...]:
        output = instruction.operands["d"].format.name
        own = replace(unit, output="f16", rounding="rne", floor=-21) if output == "f16" else unit
        return (DotAdd(tuple(range(instruction.shape[2])), "c", own, "d"),)

    return _relowered(steps)


def _is_widened(instruction: MatrixMultiply) -> bool:
    return _has(Widen)(instruction)


def _is_cuda_cores(instruction: MatrixMultiply) -> bool:
    return instruction.lowering.kind == "cuda cores"


def _floor_shows(instruction: MatrixMultiply) -> bool:
    return floor_matters(Problem(instruction, 1))


def _is_chain(instruction: MatrixMultiply) -> bool:
    """f64: fused multiply-adds only."""
    return all(isinstance(step, Arithmetic) and step.op == "fma" for step in instruction.lowering.steps)


def _rounding(instruction: MatrixMultiply) -> str:
    return next(step.rounding for step in instruction.lowering.steps if isinstance(step, Arithmetic))


def _rounds_otherwise(mode: str) -> Callable[[MatrixMultiply], bool]:
    return lambda instruction: _is_chain(instruction) and _rounding(instruction) != mode


def _unfused(instruction: MatrixMultiply) -> tuple[Step, ...]:
    steps: list[Step] = []
    for step in instruction.lowering.steps:
        if not isinstance(step, Arithmetic):
            raise TypeError(f"{instruction!r} is not a chain")
        product = replace(step, op="mul", result="product", arguments=step.arguments[:2], nan_order="")
        total = replace(step, op="add", arguments=("product", step.arguments[2]), nan_order="")
        steps += [product, total]
    return tuple(steps)


def _descending(instruction: MatrixMultiply) -> tuple[Step, ...]:
    given = [step for step in instruction.lowering.steps if isinstance(step, Arithmetic)]
    return tuple(
        replace(step, arguments=(*other.arguments[:2], step.arguments[2]))
        for step, other in zip(given, given[::-1], strict=True)
    )


def _addend_last_f64(instruction: MatrixMultiply) -> tuple[Step, ...]:
    given = [step for step in instruction.lowering.steps if isinstance(step, Arithmetic)]
    first = replace(given[0], op="mul", arguments=given[0].arguments[:2], result="acc", nan_order="")
    chain = [replace(step, result="acc") for step in given[1:]]
    return (first, *chain, replace(given[-1], op="add", arguments=("acc", "c"), nan_order=""))


def _rerounded(rounding: Rounding) -> Run:
    return _relowered(
        lambda instruction: tuple(
            replace(step, rounding=rounding) if isinstance(step, Arithmetic) else step
            for step in instruction.lowering.steps
        )
    )


def _canonical_nan(instruction: MatrixMultiply) -> tuple[Step, ...]:
    return tuple(
        replace(step, nan_order="") if isinstance(step, Arithmetic) else step for step in instruction.lowering.steps
    )


def _saturation_flipped(instruction: MatrixMultiply) -> tuple[Step, ...]:
    last = instruction.lowering.steps[-1]
    if not isinstance(last, IntegerDot | IntegerAdd):
        raise TypeError(f"{instruction!r} has no integer step")
    return (*instruction.lowering.steps[:-1], replace(last, saturate=not last.saturate))


def _other_bits(instruction: MatrixMultiply) -> tuple[Step, ...]:
    return tuple(
        replace(step, op="and" if step.op == "xor" else "xor") if isinstance(step, BitDot) else step
        for step in instruction.lowering.steps
    )


# --- changed operands and results


def _with_codes(
    name: str, change: Callable[[npt.NDArray[np.unsignedinteger], Format], npt.NDArray[np.unsignedinteger]]
) -> Run:
    def run(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
        codes = instruction.matrix(name, registers[name])
        changed = change(codes, instruction.operands[name].format)
        return instruction.execute(**{**registers, name: instruction.registers(name, changed)})

    return run


def flushed(codes: npt.NDArray[np.unsignedinteger], format: Format) -> npt.NDArray[np.unsignedinteger]:
    """Codes with zeros of their sign for subnormals."""
    sign = (
        format.dtype.type(1 << (format.sign_shift + format.ignored_low_bits)) if format.signed else format.dtype.type(0)
    )
    return np.where(format.fields(codes).kind == SUBNORMAL, codes & sign, codes)


def _flush_both(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
    out = dict(registers)
    for name in "ab":
        codes = instruction.matrix(name, registers[name])
        out[name] = instruction.registers(name, flushed(codes, instruction.operands[name].format))
    return instruction.execute(**out)


def _flush_result(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
    codes = instruction.matrix("d", instruction.execute(**registers))
    return instruction.registers("d", flushed(codes, instruction.operands["d"].format))


def _transposed(codes: npt.NDArray[np.unsignedinteger], format: Format) -> npt.NDArray[np.unsignedinteger]:
    rows, columns = codes.shape[-2:]
    return np.ascontiguousarray(codes.reshape(*codes.shape[:-2], columns, rows).swapaxes(-1, -2))


def _halves_swapped(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
    a = registers["a"]
    return instruction.execute(**{**registers, "a": (a << np.uint32(16)) | (a >> np.uint32(16))})


def _registers_swapped(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
    a = registers["a"].copy()
    width = 2 if instruction.operands["a"].layout.element_bits == 64 else 1
    a[..., :width], a[..., width : 2 * width] = registers["a"][..., width : 2 * width], registers["a"][..., :width]
    return instruction.execute(**{**registers, "a": a})


def _keep_payload(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
    d = instruction.matrix("d", instruction.execute(**registers))
    c = instruction.matrix("c", registers["c"])
    format_c, format_d = instruction.operands["c"].format, instruction.operands["d"].format
    quiet = format_d.dtype.type(1 << (format_d.fraction_bits - 1))
    return instruction.registers("d", np.where(format_c.fields(c).kind == NAN, c | quiet, d))


def _payload_fits(instruction: MatrixMultiply) -> bool:
    return bool(_dot_adds(instruction)) and instruction.operands["c"].format is instruction.operands["d"].format


def _sign_flipped(name: str) -> Run:
    """An 8- or 4-bit operand read with the other signedness: value differs by 2**bits where the top bit is set."""

    def run(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
        operand = instruction.operands[name]
        other = FORMATS[("u" if operand.format.signed else "s") + operand.format.name[1:]]
        operands = dict(instruction.operands)
        operands[name] = replace(operand, format=other)
        row = replace(instruction.row, operands=MappingProxyType(operands))
        return replace(instruction, row=row).execute(**registers)

    return run


def _clamp_in_halves(instruction: MatrixMultiply, registers: dict[str, Registers]) -> Registers:
    """.satfinite after each half of K."""
    middle = instruction.operands["a"].shape[1] // 2
    partial = registers["c"]
    for low in (True, False):
        codes = instruction.matrix("a", registers["a"]).copy()
        if low:
            codes[..., middle:] = 0
        else:
            codes[..., :middle] = 0
        partial = instruction.execute(a=instruction.registers("a", codes), b=registers["b"], c=partial)
    return partial


def _float(instruction: MatrixMultiply) -> bool:
    return instruction.operands["a"].format.kind == "float"


def _kind(*kinds: str) -> Callable[[MatrixMultiply], bool]:
    return lambda instruction: instruction.operands["a"].format.kind in kinds


def _signed(instruction: MatrixMultiply) -> bool:
    return any(instruction.operands[name].format.signed for name in "ab")


def _lowest_product(instruction: MatrixMultiply) -> int:
    return sum(lowest_exponent(instruction.operands[name].format) for name in "ab")


def _result_underflows(instruction: MatrixMultiply) -> bool:
    """A sum can be smaller than the least result, and so round to zero."""
    return _lowest_product(instruction) < lowest_exponent(instruction.operands["d"].format)


def _subnormal_result(instruction: MatrixMultiply) -> bool:
    least = instruction.operands["d"].format.minimum_exponent
    return (
        _float(instruction)
        and min(_lowest_product(instruction), lowest_exponent(instruction.operands["c"].format)) < least
    )


def _negative_zero_shows(instruction: MatrixMultiply) -> bool:
    """A step's sum is an exact zero of minus signs, addend included, or a negative sum that underflows."""
    steps = _dot_adds(instruction)
    return bool(steps) and (steps[0].addend == "c" or _result_underflows(instruction))


def _saturating(instruction: MatrixMultiply) -> bool:
    """.satfinite on one native step; of two unsigned operands every partial sum grows, so that early clamping is right."""
    last = instruction.lowering.steps[-1]
    return isinstance(last, IntegerDot) and last.saturate and _signed(instruction)


_HOPPER_WGMMA_FP8 = unit_for("fp8_wgmma", ARCHS["sm_90"]).datapath("f32")
_BLACKWELL_FP8 = unit_for("fp8", ARCHS["sm_120"]).datapath("f32")
_VOLTA = unit_for("quad_pair", ARCHS["sm_70"]).datapath("f32")

MUTANTS = (
    Mutant("F-1", "the adder keeps one fraction bit fewer", _has(DotAdd),
           _with_units(lambda u: replace(u, fraction_bits=u.fraction_bits - 1))),
    Mutant("F+1", "the adder keeps one fraction bit more", _has(DotAdd),
           _with_units(lambda u: replace(u, fraction_bits=u.fraction_bits + 1))),
    Mutant("whole f32", "the result keeps 24 significant bits, not 14",
           lambda i: any(step.unit.output == "e8m13" for step in _dot_adds(i)),
           _with_units(lambda u: replace(u, output="f32"))),
    Mutant("other rounding", "RNE for RZ, RZ for RNE",
           lambda i: any(step.unit.output != "e8m13" for step in _dot_adds(i)),
           _with_units(lambda u: replace(u, rounding="rz" if u.rounding == "rne" else "rne"))),
    Mutant("floor-1", "the largest exponent may be one lower", _floor_shows,
           _with_units(lambda u: replace(u, floor=u.floor - 1))),
    Mutant("floor+1", "the largest exponent is kept one higher", _floor_shows,
           _with_units(lambda u: replace(u, floor=u.floor + 1))),
    Mutant("addend last", "c is added to the rounded sum", _has(DotAdd),
           _with_units(lambda u: replace(u, addend_last=True))),
    Mutant("products renormalised", "a product in [2, 4) moves to the next exponent", _has(DotAdd),
           _with_units(lambda u: replace(u, renormalise_products=True))),
    Mutant("K halves chained", "two steps of half the length, rounded between", _has(DotAdd), _relowered(_halves)),
    Mutant("-0 kept", "a zero result keeps its sign", _negative_zero_shows,
           _with_units(lambda u: replace(u, keep_negative_zero=True))),
    Mutant("NaN payload kept", "a NaN addend passes through", _payload_fits, _keep_payload),
    Mutant("fp8 as in wgmma", "fp8 mma.sync on the native fp8 unit with 13 fraction bits", _is_widened,
           _one_step(_HOPPER_WGMMA_FP8)),
    Mutant("fp8 as one step", "fp8 mma.sync as one dot-add with 25 fraction bits", _is_widened,
           _one_step(_BLACKWELL_FP8)),
    Mutant("m8n8k4 on a tensor core", "Volta's dot-add where CUDA cores run", _is_cuda_cores, _one_step(_VOLTA)),
    Mutant("subnormal multiplicands flushed", "subnormals of a and b are zeros", _float, _flush_both),
    Mutant("subnormal addend flushed", "subnormals of c are zeros", _float, _with_codes("c", flushed)),
    Mutant("subnormal result flushed", "subnormal results are zeros", _subnormal_result, _flush_result),
    Mutant("unfused", "the product is rounded before the addition", _is_chain, _relowered(_unfused)),
    Mutant("k descending", "the chain runs from the last k to the first", _is_chain, _relowered(_descending)),
    Mutant("f64 addend last", "the chain starts from the first product", _is_chain, _relowered(_addend_last_f64)),
    *(
        Mutant(f"f64 {mode}", f"every operation rounds {mode}", _rounds_otherwise(mode), _rerounded(mode))
        for mode in ("rne", "rz", "rm", "rp", "rna")
    ),
    Mutant("f64 NaN canonical", "NaN operands do not pass through", _is_chain, _relowered(_canonical_nan)),
    Mutant("A transposed", "A is read column by column", lambda i: True, _with_codes("a", _transposed)),
    Mutant("B transposed", "B is read row by row", lambda i: True, _with_codes("b", _transposed)),
    Mutant("C transposed", "C is read column by column", lambda i: True, _with_codes("c", _transposed)),
    Mutant("register halves swapped", "the 16-bit halves of A's registers change places",
           lambda i: i.operands["a"].layout.element_bits <= 16, _halves_swapped),
    Mutant("registers swapped", "A's first two registers change places",
           lambda i: i.operands["a"].count >= 2, _registers_swapped),
    Mutant("saturation flipped", ".satfinite ignored, or assumed", _has(IntegerDot),
           _relowered(_saturation_flipped)),
    Mutant("clamped in halves", ".satfinite clamps after each half of K", _saturating, _clamp_in_halves),
    Mutant("signedness of A", "A is read signed for unsigned, or the reverse", _kind("integer"), _sign_flipped("a")),
    Mutant("signedness of B", "B is read signed for unsigned, or the reverse", _kind("integer"), _sign_flipped("b")),
    Mutant("other bit operation", "XOR for AND, AND for XOR", _has(BitDot), _relowered(_other_bits)),
)  # fmt: skip
"""Every mutant, checked against every instruction it applies to."""
