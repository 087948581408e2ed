"""tcgen05.cp and tcgen05.shift under test: cells, images of shared memory, descriptors, addresses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.isa.tcgen05.ld_st_mutants import COPY_MUTANTS, SHIFT_MUTANTS
from conformance.isa.tcgen05.memory_models import copied, shifted
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Testbench
from hwkernels.probes.tcgen05_cp import COLUMNS, IMAGE_BYTES
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.isa.tcgen05.cp import COLUMN_ALIGNMENT, CopyToTensorMemory, ShiftTensorMemory
from tcsim.layouts.swizzle import SWIZZLES

Words = npt.NDArray[np.uint32]
SWIZZLED = {"small": "32B", "medium": "64B", "large": "128B"}


def _cells(stream: Stream, samples: int, group: int) -> Words:
    return stream.words((samples, group, 128, COLUMNS)).astype(np.uint32)


def _cell(place: Place) -> dict[str, object]:
    sample, cta, *cell = place
    return {"sample": sample, "CTA": cta, "cell": tuple(cell)}


class CopyTestbench(Testbench):
    """tcgen05.cp: cells, shared memory and a descriptor in, all cells out.

    Its classes are packed tiles, random offsets without swizzle, canonical tiles of every swizzle.
    """

    names, count = ("identity", "uniform", *SWIZZLED), 4
    mutants = COPY_MUTANTS
    model = staticmethod(copied)

    def inputs(self, instruction: CopyToTensorMemory, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/tcgen05_cp.py takes."""
        group, tile, stream = instruction.row.cta_group, instruction.row.tile, Stream(instruction.mnemonic, name, seed)
        room = COLUMNS - tile.row_bytes // 4
        column = stream.below(room // COLUMN_ALIGNMENT + 1, (samples,)) * COLUMN_ALIGNMENT
        lane = stream.below(32, (samples,)) if tile.multicast == ".4x256b" else np.zeros(samples, np.int64)
        smem = stream.words((samples, group, IMAGE_BYTES // 8)).astype("<u8").view(np.uint8)
        if name == "identity":  # every 16-byte chunk begins with its place
            smem = smem.reshape(samples, group, -1, 16).copy()
            smem[..., 0], smem[..., 1] = np.arange(IMAGE_BYTES // 16) & 0xFF, np.arange(IMAGE_BYTES // 16) >> 8
            smem = smem.reshape(samples, group, IMAGE_BYTES)
        descriptors = [self._descriptor(name, tile.rows, tile.row_bytes, stream) for _ in range(samples)]
        return {
            "tmem": _cells(stream, samples, group),
            "offset": (lane << 16 | column).astype(np.uint32),
            "smem": smem,
            "descriptor": np.array(descriptors, np.uint64),
        }

    @staticmethod
    def _descriptor(name: str, rows: int, row_bytes: int, stream: Stream) -> int:
        groups, chunks = max(1, rows // 8), row_bytes // 16
        if name in SWIZZLED:
            span = SWIZZLES[SWIZZLED[name]].span
            slots = IMAGE_BYTES // (8 * span) - groups + 1
            start = int(stream.below(slots, (1,))[0]) * 8 * span
            return MatrixDescriptor(start, 0, 8 * span, swizzle=SWIZZLED[name], arch="sm_100").encode()
        if name == "identity":
            return MatrixDescriptor(0, 128, 128 * chunks, arch="sm_100").encode()
        stride = int(stream.below(IMAGE_BYTES // 16 // (groups + 1), (1,))[0]) * 16
        used = stride * (groups - 1) + 128
        leading = int(stream.below((IMAGE_BYTES - used) // 16, (1,))[0]) * 16 if chunks > 1 else 0
        start = int(stream.below((IMAGE_BYTES - used - leading) // 16 + 1, (1,))[0]) * 16
        return MatrixDescriptor(start, leading, stride, arch="sm_100").encode()

    def explain(self, instruction: CopyToTensorMemory, inputs: Inputs, place: Place) -> Expected:
        """A cell."""
        sample, _, lane, column = place
        offset = int(inputs["offset"][sample])
        found = np.argwhere(instruction.lanes(offset) == lane)
        inside = 0 <= column - (offset & 0xFFFF) < instruction.row.tile.row_bytes // 4
        descriptor = MatrixDescriptor.decode(int(inputs["descriptor"][sample]), "sm_100")
        row = f"row {int(found[0][0])} of the source" if found.size and inside else "nothing is copied there"
        before = f"before {int(inputs['tmem'][place]):#010x}"
        return Expected(_cell(place), f"{row}, {before}", (f"address {offset:#x}", str(descriptor)))


class ShiftTestbench(Testbench):
    """tcgen05.shift: random cells in, cells out."""

    names, count = ("uniform",), 4
    mutants = SHIFT_MUTANTS
    model = staticmethod(shifted)

    def inputs(self, instruction: ShiftTensorMemory, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/tcgen05_cp.py takes."""
        stream = Stream(instruction.mnemonic, name, seed)
        lane, column = stream.below(4, (samples,)) * 32, stream.below(COLUMNS // 8, (samples,)) * 8
        group = instruction.row.cta_group
        return {"tmem": _cells(stream, samples, group), "offset": (lane << 16 | column).astype(np.uint32)}

    def explain(self, instruction: ShiftTensorMemory, inputs: Inputs, place: Place) -> Expected:
        """A cell."""
        before, address = int(inputs["tmem"][place]), int(inputs["offset"][place[0]])
        return Expected(_cell(place), f"before {before:#010x}", (f"address {address:#x}",))
