"""wgmma.sp under test: a compressed A in shared memory or registers, and its metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.isa.mma.metadata_mutants import metadata_mutants
from conformance.isa.wgmma.images import MODES, random_descriptors
from conformance.isa.wgmma.mutants import ARITHMETIC, WARPGROUP_MUTANTS, execute, full
from conformance.isa.wgmma.tiles import (
    WarpgroupTiles,
    arithmetic_samples,
    described,
    level_2_samples,
    matrices_of,
    tile_inputs,
)
from conformance.stimuli.classes import LEVEL_2
from conformance.stimuli.sparse import METADATA_CLASSES, allowed, spread, words
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant
from tcsim.isa.wgmma.sparse_multiply import SparseWarpgroupMultiply

_SAMPLES = 4  # of classes of values; every other sample keeps the same columns in all rows
_DESCRIPTOR_PAIRS = 208  # at least, for each swizzle, majors and class of types
_SPELLINGS = {"half": 3, "tf32": 1, "fp8_wgmma": 8, "int8": 8}  # with N = 64, by class of types: they share the pairs
# A row of a K-major B has 64 bytes along K: no packed tile of the 32-byte swizzle holds it. Random descriptors have it too.
_SWIZZLES_OF_B = ("NONE", "64B", "128B")


class SparseWarpgroupTestbench(WarpgroupTiles):
    """wgmma.sp: as wgmma, with metadata words of 128 lanes and a selector."""

    def more_classes(self, instruction: SparseWarpgroupMultiply) -> Sequence[str]:  # type: ignore[override]
        """Those of metadata."""
        return METADATA_CLASSES if instruction.takes_any_group else ()

    def samples(self, instruction: SparseWarpgroupMultiply, name: str) -> int:
        """One instruction for other N; few for numerics; enough descriptors."""
        if name.startswith("descriptors"):
            return -(-_DESCRIPTOR_PAIRS // _SPELLINGS[instruction.row.arithmetic])
        if name in LEVEL_2:
            return level_2_samples(instruction, name)
        if name == ARITHMETIC:
            return arithmetic_samples(instruction)
        return _SAMPLES if full(instruction) else 1

    def inputs(self, instruction: SparseWarpgroupMultiply, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/wgmma.py takes. Classes take selectors, swizzles and majors in turn."""
        sparsity = instruction.sparsity
        turn = self.turn(instruction, name) + instruction.shape[1] // 8
        selector = sparsity.selectors[turn % len(sparsity.selectors)]
        stream = Stream(instruction.mnemonic, name, seed)
        drawn = Stream(instruction.mnemonic, name, seed, "metadata")
        groups = drawn.choice(allowed(sparsity, name), (samples, sparsity.rows, sparsity.groups))
        if name.startswith("descriptors"):
            out = random_descriptors(instruction, *described(name), stream, samples, far=False)
        else:
            every = slice(None) if name in LEVEL_2 else slice(1, None, 2)
            groups[every] = groups[every, :1]
            matrices = matrices_of(instruction, name, stream, samples)
            matrices["b"] = spread(matrices["b"], sparsity.columns(sparsity.positions_of(groups))[:, 0])
            swizzles = list(MODES.values())[turn // 2 % 4], _SWIZZLES_OF_B[turn % 3]
            out = tile_inputs(instruction, name, matrices, swizzles, turn)
        out["metadata"] = words(sparsity, groups, selector, drawn)
        out["selector"] = np.full(samples, selector, np.uint32)
        return out

    def met_rows(self, instruction: SparseWarpgroupMultiply, inputs: Inputs) -> Array:  # type: ignore[override]
        """The rows of B that the kept elements meet."""
        sparsity = instruction.sparsity
        groups = sparsity.groups_of(inputs["metadata"][..., 0], int(inputs["selector"][0]))
        return sparsity.columns(sparsity.positions_of(groups))


def _of_full(mutant: Mutant) -> Mutant:
    """Asked of the instructions that run every class only."""
    return replace(mutant, applies=lambda instruction: full(instruction) and mutant.applies(instruction))


SPARSE_WARPGROUP = SparseWarpgroupTestbench(
    (*WARPGROUP_MUTANTS, *(_of_full(mutant) for mutant in metadata_mutants(execute)))
)
