"""Operands that exercise an instruction, and the bits that it must return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim import catalog
from tcsim.model.instruction import Instruction
from tcsim.numbers.formats import Format

Array = npt.NDArray[Any]
FAMILIES = ("mma.sync", "mma.sp", "mma.sync.block_scale", "mma.sp.block_scale", "wmma.mma", "wgmma", "wgmma.sp")
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
    chain: int = 1  # how often the instruction runs, each time with d as c

    @property
    def name(self) -> str:
        """The instruction, and where A is if not in shared memory."""
        return self.instruction.mnemonic + (", A in registers" if self.in_registers else "")

    @property
    def in_registers(self) -> bool:
        """Whether A of a wgmma is in registers."""
        return "image" in self.inputs and self.inputs["a"].ndim == 3


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


def all_vectors(instructions: Sequence[Instruction], seed: int) -> list[Vectors]:
    """Of each instruction, and of wgmma with A in shared memory and in registers."""
    return [
        vectors(item, seed, in_registers)
        for item in instructions
        for in_registers in ((False, True) if any(form.name == "rs" for form in item.row.forms) else (False,))
    ]


def heating(instructions: Sequence[Instruction], seed: int, chain: int) -> list[Vectors]:
    """What draws most power: products of each format by warpgroups, or by warps where there are none, each many times on its own result."""
    same = [item for item in instructions if item.formats["c"] == item.formats["d"] and item.formats["d"].bits == 32]
    for family in ("wgmma", "mma.sync"):
        chosen = {item.formats["a"].name: item for item in same if item.row.family == family}
        if chosen:
            break
    return [vectors(item, seed, chain=chain) for item in chosen.values()]


def vectors(instruction: Any, seed: int, in_registers: bool = False, chain: int = 1) -> Vectors:
    """Half of the samples have codes whose every bit is random, half floats of close exponents; of a chain all.

    in_registers: A of a wgmma; chain: how often the instruction runs, d of each as c of the next.
    """
    rng = np.random.default_rng([seed, *instruction.mnemonic.encode(), *((1,) if in_registers else ())])
    codes = partial(_codes, rng, 0 if chain > 1 else 1)
    wide = instruction.row.family.startswith("wgmma")
    count = WIDE_VECTORS if wide else VECTORS
    formats = {name: instruction.formats[name] for name in "abc"}
    operands = instruction.operands
    own = operands["c" if "c" in operands else "d"]
    c = codes(formats["c"], (count, own.lanes, own.registers))
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
            inputs[name] = codes(formats[name], (count, 32, operands[name].registers))
        if "scale_a" in instruction.row.forms[0]:
            scale = instruction.scale_formats["scale_a"]
            more |= {name: codes(scale, (count, 32)) for name in ("scale_a", "scale_b")}
            inputs |= more
            inputs |= {f"{part}_id_{side}": np.zeros(count, np.uint32) for part in ("byte", "thread") for side in "ab"}
        expected = _chained(instruction, chain, c, a=inputs["a"], b=inputs["b"], **more)
        return Vectors(instruction, inputs, expected, chain)
    of_a = tcsim.MatrixDescriptor.for_tile(64, 32, "e4m3", swizzle="NONE")  # bytes: 32 of K, of a sparse A's B 64
    of_b = tcsim.MatrixDescriptor.for_tile(WIDTH, 64 if more else 32, "e4m3", swizzle="NONE")
    sizes = [len(tile.image(np.zeros((tile.rows, tile.k), np.uint8))) for tile in (of_a, of_b)]
    images = [codes(formats[name], (count, size // 4)).view(np.uint8) for name, size in zip("ab", sizes, strict=True)]
    image = np.concatenate(images, axis=1)
    a, b = np.full(count, of_a.descriptor.encode(), np.uint64), of_b.descriptor.encode() + (sizes[0] >> 4)
    form = next(form for form in instruction.row.forms if form.name == ("rs" if in_registers else "ss"))
    if in_registers:
        a = codes(formats["a"], (count, 128, form["a"].count))
    expected = _chained(instruction, chain, c, smem=image, a=a, b=b, **more)
    inputs |= {"image": image, "a": a, "b": np.full(count, b, np.uint64), "scale_d": np.ones(count, np.uint32)}
    for operand in form.operands:
        if operand.kind == "immediate" and operand.name != "selector":
            inputs[operand.name] = np.full(count, int(operand.name.startswith("scale")), np.int32)
    return Vectors(instruction, inputs, expected, chain)


def _chained(instruction: Any, chain: int, c: Array, **more: Any) -> Array:
    """The registers of d after a chain."""
    for _ in range(chain):
        c = instruction.execute(c=c, **more)
    return c


def _codes(rng: np.random.Generator, first: int, format_: Format, shape: tuple[int, ...]) -> Array:
    """Words of codes, uint32 of a shape whose first axis is the sample; from the first on, all or every other sample has close exponents."""
    words = rng.integers(0, 1 << 32, shape, np.uint32)
    if format_.kind != "float" or format_.bits < 8:
        return words
    some = slice(first, None, 1 + first)
    close = words[some].copy()
    own = close.view(f"u{format_.container_bits // 8}")
    low = (
        format_.container_bits - format_.signed - format_.exponent_bits
    )  # of the exponent: tf32 has bits below its fraction
    exponent = format_.bias - _WINDOW // 2 + (own >> low) % _WINDOW
    keep = ~np.array((1 << format_.exponent_bits) - 1 << low, own.dtype)
    own[...] = own & keep | (exponent << low).astype(own.dtype)
    words[some] = close
    return words


def metadata(rng: np.random.Generator, format_: Format, shape: tuple[int, ...]) -> Array:
    """Words of metadata that say which elements of each group are kept."""
    valid = np.array(_NIBBLES.get(format_.container_bits, _FOURS), np.uint32)
    nibbles = valid[rng.integers(0, len(valid), (*shape, 8))]
    return np.bitwise_or.reduce(nibbles << (4 * np.arange(8, dtype=np.uint32)), axis=-1)
