"""A tcgen05.mma with its instruction descriptor, as the input classes see an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli import classes as input_classes
from conformance.stimuli import scaled as scaled_inputs
from conformance.stimuli.classes import Matrices, Problem
from conformance.stimuli.stream import Stream
from tcsim.isa.tcgen05.described import DescribedMultiply
from tcsim.isa.tcgen05.lookup_table import looked_up
from tcsim.memory.tmem_layout import LOOKUP_COLUMNS, LOOKUP_ENTRIES
from tcsim.numbers.formats import Format

ABOUT_SCALES = ("scales", "cancelled", "tiny")
"""The classes of conformance.stimuli.scaled that are about scales."""


@dataclass(frozen=True)
class Described(DescribedMultiply):
    """An instruction with one descriptor, and the input classes that apply to it."""

    @property
    def classes(self) -> list[str]:
        """The names of the input classes that apply."""
        kind = self.formats["a"].kind
        problem = Problem(self, 1)  # type: ignore[arg-type]
        found = [item.name for item in input_classes.CLASSES.values() if kind in item.kinds and item.applies(problem)]
        return found + [name for name in ABOUT_SCALES if self.blocks and (name != "tiny" or self._reaches_floor)]

    @property
    def _reaches_floor(self) -> bool:
        """True if scales can be so small that the floor of the largest exponent counts."""
        unit = Problem(self, 1).unit  # type: ignore[arg-type]
        return unit is not None and 2 * self.formats["scale"].minimum_exponent < unit.floor

    def make(self, name: str, stream: Stream, count: int) -> Matrices:
        """Operands of `matmul` (count, rows, columns) of an input class: a, b, c, and what else the instruction takes."""
        if name in ABOUT_SCALES:
            out = scaled_inputs.CLASSES[name].make(_Scaled(self, count), stream)  # type: ignore[arg-type]
        else:
            out = input_classes.EVERY[name].make(Problem(self, count), stream)  # type: ignore[arg-type]
        shapes = self.instruction.shapes(self.desc)
        for side in ("scale_a", "scale_b"):
            if side in shapes and side not in out:
                out[side] = scales(self.formats["scale"], name, stream, (count, *shapes[side]))
        if "metadata" in shapes:
            sparsity = self.instruction.sparsity(self.desc)
            groups = stream.choice(np.array(sparsity.valid, np.uint8), (count, sparsity.rows, sparsity.groups))
            out["metadata"] = sparsity.positions_of(groups)
            out["b"] = _spread(out["b"], sparsity.columns(out["metadata"])[:, 0])
        if "lookup" in shapes:
            out |= _lookup(out["b"], stream)
        return out


class _Scaled(scaled_inputs.ScaledProblem):
    """The products of a block-scaled tcgen05.mma, as the classes about scales see them."""

    instruction: Described  # type: ignore[assignment]

    @property
    def blocks(self) -> int:
        """Scales of a row of A."""
        return self.instruction.blocks

    @property
    def scale(self) -> Format:
        """The format of the scales."""
        return self.instruction.formats["scale"]


def scales(format: Format, name: str, stream: Stream, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Scale factors: any bits for the class `uniform`, else powers of two or numbers near 1, and now and then any but NaN."""
    words = stream.words(shape)
    mask = np.uint64((1 << format.bits) - 1)
    if name == "uniform":
        return (words & mask).astype(format.dtype)
    one = np.uint64(format.bias << format.fraction_bits)
    reach = 8 << format.fraction_bits if format.fraction_bits else 24
    near = (one + words % np.uint64(2 * reach) - np.uint64(reach)) & mask
    far = words >> np.uint64(32) & mask
    codes = np.where(stream.chance(1, 16, shape), far, near)
    top = np.uint64(format.largest_code)
    return np.where(codes > top, top, codes).astype(format.dtype)


def _spread(b: npt.NDArray[Any], columns: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """B (count, K, N) in which the kept element j of row 0 meets b[:, j]; the other rows hold the neighbours of those."""
    out = np.repeat(np.roll(b, 1, axis=1), 2, axis=1)
    out[np.arange(len(b))[:, None], columns] = b
    return out


def _lookup(b: npt.NDArray[Any], stream: Stream) -> Matrices:
    """Tables of numbers of B (count, K, N), random indices, and the B that they make; of most tables each entry counts."""
    count, k, n = b.shape
    first = b[:, : LOOKUP_ENTRIES * (k // LOOKUP_ENTRIES)].reshape(count, LOOKUP_ENTRIES, -1, n)
    tables = first[:, :, 0, ::LOOKUP_COLUMNS].swapaxes(1, 2)  # eight numbers of the first column of each group
    indices = stream.below(LOOKUP_ENTRIES, b.shape).astype(np.uint8)
    return {"lookup": np.ascontiguousarray(tables), "indices": indices, "b": looked_up(indices, tables)}
