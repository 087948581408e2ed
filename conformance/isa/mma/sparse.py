"""mma.sp under test: registers of a, b and c, metadata words and a selector in, registers of d out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Array, Codes, Comparison, compare_matrices
from conformance.isa.mma.metadata_mutants import metadata_mutants
from conformance.isa.mma.mutants import MUTANTS
from conformance.stimuli import classes as input_classes
from conformance.stimuli.classes import Problem
from conformance.stimuli.sparse import METADATA_CLASSES, allowed, spread, words
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Mutant, Testbench
from tcsim.arithmetic.steps import DotAdd, Widen
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply

_OUTPUTS_PER_CASE = 1024


class SparseTestbench(Testbench):
    """Sparse matrix multiplies on registers."""

    def classes(self, instruction: SparseMatrixMultiply) -> list[str]:
        """The dense classes, and metadata that is not in increasing order where that means something."""
        names = [item.name for item in input_classes.classes_for(instruction)]
        if instruction.sparsity.element_bits != 32 and not instruction.sparsity.ordered:
            names.append("unordered")
        if instruction.takes_any_group:
            names.append("repeated")
        return names

    def level_2(self, instruction: SparseMatrixMultiply) -> list[str]:
        """All pairs of corner values of floats."""
        return input_classes.level_2_for(instruction)

    def samples(self, instruction: SparseMatrixMultiply, name: str) -> int:
        """Enough for 1,024 results, or for every k to be hot once."""
        if name == "onehot" or name in input_classes.LEVEL_2:
            return input_classes.default_samples(instruction, input_classes.EVERY[name])
        m, n, _ = instruction.shape
        return _OUTPUTS_PER_CASE // (m * n)

    def inputs(self, instruction: SparseMatrixMultiply, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, 32, registers) of a, b, c and metadata; `selector` (samples,) holds one value.

        Classes take the selectors in turn. Lanes that the selector does not name hold random words.
        """
        sparsity = instruction.sparsity
        selector = sparsity.selectors[self._turn(instruction, name) % len(sparsity.selectors)]
        stream = Stream(instruction.mnemonic, name, seed, "metadata")
        base = "uniform" if name in METADATA_CLASSES else name
        if name in METADATA_CLASSES and instruction.operands["a"].format.kind == "float":
            base = "wide"
        problem = KeptProblem(instruction, samples)
        matrices = input_classes.EVERY[base].make(problem, Stream(instruction.mnemonic, name, seed))
        shape = (samples, sparsity.rows, sparsity.groups)
        groups = stream.choice(allowed(sparsity, name), shape)
        every = 1 if name in input_classes.LEVEL_2 else 2
        groups[::every] = groups[::every, :1]  # in every other warp all rows keep the same columns
        matrices["b"] = spread(matrices["b"], sparsity.columns(sparsity.positions_of(groups))[:, 0])
        out: Inputs = {key: instruction.registers(key, codes) for key, codes in matrices.items()}
        out["metadata"] = words(sparsity, groups, selector, stream)
        out["selector"] = np.full(samples, selector, np.uint32)
        return out

    def _turn(self, instruction: SparseMatrixMultiply, name: str) -> int:
        return [*self.classes(instruction), *self.level_2(instruction)].index(name)

    def model(self, instruction: SparseMatrixMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Registers of d."""
        return _execute(instruction, inputs)

    def compare(self, instruction: SparseMatrixMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D, with the rows of B that the kept elements meet."""
        selector = int(inputs["selector"][0])
        groups = instruction.sparsity.groups_of(inputs["metadata"][..., 0], selector)
        columns = instruction.sparsity.columns(instruction.sparsity.positions_of(groups))
        a, b, c = (instruction.matrix(name, inputs[name]) for name in "abc")

        def terms(warp: int, matrix: int, row: int, column: int) -> Codes:
            met = b[warp, columns[warp, row], column]
            return {"a": a[warp, row], "b": met, "c": c[warp, row, column]}

        return compare_matrices(instruction, terms, instruction.formats, hardware, model)


class KeptProblem(Problem):
    """The dense problem of the kept elements: K / 2 products."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K / 2."""
        m, n, k = self.instruction.shape
        return m, n, k // 2

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns) of an operand, B with the rows that are met."""
        m, n, k = self.shape
        return {"a": (self.count, m, k), "b": (self.count, k, n), "c": (self.count, m, n)}[name]


def _execute(instruction: SparseMatrixMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
    return instruction.execute(
        inputs["a"], inputs["b"], inputs["c"], metadata=inputs["metadata"][..., 0], selector=int(inputs["selector"][0])
    )


# --- mutants: the dense ones call execute(a=, b=, c=); this stand-in adds the case's metadata


@dataclass(frozen=True, eq=False, repr=False)
class _WithMetadata(SparseMatrixMultiply):
    """The instruction with its metadata filled in, so that dense mutants can run it."""

    words: Array
    selector: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K / 2: of the products."""
        m, n, k = self.row.shape
        return m, n, k // 2

    def execute(self, a: Any, b: Any, c: Any, metadata: Any = None, selector: int = 0) -> npt.NDArray[np.uint32]:
        """With the case's own metadata and selector."""
        return super().execute(a, b, c, self.words, self.selector)


def _dense(mutant: Mutant) -> Mutant:
    def run(instruction: SparseMatrixMultiply, inputs: Inputs) -> Array:
        words, selector = inputs["metadata"][..., 0], int(inputs["selector"][0])
        own = (instruction.row, instruction.arch, instruction.targets, instruction.lowering, instruction.evidence)
        return mutant.run(_WithMetadata(*own, words, selector), {name: inputs[name] for name in "abc"})

    return replace(mutant, run=run)


def _is_widened(instruction: SparseMatrixMultiply) -> bool:
    return any(isinstance(step, Widen) for step in instruction.lowering.steps)


def _halves_in_order(instruction: SparseMatrixMultiply, inputs: Inputs) -> Array:
    blocks = iter(np.arange(instruction.sparsity.kept).reshape(2, -1).tolist())
    steps = tuple(
        replace(step, k=tuple(next(blocks))) if isinstance(step, DotAdd) else step
        for step in instruction.lowering.steps
    )
    return _execute(replace(instruction, lowering=replace(instruction.lowering, steps=steps)), inputs)


SPARSE = SparseTestbench(
    (
        *(_dense(mutant) for mutant in MUTANTS),
        *metadata_mutants(_execute),
        Mutant(
            "fp8 halves in order",
            "the first step takes the lower half of K, not the even groups",
            _is_widened,
            _halves_in_order,
        ),
    )
)
