"""tcgen05.ld, .ld.red, .ld.spcompress, .st, .fence and .wait under test: cells of Tensor Memory, addresses, registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from conformance.comparison import Expected, Place
from conformance.isa.tcgen05.ld_st_mutants import LOAD_MUTANTS, STORE_MUTANTS
from conformance.isa.tcgen05.memory_models import address_of, loaded, memory_of, stored, width_of
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Testbench
from hwkernels.probes.tcgen05_ld_st import WARPS, geometry
from tcsim.isa.tcgen05.control import Ordering
from tcsim.isa.tcgen05.move import StoreTensorMemory, TensorMemoryMove
from tcsim.memory.tensor_memory import tmem_lane_column

Words = npt.NDArray[np.uint32]
FEW_REGISTERS = 8  # of a lane: up to that number, a recording keeps a whole sample

SPECIALS = np.array(
    [0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
     0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001],
    np.uint32,
)  # fmt: skip
"""f32: zeros, subnormals, ones, largest, infinities, NaNs."""


def _identity(stream: Stream, shape: tuple[int, ...]) -> Words:
    """The low half of a cell is its place, the high half the sample's own number."""
    place = np.arange(shape[-2] * shape[-1], dtype=np.uint32).reshape(shape[-2:])
    return place & np.uint32(0xFFFF) | stream.words((shape[0], 1, 1)).astype(np.uint32) << np.uint32(16)


def _uniform(stream: Stream, shape: tuple[int, ...]) -> Words:
    return stream.words(shape).astype(np.uint32)


def _apart(stream: Stream, shape: tuple[int, ...]) -> Words:
    """Random words; four neighbours never have the same magnitude, and at most two of them are NaNs."""
    column = np.arange(shape[-1], dtype=np.uint32) % 4
    words = stream.words(shape).astype(np.uint32) & np.uint32(~3 & 0xFFFFFFFF) | column
    finite = words & np.uint32(0xBFFFFFFF)  # the top exponent bit cleared: no NaN
    return np.where((column < 2) | (words >> np.uint32(23) & np.uint32(0xFF) != 0xFF), words, finite)


def _specials(stream: Stream, shape: tuple[int, ...]) -> Words:
    return np.asarray(stream.choice(SPECIALS, shape), np.uint32)


def _subnormals(stream: Stream, shape: tuple[int, ...]) -> Words:
    """Subnormals of both signs."""
    return stream.words(shape).astype(np.uint32) & np.uint32(0x807FFFFF)


def _zeros(stream: Stream, shape: tuple[int, ...]) -> Words:
    """Zeros of both signs in even lanes, -0 alone in odd ones."""
    sign = stream.chance(1, 2, shape) | (np.arange(shape[-2]) % 2 == 1)[:, None]
    return sign.astype(np.uint32) << np.uint32(31)


def _nans(stream: Stream, shape: tuple[int, ...]) -> Words:
    """Half of the lanes hold nothing but NaNs, the others one number among them."""
    words = stream.words(shape).astype(np.uint32) | np.uint32(0x7FC00000)
    lane, column = np.indices(shape[-2:])
    return np.where((lane % 2 == 1) & (column == lane % shape[-1]), np.uint32(0xC0000000), words)


CELLS: dict[str, Callable[[Stream, tuple[int, ...]], Words]] = {
    "identity": _identity,
    "uniform": _uniform,
    "apart": _uniform,
    "same": _uniform,
    "specials": _specials,
    "subnormals": _subnormals,
    "zeros": _zeros,
    "nans": _nans,
    "selected": _apart,
}
"""How each class fills Tensor Memory."""
SPLITS = {"apart": 1, "same": -1}
"""Classes that take another immHalfSplitoff than the first of those that have a kernel."""


