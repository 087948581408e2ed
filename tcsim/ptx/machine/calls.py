"""Threads that call functions: return addresses and frames of each thread, the stack, and functions of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcsim.isa.scalar.atomic import Atomic
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access
from tcsim.ptx.compile.calls import PROVIDED
from tcsim.ptx.compile.contraction import differ
from tcsim.ptx.machine.accesses import Accesses
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.ledger import Sums, halves
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.native import NATIVE

FRAME_BYTES = 16  # of the stack that a frame takes besides its variables: what a return address needs at least


class Calls(Accesses):
    """Threads with a stack."""

    registers: list[Array]
    limits: Limits = Limits()
    sums: Sums | None = None  # of a launch: floating-point sums in memory
    program: Any

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.depth = np.zeros(self.threads, np.int64)  # calls that a thread is in
        self.sites: list[Array] = []  # by depth: where each thread goes on when it returns
        self.frames: dict[
            int, tuple[Array, list[list[Array]]]
        ] = {}  # of a function: how deep each thread is, saved registers
        self.top: Array | None = None  # of the stack, in local memory
        self.output: list[str] = []

    # --- control

    def parted(self, everyone: Mask, w: Array, after: int, action: Any) -> Any:
        """Do something with some of the threads; the others go on."""
        rest = self._array(everyone) & ~w
        moves: list[tuple[Array, Any]] = [(rest, after)] if rest.any() else []
        if w.any():
            found = action(w)
            moves += found if isinstance(found, list) else [(w.copy(), found)]
        return moves

    def indexed(self, w: Mask, p: Any, choice: Any, places: tuple[int, ...], after: int) -> Any:
        """brx.idx: go to one of several blocks, which a register picks."""
        mask = self._array(w)
        go = mask & p
        number = np.broadcast_to(choice, (self.threads,))
        beyond = go & (number >= len(places))
        if beyond.any():
            thread = int(np.argmax(beyond))
            raise Stop(
                "INVALID_PC",
                f"brx.idx: index {int(number[thread])} of {len(places)} targets",
                thread,
                index=int(number[thread]),
            )
        moves = [(go & (number == place), block) for place, block in enumerate(places)]
        moves.append((mask & ~go, after))
        return [(own, block) for own, block in moves if own.any()]

    def call(self, w: Mask, target: int, site: int) -> int:
        """Enter a function."""
        mask = self._array(w)
        for depth in self._depths(self.depth, mask):
            while len(self.sites) <= depth:
                self.sites.append(np.zeros(self.threads, np.int64))
            np.copyto(self.sites[depth], site, where=mask & (self.depth == depth))
        self.depth[mask] += 1
        return target

    def call_through(self, w: Mask, addresses: Any, site: int) -> Any:
        """Enter the functions whose addresses are in a register."""
        mask = self._array(w)
        found = np.broadcast_to(addresses, (self.threads,))
        moves = []
        for address in np.unique(found[mask]):
            own = mask & (found == address)
            target = self.program.functions.get(int(address))
            if target is None:
                thread = int(np.argmax(own))
                raise Stop(
                    "INVALID_PC", f"a call to {int(address):#x}, where no function is", thread, address=int(address)
                )
            moves.append((own, self.call(own, target, site)))
        return moves

    def ret(self, w: Mask) -> Any:
        """Go back to where each thread was called."""
        mask = self._array(w)
        self.depth[mask] -= 1
        where = np.zeros(self.threads, np.int64)
        for depth in self._depths(self.depth, mask):
            np.copyto(where, self.sites[depth], where=mask & (self.depth == depth))
        sites = np.unique(where[mask])
        return [(mask & (where == site), int(site)) for site in sites]

    @staticmethod
    def _depths(depth: Array, mask: Array) -> list[int]:
        found: list[int] = np.unique(depth[mask]).tolist()
        return found

    # --- what is not exact

    def note(self, instruction: str, w: Mask) -> None:
        """Count an instruction whose bits are not known."""
        self.inexact[instruction] += int(self._array(w).sum())

    def contracted(self, instruction: str, type: str, own: Array, others: Sequence[Array], w: Mask) -> None:
        """Count the threads in which a sum has different bits if it is fused with a product, or another one, or not."""
        wrong = self._array(w) & np.any(
            [np.broadcast_to(differ(type, own, other), (self.threads,)) for other in others], axis=0
        )
        if wrong.any():
            self.inexact[f"mul + {instruction}"] += int(wrong.sum())

    def took_turns(
        self, item: Atomic, space: str, places: Array, threads: Array, before: Array, after: Array, values: list[Array], needed: int
    ) -> None:  # fmt: skip
        """Keep account of what depends on the order of atomics: sums of floating-point numbers, old values."""
        if self.sums is None or not (self.program.tells_order or item.rounds):
            return
        if space.startswith("shared"):
            places = (places & np.uint64(0xFFFFFFFF)) + np.uint64(SHARED_WINDOW)
        where = self.blocks[0].index  # of the cluster, whose shared memory it may be
        if not item.rounds:
            own = [(self.index, thread) for thread in threads.tolist()]
            self.sums.turns.add(f"atom.{item.mnemonic}", item, where, places, own, before, after, values, needed)
            return
        for number, ((first, type), (addend, _)) in enumerate(
            zip(halves(before, item.type), halves(values[0], item.type), strict=True)
        ):
            self.sums.add(
                f"atom.{item.mnemonic}", type, where, places + np.uint64(2 * number), first, addend, needed != 0
            )

    def added(self, instruction: str, type: str, at: Access, before: Array, data: Array) -> None:
        """Keep account of sums of floating-point numbers that a copy makes in memory."""
        if self.sums is None or at.space not in ("global", "generic"):
            return
        container = CONTAINERS[type]
        shape = np.broadcast_shapes(before.shape, data.shape, (*at.address.shape, at.size))
        places = np.broadcast_to(at.address[..., None] + np.arange(at.size), shape).reshape(-1)[:: container.itemsize]
        there = np.broadcast_to(True if at.mask is None else at.mask, shape).reshape(-1)[:: container.itemsize]
        old, new = (
            np.ascontiguousarray(np.broadcast_to(own, shape)).reshape(-1).view(container) for own in (before, data)
        )
        self.sums.bring(instruction, type, places[there].astype(np.uint64), old[there], new[there])

    # --- the stack

    def stack(self) -> Array:
        """The top of each thread's stack, as an offset in local memory."""
        if self.top is None:
            self.top = np.full(self.threads, -(-self.program.local_bytes // 16) * 16, np.uint64)
        return self.top

    def _push(self, mask: Array, sizes: Any) -> None:
        top = self.stack()
        top[mask] += sizes if np.ndim(sizes) == 0 else sizes[mask]
        most = -(-self.program.local_bytes // 16) * 16 + self.limits.stack
        beyond = mask & (top > np.uint64(most))
        if beyond.any():
            thread = int(np.argmax(beyond))
            said = f"{int(top[thread]) - most + self.limits.stack} bytes of stack; the limit is {self.limits.stack}"
            raise Stop("STACK_OVERFLOW", said, thread, calls=int(self.depth[thread]))
        needed = int(top[mask].max()) if mask.any() else 0
        if needed > self.local_bytes:
            self._grow(min(max(needed, 2 * self.local_bytes), most))

    def _grow(self, size: int) -> None:
        """Give every thread more local memory."""
        stride = -(-size // 16) * 16
        if stride * self.threads > self.limits.memory:
            said = f"{stride * self.threads} bytes of stacks; the limit is {self.limits.memory}"
            raise Stop("LIMIT", said, limit="memory")
        store = np.zeros((self.threads, stride), np.uint8)
        if self.local is not None:
            old = self.local.data.reshape(self.threads, self.local_stride)
            store[:, : old.shape[1]] = old
        self.local, self.local_stride, self.local_bytes = Segment(0, store.reshape(-1)), stride, size

    def enter(self, w: Mask, number: int, registers: tuple[int, ...], base: Array, size: int) -> None:
        """Begin a frame: save the registers that an outer call of the function uses, and take memory for its variables."""
        mask = self._array(w)
        depths, saved = self.frames.setdefault(number, (np.zeros(self.threads, np.int64), []))
        for depth in self._depths(depths, mask):
            own = mask & (depths == depth)
            while len(saved) <= depth:
                saved.append([np.zeros_like(self.registers[place]) for place in registers])
            for kept, place in zip(saved[depth], registers, strict=True):
                kept[own] = self.registers[place][own]
        depths[mask] += 1
        base[mask] = self.stack()[mask]
        self._push(mask, np.uint64(-(-size // 16) * 16 + FRAME_BYTES))

    def leave(self, w: Mask, number: int, registers: tuple[int, ...], base: Array) -> None:
        """End a frame: the stack and the registers are as before."""
        mask = self._array(w)
        depths, saved = self.frames[number]
        self.stack()[mask] = base[mask]
        depths[mask] -= 1
        for depth in self._depths(depths, mask):
            own = mask & (depths == depth)
            for kept, place in zip(saved[depth], registers, strict=True):
                self.registers[place][own] = kept[own]

    def alloca(self, sizes: Any, align: int, w: Mask) -> Array:
        """Memory on the stack: its address in local memory."""
        mask = self._array(w)
        wanted = np.broadcast_to(np.asarray(sizes).astype(np.uint64), (self.threads,))
        top = self.stack()
        unit = np.uint64(max(align, 16))
        beyond = mask & (wanted > np.uint64(self.limits.stack))
        if beyond.any():
            thread = int(np.argmax(beyond))
            raise Stop(
                "STACK_OVERFLOW", f"alloca of {int(wanted[thread])} bytes; the limit is {self.limits.stack}", thread
            )
        start = (top + unit - np.uint64(1)) // unit * unit
        end = (start + wanted + np.uint64(15)) // np.uint64(16) * np.uint64(16)
        self._push(mask, end - top)
        return start

    def restored(self, values: Any, w: Mask) -> None:
        """stackrestore: the top of the stack is what stacksave found."""
        mask = self._array(w)
        found = np.broadcast_to(np.asarray(values).astype(np.uint64), (self.threads,))
        wrong = mask & (found > self.stack())
        if wrong.any():
            raise Stop("INVALID_OPERAND", "stackrestore of a value above the top of the stack", int(np.argmax(wrong)))
        self.stack()[mask] = found[mask]

    def copy_local(self, to: Array, what: Array, size: int, w: Mask) -> None:
        """Copy bytes between places of local memory: an argument or a result."""
        at = 0
        while at < size:
            unit = next(own for own in (8, 4, 2, 1) if size - at >= own and self._aligned(to, what, at, own, w))
            self.store("local", to + np.uint64(at), self.load("local", what + np.uint64(at), unit, w), unit, w)
            at += unit

    def _aligned(self, to: Array, what: Array, at: int, unit: int, w: Mask) -> bool:
        places = (to | what)[self._array(w)] | np.uint64(at)
        return not (places & np.uint64(unit - 1)).any()

    # --- functions of the driver

    def octets(self, address: int, size: int, thread: int) -> bytes:
        """Bytes at a generic address, as one thread sees them."""
        mask = np.zeros(self.threads, bool)
        mask[thread] = True
        where = np.full(self.threads, address, np.uint64)
        return bytes(self.load("", where, size, mask)[thread].tobytes())

    def native(self, w: Mask, name: str, places: tuple[int, ...], result: int, site: int) -> int:
        """Call a function of the driver, thread after thread."""
        function, (sizes, returned) = NATIVE[name], PROVIDED[name]
        for thread in np.nonzero(self._array(w))[0].tolist():
            mask = np.zeros(self.threads, bool)
            mask[thread] = True
            given = tuple(
                int(self.load("local", np.full(self.threads, place, np.uint64), size, mask)[thread])
                for place, size in zip(places, sizes, strict=True)
            )
            try:
                found = function(self, given, thread)
            except Stop as stop:
                stop.thread = thread if stop.thread is None else stop.thread
                raise
            if returned:
                value = np.full(self.threads, found & ((1 << 8 * returned) - 1), f"u{returned}")
                self.store("local", np.full(self.threads, result, np.uint64), value, returned, mask)
            if sum(map(len, self.output)) > self.limits.output:
                raise Stop("LIMIT", f"more than {self.limits.output} bytes of output", thread, limit="output")
        return site
