"""The memories that a kernel sees: global memory in segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, TcsimError, listing, nearest, shortened
from tcsim.memory.windows import CONST_WINDOW
from tcsim.ptx.machine.polling import Watches

Bytes = npt.NDArray[np.uint8]
Addresses = npt.NDArray[np.uint64]

FIRST_ALLOCATION = 0x0000_7000_0000_0000
ALIGNMENT = 512  # of allocations
SLACK = 16  # bytes behind a segment's data, so that views of every width exist


class MemoryFault(TcsimError):
    """An access of a kernel that memory does not allow; it becomes a hazard, and is never raised to the caller."""

    def __init__(self, name: str, detail: str, lane: int = 0) -> None:
        super().__init__(detail)
        self.name, self.detail, self.lane = name, detail, lane


class Segment:
    """A piece of global memory: an address and the bytes there, a copy; or a number of zero bytes, which take no memory until they are used."""

    def __init__(self, address: int, data: Bytes | int) -> None:
        self.address, self.size = address, data if isinstance(data, int) else len(data)
        before = address % SLACK  # so that an aligned address is aligned in the array too
        self.store = np.zeros(-(-(before + self.size + SLACK) // SLACK) * SLACK, np.uint8)
        self.start = address - before
        self.data = self.store[before : before + self.size]
        if not isinstance(data, int):
            self.data[:] = data
        self.views = views_of(self.store)

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.address + self.size

    def index(self, addresses: npt.NDArray[Any], size: int) -> npt.NDArray[np.int64]:
        """Where values of 1, 2, 4, 8 or 16 bytes at aligned addresses, uint64 or int64, stand in the view of their size."""
        places = addresses.view(np.int64)
        return (places - self.start if self.start else places) >> (size.bit_length() - 1)


class SharedSegment(Segment):
    """The bytes of an array as global memory, at the array's own address: what a kernel stores is in the array."""

    def __init__(self, data: Bytes) -> None:
        self.address = self.start = data.ctypes.data
        self.size, self.store, self.data = len(data), data, data
        self.views = views_of(data)


