"""wgmma under test: tiles in shared memory, random descriptors, A in registers."""

from __future__ import annotations

from conformance.isa.wgmma.images import MODES, random_descriptors, with_base_offsets
from conformance.isa.wgmma.mutants import ARITHMETIC, WARPGROUP_MUTANTS, full
from conformance.isa.wgmma.tiles import (
    WarpgroupTiles,
    arithmetic_samples,
    described,
    level_2_samples,
    matrices_of,
    tile_inputs,
)
from conformance.stimuli.classes import LEVEL_2
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs
from tcsim.isa.wgmma.multiply import WarpgroupMultiply

_DESCRIPTOR_SAMPLES = 72  # for each swizzle, majors and type: three 16-bit rows make 216 pairs
_MANY_SAMPLES = 208
_DESCRIPTORS = ("descriptors", "manydescriptors", "baseoffset")  # how the names of these classes begin
SWIZZLED = ("small", "medium", "large")


class WarpgroupTestbench(WarpgroupTiles):
    """wgmma: an image of shared memory, descriptors or registers, accumulators and immediates in, accumulators out."""

    mutants = WARPGROUP_MUTANTS

    def classes(self, instruction: WarpgroupMultiply) -> list[str]:
        """As of every tile, then more random descriptors of the types of one spelling, and base_offset."""
        names = super().classes(instruction)
        if not full(instruction):
            return names
        if instruction.row.majors:
            return names + [f"baseoffset{mode}{major}" for mode in SWIZZLED for major in ("kk", "nn")]
        return names + [f"manydescriptors{mode}kk" for mode in MODES] + [f"baseoffset{mode}kk" for mode in SWIZZLED]

    def samples(self, instruction: WarpgroupMultiply, name: str) -> int:
        """One instruction for other N; two for numerics; enough descriptors."""
        if name.startswith(_DESCRIPTORS):
            return _MANY_SAMPLES if name.startswith("many") else _DESCRIPTOR_SAMPLES
        if name in LEVEL_2:
            return level_2_samples(instruction, name)
        if name == ARITHMETIC:
            return arithmetic_samples(instruction)
        return 2 if full(instruction) else 1

    def inputs(self, instruction: WarpgroupMultiply, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/wgmma.py takes."""
        stream = Stream(instruction.mnemonic, name, seed)
        if name.startswith(_DESCRIPTORS):
            found = random_descriptors(instruction, *described(name), stream, samples)
            return with_base_offsets(found, stream) if name.startswith("baseoffset") else found
        turn = self.turn(instruction, name) + instruction.shape[1] // 8 + len(instruction.mnemonic)
        every = list(MODES.values())
        swizzles = every[turn % 4], every[turn // 2 % 4]
        return tile_inputs(instruction, name, matrices_of(instruction, name, stream, samples), swizzles, turn)


WARPGROUP = WarpgroupTestbench()
