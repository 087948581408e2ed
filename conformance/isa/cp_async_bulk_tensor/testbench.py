"""Tensor copies under test: random maps, boxes, memories; every byte of shared or global memory afterwards."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.isa.cp_async_bulk_tensor import inputs as tensor_inputs
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Testbench
from hwkernels.device.driver import POISON
from hwkernels.device.map_bytes import carried_map
from hwkernels.probes.cp_async_bulk_tensor import MEMORY_BYTES, image_bytes
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorCopy, TensorLoad, TensorPrefetch
from tcsim.tma import copy as tensor_copy
from tcsim.tma.box import WALK, BoxWalk
from tcsim.tma.map import TensorMap

PLAIN_SAMPLES = 40
"""Samples of a class of a spelling without cache hint or multicast: over all spellings of a mode well above 500 maps."""
OTHER_SAMPLES = 20
"""Samples of a class of any other spelling, but for those whose mistakes show in few boxes."""
FEW_SAMPLES = 64
"""Samples of a class of an im2col spelling without cache hint or multicast, or of interleaved layouts: there are few of them."""


@cache
def decoded(data: bytes) -> TensorMap:
    """The map that 128 bytes carry."""
    return carried_map(data)


def maps_of(inputs: Inputs) -> list[TensorMap]:
    """The map of every sample."""
    return [decoded(data.tobytes()) for data in inputs["maps"]]


def run_loads(copy: TensorCopy, inputs: Inputs, walk: BoxWalk = WALK, spare: int = 0) -> npt.NDArray[np.uint32]:
    """Shared memory after every sample's load, as words; `spare` bytes of zeros are added to global memory."""
    row, images = copy.row, []
    for sample, tmap in enumerate(maps_of(inputs)):
        memory = np.concatenate([inputs["memory"][sample], np.zeros(spare, np.uint8)])
        at = inputs["coordinates"][sample, : row.coordinates].astype(np.int64)
        offsets = inputs["offsets"][sample, : row.offsets].astype(np.int64) if row.offsets else None
        poison = np.full(image_bytes(row), POISON, np.uint8)
        address = int(inputs["address"][sample])
        tmap = copy.check_map(tmap)
        images.append(tensor_copy.load(tmap, memory, at, poison, address, offsets, row.rows4, walk))
    return np.stack(images).view("<u4").astype(np.uint32, copy=False)


def run_stores(
    copy: TensorCopy, inputs: Inputs, walk: BoxWalk = WALK, op: str | None = None, spare: int = 0
) -> npt.NDArray[np.uint32]:
    """Global memory after every sample's store or reduction, as words."""
    row, memories = copy.row, []
    for sample, tmap in enumerate(maps_of(inputs)):
        memory = np.concatenate([inputs["memory"][sample], np.zeros(spare, np.uint8)])
        at = inputs["coordinates"][sample, : row.coordinates].astype(np.int64)
        address = int(inputs["address"][sample])
        tmap = copy.check_map(tmap)
        out = tensor_copy.store(
            tmap, memory, at, inputs["image"][sample], address, row.rows4, op or row.op or None, walk
        )  # fmt: skip
        memories.append(out[:MEMORY_BYTES])
    return np.stack(memories).view("<u4").astype(np.uint32, copy=False)


class TensorTestbench(Testbench):
    """One of the three families of tensor copies: every byte is compared, gaps included."""

    bytewise = True

    def classes(self, instruction: TensorCopy) -> list[str]:
        """Those that make sense; none where nothing is modelled."""
        return tensor_inputs.classes(instruction.row)

    def samples(self, instruction: TensorCopy, name: str) -> int:
        """One map as a parameter, otherwise enough for 500 maps a mode."""
        row = instruction.row
        if name == "single":
            return 1
        if name == "numbers":  # of nine types
            return FEW_SAMPLES
        if (
            row.has("cache_policy")
            or row.has("cta_mask")
            or row.operation == "prefetch"
            or ".cta_group" in instruction.mnemonic
        ):
            more = FEW_SAMPLES if row.map_mode else PLAIN_SAMPLES
            return more if name in ("convert", "interleaved") else OTHER_SAMPLES
        return FEW_SAMPLES if row.map_mode or row.rows4 or name == "interleaved" else PLAIN_SAMPLES

    def kept(self, instruction: TensorCopy, name: str) -> int:
        """One sample of the first class of the plain spellings of two and three dimensions."""
        plain = self.samples(instruction, name) > OTHER_SAMPLES and instruction.row.dim in (2, 3)
        return 1 if plain and name == self.classes(instruction)[0] else 0

    def outputs(self, instruction: TensorCopy, samples: int) -> int:
        """Bytes of shared or global memory."""
        return samples * (image_bytes(instruction.row) if isinstance(instruction, TensorLoad) else MEMORY_BYTES)

    def inputs(self, instruction: TensorCopy, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/cp_async_bulk_tensor.py takes."""
        stream = Stream(instruction.mnemonic, name, seed)
        return tensor_inputs.make(instruction.row, instruction.arch.number, name, stream, samples)

    def model(self, instruction: TensorCopy, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Words of shared memory (loads) or global memory."""
        if isinstance(instruction, TensorLoad):
            return run_loads(instruction, inputs)
        if isinstance(instruction, TensorPrefetch):
            return np.ascontiguousarray(inputs["memory"]).view("<u4").astype(np.uint32, copy=False)
        return run_stores(instruction, inputs)

    def explain(self, instruction: TensorCopy, inputs: Inputs, place: Place) -> Expected:
        """A byte of the memory that was written."""
        sample, at = place
        where = {"sample": sample, f"{'shared' if isinstance(instruction, TensorLoad) else 'global'} byte": hex(at)}
        tmap = decoded(inputs["maps"][sample].tobytes())
        text = f"{tmap} swizzle {tmap.swizzle} at {inputs['coordinates'][sample].tolist()}"
        text += f" offsets {inputs['offsets'][sample].tolist()} address {int(inputs['address'][sample]):#x}"
        return Expected(where, text, (repr(tmap),))
