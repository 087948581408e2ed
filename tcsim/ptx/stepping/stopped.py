"""A launch that stands still, and what is there: threads, registers, memory, work in flight."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing, shortened
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.layouts.layout import Layout
from tcsim.numbers.formats import Format
from tcsim.ptx.compile.compiled import SHARED_START, Site
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.grid import Launch
from tcsim.ptx.machine.arrays import LANES
from tcsim.ptx.machine.block import Block
from tcsim.ptx.stepping import matrices, state
from tcsim.ptx.stepping.arrays import Named
from tcsim.ptx.stepping.stepper import Snapshot, Stepper
from tcsim.ptx.text.syntax import Function
from tcsim.tma.map import TensorMap


class Stopped:
    """A launch that stands before an instruction, and what is there. It only looks."""

    stepper: Stepper
    _hazards = 0  # that were found when the launch last went on

    def __init__(self, launch: Launch, function: Function, text: str) -> None:
        self.launch, self.function = launch, function
        self.lines = text.splitlines()
        self.memory = launch.memory
        self.arrays: dict[str, Named] = {}
        self.start = Snapshot(launch.memory)

    @property
    def position(self) -> int:
        """Instructions begun, each counted once for the threads that execute it together."""
        return self.stepper.log.position

    @property
    def ended(self) -> bool:
        """Whether the launch has ended."""
        return self.stepper.worker.ended

    @property
    def hazards(self) -> list[Hazard]:
        """What was wrong so far, as `Run.hazards` will say it, and what the observers of clusters that run have found."""
        return self.stepper.grid.found()

    @property
    def new_hazards(self) -> list[Hazard]:
        """Those since the launch last went on with `run`."""
        return self.stepper.grid.found()[self._hazards :]

    @property
    def blocks(self) -> list[Block]:
        """The blocks that run, and those of the cluster that ended last."""
        return self.stepper.grid.blocks

    @property
    def line(self) -> int | None:
        """The line of PTX of the instruction that comes next."""
        return self.stepper.site.item.line if self.stepper.site is not None else None

    @property
    def threads(self) -> tuple[int, ...]:
        """The threads that execute it."""
        return tuple(np.flatnonzero(self.stepper.mask).tolist()) if self.stepper.mask is not None else ()

    @property
    def block(self) -> tuple[int, int, int] | None:
        """Their block; the last one after the end."""
        return self.stepper.block.index if self.stepper.block is not None else None

    def where(self) -> state.Where:
        """Where every thread stands, and what those that wait wait for."""
        at = self.stepper
        places = ((own, *((at.site, at.mask) if own is at.block else (None, None))) for own in self.blocks)
        found = tuple(own for place in places for own in state.standing(*place))
        return state.Where(self.position, self.ended, at.reason, found)

    def listing(self, around: int = 5) -> list[str]:
        """The PTX around the instruction that comes next."""
        line = self.line
        if line is None:
            return []
        shown = range(max(line - around, 1), min(line + around, len(self.lines)) + 1)
        return [f"{'=>' if own == line else '  '} {own:>5}  {self.lines[own - 1].rstrip()}" for own in shown]

    def registers(
        self, name: str, warp: int | None = None, type: str | None = None, block: Any = None
    ) -> state.Registers:
        """A register of the lanes of a warp, decoded as its declared type or another one ("f32").

        Raises OperandError for a register, warp or block that there is not.
        """
        own, site = self.block_at(block), self._site()
        return state.registers(own, site, name, self._warp(warp), type)

    def fragment(
        self, line: int, operand: str, warp: int | None = None, block: Any = None, format: str | Format | None = None
    ) -> matrices.Matrix:
        """An operand of the tensor instruction at a line as the matrix that it is, from the registers or the tile that it names now.

        format: what the elements are, where the instruction only knows their bits.

        Raises OperandError for a line without such an instruction, or an operand that is not a matrix.
        """
        return matrices.fragment(self.block_at(block), line, operand, self._warp(warp), format)

    def shared(
        self, address: int = SHARED_START, size: int | None = None, *, swizzle: str = "NONE", block: Any = None,
        tile: int | MatrixDescriptor | TensorMap | Layout | None = None, rows: int | None = None, columns: int | None = None,
        format: str | Format | None = None, pitch: int | None = None, major: Major = "K",
    ) -> state.Shown:  # fmt: skip
        """Shared memory: bytes, in the order before a swizzle; or with `rows` or `tile` the matrix that it is (`matrices.tile`).

        tile: a MatrixDescriptor, a TensorMap whose box lies at the address, or a Layout in elements from there on.
        Raises OperandError for what does not fit, or lies outside.
        """
        own = self.block_at(block)
        if tile is None and rows is None:
            return matrices.octets(own, address, own.spaces.shared.size - address if size is None else size, swizzle)
        return matrices.tile(
            own, address if tile is None else tile, rows, columns, format, address=address, swizzle=swizzle, pitch=pitch, major=major
        )  # fmt: skip

    def mbarriers(self) -> list[state.Barrier]:
        """The mbarriers that were initialised: phase, arrivals and bytes that are missing."""
        return [found for block in self.blocks for found in state.barriers(block)]

    def groups(self) -> list[state.InFlight]:
        """The work in flight, the oldest first: copies and multiplications, with their groups."""
        return [found for block in self.blocks for found in state.in_flight(block, self.stepper.log)]

    def tmem(
        self,
        columns: matrices.Extent = (0, 8),
        lanes: matrices.Extent = (0, 128),
        format: str = "f32",
        block: Any = None,
    ) -> matrices.Matrix:
        """Tensor Memory of a block as a matrix: lanes are rows. Raises OperandError for cells that there are not."""
        return matrices.tensor_memory(self.block_at(block), lanes, columns, format)

    def name(
        self, name: str, address: int, shape: tuple[int, ...], format: Any, strides: tuple[int, ...] | None = None
    ) -> None:
        """Call some of global memory by a name, so that `why` says a[3, 0:16] and takes it.

        format: a number format ("f16") or a NumPy dtype. strides: bytes from one index to the next of each dimension; packed if left out.
        Raises OperandError for a shape, strides or a format that are none.
        """
        self.arrays[name] = Named.of(name, address, shape, format, strides)

    def global_matrix(self, name: str) -> matrices.Matrix:
        """An array of global memory that has a name, as it is now; its leading dimensions as rows.

        Raises OperandError for a name that none has.
        """
        if name not in self.arrays:
            close = listing(self.arrays) or "none has a name yet"
            raise OperandError(f"no array {shortened(name)}; valid: {close}")
        return matrices.in_global_memory(self.memory, self.arrays[name])

    # --- which

    def block_at(self, index: Any) -> Block:
        """A block by its index; None: the one that stands still. Raises OperandError for one that does not run."""
        if index is None and self.stepper.block is not None:
            return self.stepper.block
        for own in self.blocks:
            if index is not None and own.index == tuple(index):
                return own
        there = ", ".join(str(own.index) for own in self.blocks[:8])
        raise OperandError(f"no block {shortened(index)} runs; valid: {there or 'none has begun'}")

    def _warp(self, warp: int | None) -> int:
        if warp is not None:
            return warp
        return self.threads[0] // LANES if self.threads else 0

    def _site(self) -> Site:
        if self.stepper.site is not None:
            return self.stepper.site
        sites = (own for own in self.launch.program.names.values() if isinstance(own, Site))
        return next(own for own in sites if own.function.name == self.function.name)
