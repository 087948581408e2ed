"""The stack of each thread, in local memory: frames of functions, and what alloca takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.spaces import Spaces
from tcsim.ptx.machine.threads import Threads

FRAME_BYTES = 16  # of the stack that a frame takes besides its variables: what a return address needs at least


def depths(depth: Array, mask: Array) -> list[int]:
    """How deep some threads are: each number once."""
    found: list[int] = np.unique(depth[mask]).tolist()
    return found


class Stack:
    """The stacks of a block."""

    def __init__(self, threads: Threads, registers: list[Array], spaces: Spaces, limits: Limits) -> None:
        self.threads, self.registers, self.spaces, self.limits = threads, registers, spaces, limits
        self.start = -(-int(spaces.local_bytes[0]) // 16) * 16  # in local memory: behind its variables
        self.calls = np.zeros(threads.count, np.int64)  # that a thread is in
        self.frames: dict[int, tuple[Array, list[list[Array]]]] = {}
        """Of a function: how deep each thread is, and by depth the registers that were saved."""
        self._top: Array | None = None

    def top(self) -> Array:
        """The top of each thread's stack, as an offset in local memory."""
        if self._top is None:
            self._top = np.full(self.threads.count, self.start, np.uint64)
        return self._top

    def _push(self, mask: Array, sizes: Any) -> None:
        top = self.top()
        top[mask] += sizes if np.ndim(sizes) == 0 else sizes[mask]
        most = self.start + self.limits.stack
        beyond = mask & (top > np.uint64(most))
        if beyond.any():
            thread = int(np.argmax(beyond))
            said = f"{int(top[thread]) - most + self.limits.stack} bytes of stack; the limit is {self.limits.stack}"
            raise Stop("STACK_OVERFLOW", said, thread, calls=int(self.calls[thread]))
        needed = np.where(mask, top, 0).reshape(self.threads.batch, -1).max(1).astype(np.int64)
        there = self.spaces.local_bytes
        if (needed > there).any():
            self._grow(np.where(needed > there, np.minimum(np.maximum(needed, 2 * there), most), there))

    def _grow(self, sizes: Array) -> None:
        """Give every thread more local memory: of each block some bytes."""
        spaces, stride = self.spaces, -(-int(sizes.max()) // 16) * 16
        if stride * self.threads.count > self.limits.memory:
            said = f"{stride * self.threads.count} bytes of stacks; the limit is {self.limits.memory}"
            raise Stop("LIMIT", said, limit="memory")
        store = np.zeros((self.threads.count, stride), np.uint8)
        if spaces.local is not None:
            old = spaces.local.data.reshape(self.threads.count, spaces.local_stride)
            store[:, : old.shape[1]] = old
        spaces.local, spaces.local_stride, spaces.local_bytes = Segment(0, store.reshape(-1)), stride, sizes

    def enter(self, w: Mask, number: int, registers: tuple[int, ...], base: Array, size: int) -> None:
        """Begin a frame: save the registers that an outer call of the function uses, and take memory for its variables."""
        mask = self.threads.mask(w)
        depth, saved = self.frames.setdefault(number, (np.zeros(self.threads.count, np.int64), []))
        for level in depths(depth, mask):
            own = mask & (depth == level)
            while len(saved) <= level:
                saved.append([np.zeros_like(self.registers[place]) for place in registers])
            for kept, place in zip(saved[level], registers, strict=True):
                kept[own] = self.registers[place][own]
        depth[mask] += 1
        base[mask] = self.top()[mask]
        self._push(mask, np.uint64(-(-size // 16) * 16 + FRAME_BYTES))

    def leave(self, w: Mask, number: int, registers: tuple[int, ...], base: Array) -> None:
        """End a frame: the stack and the registers are as before."""
        mask = self.threads.mask(w)
        depth, saved = self.frames[number]
        self.top()[mask] = base[mask]
        depth[mask] -= 1
        for level in depths(depth, mask):
            own = mask & (depth == level)
            for kept, place in zip(saved[level], registers, strict=True):
                self.registers[place][own] = kept[own]

    def alloca(self, sizes: Any, align: int, w: Mask) -> Array:
        """Memory on the stack: its address in local memory."""
        mask = self.threads.mask(w)
        wanted = self.threads.each(np.asarray(sizes).astype(np.uint64))
        beyond = mask & (wanted > np.uint64(self.limits.stack))
        if beyond.any():
            thread = int(np.argmax(beyond))
            said = f"alloca of {int(wanted[thread])} bytes; the limit is {self.limits.stack}"
            raise Stop("STACK_OVERFLOW", said, thread)
        top, unit = self.top(), np.uint64(max(align, 16))
        start = (top + unit - np.uint64(1)) // unit * unit
        end = (start + wanted + np.uint64(15)) // np.uint64(16) * np.uint64(16)
        self._push(mask, end - top)
        return start

    def restored(self, values: Any, w: Mask) -> None:
        """stackrestore: the top of the stack is what stacksave found."""
        mask = self.threads.mask(w)
        found = self.threads.each(np.asarray(values).astype(np.uint64))
        wrong = mask & (found > self.top())
        if wrong.any():
            raise Stop("INVALID_OPERAND", "stackrestore of a value above the top of the stack", int(np.argmax(wrong)))
        self.top()[mask] = found[mask]
