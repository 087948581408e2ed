"""Arrays of the host as a kernel's global memory: tensors by their addresses, without a copy where that can be."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.launchers.recording import Buffer
from tcsim.ptx import Memory
from tcsim.ptx.memory import ALIGNMENT, SLACK, Bytes, Segment

Extent = tuple[int, int]  # the first byte, and the one behind the last


class HostMemory(Memory):
    """Global memory that also has what is mapped for the time of a launch, and other arrays where a kernel asks for them.

    A kernel may have addresses from elsewhere than its parameters: from a tensor of pointers. Where it follows one, the torch
    tensor or host array that lives there is mapped too; `reached` counts them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached = 0
        self._lent: list[tuple[Extent, bool]] = []  # whether it is a copy
        self._taken: list[int] = []  # scratch
        self._open = False

    @contextmanager
    def lent(self, arguments: Iterable[Any], scratch: Sequence[tuple[int, int]] = ()) -> Iterator[list[int]]:
        """Map what arguments point to; the memory behind them is the kernel's until the end. Yields where there is scratch memory.

        scratch: sizes and alignments; of size 0 there is none, at address 0.

        Raises OperandError for an argument that is not in the memory of this process.
        """
        self.reached, self._open = 0, True
        try:
            for extent in joined(filter(None, map(extent_of, arguments))):
                self._lend(extent)
            self._taken = [self.allocate(size, max(alignment, ALIGNMENT)) if size else 0 for size, alignment in scratch]
            yield self._taken
        finally:
            self._open = False
            for address in filter(None, self._taken):
                self.release(address)
            for (first, _), copied in self._lent:
                if copied:
                    own = self._at(first)
                    host(first, own.size)[:] = own.data
                self.release(first)
            self._lent, self._taken = [], []

    def images(self) -> dict[int, Bytes]:
        """The bytes of what is lent and of scratch memory now, by address."""
        starts = [first for (first, _), _ in self._lent] + [own for own in self._taken if own]
        return {own: self._at(own).data.copy() for own in starts}

    def buffers(self, before: Mapping[int, Bytes]) -> tuple[Buffer, ...]:
        """What is lent as a recording has it: `before` as it was then, and as it is now."""
        return tuple(
            Buffer(f"buf{number}", address, data, self._at(address).data.copy(), scratch=address in self._taken)
            for number, (address, data) in enumerate(before.items())
        )

    def _at(self, address: int) -> Segment:
        segment = super().segment(address)
        assert segment is not None
        return segment

    def segment(self, address: int) -> Segment | None:
        """The segment that holds an address, or None; that of a live tensor is mapped."""
        found = super().segment(address)
        if found is None and self._open:
            for first, end in live_extents():
                if first <= address < end and not self._blocking(first, end - first):
                    self.reached += 1
                    self._lend((first, end))
                    return super().segment(address)
        return found

    def _lend(self, extent: Extent) -> None:
        first, end = extent
        data, copied = host(first, end - first), bool(first % SLACK)
        if copied:
            self.map(first, data)
        else:
            self.share(data)
        self._lent.append((extent, copied))


_LIVE: WeakSet[HostArray] = WeakSet()


class HostArray:
    """A NumPy array as an argument of a Triton kernel, which takes what has `data_ptr` and `dtype`. The kernel changes the array.

    >>> argument = HostArray(np.zeros(4, np.float32))
    >>> argument.dtype, argument.data_ptr() == argument.array.ctypes.data, argument.stride()
    (dtype('float32'), True, (1,))
    """

    def __init__(self, array: npt.NDArray[Any]) -> None:
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise OperandError(f"HostArray: a {type(array).__name__}; valid: a NumPy array that may be written")
        self.array, self.dtype, self.shape = array, array.dtype, array.shape
        _LIVE.add(self)

    def data_ptr(self) -> int:
        """The address of its first element."""
        return int(self.array.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        """Elements from one index to the next, in each dimension."""
        return tuple(step // self.array.itemsize for step in self.array.strides)

    @property
    def extent(self) -> Extent:
        """The bytes that it reaches."""
        low, high = np.lib.array_utils.byte_bounds(self.array)
        return int(low), int(high)


def host(address: int, size: int) -> npt.NDArray[np.uint8]:
    """The bytes of this process at an address."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def extent_of(argument: Any) -> Extent | None:
    """The memory that an argument points into: all of the storage that it may be a view of. None for plain numbers.

    An argument may be an extent itself.

    Raises OperandError if that memory is not this process's, or how large it is is not known.
    """
    if isinstance(argument, tuple):
        return argument
    if isinstance(argument, HostArray):
        return argument.extent
    if hasattr(argument, "untyped_storage"):
        if argument.device.type != "cpu":
            raise OperandError(f"a tensor on {argument.device}; valid: CPU tensors")
        storage = argument.untyped_storage()
        first = storage.data_ptr()
        return (first, first + storage.nbytes()) if storage.nbytes() else None
    if hasattr(argument, "data_ptr"):
        if hasattr(argument, "base"):  # triton.reinterpret
            return extent_of(argument.base)
        raise OperandError(f"a {type(argument).__name__} with data_ptr(); valid: CPU tensors, HostArray(numpy array)")
    return None


def live_extents() -> Iterator[Extent]:
    """The memory of all CPU tensors of torch that live, and of all host arrays."""
    yield from (own.extent for own in _LIVE)
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor) and item.device.type == "cpu" and item.layout is torch.strided:
            found = extent_of(item)
            if found is not None:
                yield found


def joined(extents: Iterable[Extent]) -> list[Extent]:
    """Extents in order of their addresses, those that overlap as one.

    >>> joined([(8, 9), (0, 4), (2, 6), (6, 8)])
    [(0, 6), (6, 8), (8, 9)]
    """
    found: list[Extent] = []
    for first, end in sorted(extents):
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found
