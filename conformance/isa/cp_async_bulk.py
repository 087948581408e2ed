"""cp.async.bulk and cp.reduce.async.bulk under test: images of memory, ranges, masks, elements of every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.isa.copies import Copies, class_of, random_bytes
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant
from hwkernels.probes.images import IMAGE_BYTES
from tcsim.isa.copies import GROUPS, CopyInstruction
from tcsim.isa.cp_async_bulk.semantics import BULK_BYTES
from tcsim.numbers.formats import FORMATS

_STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def _prefetches(instruction: CopyInstruction) -> bool:
    return instruction.row.operation == "prefetch"


class BulkTestbench(Copies):
    """Bulk copies and reductions, one a block."""

    def __init__(self) -> None:
        super().__init__()
        name, mistake = "prefetch taken for a copy", "what lies in shared memory is stored"
        self.mutants = (*self.mutants, Mutant(name, mistake, _prefetches, self._stored))

    def _stored(self, instruction: CopyInstruction, inputs: Inputs) -> npt.NDArray[np.uint32]:
        return self.model(tcsim.instruction(_STORE, arch=instruction.arch.name), inputs)  # type: ignore[arg-type]

    def classes(self, instruction: CopyInstruction) -> list[str]:
        """Random ranges and the whole image; of reductions, elements at the ends of their type. None where it reports."""
        if instruction.row.reports:
            return []
        if instruction.row.operation in GROUPS:
            return [class_of(form) for form in instruction.forms]
        reduction = instruction.row.reduction
        if reduction is None:
            return ["uniform", "whole"]
        return ["uniform", "whole", "edges", *(["specials"] if reduction.float else [])]

    def inputs(self, instruction: CopyInstruction, name: str, seed: int, samples: int) -> Inputs:
        """Images uint8 (samples, 1024), source, destination, size uint32 (samples, 1), options uint32 (samples, 4)."""
        stream, row = Stream(instruction.mnemonic, name, seed), instruction.row
        lines = IMAGE_BYTES // BULK_BYTES
        size = 1 + stream.below(lines, (samples, 1)) if name != "whole" else np.full((samples, 1), lines)
        start, end = ((stream.below(2**20, (samples, 1)) * (lines - size + 1)) >> 20 for _ in range(2))
        start -= start % (row.alignment // BULK_BYTES)
        options = np.zeros((samples, 4), np.int64)
        options[:, 0] = stream.below(1 << 16, (samples,)) if row.has("byte_mask") else 0
        if row.has("ignore_left"):
            options[:, 1:3] = stream.below(16, (samples, 2))
            options[:, 1:3] = np.where(size > 1, options[:, 1:3], options[:, 1:3] // 2)
        options[:, 3] = 1 if row.has("cta_mask") else 0
        images = {key: self._image(instruction, name, samples, stream) for key in ("memory", "smem")}
        places = {"source": start, "destination": end, "size": size}
        form = next((at for at, form in enumerate(row.forms) if class_of(form) == name), 0)
        return {
            **images,
            **{key: (value * BULK_BYTES).astype(np.uint32) for key, value in places.items()},
            "options": options.astype(np.uint32),
            "form": np.full(samples, form, np.uint32),
        }

    @staticmethod
    def _image(instruction: CopyInstruction, name: str, samples: int, stream: Stream) -> Array:
        reduction = instruction.row.reduction
        if reduction is None or (name in ("uniform", "whole") and not reduction.float):
            return random_bytes(stream, (samples, IMAGE_BYTES))
        kind, bits = f"<u{reduction.bits // 8}", reduction.bits
        shape = (samples, IMAGE_BYTES // (bits // 8))
        words = stream.words(shape).astype(kind)
        top = (1 << bits) - 1
        if not reduction.float:
            table = np.array([0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1, 100], np.uint64).astype(kind)
            return table[stream.below(len(table), shape)].view(np.uint8)
        format = FORMATS[reduction.type]
        half, infinity = np.array(1 << (bits - 1), kind), format.infinity_code or 0
        if name == "specials":
            quiet = infinity + 1
            table = np.array(
                [0, 1, infinity, infinity - 1, quiet, top >> 1, format.bias << format.fraction_bits], np.uint64
            )
            chosen = table[stream.below(len(table), shape)].astype(kind)
            return np.where(stream.chance(1, 2, shape), chosen | half, chosen).view(np.uint8)
        magnitude = words & ~half
        low = magnitude >> np.array(3, kind) if name == "edges" else magnitude
        if name == "edges":  # subnormals and small numbers, and zeros of either sign
            low = np.where(stream.chance(1, 4, shape), low & np.array((1 << format.fraction_bits) - 1, kind), low)
            low = np.where(stream.chance(1, 8, shape), np.array(0, kind), low)
        finite = np.where(low >= np.array(infinity, kind), low % np.array(infinity, kind), low)
        return (finite | (words & half)).astype(kind).view(np.uint8)

    def model(self, instruction: CopyInstruction, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """The memory that was written, as words (samples, 256)."""
        item: Any = instruction
        row = instruction.row
        if row.operation in GROUPS:
            item = tcsim.instruction(_STORE, arch=instruction.arch.name)
        takes = set(item.forms[0].names)
        found = []
        for sample in range(len(inputs["form"])):
            given = {name: inputs[name][sample] for name in ("memory", "smem")}
            given |= {name: int(inputs[name][sample, 0]) for name in ("source", "destination", "size")}
            if row.operation == "prefetch":
                del given["smem"], given["destination"]
            for place, name in enumerate(("byte_mask", "ignore_left", "ignore_right", "cta_mask")):
                if name in takes:
                    given[name] = int(inputs["options"][sample, place])
            if row.has("cta_mask"):
                given["smem"] = given["smem"][None, :]
            found.append(item.execute(**given).reshape(-1))
        return np.ascontiguousarray(found).view("<u4")


BULK = BulkTestbench()

TESTBENCHES = {"cp.async.bulk": BULK, "cp.reduce.async.bulk": BULK}
