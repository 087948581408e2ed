"""What vectors are made of: the operands of an instruction, of an input class, and the model's answer; and one output's share of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

import tcsim
from conformance.isa import testbench_of
from conformance.isa.cvt.testbench import ElementwiseTestbench
from conformance.isa.mma.sparse import KeptProblem
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.isa.wgmma.images import problem as warpgroup_problem
from conformance.stimuli import classes as plain
from conformance.stimuli import scaled
from conformance.stimuli.corners import count as corner_count
from conformance.stimuli.problem import Codes, Matrices, Problem
from conformance.stimuli.scaled import ScaledProblem
from conformance.stimuli.sparse import spread
from conformance.stimuli.stream import Stream
from tcsim.core.errors import OperandError, listing
from tcsim.numbers.formats import Format

BLOCK = 1 << 14
"""Outputs that are in memory at once."""
ORDER = ("d", "c", "scale_b", "scale_a", "metadata", "b", "a")
"""Fields of a record from the most significant."""


@dataclass(frozen=True)
class Field:
    """One operand of a record: its number of elements, their format, and the hexadecimal digits of each."""

    name: str
    elements: int
    format: str
    digits: int

    @classmethod
    def of(cls, name: str, elements: int, format: Format) -> Field:
        """Of a number format: the bits of its container if some of them are ignored, else its own, in whole digits."""
        bits = format.container_bits if format.ignored_low_bits else format.bits
        return cls(name, elements, format.name, ceil(bits / 4))

    def as_dict(self) -> dict[str, Any]:
        """As a manifest has it."""
        return dict(vars(self))


class Subject:
    """An instruction on an arch, as a maker of vectors sees it."""

    records = True  # whether an output has a record of its own: its operands and its bits

    def __init__(self, instruction: Any) -> None:
        self.instruction = instruction

    def classes(self, level: int) -> list[str]:
        """The input classes of a level."""
        bench = testbench_of(self.instruction.row.family)
        return bench.classes(self.instruction) if level == 1 else bench.level_2(self.instruction)

    def blocks(self, name: str, seed: int, outputs: int | None) -> Iterator[tuple[Matrices, Codes]]:
        """Operands and expected codes of a class, at most `BLOCK` outputs and one sample at a time."""
        bench = testbench_of(self.instruction.row.family)
        inputs = bench.inputs(self.instruction, name, seed, bench.samples(self.instruction, name))
        yield inputs, np.asarray(bench.model(self.instruction, inputs))

    @property
    def dtype(self) -> Any:
        """Of the expected codes; None where the file says it."""
        return None

    @property
    def fields(self) -> tuple[Field, ...]:
        """A record's fields, in `ORDER`."""
        return ()

    def as_records(self, operands: Matrices, expected: Codes) -> Matrices:
        """Of each output its operands (outputs, elements) and `d`."""
        raise OperandError(f"vectors: {self.instruction!r} has no records of one output each; valid: --form npz")


class Elementwise(Subject):
    """Conversions and special functions: registers of a thread."""

    def blocks(self, name: str, seed: int, outputs: int | None) -> Iterator[tuple[Matrices, Codes]]:
        """The samples of the class; `outputs` more than those are drawn with the seeds seed + 2**32, seed + 2 * 2**32 and so on."""
        bench, left, turn = testbench_of(self.instruction.row.family), outputs, 0
        while left is None or left > 0:
            samples = bench.samples(self.instruction, name)
            inputs = bench.inputs(self.instruction, name, seed + (turn << 32), samples)
            kept = samples if left is None else min(left, samples)
            inputs = {key: array[:kept] for key, array in inputs.items()}
            for start in range(0, kept, BLOCK):
                part = {key: array[start : start + BLOCK] for key, array in inputs.items()}
                yield part, np.asarray(self.instruction.execute(**part))
            if left is None:
                return
            left, turn = left - kept, turn + 1

    @property
    def dtype(self) -> Any:
        """Of the expected codes."""
        return self.instruction.registers["d"].dtype

    def results(self, records: Matrices) -> Codes:
        """What the model gives for records: codes (n,)."""
        own = {
            name: records[name][:, 0].astype(each.dtype)
            for name, each in self.instruction.registers.items()
            if name in records
        }
        return np.asarray(self.instruction.execute(**{name: codes for name, codes in own.items() if name != "d"}))

    @property
    def fields(self) -> tuple[Field, ...]:
        """Registers; a packed one is one word."""
        own = self.instruction.registers
        names = ["d", *(name for name in reversed(own) if name != "d")]
        return tuple(
            Field(name, 1, own[name].format.name if own[name].elements == 1 else "", own[name].dtype.itemsize * 2)
            for name in names
        )

    def as_records(self, operands: Matrices, expected: Codes) -> Matrices:
        """One element each."""
        named = {field.name for field in self.fields}
        return {name: array.reshape(-1, 1) for name, array in {**operands, "d": expected}.items() if name in named}


