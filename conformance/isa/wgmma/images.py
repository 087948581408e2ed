"""What a warpgroup multiply finds in shared memory: tiles as a kernel would lay them out, or random descriptors over random bytes.

The recorded cases were made by these functions: what they make of a recorded class must not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.stimuli import classes as input_classes
from conformance.stimuli.classes import Codes, Matrices, Problem
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs
from tcsim.descriptors.matrix import FORMS, Major, MatrixDescriptor
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.swizzle import SWIZZLES
from tcsim.numbers.formats import Format

FULL_N = 64  # the N whose rows run every class; the others run one class with A in shared memory, one with registers
IMAGE_BYTES = 32 * 1024
MODES = {"none": "NONE", "small": "32B", "medium": "64B", "large": "128B"}
_BY_MODE = sorted(FORMS["sm_90"].modes, key=FORMS["sm_90"].modes.__getitem__)
MAJORS: tuple[Major, Major] = ("K", "MN")


@dataclass(frozen=True)
class TileProblem(Problem):
    """The dense problem of one warpgroup multiply: of a sparse one, that of the kept elements."""

    multiply: WarpgroupMultiply

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, and the products of one result."""
        m, n, _ = self.multiply.shape
        return m, n, self.multiply.operands["a"].shape[1]

    def format(self, name: str) -> Format:
        """The format of an operand, B's too."""
        return self.multiply.formats[name]

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns)."""
        m, n, k = self.shape
        return {"a": (self.count, m, k), "b": (self.count, k, n), "c": (self.count, m, n)}[name]


def problem(instruction: WarpgroupMultiply, count: int) -> TileProblem:
    """What the input classes fill."""
    return TileProblem(instruction, count, instruction)  # type: ignore[arg-type]


def immediates(samples: int, trans_a: int = 0, trans_b: int = 0) -> Inputs:
    """The immediates of a batch, no sign changed."""
    values = {"scale_a": 1, "scale_b": 1, "trans_a": trans_a, "trans_b": trans_b}
    return {name: np.full(samples, value, np.int32) for name, value in values.items()}


# --- tiles laid out as a kernel would lay them out


def canonical(k_bytes: int, major: int, swizzle: str) -> dict[str, Any]:
    """Descriptor offsets of a packed tile of 16-bit or K-major elements, one instruction deep."""
    span = {"NONE": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    if major == 0:  # K-major: 8-row groups of 16 (or span) bytes
        if swizzle == "NONE":
            return {"leading_byte_offset": 128, "stride_byte_offset": 8 * k_bytes}
        return {"leading_byte_offset": 16, "stride_byte_offset": 8 * span}
    groups = k_bytes // 16  # of 8 k
    if swizzle == "NONE":  # a core matrix is 8 k of 16 bytes along MN
        return {"leading_byte_offset": 128, "stride_byte_offset": 128 * groups}
    return {"leading_byte_offset": 8 * span * groups, "stride_byte_offset": 8 * span}


def tiles(
    instruction: WarpgroupMultiply, matrices: Matrices, swizzles: tuple[str, str], majors: tuple[int, int]
) -> Inputs:
    """Matrices a (samples, 64, K or K / 2), b (samples, K, N) and c as images, descriptors, registers and immediates."""
    n, samples = instruction.shape[1], len(matrices["a"])
    image = np.zeros((samples, IMAGE_BYTES + (n > FULL_N) * IMAGE_BYTES), np.uint8)
    starts = {"a": 0, "b": 8192 if n <= FULL_N else 16384}
    out: Inputs = {}
    for name, codes, swizzle, major in zip(
        "ab", (matrices["a"], matrices["b"].swapaxes(-1, -2)), swizzles, majors, strict=True
    ):
        format = instruction.formats[name]
        k_bytes = codes.shape[-1] * (format.bits if format.bits < 8 else format.container_bits) // 8
        descriptor = MatrixDescriptor(starts[name], **canonical(k_bytes, major, swizzle), swizzle=swizzle)
        _place(image, descriptor, codes, format, MAJORS[major])
        out[name] = np.full(samples, descriptor.encode(), np.uint64)
    return {"image": image, **out, "c": instruction.registers("c", matrices["c"]), **immediates(samples, *majors)}


def _place(image: Codes, descriptor: MatrixDescriptor, codes: Codes, format: Format, major: Major) -> None:
    """Write a tile (samples, rows, k) where a descriptor reads it."""
    rows, k = codes.shape[1:]
    address = descriptor.addresses(rows, k, format, major)
    if format.kind == "bit":
        octets = np.packbits(codes, axis=-1, bitorder="little")
        image[:, address[:, ::8]] = octets
        return
    size = format.container_bits // 8
    octets = np.ascontiguousarray(codes).view(np.uint8).reshape(*codes.shape, size)
    image[:, address[..., None] + np.arange(size)] = octets


# --- random descriptors over random bytes


def random_descriptors(
    instruction: WarpgroupMultiply, mode: str, majors: tuple[int, ...], stream: Stream, samples: int, far: bool = True
) -> Inputs:
    """Random start, LBO and SBO over random bytes, all within the image.

    `far`: an LBO that a swizzled K-major tile of one span does not read takes any value, else one that stays in the image.
    """
    format_a = instruction.formats["a"]
    size = max(1, format_a.container_bits // 8)
    shape = (samples, IMAGE_BYTES // size)
    if format_a.kind == "float":
        values = input_classes.window(format_a, stream, shape, -4, 4)
    else:
        values = stream.words(shape).astype(format_a.dtype)
    image = np.ascontiguousarray(values).view(np.uint8).reshape(samples, IMAGE_BYTES)
    kind = "wide" if format_a.kind == "float" else "uniform"
    c = input_classes.CLASSES[kind].make(problem(instruction, samples), stream)["c"]
    out: Inputs = {"image": image, "c": instruction.registers("c", c), **immediates(samples, *majors)}
    for operand in "ab":
        start, leading, stride = (stream.below(limit, (samples,)).astype(np.uint64) for limit in (512, 128, 128))
        if far and mode != "none" and majors["ab".index(operand)] == 0:
            leading = stream.below(1 << 14, (samples,)).astype(np.uint64)  # not read: anything
        code = np.uint64(FORMS["sm_90"].modes[MODES[mode]])
        out[operand] = start | leading << np.uint64(16) | stride << np.uint64(32) | code << np.uint64(62)
    out["scale_d"] = np.ones(samples, np.uint32)
    return out


def with_base_offsets(inputs: Inputs, stream: Stream) -> Inputs:
    """Random descriptors with a base_offset from 1 to 7; in every other sample both tiles start where the pattern does."""
    out = dict(inputs)
    for name in "ab":
        value = inputs[name]
        period = np.array([SWIZZLES[swizzle].period // 16 for swizzle in _BY_MODE], np.uint64)[value >> np.uint64(62)]
        at_start = np.arange(len(value)) % 2 == 0
        value = np.where(at_start, value - (value & np.uint64(0x3FFF)) % period, value)
        out[name] = value | (stream.below(7, value.shape).astype(np.uint64) + np.uint64(1)) << np.uint64(49)
    return out
