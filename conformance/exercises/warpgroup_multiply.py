"""Exercise of warpgroup matrix multiplies: tiles in shared memory, random descriptors, A in registers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance import inputs as input_classes
from conformance.compare import compare_matrices
from conformance.exercises import Array, Comparison, Inputs, WrongModel
from conformance.stream import Stream
from conformance.warpgroup_images import FULL_N, MODES, problem, random_descriptors, tiles, with_base_offsets
from conformance.wrong_warpgroups import WRONG_WARPGROUPS, execute, multiplicands
from tcsim.warpgroup_multiply import WarpgroupMultiply

_DESCRIPTOR_SAMPLES = 72  # for each swizzle, majors and type: three 16-bit rows make 216 pairs
_MANY_SAMPLES = 208
_DESCRIPTORS = ("descriptors", "manydescriptors", "baseoffset")  # how the names of these classes begin
SWIZZLED = ("small", "medium", "large")
SIGNS = {"negated": ((1, -1), (-1, 1)), "negatedtwice": ((-1, -1),)}  # class -> (scale_a, scale_b), taken in turn


class WarpgroupExercise:
    """wgmma: an image of shared memory, descriptors or registers, accumulators and immediates in, accumulators out."""

    wrong_models: tuple[WrongModel, ...]

    def __init__(self) -> None:
        self.wrong_models = WRONG_WARPGROUPS

    def classes(self, instruction: WarpgroupMultiply) -> list[str]:
        """Numerics, registers, signs, and random descriptors of every swizzle and major; few for other N."""
        if instruction.shape[1] != FULL_N:
            return ["tile", "registers"]
        kind, one = instruction.formats["a"].kind, problem(instruction, 1)
        names = [c.name for c in input_classes.CLASSES.values() if kind in c.kinds and c.applies(one)]
        names += ["tile", "registers"] + (["negated", "negatedtwice"] if instruction.facts.signs else [])
        majors = ("kk", "kn", "nk", "nn") if instruction.facts.majors else ("kk",)
        return names + [f"descriptors{mode}{major}" for mode in MODES for major in majors]

    def unrecorded(self, instruction: WarpgroupMultiply) -> list[str]:
        """More random descriptors of the types of one spelling, and base_offset, which no one measured: it is taken for 0."""
        if instruction.shape[1] != FULL_N:
            return []
        if instruction.facts.majors:
            return [f"baseoffset{mode}{major}" for mode in SWIZZLED for major in ("kk", "nn")]
        return [f"manydescriptors{mode}kk" for mode in MODES] + [f"baseoffset{mode}kk" for mode in SWIZZLED]

    def samples(self, instruction: WarpgroupMultiply, name: str) -> int:
        """One instruction for other N; two for numerics; enough descriptors."""
        if name.startswith(_DESCRIPTORS):
            return _MANY_SAMPLES if name.startswith("many") else _DESCRIPTOR_SAMPLES
        return 1 if instruction.shape[1] != FULL_N else 2

    def kept(self, instruction: WarpgroupMultiply, name: str) -> int:
        """One sample of the rows that run every class, none of the others."""
        return 1 if instruction.shape[1] == FULL_N else 0

    def outputs(self, instruction: WarpgroupMultiply, samples: int) -> int:
        """Elements of D."""
        return samples * 64 * instruction.shape[1]

    def inputs(self, instruction: WarpgroupMultiply, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/warpgroup.py takes."""
        stream = Stream(instruction.mnemonic, name, seed)
        if name.startswith(_DESCRIPTORS):
            found = random_descriptors(instruction, *described(name), stream, samples)
            return with_base_offsets(found, stream) if name.startswith("baseoffset") else found
        base = (
            name if name in input_classes.CLASSES else "wide" if instruction.formats["a"].kind == "float" else "uniform"
        )
        matrices = input_classes.CLASSES[base].make(problem(instruction, samples), stream)
        turn = self.classes(instruction).index(name) + instruction.shape[1] // 8 + len(instruction.mnemonic)
        swizzles = list(MODES.values())
        majors = (
            (turn // 4 % 2, turn // 8 % 2) if instruction.facts.majors and instruction.shape[1] == FULL_N else (0, 0)
        )
        out = tiles(instruction, matrices, (swizzles[turn % 4], swizzles[turn // 2 % 4]), majors)
        if name == "registers":
            out["a"] = instruction.registers("a", matrices["a"])
            out["trans_a"] = np.zeros(samples, np.int32)
        if name in SIGNS:
            signs = SIGNS[name][turn % len(SIGNS[name])]
            out["scale_a"], out["scale_b"] = (np.full(samples, value, np.int32) for value in signs)
        out["scale_d"] = (np.arange(samples) % 3 != 1).astype(np.uint32)
        return out

    def model(self, instruction: WarpgroupMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Accumulator registers."""
        return execute(instruction, inputs)

    def compare(self, instruction: WarpgroupMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D."""
        if not len(hardware):
            return Comparison(0, 0, ())
        a, b, c = multiplicands(instruction, inputs)

        def terms(sample: int, matrix: int, row: int, column: int) -> tuple[Array, Array, Array]:
            return a[sample, row], b[sample, :, column], c[sample, row, column]

        return compare_matrices(instruction, terms, hardware, model)


def described(name: str) -> tuple[str, tuple[int, int]]:
    """The swizzle mode and the majors of A and B (0 for K, 1 for MN) in the name of a descriptor class.

    >>> described("descriptorslargekn")
    ('large', (0, 1))
    """
    mode = next(mode for mode in MODES if name[:-2].endswith(mode))
    return mode, (int(name[-2] == "n"), int(name[-1] == "n"))


WARPGROUP = WarpgroupExercise()
