"""A launch that stands still between instructions: step, run to a breakpoint, look at everything, ask where a byte comes from.

`Kernel.session` makes one. It does what the launch does, in the same order: looking and stepping change nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing, shortened
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.layouts.layout import Layout
from tcsim.numbers.formats import Format
from tcsim.ptx.compile.compiled import SHARED_START, Site
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.grid import Grid, Launch
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.stepping import matrices, state
from tcsim.ptx.stepping.arrays import Named
from tcsim.ptx.stepping.breakpoints import Breakpoint, Line, Source, When
from tcsim.ptx.stepping.questions import asked
from tcsim.ptx.stepping.stepper import Snapshot, Stepper
from tcsim.ptx.stepping.why import Why
from tcsim.ptx.text.syntax import Function
from tcsim.tma.map import TensorMap

Until = int | str | Breakpoint | Callable[["Session"], Any]


class Session:
    """A launch that stands before an instruction. `Kernel.session` makes it."""

    def __init__(
        self, launch: Launch, function: Function, text: str, finish: Callable[[Grid, bool], Any], most: int
    ) -> None:
        self.launch, self.function = launch, function
        self.lines = text.splitlines()
        self.memory = launch.memory
        self.breakpoints: dict[int, Breakpoint] = {}
        self.arrays: dict[str, Named] = {}
        self._finish, self._most, self._numbers = finish, most, 0
        self.start = Snapshot(launch.memory)
        self._begin()

    def _begin(self) -> None:
        self.stepper = Stepper(self.launch, self._most)
        weakref.finalize(self, self.stepper.worker.close)
        self._hazards = 0
        self.stepper.go(lambda block, site, mask: "before the first instruction")

    # --- going on

    def step(self, warp: int | None = None, block: tuple[int, int, int] | None = None, count: int = 1) -> state.Where:
        """Execute instructions: `count` of whatever comes next, or of the threads of a warp or block.

        Of a warp or block the launch goes on, others with it, until it stands before their next instruction.
        """
        if warp is not None and block is None and self.stepper.block is not None:
            block = self.stepper.block.index

        def ours(own: Block, site: Site, mask: Array) -> str | None:
            if block is not None and own.index != tuple(block):
                return None
            return "stepped" if warp is None or _executes(own, site, mask, warp) else None

        for _ in range(count):
            self._go(ours)
        return self.where()

    def step_source(self) -> state.Where:
        """Go on until the threads that are about to execute come to another line of the source; of the PTX, where there is none."""
        block, site, mask = self.stepper.block, self.stepper.site, self.stepper.mask
        if block is None or site is None or mask is None:
            return self.where()
        warps, now = np.unique(np.flatnonzero(mask) // LANES), _line(site)

        def another(own: Block, site: Site, mask: Array) -> str | None:
            same = own is block and bool(np.isin(np.flatnonzero(mask) // LANES, warps).any())
            return "another source line" if same and _line(site) != now else None

        self._go(another)
        return self.where()

    def run(self, until: Until | None = None) -> state.Where:
        """Go on until a breakpoint, `until`, or the end.

        until: a line of PTX (int), of the source ("file.cu:12"), a Breakpoint, or a condition: a function of the session. It stops once.
        """
        stops = ({} if until is None else {0: _breakpoint(until)}) | self.breakpoints
        self._hazards = len(self.stepper.grid.found())
        for own in stops.values():
            own.started(self)

        def stopping(block: Block, site: Site, mask: Array) -> str | None:
            for number, own in stops.items():
                if own.holds(self, block, site, mask):
                    return f"{own}" if not number else f"breakpoint {number}: {own}"
            return None

        self._go(stopping)
        return self.where()

    def _go(self, stops: Callable[[Block, Site, Array], str | None]) -> None:
        self.stepper.go(stops)

    def restart(self) -> state.Where:
        """Begin again: global memory is what it was before the launch."""
        self.stepper.worker.close()
        self.start.restore()
        self._begin()
        return self.where()

    def back(self, count: int = 1) -> state.Where:
        """Go back some instructions: begin again, and run to where the launch stood then."""
        return self.go_to(max(self.position - count, 0))

    def go_to(self, position: int) -> state.Where:
        """Stand where a number of instructions had begun; what is earlier is reached by beginning again."""
        if position < self.position or (position == self.position and self.ended):
            self.restart()
        if position > self.position:
            log = self.stepper.log
            self._go(lambda block, site, mask: "went there" if log.position >= position else None)
        return self.where()

    def close(self) -> None:
        """End the launch where it stands; what it left can still be looked at."""
        self.stepper.worker.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *given: object) -> None:
        self.close()

    # --- breakpoints

    def break_at(self, place: Until, block: tuple[int, int, int] | None = None, warp: int | None = None) -> int:
        """Stop `run` at a line of PTX (int), of the source ("file.cu:12"), a Breakpoint or a condition; returns its number."""
        made = _breakpoint(place, block, warp)
        self._numbers += 1
        self.breakpoints[self._numbers] = made
        return self._numbers

    def never(self, number: int) -> str:
        """Why a breakpoint at a line of the source can never stop; empty if it can, or where that is not known."""
        made = self.breakpoints[number]
        if not isinstance(made, Source):
            return ""
        items = (item for own in self.stepper.grid.launch.program.lines for item in own if item is not None)
        every = {id(item.source): item.source for item in items if item.source is not None}
        return made.missing(every.values())

    def remove(self, number: int) -> None:
        """Forget a breakpoint. Raises OperandError for a number that none has."""
        if number not in self.breakpoints:
            raise OperandError(
                f"no breakpoint {shortened(number)}; valid: {', '.join(map(str, self.breakpoints)) or 'there is none'}"
            )
        del self.breakpoints[number]

    # --- what is there

    @property
    def position(self) -> int:
        """Instructions begun, each counted once for the threads that execute it together."""
        return self.stepper.log.position

    @property
    def ended(self) -> bool:
        """Whether the launch has ended."""
        return self.stepper.worker.ended

    @property
    def result(self) -> Any:
        """The `Run` of the launch; None while it goes on."""
        completed = self.stepper.grid.completed
        return None if completed is None else self._finish(self.stepper.grid, completed)

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
        found = [
            own
            for block in self.blocks
            for own in state.standing(block, *((at.site, at.mask) if block is at.block else (None, None)))
        ]
        return state.Where(self.position, self.ended, at.reason, tuple(found))

    def listing(self, around: int = 5) -> list[str]:
        """The PTX around the instruction that comes next."""
        line = self.line
        if line is None:
            return []
        first, last = max(line - around, 1), min(line + around, len(self.lines))
        return [
            f"{'=>' if own == line else '  '} {own:>5}  {self.lines[own - 1].rstrip()}"
            for own in range(first, last + 1)
        ]

    def registers(
        self, name: str, warp: int | None = None, type: str | None = None, block: Any = None
    ) -> state.Registers:
        """A register of the lanes of a warp, decoded as its declared type or another one ("f32").

        Raises OperandError for a register, warp or block that there is not.
        """
        own, site = self._block(block), self._site()
        return state.registers(own, site, name, self._warp(warp), type)

    def fragment(
        self, line: int, operand: str, warp: int | None = None, block: Any = None, format: str | Format | None = None
    ) -> matrices.Matrix:
        """An operand of the tensor instruction at a line as the matrix that it is, from the registers or the tile that it names now.

        format: what the elements are, where the instruction only knows their bits.

        Raises OperandError for a line without such an instruction, or an operand that is not a matrix.
        """
        return matrices.fragment(self._block(block), line, operand, self._warp(warp), format)

    def shared(
        self, address: int = SHARED_START, size: int | None = None, *, swizzle: str = "NONE", block: Any = None,
        tile: int | MatrixDescriptor | TensorMap | Layout | None = None, rows: int | None = None, columns: int | None = None,
        format: str | Format | None = None, pitch: int | None = None, major: Major = "K",
    ) -> state.Shown:  # fmt: skip
        """Shared memory: bytes, in the order before a swizzle; or with `rows` or `tile` the matrix that it is (`matrices.tile`).

        tile: a MatrixDescriptor, a TensorMap whose box lies at the address, or a Layout in elements from there on.
        Raises OperandError for what does not fit, or lies outside.
        """
        own = self._block(block)
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
        columns: tuple[int, int] = (0, 8),
        lanes: tuple[int, int] = (0, 128),
        format: str = "f32",
        block: Any = None,
    ) -> matrices.Matrix:
        """Tensor Memory of a block as a matrix: lanes are rows. Raises OperandError for cells that there are not."""
        return matrices.tensor_memory(self._block(block), lanes, columns, format)

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

    # --- why

    def why(
        self, what: Any, register: str | None = None, lane: int | None = None, size: int = 1, block: Any = None
    ) -> Why:
        """The chain of instructions and elements that made some bytes, as they are now, back to global memory.

        what: an element of an array that has a name, "c[3, 5]"; an address of global memory or, with a block, of its shared memory;
        a line of PTX, with a register that it wrote and a lane: as it was after the last execution there; or (line, register, lane).
        lane: a thread of the block. size: bytes from an address on.

        Raises OperandError for an element, a register or a line that there is not, or that nothing has executed yet.
        """
        return asked(self, what, register, lane, size, block)

    # --- which

    def _block(self, index: Any) -> Block:
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
        return next(
            own for own in self.launch.program.names.values() if isinstance(own, Site) and own.function is self.function
        )


def _breakpoint(place: Until, block: Any = None, warp: int | None = None) -> Breakpoint:
    if isinstance(place, Breakpoint):
        return place
    if isinstance(place, int) and not isinstance(place, bool):
        return Line(place, block, warp)
    if isinstance(place, str):
        return Source(place, block, warp)
    if callable(place):
        return When(place)
    raise OperandError(
        f'a breakpoint is {shortened(place)}; valid: a line, "file:line", a Breakpoint, or a function of the session'
    )


def _executes(block: Block, site: Site, mask: Array, warp: int) -> bool:
    """Whether threads of a warp come to an instruction, executing it or not."""
    return bool(mask[warp * LANES : (warp + 1) * LANES].any())


def _line(site: Site) -> str:
    """The line of the kernel's source; of the PTX, where there is none."""
    source = site.item.source
    return source.places[0] if source is not None else str(site.item.line)