class _MoveTestbench(Testbench):
    """What loads and stores share. A sample has every cell, four warps and two addresses."""

    count = 2

    def classes(self, instruction: TensorMemoryMove) -> list[str]:
        """Places, random words, other splits; for f32 reductions special values; for compression no equal values."""
        row, names = instruction.row, ["identity", "uniform"]
        if row.selection:
            return ["selected"]
        splits = geometry(row).splits
        if len(splits) > 1 and splits[1]:
            names.append("apart")
        if 0 in splits:
            names.append("same")
        if row.reduction and row.reduction.type == "f32":
            names += ["specials", "subnormals", "zeros", "nans"]
        return names

    def inputs(self, instruction: TensorMemoryMove, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/tcgen05_ld_st.py takes."""
        return self._drawn(instruction, name, Stream(instruction.mnemonic, name, seed), samples)

    def _drawn(self, instruction: TensorMemoryMove, name: str, stream: Stream, samples: int) -> Inputs:
        size, rows = geometry(instruction.row), instruction.row.layout.rows
        column = stream.below(size.columns - size.reach + 1, (samples,))
        half = (stream.below(2, (1,)) + np.arange(samples)) % 2 * (rows if rows < 32 else 0)
        given = {
            "tmem": CELLS[name](stream, (samples, 128, size.columns)),
            "offset": (half << 16 | column).astype(np.uint32),
        }
        if size.splits:
            given["split"] = np.full(samples, size.splits[SPLITS.get(name, 0)], np.uint32)
        return given


class LoadTestbench(_MoveTestbench):
    """tcgen05.ld, with `.red` and `.spcompress`: cells in, registers out."""

    mutants = LOAD_MUTANTS
    model = staticmethod(loaded)

    def kept(self, instruction: TensorMemoryMove, name: str) -> int:
        """A sample of the small ones."""
        return int(width_of(instruction) <= FEW_REGISTERS)

    def outputs(self, instruction: TensorMemoryMove, samples: int) -> int:
        """Registers."""
        return samples * WARPS * 32 * width_of(instruction)

    def explain(self, instruction: TensorMemoryMove, inputs: Inputs, place: Place) -> Expected:
        """A register."""
        sample, warp, lane, register = place
        given = address_of(inputs, sample, warp)
        lanes, columns = instruction.cells(**given)
        width = instruction.row.layout.value.size // instruction.row.layout.registers
        plain = not instruction.row.selection and register < instruction.row.layout.registers
        chosen = slice(register * width, (register + 1) * width) if plain else slice(None)
        cells = [(int(i), int(j)) for i, j in zip(lanes[lane, chosen], columns[lane, chosen], strict=True)]
        words = [f"{int(inputs['tmem'][sample, i, j]):#010x}" for i, j in cells]
        return Expected(
            {"sample": sample, "warp": warp, "lane": lane, "register": register},
            f"cells {cells[0]} to {cells[-1]}, {', '.join(words[:8])}" + (" ..." if len(words) > 8 else ""),
            (f"address {given['address']:#x}: lane, column {tmem_lane_column(given['address'])}",),
        )


class StoreTestbench(_MoveTestbench):
    """tcgen05.st: cells and registers in, all cells out."""

    mutants = STORE_MUTANTS
    model = staticmethod(stored)

    def kept(self, instruction: StoreTensorMemory, name: str) -> int:
        """A sample of the smallest."""
        return int(geometry(instruction.row).columns == 32)

    def outputs(self, instruction: StoreTensorMemory, samples: int) -> int:
        """Cells."""
        return samples * 128 * geometry(instruction.row).columns

    def _drawn(self, instruction: TensorMemoryMove, name: str, stream: Stream, samples: int) -> Inputs:
        given = super()._drawn(instruction, name, stream, samples)
        shape = (samples, WARPS, 32, instruction.operands["registers"].registers)
        words = stream.words(shape).astype(np.uint32)
        if name == "identity":  # both halves of every register of a warp's lanes are different
            words = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape) * np.uint32(0x00020002) + np.uint32(
                0x00010000
            )
        return given | {"registers": words}

    def explain(self, instruction: StoreTensorMemory, inputs: Inputs, place: Place) -> Expected:
        """A cell."""
        sample, lane, column = place
        where, before = {"sample": sample, "cell": (lane, column)}, f"before {int(inputs['tmem'][place]):#010x}"
        warp = lane // 32
        given = address_of(inputs, sample, warp)
        lanes, columns = instruction.cells(**given)
        found = np.argwhere((lanes == lane) & (columns == column))
        if not found.size:
            return Expected(where, f"no register goes there, {before}", ("a cell that no register goes to stays",))
        holder, value = (int(i) for i in found[-1])
        width = instruction.row.layout.value.size // instruction.operands["registers"].registers
        register, slot = divmod(value, width)
        word = int(inputs["registers"][sample, warp, holder, register])
        source = f"warp {warp} lane {holder} register {register} slot {slot}, {word:#010x}, {before}"
        return Expected(where, source, (f"address {given['address']:#x}",))


class OrderTestbench(Testbench):
    """tcgen05.fence and tcgen05.wait: what was stored, random words of a few CTAs, is there after them."""

    names, count = ("uniform",), 4

    def inputs(self, instruction: Ordering, name: str, seed: int, samples: int) -> Inputs:
        """tmem uint32 (samples, 128, 32)."""
        stream = Stream(instruction.mnemonic, name, seed)
        return {"tmem": stream.words((samples, 128, 32)).astype(np.uint32)}

    def model(self, instruction: Ordering, inputs: Inputs) -> Words:
        """The same."""
        tmem = instruction.execute(memory_of(inputs["tmem"][:, None]))
        return tmem.read(np.arange(128)[:, None], np.arange(32))

    def explain(self, instruction: Ordering, inputs: Inputs, place: Place) -> Expected:
        """A cell."""
        where = {"sample": place[0], "cell": place[1:]}
        return Expected(where, "what was stored", ("stores are complete and seen",))
