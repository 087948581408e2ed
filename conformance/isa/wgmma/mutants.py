"""Mutants of warpgroup multiplies: mistakes about descriptors, immediates and the rounding of sums.

They read from memory that is as large as any descriptor reaches, so that a mistake never ends in an error instead of a wrong
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.mma.mutants import MUTANTS, flushed
from conformance.isa.wgmma.images import FULL_N
from conformance.testbench import Array, Inputs, Mutant
from tcsim.descriptors.matrix import FORMS, Major, element_addresses
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.numbers.formats import FORMATS, Format

Addresses = npt.NDArray[np.int64]
Descriptors = npt.NDArray[np.uint64]
Run = Callable[[WarpgroupMultiply, Inputs], Array]
Read = Callable[[Descriptors, int, int, Format, Major], Addresses]
_BYTE = FORMATS["u8"]


def execute(instruction: WarpgroupMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
    """The accumulators of a batch of inputs, dense or sparse."""
    options: dict[str, Any] = {name: int(inputs[name][0]) for name in ("scale_a", "scale_b", "trans_a", "trans_b")}
    if "metadata" in inputs:
        options |= {"metadata": inputs["metadata"][..., 0], "selector": int(inputs["selector"][0])}
    registers = np.where(inputs["scale_d"][:, None, None] != 0, inputs["c"], np.uint32(0))
    return instruction.execute(smem=inputs["image"], a=inputs["a"], b=inputs["b"], c=registers, **options)


def multiplicands(instruction: WarpgroupMultiply, inputs: Inputs) -> tuple[Array, Array, Array]:
    """The codes of A, B and C that are multiplied and added, signs changed where that is asked, C zero where it is not read."""
    scales = int(inputs["scale_a"][0]), int(inputs["scale_b"][0])
    trans = int(inputs["trans_a"][0]), int(inputs["trans_b"][0])
    registers = np.where(inputs["scale_d"][:, None, None] != 0, inputs["c"], np.uint32(0))
    return instruction.multiplicands(inputs["image"], inputs["a"], inputs["b"], registers, True, scales, trans)


def _variant(instruction: WarpgroupMultiply, **changed: Any) -> WarpgroupMultiply:
    """The instruction with methods replaced."""
    bound: type[WarpgroupMultiply] = type("_Variant", (type(instruction),), changed)
    return bound(instruction.row, instruction.arch, instruction.targets, instruction.lowering, instruction.evidence)


def roomy(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The image, and zeros as far as any descriptor reaches."""
    return np.concatenate([image, np.zeros((len(image), (1 << 19) - image.shape[1]), np.uint8)], axis=1)


# --- dense mutants of the sum and of the multiplicands


class _Dense:
    """What the dense mutants ask of an instruction, and change of it; a fragment's registers are its codes."""

    def __init__(self, instruction: WarpgroupMultiply) -> None:
        self.lowering = instruction.lowering
        self.formats = instruction.formats
        self.shape = (*instruction.shape[:2], instruction.operands["a"].shape[1])
        operands = {name: type("_Operand", (), {"format": format}) for name, format in instruction.formats.items()}
        self.operands = operands