def views_of(store: Bytes) -> dict[int, npt.NDArray[Any]]:
    """Bytes as values of 1, 2, 4, 8 and 16 bytes, as far as whole values go."""
    types: list[np.dtype[Any]] = [np.dtype(f"u{size}") for size in (1, 2, 4, 8)] + [np.dtype((np.void, 16))]
    return {own.itemsize: store[: len(store) // own.itemsize * own.itemsize].view(own) for own in types}


class Memory:
    """Global memory.

    >>> memory = Memory()
    >>> pointer = memory.allocate(np.arange(4, dtype=np.uint8))
    >>> memory.read(pointer + 1, 2).tolist()
    [1, 2]
    """

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._starts: list[int] = []
        self._next = FIRST_ALLOCATION
        self._placed: dict[int, tuple[Any, dict[str, int]]] = {}  # by module, which is kept alive
        self.watches = Watches()  # what clusters poll
        self.reads: Mapping[
            int, Segment
        ] = {}  # by address, of segments: which of their bytes were read, where account is kept of it
        self.version = 0  # changes whenever memory is mapped or released
        self.writes_later = False  # whether those who keep account of writes hear of them when a batch has ended
        self.heap: dict[int, int] = {}  # what malloc gave and free did not take: bytes by address

    def map(self, address: int, data: Any) -> None:
        """Copy bytes or a uint8 array to an address of any alignment.

        Raises OperandError for an address that is not one, for data that are not bytes, and where other memory lies.
        """
        if not isinstance(address, (int, np.integer)) or not 0 < int(address) < CONST_WINDOW:
            raise OperandError(f"Memory.map: address={address!r}; valid: integers from 1 to {CONST_WINDOW - 1:#x}")
        self._insert(Segment(int(address), as_bytes(data, "Memory.map: data")))

    def share(self, data: Bytes) -> int:
        """Make an array's bytes global memory at the array's own address, without a copy; returns the address.

        What a kernel stores is in the array, and the other way round. data: uint8 (n,), contiguous, writable, at a multiple of
        16; it has to live until `release`.

        Raises OperandError for another array, and where other memory lies.

        >>> memory, data = Memory(), np.zeros(64, np.uint8)
        >>> data = data[-data.ctypes.data % 16 :][:32]
        >>> pointer = memory.share(data)
        >>> memory.write(pointer + 1, b"\x07")
        >>> pointer == data.ctypes.data, data[:3].tolist()
        (True, [0, 7, 0])
        """
        bytes_of_one = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1
        if not bytes_of_one or not data.flags.c_contiguous or not data.flags.writeable or data.ctypes.data % SLACK:
            raise OperandError(
                "Memory.share: valid: a uint8 array of one dimension, contiguous, writable, at a multiple of 16"
            )
        self._insert(SharedSegment(data))
        return data.ctypes.data

    def _insert(self, segment: Segment) -> None:
        at = bisect_right(self._starts, segment.address)
        before = self._segments[at - 1] if at else None
        after = self._segments[at] if at < len(self._segments) else None
        if (before and before.end > segment.address) or (after and segment.end > after.address):
            other = before if before and before.end > segment.address else after
            assert other is not None
            raise OperandError(
                f"Memory.map: {segment.address:#x} to {segment.end:#x} overlaps what is mapped at {other.address:#x} to {other.end:#x}"
            )
        self.version += 1
        self._segments.insert(at, segment)
        self._starts.insert(at, segment.address)

    def allocate(self, size_or_data: Any, alignment: int = ALIGNMENT) -> int:
        """Choose a free address, 512-byte aligned, for a number of zero bytes or a copy of data; returns it.

        Raises OperandError for anything else.
        """
        if isinstance(size_or_data, (int, np.integer)):
            if not 0 <= int(size_or_data) <= 1 << 40:
                raise OperandError(f"Memory.allocate: {size_or_data} bytes; valid: 0 to {1 << 40}")
            data: Bytes | int = int(size_or_data)
        else:
            data = as_bytes(size_or_data, "Memory.allocate: data")
        address = self._put(data, self._next, alignment)
        self._next = address + -(-max(_size(data), 1) // ALIGNMENT) * ALIGNMENT
        return address

    def _put(self, data: Bytes | int, start: int, alignment: int) -> int:
        """Map data at the first free address from `start`; returns it."""
        address = -(-start // alignment) * alignment
        while (after := self._blocking(address, max(_size(data), 1))) is not None:
            address = -(-after // alignment) * alignment
        self._insert(Segment(address, data))
        return address

    def _blocking(self, address: int, size: int) -> int | None:
        """The end of a segment that lies in the way of some bytes, or None."""
        at = bisect_right(self._starts, address)
        if at and self._segments[at - 1].end > address:
            return self._segments[at - 1].end
        if at < len(self._segments) and self._segments[at].address < address + size:
            return max(self._segments[at].end, address + 1)
        return None

    def read(self, address: int, size: int) -> Bytes:
        """A copy of bytes, which may cross from one piece of memory into its neighbour.

        Raises OperandError where nothing is mapped, and for a size that is not an integer from 0.
        """
        if not isinstance(size, (int, np.integer)) or int(size) < 0:
            raise OperandError(f"Memory.read: size={shortened(size)}; valid: integers from 0")
        return np.concatenate(list(self._pieces(address, size, "Memory.read")) or [np.zeros(0, np.uint8)])

    def write(self, address: int, data: Any) -> None:
        """Change bytes. Raises OperandError where nothing is mapped."""
        given, done = as_bytes(data, "Memory.write: data"), 0
        for piece in self._pieces(address, len(given), "Memory.write"):
            piece[:] = given[done : done + len(piece)]
            done += len(piece)
        if done and self.watches:  # a caller may write while a kernel runs
            self.watches.see(np.arange(int(address) & -SLACK, int(address) + done, SLACK, dtype=np.uint64))

    def _pieces(self, address: int, size: int, call: str) -> list[Bytes]:
        found, at, left = [], int(address), int(size)
        while left > 0:
            segment = self.segment(at)
            if segment is None:
                raise OperandError(f"{call}: nothing is mapped at {at:#x}")
            first = at - segment.address
            piece = segment.data[first : first + left]
            found.append(piece)
            at, left = at + len(piece), left - len(piece)
        return found

    @property
    def segments(self) -> list[Segment]:
        """All segments, by address."""
        return list(self._segments)

    def segment(self, address: int) -> Segment | None:
        """The segment that holds an address, or None."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or self._segments[at].end <= address:
            return None
        return self._segments[at]

    def release(self, address: int) -> None:
        """Take away what `allocate`, `map` or `share` put there. Raises OperandError if nothing begins there."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or self._starts[at] != address:
            raise OperandError(f"Memory.release: nothing begins at {address:#x}")
        self.version += 1
        del self._segments[at], self._starts[at]

    def symbol(self, module: Any, name: str) -> int:
        """The address of a module's .global or .const variable.

        Raises OperandError if the module has none of that name.
        """
        placed = self.place(module)
        names = [own for own in placed if own in module.variables]
        if name not in names:
            close = listing(nearest(str(name), names)) or "the module has none"
            raise OperandError(f"Memory.symbol: no variable {shortened(name)}; nearest: {close}")
        return placed[name]

    def place(self, module: Any) -> dict[str, int]:
        """Give a module's .global and .const variables their addresses, once; returns them, and those of its functions.

        module: what `tcsim.ptx.parse` made. A variable that is declared .extern is not placed: another module has it.
        """
        if not hasattr(module, "syntax"):
            raise OperandError(f"Memory: a module is a {type(module).__name__}; valid: what tcsim.ptx.parse returns")
        if id(module) not in self._placed:
            variables = [
                item for item in module.variables.values()
                if item.space in ("global", "const") and item.count is not None and item.linkage != "extern"
            ]  # fmt: skip
            found = dict(module.addresses)
            for item in variables:
                size, align = max(item.size, 1), max(item.align, ALIGNMENT)
                at = self._put(size, CONST_WINDOW, align) if item.space == "const" else self.allocate(size, align)
                for offset, run in item.initial.runs if item.initial else ():
                    self.write(at + offset, run)
                found[item.name] = at
            for item in variables:
                for place in item.initial.addresses if item.initial else ():
                    target = found.get(place.symbol)
                    if target is not None:
                        value = (target + place.addend) >> place.shift & ((1 << 8 * place.width) - 1)
                        self.write(found[item.name] + place.offset, value.to_bytes(place.width, "little"))
            self._placed[id(module)] = (module, found)
        return self._placed[id(module)][1]

    # --- what kernels do

    def gather(self, addresses: Addresses, size: int) -> npt.NDArray[Any]:
        """Values of 1, 2, 4, 8 or 16 bytes at aligned addresses, one for each."""
        segment = self.covering(addresses, size)
        if segment is not None:
            found: npt.NDArray[Any] = segment.views[size][segment.index(addresses, size)]
            return found
        parts = [self._one(int(address), size) for address in addresses]
        return np.array([part[0].views[size][part[1]] for part in parts])

    def scatter(self, addresses: Addresses, values: npt.NDArray[Any], size: int) -> None:
        """Store values of 1, 2, 4, 8 or 16 bytes; of several at one address the last stays."""
        segment = self.covering(addresses, size)
        if segment is not None:
            segment.views[size][segment.index(addresses, size)] = values
            return
        for address, value in zip(addresses, values, strict=True):
            place, index = self._one(int(address), size)
            place.views[size][index] = value

    def change(self, addresses: Addresses, size: int) -> None:
        """Values are read and written in place, at addresses in one segment."""

    def wrote(self, segment: Segment, place: slice, which: npt.NDArray[np.bool_]) -> None:
        """A batch that has ended wrote some of the bytes at a place in a segment's store."""

    def covering(self, addresses: Addresses, size: int) -> Segment | None:
        """The one segment that holds all accesses, or None if there are several."""
        low, high = int(addresses.min()), int(addresses.max())
        segment = self.segment(low)
        if segment is not None and high + size <= segment.end:
            return segment
        return None

    def _one(self, address: int, size: int) -> tuple[Segment, int]:
        segment = self.segment(address)
        if segment is None or address + size > segment.end:
            raise MemoryFault("GMEM_UNMAPPED", f"{size} bytes at {address:#x}: nothing is mapped there")
        return segment, (address - segment.start) // size

    def unmapped(self, addresses: Addresses, size: int) -> int | None:
        """The first index of an access outside what is mapped, or None."""
        if self.covering(addresses, size) is not None:
            return None
        for index, address in enumerate(addresses):
            segment = self.segment(int(address))
            if segment is None or int(address) + size > segment.end:
                return index
        return None


def _size(data: Bytes | int) -> int:
    return data if isinstance(data, int) else len(data)


def as_bytes(data: Any, what: str) -> Bytes:
    """A uint8 array of bytes, or of a uint8 array."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return np.frombuffer(bytes(data), np.uint8)
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1:
        return data
    shape = f"{getattr(data, 'dtype', '')} {getattr(data, 'shape', '')}"
    raise OperandError(f"{what} is a {type(data).__name__} {shape}; valid: bytes, or a uint8 array of one dimension")
