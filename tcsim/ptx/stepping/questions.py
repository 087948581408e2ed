"""What `Session.why` can be asked: an element, an address, a register that a line wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing, nearest, shortened
from tcsim.ptx.compile.compiled import layout
from tcsim.ptx.stepping.arrays import element
from tcsim.ptx.stepping.places import Byte, placed
from tcsim.ptx.stepping.stopped import Stopped
from tcsim.ptx.stepping.why import Trail, Why, nodes


def trail_of(session: Stopped) -> Trail:
    """What questions are asked of."""
    grid = session.stepper.grid
    places, _ = layout(session.function.params)
    params = [(own.name, places[own.name], places[own.name] + own.size) for own in session.function.params]
    return Trail(session.stepper.log, session.arrays, grid.indices, params, session.start.read)


def asked(session: Stopped, what: Any, register: str | None, lane: int | None, size: int, block: Any) -> Why:
    """The answer. Raises OperandError for what cannot be asked."""
    trail, now = trail_of(session), session.stepper.log.serial + 1
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
        raise OperandError(
            f"why: {shortened(what)}; valid: an element as c[3, 5], an address, or a line with a register and a lane"
        )
    address = int(what)
    if block is None and session.memory.segment(address) is not None:
        return f"global {address:#x}", [(own,) for own in range(address, address + size)]
    own = session.block_at(block)
    if address + size > own.spaces.shared.size:
        raise OperandError(
            f"why: {size} bytes at {address:#x}: neither mapped nor in shared memory; valid: global memory, 0 to {own.spaces.shared.size - 1:#x}"
        )
    first = int(placed("shared", own.number, np.array([address]))[0])
    return f"shared {address:#x} of block {own.index}", [(one,) for one in range(first, first + size)]


def _register(session: Stopped, trail: Trail, line: Any, register: str, lane: int | None, block: Any) -> Why:
    own = session.block_at(block)
    if lane is None or not 0 <= lane < own.threads.launched:
        raise OperandError(
            f"why: lane {shortened(lane)}; valid: a thread of the block, 0 to {own.threads.launched - 1}"
        )
    records = [one for one, _ in session.stepper.log.records if one.site.item.line == line and one.block == own.number]
    if not records:
        lines = sorted({one.site.item.line for one, _ in session.stepper.log.records if one.block == own.number})
        close = listing(nearest(str(line), map(str, lines))) or "none yet"
        raise OperandError(
            f"why: nothing was executed at line {shortened(line)} by block {own.index}; nearest: {close}"
        )
    site = records[-1].site
    name = next((one for one in site.numbers if one == register or one.partition("#")[0] == register), None)
    if name is None:
        raise OperandError(
            f"why: no register {shortened(register)} in {site.function.name}; nearest: {listing(nearest(register, site.numbers))}"
        )
    number = site.numbers[name]
    record = next((one for one in reversed(records) if number in one.values and one.executed_by(lane)), None)
    if record is None:
        raise OperandError(
            f"why: line {line} did not write {register} of thread {lane}; valid: a register and a thread that it wrote"
        )
    width = record.values[number].dtype.itemsize
    elements: list[tuple[Byte, ...]] = [tuple((own.number, number, lane, at) for at in range(width))]
    return _tree(trail, f"{register} of thread {lane} after line {line}", elements, record.time + 1)
