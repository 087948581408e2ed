"""What the testbenches of warpgroup multiplies share: their classes, tiles with signs and registers, the comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from conformance.comparison import Array, Codes, Comparison, compare_matrices
from conformance.isa.mma.mutants import flushed
from conformance.isa.wgmma.images import FULL_N, MODES, problem, tiles
from conformance.isa.wgmma.mutants import ARITHMETIC, execute, full, multiplicands
from conformance.stimuli import classes as input_classes
from conformance.stimuli.classes import Matrices
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Testbench
from tcsim.isa.wgmma.multiply import WarpgroupMultiply

SIGNS = {"negated": ((1, -1), (-1, 1)), "negatedtwice": ((-1, -1),)}  # class -> (scale_a, scale_b), taken in turn


class WarpgroupTiles(Testbench):
    """The recorded cases were made by these functions: what they make of a recorded class must not change."""

    def more_classes(self, instruction: WarpgroupMultiply) -> Sequence[str]:
        """Classes of the family's own, before the random descriptors."""
        return ()

    def classes(self, instruction: WarpgroupMultiply) -> list[str]:
        """Numerics, registers, signs, and random descriptors of every swizzle and major; few for other N."""
        if not full(instruction):
            return ["tile", "registers", ARITHMETIC]
        kind, one = instruction.formats["a"].kind, problem(instruction, 1)
        names = [c.name for c in input_classes.CLASSES.values() if kind in c.kinds and c.applies(one)]
        names += ["tile", "registers"] + (["negated", "negatedtwice"] if instruction.row.signs else [])
        majors = ("kk", "kn", "nk", "nn") if instruction.row.majors else ("kk",)
        descriptors = [f"descriptors{mode}{major}" for mode in MODES for major in majors]
        return [*names, *self.more_classes(instruction), *descriptors]

    def level_2(self, instruction: WarpgroupMultiply) -> list[str]:
        """All pairs of corner values of floats, of the rows that run every class."""
        names = [c.name for c in input_classes.LEVEL_2.values() if instruction.formats["a"].kind in c.kinds]
        return names if full(instruction) else []

    def turn(self, instruction: WarpgroupMultiply, name: str) -> int:
        """What decides which swizzles, majors and selectors a class takes."""
        return [*self.every_class(instruction), *self.level_2(instruction)].index(name)

    def kept(self, instruction: WarpgroupMultiply, name: str) -> int:
        """One sample of the numbers of rows that run every class; where a sample tells which element was read, none."""
        return int(full(instruction) and name in input_classes.CLASSES)

    def outputs(self, instruction: WarpgroupMultiply, samples: int) -> int:
        """Elements of D."""
        return samples * 64 * instruction.shape[1]

    def model(self, instruction: WarpgroupMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Accumulator registers."""
        return execute(instruction, inputs)

    def compare(self, instruction: WarpgroupMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D."""
        if not len(hardware):
            return Comparison(0, 0, ())
        a, b, c = multiplicands(instruction, inputs)
        met = self.met_rows(instruction, inputs)

        def terms(sample: int, matrix: int, row: int, column: int) -> Codes:
            k = slice(None) if met is None else met[sample, row]
            return {"a": a[sample, row], "b": b[sample, k, column], "c": c[sample, row, column]}

        return compare_matrices(instruction, terms, instruction.formats, hardware, model)

    def met_rows(self, instruction: WarpgroupMultiply, inputs: Inputs) -> Array | None:
        """For each row of A (samples, M, terms) the rows of B that its elements meet; None: all, in order."""
        return None


_ARITHMETIC = {
    "float": ("edges", "subnormals", "subnormals", "floor", "cancellation", "zeros"),
    "integer": ("saturation", "saturation"),
    "bit": ("saturation",),
}
"""The classes that its samples are of, in turn; the addend of the second and the fifth is not read (`scale_d`)."""


def arithmetic_samples(instruction: WarpgroupMultiply) -> int:
    """How many samples the class about the arithmetic has: more of small products."""
    classes = _ARITHMETIC[instruction.formats["a"].kind]
    return len(classes) * max(1, FULL_N // instruction.shape[1])


def _arithmetic(instruction: WarpgroupMultiply, stream: Stream, samples: int) -> Matrices:
    """A sample of each class in turn; of those that do not apply, cancelling products."""
    classes, parts = _ARITHMETIC[instruction.formats["a"].kind], []
    for at in range(samples):
        turn = at % len(classes)
        chosen = input_classes.CLASSES[classes[turn]]
        if not chosen.applies(problem(instruction, 1)):
            chosen = input_classes.CLASSES["cancellation"]
        made = chosen.make(problem(instruction, 1), stream)
        if chosen.name == "subnormals" and turn == 1:  # of A alone, times numbers that do not make zeros of them
            subnormal = flushed(made["a"], instruction.formats["a"]) != made["a"]
            made["a"] = np.where(subnormal, made["a"], instruction.formats["a"].dtype.type(0))
            made["b"] = input_classes.CLASSES["wide"].make(problem(instruction, 1), stream)["b"]
        elif chosen.name == "subnormals":  # of the addend alone
            made |= {key: np.zeros_like(made[key]) for key in "ab"}
        parts.append(made)
    return {key: np.concatenate([part[key] for part in parts]) for key in "abc"}


def level_2_samples(instruction: WarpgroupMultiply, name: str) -> int:
    """Matrix products of a class of level 2."""
    made = input_classes.LEVEL_2[name].count
    return made(problem(instruction, 1)) if made else 0


def matrices_of(instruction: WarpgroupMultiply, name: str, stream: Stream, samples: int) -> Matrices:
    """Values of the class, or middling ones where the class is not about values."""
    if name == ARITHMETIC:
        return _arithmetic(instruction, stream, samples)
    middling = "wide" if instruction.formats["a"].kind == "float" else "uniform"
    base = name if name in input_classes.EVERY else middling
    return input_classes.EVERY[base].make(problem(instruction, samples), stream)


def tile_inputs(
    instruction: WarpgroupMultiply, name: str, matrices: Matrices, swizzles: tuple[str, str], turn: int
) -> Inputs:
    """Matrices as tiles in shared memory, with majors and signs taken in turn; A in registers where the class says so."""
    samples = len(matrices["a"])
    majors = (turn // 4 % 2, turn // 8 % 2) if instruction.row.majors and full(instruction) else (0, 0)
    out = tiles(instruction, matrices, swizzles, majors)
    if name == "registers":
        out["a"] = instruction.registers("a", matrices["a"])
        out["trans_a"] = np.zeros(samples, np.int32)
    if name in SIGNS:
        signs = SIGNS[name][turn % len(SIGNS[name])]
        out["scale_a"], out["scale_b"] = (np.full(samples, value, np.int32) for value in signs)
    read = name in input_classes.LEVEL_2 or np.arange(samples) % 3 != 1
    out["scale_d"] = np.full(samples, read).astype(np.uint32)
    return out


def described(name: str) -> tuple[str, tuple[int, int]]:
    """The swizzle mode and the majors of A and B (0 for K, 1 for MN) in the name of a descriptor class.

    >>> described("descriptorslargekn")
    ('large', (0, 1))
    """
    mode = next(mode for mode in MODES if name[:-2].endswith(mode))
    return mode, (int(name[-2] == "n"), int(name[-1] == "n"))
