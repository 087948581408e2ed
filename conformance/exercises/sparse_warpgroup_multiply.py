"""Exercise of sparse warpgroup matrix multiplies: a compressed A in shared memory or registers, and its metadata."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from conformance import inputs as input_classes
from conformance.compare import compare_matrices
from conformance.exercises import Array, Comparison, Inputs, WrongModel
from conformance.exercises.warpgroup_multiply import SIGNS, described
from conformance.sparse_inputs import METADATA_CLASSES, allowed, spread, words
from conformance.stream import Stream
from conformance.warpgroup_images import FULL_N, MODES, problem, random_descriptors, tiles
from conformance.wrong_metadata import wrong_metadata
from conformance.wrong_warpgroups import WRONG_WARPGROUPS, execute, full, multiplicands
from tcsim.sparse_warpgroup_multiply import SparseWarpgroupMultiply

_SAMPLES = 4  # of classes of values; every other sample keeps the same columns in all rows
_DESCRIPTOR_PAIRS = 208  # at least, for each swizzle, majors and class of types
_SPELLINGS = {"half": 3, "tf32": 1, "fp8_wgmma": 8, "int8": 8}  # with N = 64, by class of types: they share the pairs
# A row of a K-major B has 64 bytes along K: no packed tile of the 32-byte swizzle holds it. Random descriptors have it too.
_SWIZZLES_OF_B = ("NONE", "64B", "128B")


class SparseWarpgroupExercise:
    """wgmma.sp: as wgmma, with metadata words of 128 lanes and a selector."""

    wrong_models: tuple[WrongModel, ...]

    def __init__(self) -> None:
        self.wrong_models = _WRONG_MODELS

    def classes(self, instruction: SparseWarpgroupMultiply) -> list[str]:
        """Numerics, registers, signs, metadata, and random descriptors of every swizzle and major; few for other N."""
        if instruction.shape[1] != FULL_N:
            return ["tile", "registers"]
        kind, one = instruction.formats["a"].kind, problem(instruction, 1)
        names = [c.name for c in input_classes.CLASSES.values() if kind in c.kinds and c.applies(one)]
        names += ["tile", "registers"] + (["negated", "negatedtwice"] if instruction.facts.signs else [])
        names += METADATA_CLASSES if instruction.takes_any_group else ()
        majors = ("kk", "kn", "nk", "nn") if instruction.facts.majors else ("kk",)
        return names + [f"descriptors{mode}{major}" for mode in MODES for major in majors]

    def samples(self, instruction: SparseWarpgroupMultiply, name: str) -> int:
        """One instruction for other N; few for numerics; enough descriptors."""
        if name.startswith("descriptors"):
            return -(-_DESCRIPTOR_PAIRS // _SPELLINGS[instruction.row.arithmetic])
        return 1 if instruction.shape[1] != FULL_N else _SAMPLES

    def kept(self, instruction: SparseWarpgroupMultiply, name: str) -> int:
        """One sample of the rows that run every class, none of the others."""
        return 1 if instruction.shape[1] == FULL_N else 0

    def outputs(self, instruction: SparseWarpgroupMultiply, samples: int) -> int:
        """Elements of D."""
        return samples * 64 * instruction.shape[1]

    def inputs(self, instruction: SparseWarpgroupMultiply, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/warpgroup.py takes. Classes take selectors, swizzles and majors in turn."""
        sparsity = instruction.sparsity
        turn = self.classes(instruction).index(name) + instruction.shape[1] // 8
        selector = sparsity.selectors[turn % len(sparsity.selectors)]
        stream = Stream(instruction.mnemonic, name, seed)
        drawn = Stream(instruction.mnemonic, name, seed, "metadata")
        groups = drawn.choice(allowed(sparsity, name), (samples, sparsity.rows, sparsity.groups))
        if name.startswith("descriptors"):
            out = random_descriptors(instruction, *described(name), stream, samples, far=False)
        else:
            groups[1::2] = groups[1::2, :1]
            out = self._tiles(instruction, name, stream, groups, turn)
        out["metadata"] = words(sparsity, groups, selector, drawn)
        out["selector"] = np.full(samples, selector, np.uint32)
        return out

    def _tiles(
        self, instruction: SparseWarpgroupMultiply, name: str, stream: Stream, groups: npt.NDArray[np.uint8], turn: int
    ) -> Inputs:
        samples, sparsity = len(groups), instruction.sparsity
        base = (
            name if name in input_classes.CLASSES else "wide" if instruction.formats["a"].kind == "float" else "uniform"
        )
        matrices = input_classes.CLASSES[base].make(problem(instruction, samples), stream)
        matrices["b"] = spread(matrices["b"], sparsity.columns(sparsity.positions_of(groups))[:, 0])
        swizzles = list(MODES.values())[turn // 2 % 4], _SWIZZLES_OF_B[turn % 3]
        majors = (turn // 4 % 2, turn // 8 % 2) if instruction.facts.majors and full(instruction) else (0, 0)
        out = tiles(instruction, matrices, swizzles, majors)
        if name == "registers":
            out["a"] = instruction.registers("a", matrices["a"])
            out["trans_a"] = np.zeros(samples, np.int32)
        if name in SIGNS:
            signs = SIGNS[name][turn % len(SIGNS[name])]
            out["scale_a"], out["scale_b"] = (np.full(samples, value, np.int32) for value in signs)
        out["scale_d"] = (np.arange(samples) % 3 != 1).astype(np.uint32)
        return out

    def model(self, instruction: SparseWarpgroupMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Accumulator registers."""
        return execute(instruction, inputs)

    def compare(
        self, instruction: SparseWarpgroupMultiply, inputs: Inputs, hardware: Array, model: Array
    ) -> Comparison:
        """Element by element of D, with the rows of B that the kept elements meet."""
        if not len(hardware):
            return Comparison(0, 0, ())
        a, b, c = multiplicands(instruction, inputs)
        sparsity = instruction.sparsity
        groups = sparsity.groups_of(inputs["metadata"][..., 0], int(inputs["selector"][0]))
        columns = sparsity.columns(sparsity.positions_of(groups))

        def terms(sample: int, matrix: int, row: int, column: int) -> tuple[Array, Array, Array]:
            return a[sample, row], b[sample, columns[sample, row], column], c[sample, row, column]

        return compare_matrices(instruction, terms, hardware, model)


def _of_full(model: WrongModel) -> WrongModel:
    """Asked of the instructions that run every class only."""
    return replace(model, applies=lambda instruction: full(instruction) and model.applies(instruction))


_WRONG_MODELS = (*WRONG_WARPGROUPS, *(_of_full(model) for model in wrong_metadata(execute)))
SPARSE_WARPGROUP = SparseWarpgroupExercise()