class Multiply(Subject):
    """Matrix multiplies: matrices of codes."""

    @property
    def dtype(self) -> Any:
        """Of the expected codes."""
        return self.formats["d"].dtype

    @property
    def row(self) -> Any:
        """The instruction's row."""
        return self.instruction.row

    @cached_property
    def formats(self) -> dict[str, Format]:
        """By operand; `scale` if there are scale factors."""
        own = dict(self.instruction.formats)
        if self.row.family in ("mma.sync.block_scale", "mma.sp.block_scale"):
            own["scale"] = self.row.scale_a.format
        return own

    @cached_property
    def sparsity(self) -> Any:
        """How A is sparse, or None."""
        return getattr(self.instruction, "sparsity", None)

    @property
    def steps(self) -> tuple[Any, ...]:
        """What is computed."""
        steps: tuple[Any, ...] = self.instruction.lowering.steps
        return steps

    def problem(self, count: int) -> Problem:
        """What the input classes fill."""
        if "scale" in self.formats:
            return ScaledProblem(self.instruction, count)
        if self.row.family.startswith("wgmma"):
            return warpgroup_problem(self.instruction, count)
        if self.sparsity is not None:
            return KeptProblem(self.instruction, count)
        return Problem(self.instruction, count)

    def classes(self, level: int) -> list[str]:
        """Those of the family that are about numbers."""
        kind, one = self.formats["a"].kind, self.problem(1)
        if "scale" in self.formats:
            own = [item.name for item in scaled.CLASSES.values() if item.applies(self.instruction)]
        else:
            own = [item.name for item in plain.CLASSES.values() if kind in item.kinds and item.applies(one)]
        return own if level == 1 else self.second(kind)

    def second(self, kind: str) -> list[str]:
        """The classes of level 2."""
        return [item.name for item in plain.LEVEL_2.values() if kind in item.kinds]

    def default(self, name: str) -> int:
        """Matrix products that a class has if nobody says how many outputs."""
        m, n, k = self.problem(1).shape
        if name in plain.LEVEL_2:
            return corner_count(self.problem(1))
        each = getattr(plain.EVERY.get(name) or scaled.CLASSES[name], "per_k", 0)
        return each * k if each else ceil(plain.OUTPUTS_PER_CASE / (m * n))

    def blocks(self, name: str, seed: int, outputs: int | None) -> Iterator[tuple[Matrices, Codes]]:
        """Whole matrix products; the pairs of level 2 are one draw, the other classes one for each block."""
        m, n, _ = self.problem(1).shape
        number = self.default(name) if outputs is None or name in plain.LEVEL_2 else ceil(outputs / (m * n))
        step = max(1, BLOCK // (m * n))
        if name in plain.LEVEL_2:
            whole = self.operands(name, number, seed, 0)
            parts = ({key: array[at : at + step] for key, array in whole.items()} for at in range(0, number, step))
        else:
            starts = range(0, number, step)
            parts = (self.operands(name, min(step, number - at), seed, turn) for turn, at in enumerate(starts))
        for part in parts:
            yield part, self.expected(part)

    def operands(self, name: str, count: int, seed: int, turn: int) -> Matrices:
        """One block of a class, by the keywords of `matmul`."""
        key = (self.instruction.mnemonic, name, seed, "vectors", turn)
        problem = self.problem(count)
        if "scale" in self.formats:
            out = self.scaled(problem, name, key)
        else:
            out = plain.EVERY[name].make(problem, Stream(*key))
        if self.sparsity is not None:
            stream, own = Stream(*key, "metadata"), self.sparsity
            groups = stream.choice(np.array(own.valid, np.uint8), (count, own.rows, own.groups))
            every = 1 if name in plain.LEVEL_2 else 2
            groups[::every] = groups[::every, :1]  # in every other product all rows keep the same columns
            out["metadata"] = own.positions_of(groups)
            out["b"] = spread(out["b"], own.columns(out["metadata"])[:, 0])
        return out

    def scaled(self, problem: Any, name: str, key: tuple[object, ...]) -> Matrices:
        """With scale factors; at level 2 powers of two and their inverses."""
        if name in plain.LEVEL_2:
            return {**plain.EVERY[name].make(problem, Stream(*key)), **scaled.inverse(problem, Stream(*key, "scales"))}
        return scaled.CLASSES[name].make(problem, Stream(*key))

    def expected(self, operands: Matrices) -> Codes:
        """What the model gives."""
        return np.asarray(self.instruction.matmul(**operands))

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """A row of A, a column of B, an element of C and D; factors and positions of the row and the column."""
        one = {name: array.shape for name, array in self.operands(self.classes(1)[0], 1, 0, 0).items()}
        own = []
        for name in ORDER:
            if name == "metadata" and name in one:
                own.append(Field(name, one[name][2], "", 1))
            elif name == "d" or name in one:
                elements = {"a": 2, "scale_a": 2, "b": 1, "scale_b": 1}.get(name)
                format = self.formats["scale" if name.startswith("scale") else name]
                own.append(Field.of(name, one[name][elements] if elements else 1, format))
        return tuple(own)

    def as_records(self, operands: Matrices, expected: Codes) -> Matrices:
        """Of each output, row after row."""
        count, m, n = expected.shape
        out = {"d": expected.reshape(-1, 1)}
        for name, array in operands.items():
            if name in ("b", "scale_b"):
                own = np.broadcast_to(array.swapaxes(1, 2)[:, None], (count, m, n, array.shape[1]))
            elif name in ("a", "scale_a", "metadata"):
                own = np.broadcast_to(array[:, :, None], (count, m, n, array.shape[2]))
            elif name == "c":
                own = array[..., None]
            else:  # lookup tables: B is what they make
                continue
            out[name] = own.reshape(count * m * n, -1)
        return out


class DescribedMultiply(Multiply):
    """tcgen05.mma with an instruction descriptor."""

    def __init__(self, instruction: Any, idesc: Any) -> None:
        super().__init__(instruction)
        self.item = Described(instruction, idesc)

    @cached_property
    def formats(self) -> dict[str, Format]:
        """By operand."""
        return self.item.formats

    @cached_property
    def sparsity(self) -> Any:
        """How A is sparse, or None."""
        return self.item.sparsity

    @property
    def steps(self) -> tuple[Any, ...]:
        """What the descriptor makes of it."""
        steps: tuple[Any, ...] = self.item.lowering.steps
        return steps

    def problem(self, count: int) -> Problem:
        """As instructions without a descriptor."""
        return Problem(self.item, count)  # type: ignore[arg-type]

    def classes(self, level: int) -> list[str]:
        """Those that apply to the descriptor's formats."""
        return self.item.classes if level == 1 else self.second(self.formats["a"].kind)

    def operands(self, name: str, count: int, seed: int, turn: int) -> Matrices:
        """One block."""
        return self.item.make(
            name, Stream(self.instruction.mnemonic, self.item.desc.encode(), name, seed, "vectors", turn), count
        )

    def expected(self, operands: Matrices) -> Codes:
        """What the model gives."""
        own = {name: array for name, array in operands.items() if name not in ("lookup", "indices")}
        return np.asarray(self.instruction.matmul(**own, idesc=self.item.desc))


def subject(mnemonic: str, arch: str, idesc: int | None = None) -> Subject:
    """The subject of an instruction.

    Raises OperandError if a descriptor is missing or not taken, InstructionError for an unknown instruction.
    """
    instruction: Any = tcsim.instruction(mnemonic, arch=arch)
    family = instruction.row.family
    if family.startswith("tcgen05.mma"):
        if idesc is None:
            raise OperandError(f"vectors: {instruction!r} needs its instruction descriptor; valid: --idesc VALUE")
        return DescribedMultiply(
            instruction,
            tcsim.InstructionDescriptor.decode(idesc, kind=instruction.row.kind.name, arch=instruction.arch.name),
        )
    if idesc is not None:
        raise OperandError(f"vectors: {instruction!r} takes no instruction descriptor")
    if hasattr(instruction, "matmul"):
        return Multiply(instruction)
    if isinstance(testbench_of(family), ElementwiseTestbench):
        return Elementwise(instruction)
    return Subject(instruction)


def check_classes(own: Subject, level: int, wanted: list[str]) -> list[str]:
    """The wanted classes, or all of the level.

    Raises OperandError for a class that the instruction does not have at this level.
    """
    valid = own.classes(level)
    if unknown := [name for name in wanted if name not in valid]:
        raise OperandError(
            f"vectors: {own.instruction!r} has no class {listing(unknown)} at level {level}; valid: {listing(valid)}"
        )
    return wanted or valid
