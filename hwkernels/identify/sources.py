"""An instruction as an unknown machine: dot products are laid on the diagonals of its tiles.

The instruction's shapes and formats are used, and where its registers hold which element; its arithmetic is not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from hwkernels.device.driver import Launch
from hwkernels.identification.machine import Signature
from hwkernels.probes.probe import Probe
from tcsim.core.errors import OperandError
from tcsim.layouts.sparsity import Sparsity

Array = npt.NDArray[Any]
TILES = 2048
"""Tiles of one launch."""


class Tiles(ABC):
    """What `hwkernels.identification` asks, of one instruction. Output (i, i) of each tile is a dot product; the others are not looked at."""

    def __init__(self, instruction: Any) -> None:
        self.instruction = instruction
        m, n, k = instruction.shape
        self.sparsity: Sparsity | None = getattr(instruction.row, "sparsity", None)
        self.k, self.width, self.shape = k, min(m, n), (m, n)
        kept = instruction.operands["a"].shape[1] if self.sparsity else k
        formats = {name: instruction.formats[name].name for name in "abc"}
        result = instruction.operands["d"].format.name
        scale = None
        if getattr(instruction, "scale_formats", None):
            scale = instruction.scale_formats["scale_a"].name, kept // instruction.blocks
        self.signature = Signature(kept, formats["a"], formats["b"], formats["c"], result, scale)
        self.positions: Array | None = None
        self.rows = np.arange(k)
        if self.sparsity:
            group = int(self.sparsity.valid[0])
            groups = np.full((m, self.sparsity.groups), group, np.uint8)
            self.positions = self.sparsity.positions_of(groups)
            self.rows = self.sparsity.columns(self.positions)[0]

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """Codes d (batch,) of a, b (batch, k), c (batch,)."""
        (m, n), width, count = self.shape, self.width, len(c)
        found = []
        for start in range(0, count, TILES * width):
            part = slice(start, start + TILES * width)
            tiles = -(-len(c[part]) // width)
            given = [_padded(x[part], tiles * width).reshape(tiles, width, -1) for x in (a, b, c)]
            codes_a = np.zeros((tiles, m, self.signature.k), a.dtype)
            codes_b = np.zeros((tiles, self.k, n), b.dtype)
            codes_c = np.zeros((tiles, m, n), c.dtype)
            place = np.arange(width)
            codes_a[:, :width] = given[0]
            codes_b[:, self.rows[:, None], place] = given[1].swapaxes(1, 2)
            codes_c[:, place, place] = given[2][..., 0]
            more = {}
            if scale_a is not None and scale_b is not None:
                one, two = (_padded(x[part], tiles * width).reshape(tiles, width, -1) for x in (scale_a, scale_b))
                more["scale_a"] = np.zeros((tiles, m, one.shape[2]), np.uint8)
                more["scale_b"] = np.zeros((tiles, two.shape[2], n), np.uint8)
                more["scale_a"][:, :width], more["scale_b"][:, :, place] = one, two.swapaxes(1, 2)
            d = self.multiplied(codes_a, codes_b, codes_c, **more)
            found.append(d[:, place, place].reshape(-1)[: len(c[part])])
        return np.concatenate(found)

    @abstractmethod
    def multiplied(self, a: Array, b: Array, c: Array, **scales: Array) -> Array:
        """D (tiles, M, N) of A (tiles, M, kept), B (tiles, K, N), C (tiles, M, N), block scales as `matmul` takes them."""


class ModelTiles(Tiles):
    """The model as an unknown GPU."""

    def multiplied(self, a: Array, b: Array, c: Array, **scales: Array) -> Array:
        """What `matmul` gives."""
        more = {} if self.positions is None else {"metadata": np.broadcast_to(self.positions, a.shape)}
        d: Array = self.instruction.matmul(a, b, c, **more, **scales)
        return d


class GpuTiles(Tiles):
    """The instruction on a GPU: its probe, run by `run` (a worker's)."""

    def __init__(self, probe: Probe, run: Callable[[Launch], list[Array]]) -> None:
        super().__init__(probe.instruction)
        self.probe, self.run, self.launches = probe, run, 0

    def multiplied(self, a: Array, b: Array, c: Array, **scales: Array) -> Array:
        """What the probe gives.

        Raises OperandError for block scales.
        """
        if scales:
            raise OperandError(
                f"{self.instruction.mnemonic}: block scales are not laid out for a GPU's probe; valid: instructions without them, or the model (ModelTiles)"
            )
        (found,) = self.run(self.probe.launch(self.inputs(a, b, c)))[:1]
        self.launches += 1
        d: Array = self.instruction.matrix("d", found)
        return d

    def inputs(self, a: Array, b: Array, c: Array) -> dict[str, Array]:
        """Operands as the probe takes them: registers, and of a warpgroup's multiply tiles in shared memory."""
        own = self.instruction
        form, count = own.row.forms[0], len(c)
        given = {"c": own.registers("c", c)}
        if "scale_d" in form:
            given |= self._images(a, b)
            given["scale_d"] = np.ones(count, np.uint32)
            for operand in form.operands:
                if operand.kind == "immediate" and operand.name != "selector":
                    given[operand.name] = np.full(count, int(operand.name.startswith("scale")), np.int32)
        else:
            given |= {name: own.registers(name, codes) for name, codes in (("a", a), ("b", b))}
        if self.sparsity is not None and self.positions is not None:
            selector = self.sparsity.selectors[0]
            words = np.broadcast_to(own.encode_metadata(self.positions, selector), (count, self.sparsity.lanes))
            given["metadata"] = words[..., None] if "scale_d" in form else words
            given["selector"] = np.full(count, selector, np.uint32)
        return {name: np.ascontiguousarray(array) for name, array in given.items()}

    def _images(self, a: Array, b: Array) -> dict[str, Array]:
        images, descriptors, start = [], {}, 0
        for name, codes in (("a", a), ("b", b.swapaxes(1, 2))):
            rows, k = codes.shape[1], codes.shape[2]
            tile = tcsim.MatrixDescriptor.for_tile(rows, k, self.instruction.formats[name].name, swizzle="NONE")
            images.append(tile.image(np.ascontiguousarray(codes)))
            descriptors[name] = np.full(len(a), tile.descriptor.encode() + (start >> 4), np.uint64)
            start += images[-1].shape[1]
        return {"image": np.concatenate(images, axis=1), **descriptors}


def _padded(array: Array, count: int) -> Array:
    rest = count - len(array)
    return np.concatenate([array, np.zeros((rest, *array.shape[1:]), array.dtype)]) if rest else array