def _relowered(mutant: Mutant) -> Mutant:
    """A dense mutant that changes the lowering, run on this family's inputs."""

    def run(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
        def run_plain(self: WarpgroupMultiply, **_: Array) -> npt.NDArray[np.uint32]:
            plain = type(instruction)(self.row, self.arch, self.targets, self.lowering, self.evidence)
            return execute(plain, inputs)

        return mutant.run(_variant(instruction, execute=run_plain), {})

    def needs(instruction: WarpgroupMultiply) -> tuple[str, ...]:
        few = not full(instruction) and (mutant.name in _RARE or instruction.formats["d"].name == "f16")
        return (ARITHMETIC,) if few else ()

    return replace(mutant, run=run, applies=lambda instruction: mutant.applies(_Dense(instruction)), needs=needs)


def _rare(instruction: WarpgroupMultiply) -> tuple[str, ...]:
    """Rows that do not run every class need the one that is about the arithmetic."""
    return () if full(instruction) else (ARITHMETIC,)


ARITHMETIC = "arithmetic"
"""The input class of rows that do not run every class: a sample of each class that is about the sum."""
_RARE = ("floor-1", "floor+1", "-0 kept", "saturation flipped")  # not seen in the values of a kernel's tile
_LOWERED = ("F-1", "F+1", "whole f32", "other rounding", "floor-1", "floor+1", "addend last", "products renormalised",
            "K halves chained", "-0 kept", "saturation flipped")  # fmt: skip


def _with_multiplicands(change: Callable[[str, Array, Format], Array], *names: str) -> Run:
    """Some of the codes that are multiplied and added are read as other ones."""

    def run(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
        def changed(self: WarpgroupMultiply, *given: Any) -> tuple[Array, ...]:
            codes = zip("abc", type(instruction).multiplicands(self, *given), strict=True)
            return tuple(change(name, x, self.formats[name]) if name in names else x for name, x in codes)

        return execute(_variant(instruction, multiplicands=changed), inputs)

    return run


def _flush(name: str, codes: Array, format: Format) -> Array:
    return flushed(codes, format)


def _halves_swapped(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    """Of A in registers."""
    a = inputs["a"]
    return execute(
        instruction, inputs if a.dtype == np.uint64 else {**inputs, "a": a << np.uint32(16) | a >> np.uint32(16)}
    )


def _registers_swapped(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    """Of A in registers."""
    a = inputs["a"]
    return execute(
        instruction, inputs if a.dtype == np.uint64 else {**inputs, "a": a[..., [1, 0, *range(2, a.shape[-1])]]}
    )


def _float(instruction: WarpgroupMultiply) -> bool:
    return instruction.formats["a"].kind == "float"


def _narrow(instruction: WarpgroupMultiply) -> bool:
    return _bits(instruction.formats["a"]) <= 16


# --- descriptors


def _with_descriptors(change: Callable[[Descriptors], Descriptors]) -> Run:
    def run(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
        out = dict(inputs)
        for name in "ab":
            if inputs[name].dtype == np.uint64:
                out[name] = change(inputs[name])
        out["image"] = roomy(inputs["image"])
        return execute(instruction, out)

    return run


def _swap_offsets(value: Descriptors) -> Descriptors:
    mask = np.uint64(0x3FFF)
    leading, stride = value >> np.uint64(16) & mask, value >> np.uint64(32) & mask
    kept = value & ~(mask << np.uint64(16) | mask << np.uint64(32))
    return kept | stride << np.uint64(16) | leading << np.uint64(32)


def _no_swizzle(value: Descriptors) -> Descriptors:
    return value & np.uint64((1 << 62) - 1)


def _next_swizzle(value: Descriptors) -> Descriptors:
    """128 bytes taken for 64, 64 for 32, 32 for 128; none stays."""
    mode = value >> np.uint64(62)
    return _no_swizzle(value) | np.where(mode == 0, mode, mode % np.uint64(3) + np.uint64(1)) << np.uint64(62)


def _previous_swizzle(value: Descriptors) -> Descriptors:
    """64 bytes taken for 128, 32 for 64, 128 for 32; none stays."""
    return _next_swizzle(_next_swizzle(value))


def _assumed(mode: str) -> Callable[[Descriptors], Descriptors]:
    """No swizzle taken for one."""
    code = np.uint64(FORMS["sm_90"].modes[mode])
    return lambda value: np.where(value >> np.uint64(62) == 0, value | code << np.uint64(62), value)


# --- addresses


def _reading(read: Read) -> Run:
    """Every element is read where `read` says."""

    def run(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
        misled = _variant(instruction, addresses=staticmethod(read))
        return execute(misled, {**inputs, "image": roomy(inputs["image"])})

    return run


def _swizzled_before_start(value: Descriptors, rows: int, k: int, format: Format, major: Major) -> Addresses:
    """The start address plus the swizzled offset, where the hardware swizzles the sum."""
    start = (value & np.uint64(0x3FFF)).astype(np.int64) * 16
    return start[..., None, None] + element_addresses(value & ~np.uint64(0x3FFF), rows, k, format, major)


def _bits(format: Format) -> int:
    return format.container_bits if format.bits >= 8 else format.bits


def _elements_as_bytes(value: Descriptors, rows: int, k: int, format: Format, major: Major) -> Addresses:
    """Element k of a K-major row k bytes after its first, not k elements; on a multiple of the element's size."""
    if major == "MN":
        return element_addresses(value, rows, k, format, major)
    size = format.container_bits // 8
    bytes_of_row = element_addresses(value, rows, max(k * _bits(format) // 8, k), _BYTE, "K")
    return bytes_of_row[..., :k] // size * size


def _wide_core_rows(value: Descriptors, rows: int, k: int, format: Format, major: Major) -> Addresses:
    """Without swizzle, core matrices whose rows have 32 bytes, where they have 16."""
    right = element_addresses(value, rows, k, format, major)
    start, leading, stride = (
        (value >> np.uint64(low) & np.uint64(0x3FFF)).astype(np.int64)[..., None, None] * 16 for low in (0, 16, 32)
    )
    r, column = np.arange(rows)[:, None], np.arange(k)[None, :]
    if major == "K":
        byte = column * _bits(format) // 8
        wide = r % 8 * 32 + r // 8 * stride + byte // 32 * leading + byte % 32
    else:
        wide = r % 16 * 2 + r // 16 * stride + column % 8 * 32 + column // 8 * leading
    return np.where((value >> np.uint64(62) == 0)[..., None, None], start + wide, right)


# --- immediates


def _majors_flipped(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    flipped = {"trans_b": 1 - inputs["trans_b"], "image": roomy(inputs["image"])}
    return execute(instruction, {**inputs, **flipped})


def _transposes_ignored(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    zeros = np.zeros_like(inputs["trans_a"])
    return execute(instruction, {**inputs, "trans_a": zeros, "trans_b": zeros, "image": roomy(inputs["image"])})


def _unsigned(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    ones = np.ones_like(inputs["scale_a"])
    return execute(instruction, {**inputs, "scale_a": ones, "scale_b": ones})


def _always_added(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    return execute(instruction, {**inputs, "scale_d": np.ones_like(inputs["scale_d"])})


# --- which instructions


def full(instruction: WarpgroupMultiply) -> bool:
    """Instructions that run every input class."""
    return instruction.shape[1] == FULL_N


def _has_majors(instruction: WarpgroupMultiply) -> bool:
    return full(instruction) and instruction.row.majors


def _has_signs(instruction: WarpgroupMultiply) -> bool:
    return full(instruction) and instruction.row.signs


def _no_bytes(instruction: WarpgroupMultiply) -> bool:
    return full(instruction) and _bits(instruction.formats["a"]) != 8


WARPGROUP_MUTANTS = (
    *(_relowered(mutant) for mutant in MUTANTS if mutant.name in _LOWERED),
    Mutant("subnormal multiplicands flushed", "subnormals of a and b are zeros", _float,
           _with_multiplicands(_flush, "a", "b"), _rare),
    Mutant("subnormal addend flushed", "subnormals of c are zeros", _float, _with_multiplicands(_flush, "c"),
           _rare),
    Mutant("register halves swapped", "the 16-bit halves of A's registers change places", _narrow, _halves_swapped),
    Mutant("registers swapped", "A's first two registers change places", lambda instruction: True, _registers_swapped),
    Mutant("LBO and SBO swapped", "the two offsets change places", full, _with_descriptors(_swap_offsets)),
    Mutant("swizzle ignored", "addresses are not swizzled, nor rows as wide as the span", full,
           _with_descriptors(_no_swizzle)),
    Mutant("next swizzle", "128B is taken for 64B, 64B for 32B, 32B for 128B", full,
           _with_descriptors(_next_swizzle)),
    Mutant("previous swizzle", "64B is taken for 128B, 32B for 64B, 128B for 32B", full,
           _with_descriptors(_previous_swizzle)),
    *(
        Mutant(f"{mode} swizzle assumed", f"no swizzle is taken for {mode}", full, _with_descriptors(_assumed(mode)))
        for mode in ("32B", "64B", "128B")
    ),
    Mutant("swizzle before start", "the offset is swizzled, then the start address added", full,
           _reading(_swizzled_before_start)),
    Mutant("K in elements", "K advances by the number of elements, not of bytes", _no_bytes,
           _reading(_elements_as_bytes)),
    Mutant("core rows of 32 bytes", "without swizzle, a row of a core matrix has 32 bytes, not 16", full,
           _reading(_wide_core_rows)),
    Mutant("major flipped", "B is read in the other major", _has_majors, _majors_flipped),
    Mutant("transposes ignored", "A and B are read K-major, whatever the immediates say", _has_majors,
           _transposes_ignored),
    Mutant("signs ignored", "scale_a and scale_b are one", _has_signs, _unsigned),
    Mutant("scale_d ignored", "the old accumulator is always added", full, _always_added),
)  # fmt: skip
"""Of dense and sparse instructions alike."""
