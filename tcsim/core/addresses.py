"""Memory as an array: which addresses an access takes, its bytes found and put, and the errors that say why not.

A memory is `uint8 (..., bytes)` whose index is the address; its leading dimensions are a batch. Accesses are given by their
addresses, integers `(..., accesses)`, each the first of `size` bytes. `call` is how an error quotes the call, `name` the
argument, `each` whose access one is: "lane", "thread", "copy"; empty if nobody's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import as_array
from tcsim.core.errors import OperandError

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class AddressError(OperandError):
    """An address that the instruction cannot take."""


class MisalignedAddressError(AddressError):
    """An address that is not a multiple of what the access needs."""


class OutsideMemoryError(AddressError):
    """An address whose bytes do not lie inside the memory."""


class ContestedRowError(AddressError):
    """Two accesses that write different bytes to the same address: which one stays is not defined."""


def byte_memory(
    given: Any, call: str, name: str = "smem", ctas: int | None = None, shape: str = "(..., bytes)"
) -> Bytes:
    """A memory: uint8 (..., bytes), or with `ctas` (..., ctas, bytes), where 0 means any number of them.

    Raises OperandError for anything else, saying that `shape` is valid.

    >>> byte_memory(np.zeros(4), "load")
    Traceback (most recent call last):
    tcsim.core.errors.OperandError: load: smem is float64 (4,); valid: uint8 (..., bytes)
    """
    array = as_array(given, f"{call}: {name}")
    fits = array.ndim > 0 if ctas is None else array.ndim > 1 and ctas in (0, array.shape[-2])
    if array.dtype != np.uint8 or not fits:
        raise OperandError(f"{call}: {name} is {array.dtype} {array.shape}; valid: uint8 {shape}")
    return array


def integer_addresses(
    address: Any, call: str, name: str = "address", valid: str = "integers, byte addresses in shared memory"
) -> Places:
    """Addresses as int64.

    Raises OperandError unless they are integers.
    """
    array = as_array(address, f"{call}: {name}")
    if array.dtype.kind not in "iu":
        raise OperandError(f"{call}: {name} is {array.dtype}; valid: {valid}")
    return array.astype(np.int64)


class MisalignedCopyError(MisalignedAddressError):
    """A bulk or tensor copy from or to an address that is not a multiple of what it needs."""


def require_alignment(
    address: Places, unit: int, what: str, call: str, name: str = "address", each: str = "lane", why: str = "",
    error: type[MisalignedAddressError] = MisalignedAddressError,
) -> None:  # fmt: skip
    """Raise MisalignedAddressError, or the error given, unless every address is a multiple of `unit` bytes.

    >>> require_alignment(np.array([0, 8, 24]), 16, "a row", "load")
    Traceback (most recent call last):
    tcsim.core.addresses.MisalignedAddressError: load: address[1] = 0x8 (lane 1): a row starts at a multiple of 16 bytes (1 more like it)
    """
    if np.count_nonzero(address % unit):
        wrong = np.argwhere(address % unit != 0)
        raise error(
            f"{call}: {_place(address, wrong[0], name, each)}: {what} starts at a multiple of {unit} bytes{why}{_others(wrong)}"
        )


def require_inside(
    address: Places,
    size: int | npt.NDArray[np.integer[Any]],
    memory: int,
    what: str,
    call: str,
    name: str = "address",
    each: str = "lane",
    where: str = "smem",
) -> None:
    """Raise OutsideMemoryError unless `size` bytes at every address lie in a memory of `memory` bytes.

    Where the size is 0 any address will do.

    >>> require_inside(np.array(56), 16, 64, "a row", "load")
    Traceback (most recent call last):
    tcsim.core.addresses.OutsideMemoryError: load: address = 0x38: a row of 16 bytes does not lie in the 64 bytes of smem; valid: 0 to 0x30
    """
    sizes = np.broadcast_to(size, address.shape)
    wrong = np.argwhere((sizes > 0) & ((address < 0) | (address > memory - sizes)))
    if len(wrong):
        length = int(sizes[tuple(wrong[0])])
        last = f"0 to {memory - length:#x}" if memory >= length else "none, the memory is smaller than that"
        raise OutsideMemoryError(
            f"{call}: {_place(address, wrong[0], name, each)}: {what} of {length} bytes does not lie in the {memory} bytes of "
            f"{where}; valid: {last}{_others(wrong)}"
        )


def require_uncontested(
    address: Places,
    data: Bytes,
    call: str,
    mask: Flags | None = None,
    each: str = "lane",
    valid: str = "one row for an address, or rows with the same bytes",
) -> None:
    """Raise ContestedRowError if two accesses write different bytes to one address.

    data: uint8 (..., accesses, size). mask: bool like data, which bytes are written; all without.
    """
    size = data.shape[-1]
    if (np.diff(np.sort(address, axis=-1), axis=-1) >= size).all():
        return
    places = byte_places(address, size)
    count = data.shape[-2] * size
    if mask is not None:  # bytes that are not written get places of their own
        places = np.where(mask, places, -1 - np.arange(count).reshape(-1, size))
    flat, values = (array.reshape(*array.shape[:-2], count) for array in np.broadcast_arrays(places, data))
    order = np.argsort(flat, axis=-1, kind="stable")
    flat, values = (np.take_along_axis(array, order, axis=-1) for array in (flat, values))
    wrong = np.argwhere((flat[..., 1:] == flat[..., :-1]) & (values[..., 1:] != values[..., :-1]))
    if len(wrong):
        *batch, place = wrong[0]
        first, second = (int(order[(*batch, place + step)]) // size for step in (0, 1))
        plural = f"{each}s".replace("ys", "ies")
        raise ContestedRowError(
            f"{call}: {plural} {first} and {second} store different bytes to {int(flat[(*batch, place)]):#x}: which of them "
            f"stays is not defined; valid: {valid}"
        )


def byte_places(address: Places, size: int) -> Places:
    """The address of every byte: (..., accesses) -> (..., accesses, size)."""
    return address[..., None] + np.arange(size)


def bytes_at(memory: Bytes, address: Places, size: int, mask: Flags | None = None) -> Bytes:
    """The bytes of accesses: (..., accesses, size), zero where a mask is false. Leading dimensions broadcast.

    >>> bytes_at(np.arange(16, dtype=np.uint8), np.array([0, 9]), 2).tolist()
    [[0, 1], [9, 10]]
    """
    places, batch = _broadcast(memory, byte_places(address, size))
    if mask is not None:
        places = np.where(mask, places, 0)
    image = memory if memory.shape[-1] else np.zeros(1, np.uint8)  # nothing is read of an empty one
    flat = places.reshape(*places.shape[:-2], places.shape[-2] * size)
    found = np.take_along_axis(np.broadcast_to(image, (*flat.shape[:-1], image.shape[-1])), flat, axis=-1)
    found = found.reshape(places.shape)
    return found if mask is None else np.where(mask, found, np.uint8(0))


def with_bytes_at(memory: Bytes, address: Places, data: Bytes, mask: Flags | None = None) -> Bytes:
    """A copy of the memory with the bytes (..., accesses, size) at their addresses, where a mask is true.

    Of two that write one address the later stays: `require_uncontested`. Leading dimensions broadcast.

    >>> with_bytes_at(np.zeros(4, np.uint8), np.array([2]), np.uint8([[7, 8]])).tolist()
    [0, 0, 7, 8]
    """
    places, values = np.broadcast_arrays(byte_places(address, data.shape[-1]), data)
    places, batch = _broadcast(memory, places)
    flat = (*batch, places.shape[-2] * places.shape[-1])
    values = np.broadcast_to(values, places.shape).reshape(flat)
    out = np.empty((*batch, memory.shape[-1] + 1), np.uint8)  # what is not written goes to the byte more
    out[..., :-1] = memory
    kept = places if mask is None else np.where(mask, places, memory.shape[-1])
    np.put_along_axis(out, kept.reshape(flat), values, axis=-1)
    return np.ascontiguousarray(out[..., :-1])


def _broadcast(memory: Bytes, places: Places) -> tuple[Places, tuple[int, ...]]:
    batch = np.broadcast_shapes(memory.shape[:-1], places.shape[:-2])
    return np.broadcast_to(places, (*batch, *places.shape[-2:])), batch


def _place(address: Places, index: npt.NDArray[np.intp], name: str, each: str) -> str:
    value = f" = {int(address[tuple(index)]):#x}"
    if address.size == 1:
        return name + value
    return f"{name}[{', '.join(map(str, index))}]{value}" + (f" ({each} {index[-1]})" if each else "")


def _others(wrong: npt.NDArray[np.intp]) -> str:
    return f" ({len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
