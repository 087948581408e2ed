"""Operands that exercise an instruction, and the bits that it must return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim import catalog
from tcsim.model.instruction import Instruction
from tcsim.numbers.formats import Format

Array = npt.NDArray[Any]
FAMILIES = ("mma.sync", "mma.sp", "wmma.mma", "wgmma", "wgmma.sp")
WIDTH = 128  # columns of the wgmma that are screened: those of other widths are the same datapath
VECTORS = 36  # of an instruction of one warp
WIDE_VECTORS = 9  # of one of a warpgroup
_NIBBLES = {32: (0x4, 0xE)}  # metadata of groups of two; of groups of four:
_FOURS = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)
_WINDOW = 4  # exponents of the close class: sums in which every product counts


@dataclass(frozen=True, eq=False)
class Vectors:
    """A batch for a probe: its inputs by name, and the registers of d, the sample first."""

    instruction: Instruction
    inputs: dict[str, Array]
    expected: Array  # uint32 (samples, lanes, registers)


def screened(arch: str, target: str) -> list[Instruction]:
    """The instructions of a chip that multiply one matrix by another, wgmma of one width.

    >>> len({item.row.family for item in screened("sm_90", "sm_90a")})
    5
    """
    found = []
    for row in catalog.rows().values():
        if (
            row.family in FAMILIES
            and target in row.targets
            and not row.dropped
            and (row.shape[1] == WIDTH or "wgmma" not in row.family)
        ):
            instruction = tcsim.instruction(row.mnemonic, arch=arch)
            if getattr(instruction, "matrices", 1) == 1:
                found.append(instruction)
    return found


def vectors(instruction: Any, seed: int) -> Vectors:
    """Half of the samples have codes whose every bit is random, half floats of close exponents."""
    rng = np.random.default_rng([seed, *instruction.mnemonic.encode()])
    wide = instruction.row.family.startswith("wgmma")
    count = WIDE_VECTORS if wide else VECTORS
    formats = {name: instruction.formats[name] for name in "abc"}
    operands = instruction.operands
    own = operands["c" if "c" in operands else "d"]
    c = codes(rng, formats["c"], (count, own.lanes, own.registers))
    inputs: dict[str, Array] = {"c": c}
    more: dict[str, Any] = {}
    if "metadata" in instruction.row.forms[0]:
        lanes = 128 if wide else 32
        inputs["metadata"] = metadata(rng, formats["a"], (count, lanes))
        inputs["selector"] = np.zeros(count, np.uint32)
        more = {"metadata": inputs["metadata"], "selector": 0}
        if wide:
            inputs["metadata"] = inputs["metadata"][..., None]
    if not wide:
        for name in "ab":
            inputs[name] = codes(rng, formats[name], (count, 32, operands[name].registers))
        return Vectors(instruction, inputs, instruction.execute(a=inputs["a"], b=inputs["b"], c=c, **more))
    of_a = tcsim.MatrixDescriptor.for_tile(64, 32, "e4m3", swizzle="NONE")  # bytes: 32 of K, of a sparse A's B 64
    of_b = tcsim.MatrixDescriptor.for_tile(WIDTH, 64 if more else 32, "e4m3", swizzle="NONE")
    sizes = [len(tile.image(np.zeros((tile.rows, tile.k), np.uint8))) for tile in (of_a, of_b)]
    images = [
        codes(rng, formats[name], (count, size // 4)).view(np.uint8) for name, size in zip("ab", sizes, strict=True)
    ]
    image = np.concatenate(images, axis=1)
    a, b = of_a.descriptor.encode(), of_b.descriptor.encode() + (sizes[0] >> 4)
    expected = instruction.execute(smem=image, a=a, b=b, c=c, **more)
    inputs |= {"image": image, "a": np.full(count, a, np.uint64), "b": np.full(count, b, np.uint64)}
    inputs["scale_d"] = np.ones(count, np.uint32)
    for operand in instruction.row.forms[0].operands:
        if operand.kind == "immediate" and operand.name != "selector":
            inputs[operand.name] = np.full(count, int(operand.name.startswith("scale")), np.int32)
    return Vectors(instruction, inputs, expected)


def codes(rng: np.random.Generator, format_: Format, shape: tuple[int, ...]) -> Array:
    """Words of codes, uint32 of a shape whose first axis is the sample."""
    words = rng.integers(0, 1 << 32, shape, np.uint32)
    if format_.kind != "float" or format_.container_bits not in (8, 16, 32, 64):
        return words
    close = words[1::2].copy()
    own = close.view(f"u{format_.container_bits // 8}")
    low = format_.container_bits - 1 - format_.exponent_bits  # of the exponent: tf32 has bits below its fraction
    exponent = format_.bias - _WINDOW // 2 + (own >> low) % _WINDOW
    keep = ~np.array((1 << format_.exponent_bits) - 1 << low, own.dtype)
    own[...] = own & keep | (exponent << low).astype(own.dtype)
    words[1::2] = close
    return words


def metadata(rng: np.random.Generator, format_: Format, shape: tuple[int, ...]) -> Array:
    """Words of metadata that say which elements of each group are kept."""
    valid = np.array(_NIBBLES.get(format_.container_bits, _FOURS), np.uint32)
    nibbles = valid[rng.integers(0, len(valid), (*shape, 8))]
    return np.bitwise_or.reduce(nibbles << (4 * np.arange(8, dtype=np.uint32)), axis=-1)
