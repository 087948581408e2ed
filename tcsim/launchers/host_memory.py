"""Arrays of the host as a kernel's global memory: tensors by their addresses, without a copy where that can be."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError
from tcsim.launchers.elements import OCTETS, Elements
from tcsim.launchers.recording import Buffer
from tcsim.numbers.codec import FLOAT_DTYPES
from tcsim.ptx import Memory
from tcsim.ptx.machine.memory import ALIGNMENT, SLACK, Bytes, Segment

Extent = tuple[int, int]  # the first byte, and the one behind the last
_KINDS = {own.name: kind for own, kind in FLOAT_DTYPES.items()} | {
    f"{sign}int{bits}": f"{short}{bits}" for sign, short in (("", "s"), ("u", "u")) for bits in (8, 16, 32, 64)
}
"""The elements of dtypes, by the names that NumPy, ml_dtypes and torch have in common."""


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
        self._live: list[Extent] | None = (
            None  # where the host's tensors lie, once a launch asks for more than it was lent
        )
        self._before: dict[int, Bytes] | None = None  # of what is lent, by address

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
            self._lent, self._taken, self._before, self._live = [], [], None, None

    def keep(self) -> None:
        """Remember the bytes of what is lent and of scratch memory now, and of what will be reached then."""
        starts = [first for (first, _), _ in self._lent] + [own for own in self._taken if own]
        self._before = {own: self._at(own).data.copy() for own in starts}

    def buffers(self, params: Sequence[bytes] = ()) -> tuple[Buffer, ...]:
        """What is lent as a recording has it: as it was when it was kept, and as it is now.

        It has the name of the first of some parameters that points to it, and the elements of the tensor or host array that lives there.
        """
        found = []
        every = ((address, len(data)) for address, data in (self._before or {}).items())
        for name, address, size in _named(every, params):
            data = (self._before or {})[address]
            kind, shape = elements_at(address, size)
            after = self._at(address).data.copy()
            found.append(Buffer(name, address, data, after, kind, shape, scratch=address in self._taken))
        return tuple(found)

    def arrays(self, params: Sequence[bytes] = ()) -> list[tuple[str, int, int]]:
        """Names, as of `buffers`, addresses and sizes of what is lent."""
        return _named(((first, end - first) for (first, end), _ in self._lent), params)

    def _at(self, address: int) -> Segment:
        segment = super().segment(address)
        assert segment is not None
        return segment

    def segment(self, address: int) -> Segment | None:
        """The segment that holds an address, or None; that of a live tensor is mapped."""
        found = super().segment(address)
        if found is None and self._open:
            if self._live is None:  # nobody makes or frees one as long as a launch runs
                self._live = list(live_extents())
            for first, end in self._live:
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
        if self._before is not None:
            self._before[first] = data.copy()


def _named(places: Iterable[tuple[int, int]], params: Sequence[bytes]) -> list[tuple[str, int, int]]:
    """Addresses and sizes, each behind the first parameter that points there."""
    words = [int.from_bytes(own, "little") if len(own) == 8 else 0 for own in params]
    found = []
    for number, (address, size) in enumerate(places):
        own = next((at for at, word in enumerate(words) if address <= word < address + size), None)
        found.append((f"buf{number}" if own is None else f"param{own}", address, size))
    return found


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
    yield from filter(None, map(extent_of, _live_tensors()))


def _live_tensors() -> Iterator[Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor) and item.device.type == "cpu" and item.layout is torch.strided:
            yield item


def elements_at(address: int, size: int) -> tuple[Elements, tuple[int, ...]]:
    """The elements and the shape of the tensors or host arrays that are all of some bytes, if they are of one kind; else bytes in a row.

    >>> argument = HostArray(np.zeros((2, 3), np.float32))
    >>> elements_at(argument.data_ptr(), 24), elements_at(argument.data_ptr(), 20)
    ((Elements(name='f32'), (2, 3)), (Elements(name='u8'), ()))
    """
    whole = [own.array for own in _LIVE if own.extent == (address, address + size) and own.array.flags.c_contiguous]
    found = {(_KINDS.get(own.dtype.name, ""), own.shape) for own in whole}
    found |= {
        (_KINDS.get(str(own.dtype).removeprefix("torch."), ""), tuple(own.shape))
        for own in _live_tensors()
        if own.data_ptr() == address and own.numel() * own.element_size() == size and own.is_contiguous()
    }
    if len({kind for kind, _ in found}) == 1 and all(kind for kind, _ in found):
        kind, shape = min(found)
        if prod(shape) * Elements(kind).bits == 8 * size:  # NumPy has fp4 in bytes
            return Elements(kind), shape
    return OCTETS, ()


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
