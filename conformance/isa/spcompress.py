"""spcompress and spdecompress under test: registers of many threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from tcsim.isa.spcompress import CompressionRow
from tcsim.layouts.compression import ELEMENTS, OPERATIONS, Selection, elements, packed
from tcsim.numbers.formats import FORMATS

Words = npt.NDArray[np.uint32]


def _compresses(instruction: Any) -> bool:
    return bool(instruction.row.operation == "compress")


def _changed_descriptor(flip: int) -> Any:
    def run(instruction: Any, inputs: Inputs) -> Array:
        return COMPRESSION.model(instruction, inputs | {"spdesc": inputs["spdesc"] ^ np.uint32(flip)})

    return run


def _last_kept(instruction: Any, inputs: Inputs) -> Array:
    """Metadata indices counted from the last element."""
    row = instruction.row
    indices = elements(inputs["mdata"], row.index_bits).astype(np.int64)
    mirrored = packed(np.clip(row.target - 1 - indices, 0, None), row.index_bits)
    return COMPRESSION.model(instruction, inputs | {"mdata": mirrored})


def _pairs_swapped(instruction: Any, inputs: Inputs) -> Array:
    row: CompressionRow = instruction.row
    right, first = COMPRESSION.model(instruction, inputs), instruction.row.width("mdata")
    kept = elements(right[:, first:], row.bits)
    swapped = kept.reshape(len(kept), -1, 2)[..., ::-1].reshape(kept.shape)
    return np.concatenate([right[:, :first], packed(swapped, row.bits)], axis=-1)


class CompressionTestbench(Testbench):
    """Registers in, registers out."""

    count = 96  # threads
    mutants = (
        Mutant("other extreme", "the smallest stay where the greatest should", _compresses, _changed_descriptor(2)),
        Mutant("other magnitudes", "magnitudes select where values should", _compresses, _changed_descriptor(1)),
        Mutant("pairs swapped", "the second of a group comes first", _compresses, _pairs_swapped),
        Mutant("indices from the end", "an index counts from the last element", lambda i: not _compresses(i), _last_kept),
    )  # fmt: skip

    def classes(self, instruction: Any) -> list[str]:
        """Elements that are all different, with and without NaNs; indices all different, and any."""
        return ["apart", "nans"] if _compresses(instruction) else ["distinct", "uniform"]

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """data and spdesc, or mdata and cdata."""
        row, stream = instruction.row, Stream(instruction.mnemonic, name, seed)
        if not _compresses(instruction):
            return self._compressed(row, name, stream, samples)
        kinds = ELEMENTS[row.bits]
        kind = stream.below(len(kinds), (samples,))
        codes = np.zeros((samples, row.width("data") * 32 // row.bits), np.uint32)
        for number, format in enumerate(kinds):
            own = self._codes(format, name, stream, codes.shape)
            codes = np.where((kind == number)[:, None], own, codes)
        operation = stream.below(len(OPERATIONS), (samples,))
        selections = [Selection(OPERATIONS[o], kinds[k]) for o, k in zip(operation, kind, strict=True)]
        return {
            "data": packed(codes, row.bits),
            "spdesc": np.array([selection.encode() for selection in selections], np.uint32),
        }

    @staticmethod
    def _codes(name: str, kind: str, stream: Stream, shape: tuple[int, ...]) -> Words:
        """Codes whose neighbours, in groups of four, have different magnitudes, in random order; at most two of them are NaNs."""
        format = FORMATS[name]
        bits = format.bits - format.signed
        order = np.argsort(stream.words((*shape[:-1], shape[-1] // 4, 4)), axis=-1).reshape(shape)
        magnitude = stream.below(1 << (bits - 2), shape) * 4 + order
        if format.kind == "float" and format.nan != "none":
            top = ((1 << format.exponent_bits) - 1) << format.fraction_bits
            nan = magnitude > top if format.nan == "ieee" else magnitude == (1 << bits) - 1
            allowed = (order < 2) & (kind == "nans")
            if kind == "nans":  # some that are NaNs for sure
                force = allowed & stream.chance(1, 4, shape)
                magnitude, nan = np.where(force, (1 << bits) - 1, magnitude), nan | force
            magnitude = np.where(nan & ~allowed, magnitude & ~(1 << (bits - 1)), magnitude)
        negative = stream.chance(1, 2, shape) & format.signed
        if format.kind == "integer":
            return (np.where(negative, -magnitude, magnitude) & ((1 << format.bits) - 1)).astype(np.uint32)
        return (magnitude | np.where(negative, 1 << bits, 0)).astype(np.uint32)

    @staticmethod
    def _compressed(row: CompressionRow, name: str, stream: Stream, samples: int) -> Inputs:
        groups = (samples, row.count)
        if name == "distinct":
            order = np.argsort(stream.words((*groups, row.target)), axis=-1)[..., : row.source]
        else:
            order = stream.below(row.target, (*groups, row.source))
        indices = order.reshape(samples, -1)
        kept = stream.words((samples, row.width("cdata"))).astype(np.uint32)
        return {"mdata": packed(indices, row.index_bits), "cdata": kept}

    def model(self, instruction: Any, inputs: Inputs) -> Words:
        """Registers (threads, n)."""
        if not _compresses(instruction):
            return np.asarray(instruction.execute(**inputs), np.uint32)
        row = instruction.row
        out = np.zeros((len(inputs["data"]), row.width("mdata") + row.width("cdata")), np.uint32)
        for descriptor in np.unique(inputs["spdesc"]):
            own = inputs["spdesc"] == descriptor
            out[own] = np.concatenate(instruction.execute(inputs["data"][own], int(descriptor)), axis=-1)
        return out

    def explain(self, instruction: Any, inputs: Inputs, place: Place) -> Expected:
        """A register of a thread."""
        thread, register = place
        given = [
            f"{key} {' '.join(f'{int(w):08x}' for w in np.atleast_1d(words[thread])[:8])}"
            for key, words in inputs.items()
        ]
        return Expected({"thread": thread, "register": register}, "; ".join(given), ())


COMPRESSION = CompressionTestbench()

TESTBENCHES = {"spcompress": COMPRESSION}
