"""A launch that stands still between instructions: step, run to a breakpoint, look at everything, ask where a byte comes from.

`Kernel.session` makes one. It does what the launch does, in the same order: looking and stepping change nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing, nearest, shortened
from tcsim.ptx.compile.compiled import Site, layout
from tcsim.ptx.launch.grid import Grid, Launch
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.stepping import state
from tcsim.ptx.stepping.arrays import element
from tcsim.ptx.stepping.breakpoints import Breakpoint, Line, Source, When
from tcsim.ptx.stepping.log import Byte, placed
from tcsim.ptx.stepping.stepper import Stepper
from tcsim.ptx.stepping.stopped import Stopped
from tcsim.ptx.stepping.why import Trail, Why, nodes
from tcsim.ptx.text.syntax import Function, place_of, unscoped

Until = int | str | Breakpoint | Callable[["Session"], Any]


class Session(Stopped):
    """A launch that stands before an instruction. `Kernel.session` makes it."""

    def __init__(
        self, launch: Launch, function: Function, text: str, finish: Callable[[Grid, bool], Any], most: int
    ) -> None:
        super().__init__(launch, function, text)
        self.breakpoints: dict[int, Breakpoint] = {}
        self._finish, self._most, self._numbers = finish, most, 0
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
            return "stepped" if warp is None or mask[warp * LANES : (warp + 1) * LANES].any() else None

        for _ in range(count):
            self._go(ours)
            if self.ended:
                break
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

        return self._go(another)

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

        return self._go(stopping)

    def _go(self, stops: Callable[[Block, Site, Array], str | None]) -> state.Where:
        self.stepper.go(stops)
        return self.where()

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
            valid = ", ".join(map(str, self.breakpoints)) or "there is none"
            raise state.refused(f"no breakpoint {shortened(number)}", valid)
        del self.breakpoints[number]

    # --- what it came to

    @property
    def result(self) -> Any:
        """The `Run` of the launch; None while it goes on."""
        completed = self.stepper.grid.completed
        return None if completed is None else self._finish(self.stepper.grid, completed)

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


def _breakpoint(place: Until, block: Any = None, warp: int | None = None) -> Breakpoint:
    if isinstance(place, Breakpoint):
        return place
    if isinstance(place, int) and not isinstance(place, bool):
        return Line(place, block, warp)
    if isinstance(place, str):
        return Source(place, block, warp)
    if callable(place):
        return When(place)
    valid = 'a line, "file:line", a Breakpoint, or a function of the session'
    raise state.refused(f"a breakpoint is {shortened(place)}", valid)


def _line(site: Site) -> str:
    """The line of the kernel's source; of the PTX, where there is none."""
    return place_of(site.item) or str(site.item.line)


def asked(session: Stopped, what: Any, register: str | None, lane: int | None, size: int, block: Any) -> Why:
    """The answer. Raises OperandError for what cannot be asked."""
    places, _ = layout(session.function.params)
    params = [(own.name, places[own.name], places[own.name] + own.size) for own in session.function.params]
    log, indices = session.stepper.log, session.stepper.grid.indices
    trail, now = Trail(log, session.arrays, indices, params, session.start.read), log.serial + 1
    if isinstance(what, tuple) and len(what) == 3:
        what, register, lane = what
    if isinstance(what, str):
        own, index = element(session.arrays, what)
        first = own.address(index)
        said, bytes = f"{own.name}[{', '.join(map(str, index))}]", [tuple(range(first, first + own.size))]
        said += f" = {_number(own.value(session.memory.read(first, own.size)))}"
        return _tree(trail, said, bytes, now)
    if register is None:
        return _tree(trail, *_addressed(session, what, size, block), now)
    return _register(session, trail, what, register, lane, block)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _tree(trail: Trail, said: str, elements: Sequence[tuple[Byte, ...]], before: int) -> Why:
    return Why(said, nodes(trail, "", tuple((element, before) for element in elements)))


def _addressed(session: Stopped, what: Any, size: int, block: Any) -> tuple[str, list[tuple[Byte, ...]]]:
    if not isinstance(what, (int, np.integer)) or isinstance(what, bool) or int(what) < 0 or not 1 <= size <= 1 << 16:
        valid = "an element as c[3, 5], an address, or a line with a register and a lane"
        raise state.refused(f"why: {shortened(what)}", valid)
    address = int(what)
    if block is None and session.memory.segment(address) is not None:
        return f"global {address:#x}", [(own,) for own in range(address, address + size)]
    own = session.block_at(block)
    if address + size > own.spaces.shared.size:
        what, valid = f"why: {size} bytes at {address:#x}", f"global memory, 0 to {own.spaces.shared.size - 1:#x}"
        raise state.refused(f"{what}: neither mapped nor in shared memory", valid)
    first = int(placed("shared", own.number, np.array([address]))[0])
    return f"shared {address:#x} of block {own.index}", [(one,) for one in range(first, first + size)]


def _register(session: Stopped, trail: Trail, line: Any, register: str, lane: int | None, block: Any) -> Why:
    own = session.block_at(block)
    if lane is None or not 0 <= lane < own.threads.launched:
        raise state.refused(f"why: lane {shortened(lane)}", f"a thread of the block, 0 to {own.threads.launched - 1}")
    records = [one for one, _ in session.stepper.log.records if one.site.item.line == line and one.block == own.number]
    if not records:
        lines = sorted({one.site.item.line for one, _ in session.stepper.log.records if one.block == own.number})
        close = listing(nearest(str(line), map(str, lines))) or "none yet"
        what = f"why: nothing was executed at line {shortened(line)} by block {own.index}"
        raise OperandError(f"{what}; nearest: {close}")
    site = records[-1].site
    name = next((one for one in site.numbers if one == register or unscoped(one) == register), None)
    if name is None:
        close, what = listing(nearest(register, site.numbers)), f"no register {shortened(register)}"
        raise OperandError(f"why: {what} in {site.function.name}; nearest: {close}")
    number = site.numbers[name]
    record = next((one for one in reversed(records) if number in one.values and one.executed_by(lane)), None)
    if record is None:
        what = f"why: line {line} did not write {register} of thread {lane}"
        raise state.refused(what, "a register and a thread that it wrote")
    width = record.values[number].dtype.itemsize
    elements: list[tuple[Byte, ...]] = [tuple((own.number, number, lane, at) for at in range(width))]
    return _tree(trail, f"{register} of thread {lane} after line {line}", elements, record.time + 1)
