"""tensormap.replace, .query and .cp_fenceproxy and prefetch.tensormap under test: the 128 bytes afterwards.

Of a query the predicate takes the place of the first word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison import Comparison, Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.tensormap import BODY
from tcsim.isa.tensormap import TensorMapCopy, TensorMapPrefetch, TensorMapQuery, TensorMapUpdate
from tcsim.tma.bits import BYTES, COMMON

LETTERS = "abcdefghijklmnop"
"""Names of the operand forms in input classes, which are letters only: forma, formb, ..."""


class UpdateTestbench(Testbench):
    """Random bytes and values for every operand form."""

    count, bytewise = 64, True

    def __init__(self) -> None:
        self.mutants = (
            Mutant("another field", "it replaces a field that PTX names otherwise", _replaces, _other_field),
            Mutant("nothing copied", "the destination stays as it was", _is(TensorMapCopy), _inverted),
            Mutant("halves exchanged", "the last 64 bytes are copied before the first", _is(TensorMapCopy), _exchanged),
            Mutant("prefetch taken for a replacement", "it writes the rank", _is(TensorMapPrefetch), _as_replacement),
            Mutant("the bit above", "it reads the bit above", _is(TensorMapQuery), _bit_above),
            Mutant("ordinal ignored", "it replaces the first dimension's field", _has_ordinals, _first_ordinal),
            Mutant("sizes stored as they are", "it stores a size, not a size less one", _stores_less, _one_more),
        )

    def classes(self, instruction: Any) -> list[str]:
        """One for each operand form."""
        return [f"form{LETTERS[place]}" for place in range(len(BODY.variants(instruction.row)))]

    def kept(self, instruction: Any, name: str) -> int:
        """A few; all where bits are passed over, because a digest would hold them."""
        return self.count if instruction.row.unsettled else 2

    def outputs(self, instruction: Any, samples: int) -> int:
        """Bytes."""
        return samples * BYTES

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """maps uint8 (samples, 128), value uint64 (samples,), form uint32 (samples,)."""
        stream = Stream(instruction.mnemonic, name, seed)
        row, form = instruction.row, LETTERS.index(name[-1])
        value = stream.words((samples,)) >> np.uint64(32 if row.field and not row.wide else 0)
        variant = BODY.variants(instruction.row)[form]
        if variant.startswith("v"):
            value = np.full(samples, int(variant[1:]), np.uint64)
        maps = stream.words((samples, BYTES // 8)).astype("<u8").view(np.uint8)
        return {"maps": maps, "value": value, "form": np.full(samples, form, np.uint32)}

    def model(self, instruction: Any, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Words of the bytes."""
        return _answer(instruction, inputs, _ordinal(instruction, inputs), inputs["value"])

    def compare(self, instruction: Any, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Byte by byte, without the bits that depend on the assembler (`TensorMapRow.unsettled`)."""
        mask = _settled(instruction).view("<u4")
        return super().compare(instruction, inputs, hardware & mask, model & mask)

    def explain(self, instruction: Any, inputs: Inputs, place: Place) -> Expected:
        """A byte of a map."""
        sample, at = place
        source = f"value {int(inputs['value'][sample]):#x} into {int(inputs['maps'][sample, at]):#04x}"
        return Expected({"sample": sample, "byte": at}, source, ())


def _settled(instruction: Any) -> Array:
    """The bits that are compared: uint8 (128,)."""
    bits = (1 << 8 * BYTES) - 1
    for item in COMMON:
        if item.name in instruction.row.unsettled:
            bits &= ~item.mask
    return np.frombuffer(bits.to_bytes(BYTES, "little"), np.uint8)


def _ordinal(instruction: Any, inputs: Inputs) -> int | None:
    variant = BODY.variants(instruction.row)[int(inputs["form"][0])]
    return int(variant[1:]) if variant.startswith("o") else None


def _answer(instruction: Any, inputs: Inputs, ordinal: int | None, value: Array) -> npt.NDArray[np.uint32]:
    maps = np.ascontiguousarray(inputs["maps"], np.uint8)
    if isinstance(instruction, TensorMapUpdate):
        given = value if not instruction.row.immediate else int(value[0])
        maps = instruction.execute(maps, given, ordinal)
    elif isinstance(instruction, TensorMapCopy):
        maps = instruction.execute(maps)
    words = np.ascontiguousarray(maps).view("<u4").astype(np.uint32)
    if isinstance(instruction, TensorMapQuery):
        words[:, 0] = instruction.execute(maps)
    return words


_OTHERS = {
    "global_address": "global_stride", "global_stride": "global_address", "rank": "box_dim", "box_dim": "element_stride",
    "global_dim": "box_dim", "element_stride": "box_dim", "elemtype": "fill_mode", "interleave_layout": "swizzle_mode",
    "swizzle_mode": "interleave_layout", "swizzle_atomicity": "interleave_layout", "fill_mode": "interleave_layout",
}  # fmt: skip
"""For each field of tensormap.replace another one."""


def _replaces(instruction: Any) -> bool:
    return isinstance(instruction, TensorMapUpdate)


def _is(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda instruction: isinstance(instruction, kind)


def _other_field(instruction: Any, inputs: Inputs) -> Array:
    row = replace(instruction.row, field=_OTHERS[instruction.row.field])
    return _answer(replace(instruction, row=row), inputs, _ordinal(instruction, inputs), inputs["value"])


def _inverted(instruction: Any, inputs: Inputs) -> Array:
    """What the probe fills the destination with."""
    return _answer(instruction, {**inputs, "maps": ~inputs["maps"]}, None, inputs["value"])


def _exchanged(instruction: Any, inputs: Inputs) -> Array:
    return _answer(instruction, {**inputs, "maps": np.roll(inputs["maps"], BYTES // 2, axis=-1)}, None, inputs["value"])


def _as_replacement(instruction: Any, inputs: Inputs) -> Array:
    other = tcsim.instruction("tensormap.replace.tile.rank.global.b1024.b32", arch=instruction.arch.name)
    return _answer(other, inputs, None, inputs["value"] & np.uint64(0xFFFFFFFF))


def _bit_above(instruction: Any, inputs: Inputs) -> Array:
    doubled = np.packbits(
        np.roll(np.unpackbits(inputs["maps"], axis=-1, bitorder="little"), -1, axis=-1), axis=-1, bitorder="little"
    )
    words = _answer(instruction, inputs, None, inputs["value"])
    words[:, 0] = instruction.execute(doubled)
    return words


def _has_ordinals(instruction: Any) -> bool:
    return bool(instruction.row.ordinals)


def _first_ordinal(instruction: Any, inputs: Inputs) -> Array:
    return _answer(instruction, inputs, 0, inputs["value"])


def _stores_less(instruction: Any) -> bool:
    return _has_ordinals(instruction) and not instruction.row.wide


def _one_more(instruction: Any, inputs: Inputs) -> Array:
    more = (inputs["value"] + np.uint64(1)) & np.uint64(0xFFFFFFFF)
    return _answer(instruction, inputs, _ordinal(instruction, inputs), more)


TESTBENCHES = {"tensormap": UpdateTestbench()}
