"""The exercises of cp.async, cp.async.bulk and cp.reduce.async.bulk: images of memory, addresses, sizes, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison.moved import LIMIT, MoveMismatch, require_same_shape
from conformance.isa.cp_async.mutants import WRONG_COPIES
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli.stream import Stream
from hwkernels.probes.cp_async import MEMORY_BYTES
from hwkernels.probes.images import IMAGE_BYTES, LANES
from tcsim.isa.copies import GROUPS, CopyInstruction
from tcsim.isa.cp_async_bulk.semantics import BULK_BYTES
from tcsim.memory.mbarrier import MBarrier
from tcsim.model.form import Form
from tcsim.numbers.formats import FORMATS

_SIZES = {4: "four", 8: "eight", 16: "sixteen"}
_KINDS = {"source_size": "filled", "ignore": "ignored"}
_GROUPS = {"": "copied", "N=0": "waitnone", "N=1": "waitone", "N=7": "waitseven"}
SAMPLES, KEPT = 8, 2


def class_of(form: Form) -> str:
    """The input class that runs a list of operands: letters only."""
    if "size" in form and form["size"].values:
        return _SIZES[form["size"].values[0]] + "".join(word for name, word in _KINDS.items() if name in form)
    return _GROUPS.get(form.name, "arrived")


def _bytes(stream: Stream, shape: tuple[int, int]) -> Array:
    return stream.words((shape[0], shape[1] // 8)).astype("<u8").view(np.uint8)


class _Copies:
    wrong_models: tuple[WrongModel, ...] = WRONG_COPIES

    def samples(self, instruction: CopyInstruction, name: str) -> int:
        """Images of a case."""
        return SAMPLES

    def kept(self, instruction: CopyInstruction, name: str) -> int:
        """Two images; all where bytes are passed over, because a digest would hold them."""
        return SAMPLES if instruction.row.has("ignore_left") else KEPT

    def outputs(self, instruction: CopyInstruction, samples: int) -> int:
        """Bytes."""
        return samples * IMAGE_BYTES

    def compare(self, instruction: CopyInstruction, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Byte by byte; bytes that the manual leaves undefined are passed over.

        Raises ValueError if the results have another shape.
        """
        require_same_shape(hardware, model)
        ours, theirs = (np.ascontiguousarray(array).view(np.uint8) for array in (model, hardware))
        counted = np.ones(ours.shape, bool)
        if instruction.row.has("ignore_left"):
            item: Any = instruction
            for sample in range(len(ours)):
                size, (_, left, right, _) = int(inputs["size"][sample, 0]), inputs["options"][sample].tolist()
                counted[sample, item.undefined_bytes(inputs["destination"][sample], size, left, right)] = False
        wrong = np.argwhere((ours != theirs) & counted)
        first = []
        for sample, at in wrong[:LIMIT].tolist():
            source = _told(inputs, sample, at)
            codes = f"{theirs[sample, at]:#04x}", f"{ours[sample, at]:#04x}"
            first.append(MoveMismatch(f"sample {sample} address {at:#x}", source, *codes, _steps(inputs, sample)))
        return Comparison(int(counted.sum()), len(wrong), tuple(first))


def _told(inputs: Inputs, sample: int, at: int) -> str:
    """Which copy writes an address."""
    sizes = np.broadcast_to(inputs["size"][sample], inputs["source"][sample].shape)
    for thread, (start, to, size) in enumerate(
        zip(inputs["source"][sample], inputs["destination"][sample], sizes, strict=True)
    ):
        if to <= at < to + size:
            return f"byte {at - int(to)} of {int(size)} from {int(start):#x}, copy {thread}"
    return "no copy covers it"


def _steps(inputs: Inputs, sample: int) -> tuple[str, ...]:
    given = {name: inputs[name][sample].tolist() for name in ("source", "destination", "size") if name in inputs}
    return tuple(f"{name}: {values}" for name, values in given.items())


class AsyncExercise(_Copies):
    """cp.async by every thread of a warp."""

    def classes(self, instruction: CopyInstruction) -> list[str]:
        """One for each list of operands."""
        return [class_of(form) for form in instruction.forms]

    def inputs(self, instruction: CopyInstruction, name: str, seed: int, samples: int) -> Inputs:
        """Images uint8, and source, destination, reads uint32 (samples, 32); size and form uint32 (samples, 1), (samples,).

        `reads` is what the kernel gets: the source size, or whether the source is ignored; `taken` is how many bytes that is.
        """
        stream, forms = Stream(instruction.mnemonic, name, seed), instruction.row.forms
        place = next(at for at, form in enumerate(forms) if class_of(form) == name)
        width = forms[place]["size"].values[0] if "size" in forms[place] else 16
        lines = np.argsort(stream.words((samples, IMAGE_BYTES // width)), axis=1)[:, :LANES]
        reads = np.zeros((samples, LANES), np.uint32)
        taken = np.full((samples, LANES), width, np.int64)
        if "source_size" in forms[place]:
            taken = stream.below(width + 1, (samples, LANES))
            reads = taken.astype(np.uint32)
        elif "ignore" in forms[place]:
            skip = stream.chance(1, 2, (samples, LANES))
            reads, taken = skip.astype(np.uint32), np.where(skip, np.int64(0), np.int64(width))
        return {
            "memory": _bytes(stream, (samples, MEMORY_BYTES)),
            "smem": _bytes(stream, (samples, IMAGE_BYTES)),
            "source": (stream.below(MEMORY_BYTES // width, (samples, LANES)) * width).astype(np.uint32),
            "destination": (lines * width).astype(np.uint32),
            "reads": reads,
            "taken": taken.astype(np.uint32),
            "size": np.full((samples, 1), width, np.uint32),
            "form": np.full(samples, place, np.uint32),
        }

    def model(self, instruction: CopyInstruction, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """The new shared memory as words (samples, 256)."""
        item: Any = instruction
        row, form = instruction.row, instruction.row.forms[int(inputs["form"][0])]
        given: dict[str, Any] = {name: inputs[name] for name in ("memory", "smem", "source", "destination")}
        given["size"] = int(inputs["size"][0, 0])
        if row.operation == "copy":
            if "source_size" in form:
                given["source_size"] = inputs["reads"]
            if "ignore" in form:
                given["ignore"] = inputs["reads"] != 0
            return item.execute(**given).view("<u4")
        if row.operation == "arrive" and not self._passes(item):
            return np.zeros((len(inputs["form"]), IMAGE_BYTES // 4), np.uint32)
        copy = tcsim.instruction("cp.async.ca.shared.global", arch=instruction.arch.name)
        return copy.execute(**given).view("<u4")

    @staticmethod
    def _passes(item: Any) -> bool:
        """Whether the phase that the kernel waits for ends."""
        barrier = MBarrier(LANES)
        for _ in range(LANES):
            barrier = item.execute(barrier)
            if item.row.increments:
                barrier.arrive()
        return barrier.phase == 1


class BulkExercise(_Copies):
    """Bulk copies and reductions, one a block."""

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
            return _bytes(stream, (samples, IMAGE_BYTES))
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
            item = tcsim.instruction("cp.async.bulk.global.shared::cta.bulk_group", arch=instruction.arch.name)
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


ASYNC = AsyncExercise()
BULK = BulkExercise()

EXERCISES = {"cp.async": ASYNC, "cp.async.bulk": BULK, "cp.reduce.async.bulk": BULK}
