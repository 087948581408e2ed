"""What the testbenches of cp.async and cp.async.bulk share: images, the comparison, mutants about fill, masks, sizes, directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.comparison import Comparison, Expected, Place, compare_bytes
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant, Testbench
from hwkernels.probes.images import IMAGE_BYTES
from tcsim.isa.copies import GROUPS, CopyInstruction
from tcsim.model.form import Form

_SIZES = {4: "four", 8: "eight", 16: "sixteen"}
_KINDS = {"source_size": "filled", "ignore": "ignored"}
_GROUPS = {"": "copied", "N=0": "waitnone", "N=1": "waitone", "N=7": "waitseven"}
SAMPLES, KEPT = 8, 2


def class_of(form: Form) -> str:
    """The input class that runs a list of operands: letters only."""
    if "size" in form and form["size"].values:
        return _SIZES[form["size"].values[0]] + "".join(word for name, word in _KINDS.items() if name in form)
    return _GROUPS.get(form.name, "arrived")


def random_bytes(stream: Stream, shape: tuple[int, int]) -> Array:
    """An image: uint8."""
    return stream.words((shape[0], shape[1] // 8)).astype("<u8").view(np.uint8)


class Copies(Testbench):
    """Images in, the memory that was written out."""

    count = SAMPLES

    def __init__(self) -> None:
        self.mutants = _mutants(self.model)

    def kept(self, instruction: CopyInstruction, name: str) -> int:
        """Two images; all where bytes are passed over, because a digest would hold them."""
        return SAMPLES if instruction.row.has("ignore_left") else KEPT

    def outputs(self, instruction: CopyInstruction, samples: int) -> int:
        """Bytes."""
        return samples * IMAGE_BYTES

    def compare(self, instruction: CopyInstruction, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Byte by byte; bytes that the manual leaves undefined are passed over."""
        counted = np.ones((len(model), IMAGE_BYTES), bool)
        if instruction.row.has("ignore_left"):
            item: Any = instruction
            for sample in range(len(model)):
                size, (_, left, right, _) = int(inputs["size"][sample, 0]), inputs["options"][sample].tolist()
                counted[sample, item.undefined_bytes(inputs["destination"][sample], size, left, right)] = False
        return compare_bytes(
            instruction, hardware, model, lambda place: self.explain(instruction, inputs, place), counted
        )

    def explain(self, instruction: CopyInstruction, inputs: Inputs, place: Place) -> Expected:
        """A byte of the memory: which copy writes it."""
        sample, at = place
        given = {name: inputs[name][sample].tolist() for name in ("source", "destination", "size") if name in inputs}
        steps = tuple(f"{name}: {values}" for name, values in given.items())
        source = "no copy covers it"
        for thread, (start, to, size) in enumerate(_places(inputs, sample)):
            if to <= at < to + size:
                source = f"byte {at - to} of {size} from {start:#x}, copy {thread}"
                break
        return Expected({"sample": sample, "address": hex(at)}, source, steps)


# --- mutants

Change = Callable[[CopyInstruction, Inputs, Array], Array]
"""(instruction, inputs, the right memory uint8 (samples, 1024)) -> what a mistaken model would have there."""


def _copies(instruction: CopyInstruction) -> bool:
    return instruction.row.operation in ("copy", "commit", "wait", "arrive") and not instruction.row.reports


def _writes(instruction: CopyInstruction) -> bool:
    return _copies(instruction) or instruction.row.operation == "reduce"


def _fills(instruction: CopyInstruction) -> bool:
    return instruction.row.has("size") and bool(instruction.row.forms[0]["size"].values)


def _reduces(instruction: CopyInstruction) -> bool:
    return instruction.row.operation == "reduce"


def _masked(instruction: CopyInstruction) -> bool:
    return instruction.row.has("byte_mask")


def _before(instruction: CopyInstruction, given: Inputs) -> Array:
    """The memory that is written, as it was."""
    row = instruction.row
    return given["memory" if row.outward or (row.operation in GROUPS and row.group == "bulk") else "smem"]


def _read(instruction: CopyInstruction, given: Inputs) -> Array:
    """The memory that is read."""
    outward = _before(instruction, given) is given["memory"]
    return given["smem" if outward else "memory"]


def _nothing(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    return _before(instruction, given).copy()


def _places(given: Inputs, sample: int) -> list[tuple[int, int, int]]:
    """Source, destination and size of each copy of a sample."""
    sizes = np.broadcast_to(given["size"][sample], given["source"][sample].shape)
    return list(
        zip(given["source"][sample].tolist(), given["destination"][sample].tolist(), sizes.tolist(), strict=True)
    )


def _first_source(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """Every byte from where the first one came from."""
    for sample, image in enumerate(right):
        for start, to, size in _places(given, sample):
            image[to : to + size] = _read(instruction, given)[sample, start]
    return right


def _one_short(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """The last byte of each copy stays."""
    old = _before(instruction, given)
    for sample, image in enumerate(right):
        for _, to, size in _places(given, sample):
            image[to + size - 1] = old[sample, to + size - 1]
    return right


def _not_filled(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """What is not read stays instead of becoming zero."""
    for sample, image in enumerate(right):
        for lane, (_, to, size) in enumerate(_places(given, sample)):
            kept = to + int(given["taken"][sample, lane])
            image[kept : to + size] = given["smem"][sample, kept : to + size]
    return right


def _filled_before(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """The zeros come before what is read."""
    for sample, image in enumerate(right):
        for lane, (_, to, size) in enumerate(_places(given, sample)):
            image[to : to + size] = np.roll(image[to : to + size], size - int(given["taken"][sample, lane]))
    return right


def _mask_reversed(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """Bit i of the mask is for byte 15 - i."""
    old, read = _before(instruction, given), _read(instruction, given)
    for sample, image in enumerate(right):
        for start, to, size in _places(given, sample):
            taken = (int(given["options"][sample, 0]) >> (15 - np.arange(size) % 16) & 1).astype(bool)
            image[to : to + size] = np.where(taken, read[sample, start : start + size], old[sample, to : to + size])
    return right


def _overwritten(instruction: CopyInstruction, given: Inputs, right: Array) -> Array:
    """The source replaces the destination."""
    for sample, image in enumerate(right):
        for start, to, size in _places(given, sample):
            image[to : to + size] = _read(instruction, given)[sample, start : start + size]
    return right


def _mutants(model: Callable[[Any, Inputs], Array]) -> tuple[Mutant, ...]:
    """Each must be contradicted by the cases of every instruction that it applies to."""

    def mutant(name: str, mistake: str, applies: Callable[[CopyInstruction], bool], change: Change) -> Mutant:
        def answer(instruction: Any, given: Inputs) -> Array:
            right = np.ascontiguousarray(model(instruction, given)).view(np.uint8)
            return np.ascontiguousarray(change(instruction, given, right.copy())).view("<u4")

        return Mutant(name, mistake, applies, answer)

    return (
        mutant("nothing written", "the memory stays as it was", _writes, _nothing),
        mutant("first byte only", "every byte comes from where the first one does", _copies, _first_source),
        mutant("one byte short", "the last byte of a copy is not written", _copies, _one_short),
        mutant("no zero fill", "bytes that are not read stay", _fills, _not_filled),
        mutant("zeros first", "zeros come before the bytes that are read", _fills, _filled_before),
        mutant("mask reversed", "bit i of the mask is for byte 15 - i", _masked, _mask_reversed),
        mutant("not reduced", "the source replaces the destination", _reduces, _overwritten),
    )
